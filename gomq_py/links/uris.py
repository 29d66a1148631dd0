"""URIs of links: parses and checks the address of another broker in a shovel or an upstream.

    amqp[s]://user:password@host:port/vhost?heartbeat=10&cacertfile=ca.pem    another broker
    amqp:///vhost                                                             this broker (see links.local)
    http[s]://user:password@host:port/path?query                              a webhook

All parts are percent-decoded, except the path and query of HTTP. A URI of another broker without a path means
the vhost ``/``. Query keys are RabbitMQ's; keys without a meaning for a client are accepted and ignored. No
error repeats a password.
"""
import os
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from gomq_py.client.url import Parameters, port_of, query_options
from gomq_py.observability.secrets import without_keys

AMQP = ("amqp", "amqps")
HTTP = ("http", "https")
DESTINATIONS = AMQP + HTTP
PORTS = {"amqp": 5672, "amqps": 5671, "http": 80, "https": 443}
# The password may be a token, which has some kilobytes.
URI_OCTETS_MAX = 16384
URIS_MAX = 100
# Query keys with their bounds. Nobody waits longer than an hour for a connection.
_INTEGERS = {
    "heartbeat": (0, 65535), "connection_timeout": (1, 3600000), "channel_max": (0, 65535),
    "frame_max": (4096, 2**31 - 1), "depth": (0, 100),
}
# Largest frame_max that a link accepts; the default of all brokers.
FRAME_MAX = 131072
FILES = ("cacertfile", "certfile", "keyfile")
_TEXTS = (*FILES, "auth_mechanism", "password", "verify", "server_name_indication")
# Keys of RabbitMQ's URIs that an AMQP 0-9-1 client ignores: how a server asks for certificates, and AMQP
# 1.0's.
_WITHOUT_EFFECT = ("fail_if_no_peer_cert", "idle_time_out", "hostname", "sasl")
_VALUES = {"auth_mechanism": ("plain", "amqplain", "external"), "verify": ("verify_peer", "verify_none")}


class URIError(ValueError):
    """The URI is unusable, and retrying cannot help. The text holds no password."""


@dataclass(frozen=True)
class LinkURI:
    """A parsed URI. ``host``: "" for this broker. ``path``: the decoded vhost; for HTTP, path and query as
    given. ``options``: {key: value} of an AMQP URI's query.
    """

    scheme: str
    host: str
    port: int
    user: str | None
    password: str | None = field(repr=False)
    path: str = ""
    options: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def is_local(self) -> bool:
        """True if the URI means this broker, which is reached without TCP."""
        return not self.host

    @property
    def tls(self) -> bool:
        return self.scheme in ("amqps", "https")

    @property
    def place(self) -> str:
        """Host and port, or "this broker", as text for errors and logs."""
        if self.is_local:
            return "this broker"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse(text: Any, schemes: tuple[str, ...] = AMQP) -> LinkURI:
    """Parse a URI whose scheme is in ``schemes``. Raises URIError."""
    if not isinstance(text, str):
        raise URIError("a URI is a string")
    if len(text) > URI_OCTETS_MAX:
        raise URIError(f"a URI has at most {URI_OCTETS_MAX} characters, this one {len(text)}")
    if not text.isprintable() or " " in text:
        raise URIError("a URI has no blanks and no control characters: write them as %20 and so on")
    scheme = text.partition(":")[0].lower()
    if scheme not in schemes or not text[len(scheme):].startswith("://"):
        raise URIError(f"a URI here begins with {'://, '.join(schemes)}://")
    try:
        parts = urlsplit(text)
        port = port_of(parts)
    except ValueError:  # not chained: its text may repeat the password
        raise URIError(
            "the URI has no host or port that can be read: @, / and : in a password are written as %40, %2F "
            "and %3A") from None
    if parts.fragment or text.endswith("#"):
        raise URIError("a URI here has no part behind #: in a password it is written as %23")
    user = None if parts.username is None else _decoded(parts.username, "user")
    password = None if parts.password is None else _decoded(parts.password, "password")
    host = _decoded(parts.hostname or "", "host")
    if not host:
        return _local(parts, scheme)
    if re.search(r"[\s/?#@\[\]\\<>\"']", host) or not host.isprintable():
        raise URIError("the host in the URI is no name and no address")
    if port == 0:
        raise URIError("port 0 in the URI: nobody listens there")
    if scheme in HTTP:
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        if not path.isascii():
            raise URIError("what is not ASCII in the path of the URI is written with %")
        return LinkURI(scheme, host, port or PORTS[scheme], user, password, path)
    path = _decoded(parts.path[1:], "virtual host")
    return LinkURI(scheme, host, port or PORTS[scheme], user, password, path, _options(parts.query))


def parse_list(value: Any, schemes: tuple[str, ...] = AMQP) -> list[LinkURI]:
    """Parse a URI, or a non-empty list of URIs, to a list of LinkURIs. Raises URIError."""
    texts = value if isinstance(value, list) else [value]
    if not 0 < len(texts) <= URIS_MAX:
        raise URIError(f"a list of URIs has 1 to {URIS_MAX} of them, this one {len(texts)}")
    return [parse(text, schemes) for text in texts]


def without_login(uri: str) -> str:
    """Return a URI for logs and operators, without login, query and an HTTP path (which may be a key)."""
    if not uri:
        return ""
    parts = urlsplit(uri)
    return without_keys(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}")


def parameters(uri: LinkURI, tls_folder: str, vhost: str = "/") -> Parameters:
    """Return the client's Parameters for a connection to this URI. ``vhost``: used if a URI of this broker
    names none. Raises URIError for a file that is not in ``tls_folder``.
    """
    options = tls_options(uri.options, tls_folder)
    if "frame_max" in options:
        options["frame_max"] = min(options["frame_max"], FRAME_MAX)
    if uri.is_local:
        return Parameters("this broker", 0, "", "", uri.path or vhost, False, options)
    user = "guest" if uri.user is None else uri.user
    password = "guest" if uri.password is None else uri.password
    return Parameters(uri.host, uri.port, user, password, uri.path or "/", uri.tls, options)


def tls_options(options: dict[str, Any], tls_folder: str) -> dict[str, Any]:
    """Return a copy of TLS options, with full file paths. Raises URIError for files not in ``tls_folder``."""
    options = dict(options)
    for key in FILES:
        if key in options:
            options[key] = file_in(tls_folder, options[key], key)
    # Without a password OpenSSL would prompt on the broker's terminal.
    options.setdefault("password", "")
    return options


def file_in(folder: str, path: str, key: str) -> str:
    """Return the full path of a file below ``folder``. Raises URIError, which names ``key``, not the path."""
    if not folder:
        raise URIError(f"{key}: no URI may name files here, for tls_folder in [links] is not set")
    if "\0" in path:
        raise URIError(f"{key} is no name of a file")
    root = os.path.realpath(folder)
    real = os.path.realpath(os.path.join(root, path))
    if os.path.commonpath((root, real)) != root:
        raise URIError(f"{key} names a file that is not in tls_folder of [links]")
    return real


def _local(parts: Any, scheme: str) -> LinkURI:
    """Parse a URI without a host, which means this broker. Raises URIError for a user, password or port."""
    if scheme != "amqp":
        raise URIError(f"the URI has no host: this broker is reached by amqp:// and not by {scheme}://")
    if parts.netloc:
        raise URIError(
            "the URI has no host, and so means this broker, which lets in whoever set the link: it has no "
            "user, password or port")
    path = _decoded(parts.path[1:], "virtual host")
    return LinkURI(scheme, "", 0, None, None, path, _options(parts.query))


def _decoded(text: str, what: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise URIError(f"the {what} in the URI is no UTF-8") from None


def _options(query: str) -> dict[str, Any]:
    """Return the checked {key: value} of an AMQP URI's query. Raises URIError."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict")
        known = urlencode([(key, value) for key, value in pairs if key not in _WITHOUT_EFFECT])
        options = query_options(known, tuple(_INTEGERS), _TEXTS, "the URI")
    except UnicodeDecodeError:
        raise URIError("the query of the URI is no UTF-8") from None
    except ValueError as error:
        raise URIError(str(error)) from None
    for key, (least, most) in _INTEGERS.items():
        if not least <= options.get(key, least) <= most:
            raise URIError(f"{key} in the URI is a number from {least} to {most}")
    for key, values in _VALUES.items():
        if key in options:
            options[key] = options[key].lower()
            if options[key] not in values:
                raise URIError(f"{key} in the URI is {' or '.join(values)}")
    if "keyfile" in options and "certfile" not in options:
        raise URIError("the URI has a keyfile and no certfile")
    return options
