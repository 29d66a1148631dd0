"""AMQP URLs: ``amqp[s]://user:password@host:port/vhost?heartbeat=60`` to parameters. A leaf.

Everything is percent-decoded. No path and a bare ``/`` both mean the virtual host ``/``, as most clients read
it. Query keys are those of RabbitMQ's URI specification: heartbeat (s), connection_timeout (ms), channel_max,
frame_max, auth_mechanism, cacertfile, certfile, keyfile, password (the key's), verify, depth (intermediate
certificates at most), server_name_indication ("disable": no name is sent and none is checked), and name
(shown by the broker).
"""
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

DEFAULT_URL = "amqp://guest:guest@localhost:5672/%2f"
_INTEGERS = ("heartbeat", "connection_timeout", "channel_max", "frame_max", "depth")
_TEXTS = (
    "auth_mechanism", "cacertfile", "certfile", "keyfile", "password", "verify", "server_name_indication",
    "name",
)


@dataclass
class Parameters:
    """One address and login; ``options``: the query's keys, integers as int."""

    host: str = "localhost"
    port: int = 5672
    user: str = "guest"
    password: str = field(default="guest", repr=False)
    virtual_host: str = "/"
    tls: bool = False
    options: dict = field(default_factory=dict, repr=False)


def parse_url(url):
    """Parse a URL. Raises ValueError naming what is wrong, without the password."""
    parts = split_url(url)
    if parts.scheme not in ("amqp", "amqps"):
        raise ValueError(
            f"not an AMQP URL, the scheme is {parts.scheme or 'missing'!r}: amqp and amqps are known"
        )
    tls = parts.scheme == "amqps"
    return Parameters(
        host=unquote(parts.hostname or "localhost"), port=port_of(parts) or (5671 if tls else 5672),
        user=unquote(parts.username) if parts.username is not None else "guest",
        password=unquote(parts.password) if parts.password is not None else "guest",
        virtual_host=unquote(parts.path[1:]) or "/", tls=tls,
        options=query_options(parts.query, _INTEGERS, _TEXTS, "an AMQP URL"),
    )


def split_url(url):
    """urlsplit() without the login in its ValueError, which the standard library's may contain."""
    try:
        return urlsplit(url)
    except ValueError:
        raise ValueError("the host of the URL cannot be read") from None


def port_of(parts):
    """The port of a split URL, or None. Raises ValueError."""
    try:
        return parts.port
    except ValueError:
        raise ValueError(f"the port in the URL of {parts.hostname} is not a number up to 65535") from None


def query_options(query, integers, texts, what):
    """The query's values: ``integers`` as int, ``texts`` as they are. Raises ValueError for any other key;
    ``what`` names the URL in its text.
    """
    options: dict = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key in integers:
            if not value.isdecimal():
                raise ValueError(f"{key} in {what} is a number, not {value!r}")
            options[key] = int(value)
        elif key in texts:
            options[key] = value
        else:
            raise ValueError(f"{key!r} is not a query key of {what}: {', '.join(integers + texts)}")
    return options
