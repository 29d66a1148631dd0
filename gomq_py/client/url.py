"""URLs of brokers: parses ``amqp[s]://user:password@host:port/vhost?heartbeat=60``, and ``mqtt[s]://``.

All parts are percent-decoded. In AMQP both an empty path and a bare ``/`` mean the virtual host ``/``, as in
most clients. Query keys are those of RabbitMQ's URI specification: heartbeat (s), connection_timeout (ms),
channel_max, frame_max, auth_mechanism, cacertfile, certfile, keyfile, password (of the key file), verify,
depth (most intermediate certificates), server_name_indication ("disable": no name is sent or checked), and
name (of the connection, which the broker shows).

In MQTT the path is a virtual host, which is put before the user name (``vhost:user``), as LavinMQ and
RabbitMQ expect it; without a path the broker chooses the virtual host. If the URL has no user, CONNECT has no
user name. Query keys: version (3.1, 3.1.1 or 5), client_id, clean_start (true or false), keep_alive (s),
session_expiry (s, MQTT 5), connection_timeout (ms), cacertfile, certfile, keyfile, verify and
server_name_indication.
"""
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from gomq_py.mqtt.wire.constants import MQTT_3_1, MQTT_3_1_1, MQTT_5, STRING_MAX

DEFAULT_URL = "amqp://guest:guest@localhost:5672/%2f"
DEFAULT_MQTT_URL = "mqtt://localhost:1883"
MQTT_VERSIONS = {"3.1": MQTT_3_1, "3.1.1": MQTT_3_1_1, "5": MQTT_5, "5.0": MQTT_5}
_BOOLEANS = {"true": True, "false": False}
_INTEGERS = ("heartbeat", "connection_timeout", "channel_max", "frame_max", "depth")
_TEXTS = (
    "auth_mechanism", "cacertfile", "certfile", "keyfile", "password", "verify", "server_name_indication",
    "name",
)
_MQTT_INTEGERS = ("keep_alive", "session_expiry", "connection_timeout")
_MQTT_TEXTS = (
    "version", "client_id", "clean_start", "cacertfile", "certfile", "keyfile", "verify",
    "server_name_indication",
)


@dataclass
class Parameters:
    """Address, login and options of an AMQP URL. ``options``: {key of the query: int or text}."""

    host: str = "localhost"
    port: int = 5672
    user: str = "guest"
    password: str = field(default="guest", repr=False)
    virtual_host: str = "/"
    tls: bool = False
    options: dict[str, Any] = field(default_factory=dict, repr=False)


@dataclass
class MQTTParameters:
    """Address, login and options of an MQTT URL. ``options``: {key of the query: int, bool or text}."""

    host: str = "localhost"
    port: int = 1883
    user: str | None = None
    password: str | None = None
    virtual_host: str | None = None
    tls: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def user_name(self) -> str | None:
        """The user name for CONNECT: ``vhost:user`` if the URL has a virtual host; None without a user."""
        if self.user is None or self.virtual_host is None:
            return self.user
        return f"{self.virtual_host}:{self.user}"


def parse_url(url: str) -> Parameters:
    """Parse an AMQP URL into Parameters. Raises ValueError, whose text does not show the password."""
    parts, found = _parsed(url, "amqp", (5672, 5671))
    options = query_options(parts.query, _INTEGERS, _TEXTS, "an AMQP URL")
    return Parameters(**found, virtual_host=unquote(parts.path[1:]) or "/", options=options)


def parse_mqtt_url(url: str) -> MQTTParameters:
    """Parse an MQTT URL into MQTTParameters. Raises ValueError, whose text does not show the password."""
    parts, found = _parsed(url, "mqtt", (1883, 8883))
    options = _checked(query_options(parts.query, _MQTT_INTEGERS, _MQTT_TEXTS, "an MQTT URL"))
    virtual_host = unquote(parts.path[1:]) or None
    if virtual_host is not None and "user" not in found:
        raise ValueError(
            f"virtual host {virtual_host!r} in an MQTT URL without a user: it is sent before the user name")
    return MQTTParameters(**found, virtual_host=virtual_host, options=options)


def _parsed(url, scheme, ports):
    """Return (SplitResult, {field: value}) for a URL, with the fields host, port, tls and, if given, user and
    password. ``ports``: the default ports, without and with TLS. Raises ValueError.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        # The standard library's text may contain the login, if the host has bad characters.
        raise ValueError("the host of the URL cannot be read") from None
    if parts.scheme not in (scheme, f"{scheme}s"):
        raise ValueError(
            f"not an {scheme.upper()} URL, the scheme is {parts.scheme or 'missing'!r}: {scheme} and "
            f"{scheme}s are known")
    tls = parts.scheme != scheme
    found = {"host": unquote(parts.hostname or "localhost"), "port": port_of(parts) or ports[tls], "tls": tls}
    for name, text in (("user", parts.username), ("password", parts.password)):
        if text is not None:
            found[name] = unquote(text)
    return parts, found


def port_of(parts: SplitResult) -> int | None:
    """Return the port of a split URL, or None if it has none. Raises ValueError if the port is invalid."""
    try:
        return parts.port
    except ValueError:
        raise ValueError(f"the port in the URL of {parts.hostname} is not a number up to 65535") from None


def query_options(
    query: str, integers: tuple[str, ...], texts: tuple[str, ...], what: str,
) -> dict[str, Any]:
    """Parse a URL's query into {key: value}: int for the keys in ``integers``, str for the keys in ``texts``.
    Raises ValueError for other keys and bad numbers. ``what``: the kind of URL, for the error's text.
    """
    options: dict[str, Any] = {}
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


def _checked(options):
    if "version" in options:
        if options["version"] not in MQTT_VERSIONS:
            raise ValueError(f"version in an MQTT URL is one of 3.1, 3.1.1 and 5, not {options['version']!r}")
        options["version"] = MQTT_VERSIONS[options["version"]]
    if "clean_start" in options:
        if options["clean_start"] not in _BOOLEANS:
            raise ValueError(f"clean_start in an MQTT URL is true or false, not {options['clean_start']!r}")
        options["clean_start"] = _BOOLEANS[options["clean_start"]]
    if options.get("keep_alive", 0) > STRING_MAX:
        raise ValueError(f"keep_alive in an MQTT URL is at most 65535 seconds, not {options['keep_alive']}")
    if options.get("session_expiry", 0) >= 1 << 32:
        raise ValueError(
            f"session_expiry in an MQTT URL is at most 4294967295 seconds, not {options['session_expiry']}")
    return options
