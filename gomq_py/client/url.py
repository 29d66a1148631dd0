"""AMQP URLs: ``amqp[s]://user:password@host:port/vhost?heartbeat=60`` to parameters. A leaf.

Everything is percent-decoded. No path and a bare ``/`` both mean the virtual host ``/``, as most clients read
it. Query keys are those of RabbitMQ's URI specification: heartbeat (s), connection_timeout (ms), channel_max,
frame_max, auth_mechanism, cacertfile, certfile, keyfile, verify, server_name_indication, and name (shown by
the broker).
"""
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

DEFAULT_URL = "amqp://guest:guest@localhost:5672/%2f"
_INTEGERS = ("heartbeat", "connection_timeout", "channel_max", "frame_max")
_TEXTS = ("auth_mechanism", "cacertfile", "certfile", "keyfile", "verify", "server_name_indication", "name")


@dataclass
class Parameters:
    """One address and login; ``options`` holds the query's keys, integers as int."""

    host: str = "localhost"
    port: int = 5672
    user: str = "guest"
    password: str = "guest"
    virtual_host: str = "/"
    tls: bool = False
    options: dict = field(default_factory=dict)


def parse_url(url):
    """The Parameters of a URL. Raises ValueError naming what is wrong, without the password."""
    parts = urlsplit(url)
    if parts.scheme not in ("amqp", "amqps"):
        raise ValueError(
            f"not an AMQP URL, the scheme is {parts.scheme or 'missing'!r}: amqp and amqps are known"
        )
    tls = parts.scheme == "amqps"
    try:
        port = parts.port
    except ValueError:
        raise ValueError(f"the port in the URL of {parts.hostname} is not a number up to 65535") from None
    return Parameters(
        host=unquote(parts.hostname or "localhost"),
        port=port or (5671 if tls else 5672),
        user=unquote(parts.username) if parts.username is not None else "guest",
        password=unquote(parts.password) if parts.password is not None else "guest",
        virtual_host=unquote(parts.path[1:]) or "/",
        tls=tls,
        options=_options(parts.query),
    )


def _options(query):
    options: dict = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key in _INTEGERS:
            if not value.isdecimal():
                raise ValueError(f"{key} in an AMQP URL is a number, not {value!r}")
            options[key] = int(value)
        elif key in _TEXTS:
            options[key] = value
        else:
            raise ValueError(f"{key!r} is not a query key of AMQP URLs: {', '.join(_INTEGERS + _TEXTS)}")
    return options
