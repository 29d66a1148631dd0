"""MQTT URLs: ``mqtt[s]://user:password@host:port/vhost?keep_alive=60`` to parameters. A leaf.

Everything is percent-decoded. The path is a virtual host, which goes before the user name (``vhost:user``),
as LavinMQ and RabbitMQ read it; without a path the broker chooses. Without a user there is none in CONNECT.
Query keys: version (3.1, 3.1.1 or 5), client_id, clean_start (true or false), keep_alive (s),
session_expiry (s, MQTT 5), connection_timeout (ms), cacertfile, certfile, keyfile, verify and
server_name_indication.
"""
from dataclasses import dataclass, field
from urllib.parse import unquote

from gomq_py.client.url import port_of, query_options, split_url
from gomq_py.mqtt.wire.constants import MQTT_3_1, MQTT_3_1_1, MQTT_5, STRING_MAX

DEFAULT_URL = "mqtt://localhost:1883"
VERSIONS = {"3.1": MQTT_3_1, "3.1.1": MQTT_3_1_1, "5": MQTT_5, "5.0": MQTT_5}
_BOOLEANS = {"true": True, "false": False}
_INTEGERS = ("keep_alive", "session_expiry", "connection_timeout")
_TEXTS = (
    "version", "client_id", "clean_start", "cacertfile", "certfile", "keyfile", "verify",
    "server_name_indication",
)


@dataclass
class MQTTParameters:
    """One address and login; ``options``: the query's values as int, bool (``clean_start``) or text."""

    host: str = "localhost"
    port: int = 1883
    user: str | None = None
    password: str | None = None
    virtual_host: str | None = None
    tls: bool = False
    options: dict = field(default_factory=dict)

    @property
    def user_name(self):
        """The user name for CONNECT, with the virtual host before it if given; None: no user name."""
        if self.user is None or self.virtual_host is None:
            return self.user
        return f"{self.virtual_host}:{self.user}"


def parse_mqtt_url(url):
    """Parse a URL. Raises ValueError naming what is wrong, without the password."""
    parts = split_url(url)
    if parts.scheme not in ("mqtt", "mqtts"):
        raise ValueError(
            f"not an MQTT URL, the scheme is {parts.scheme or 'missing'!r}: mqtt and mqtts are known")
    tls = parts.scheme == "mqtts"
    parameters = MQTTParameters(
        host=unquote(parts.hostname or "localhost"), port=port_of(parts) or (8883 if tls else 1883),
        user=unquote(parts.username) if parts.username is not None else None,
        password=unquote(parts.password) if parts.password is not None else None,
        virtual_host=unquote(parts.path[1:]) or None, tls=tls,
        options=_checked(query_options(parts.query, _INTEGERS, _TEXTS, "an MQTT URL")),
    )
    if parameters.virtual_host is not None and parameters.user is None:
        raise ValueError(
            f"virtual host {parameters.virtual_host!r} in an MQTT URL without a user: it is sent before the "
            "user name")
    return parameters


def _checked(options):
    """The options as typed values. Raises ValueError."""
    if "version" in options:
        if options["version"] not in VERSIONS:
            raise ValueError(f"version in an MQTT URL is one of 3.1, 3.1.1 and 5, not {options['version']!r}")
        options["version"] = VERSIONS[options["version"]]
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
