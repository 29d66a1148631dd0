"""Kinds of option values: parse texts into Python values, and check values.

The text of an option comes from a file, a flag or an environment variable. A kind's error says in one phrase
which values are valid. The options are defined in config.settings.
"""
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any
from urllib.parse import urlsplit

from gomq_py import salted_hash

TRUE_WORDS = ("1", "true", "yes", "on", "y")
FALSE_WORDS = ("0", "false", "no", "off", "n")
# Default upper bound of numbers: 2**53, up to which times and sizes survive floating-point seconds, too.
MOST = 9007199254740992
# Linux's limits.
KEEPALIVE_S_MAX, PROBES_MAX = 32767, 127
# Fewer can be guessed by whoever has seen one login.
SECRET_OCTETS = 16
ETCD_PORT = 2379
LOG_LEVELS = ("debug", "info", "warn", "error", "fatal", "none")


@dataclass(frozen=True)
class Kind:
    """A kind of option value. ``parse(text)`` returns the value; its ValueError says which values are valid.
    ``show(value)`` returns the text of a value.
    """

    name: str
    parse: Callable[[str], Any]
    show: Callable[[Any], str] = str
    secret: bool = False
    """Whether a complaint must not repeat what was given."""

    def check(self, value: Any) -> Any:
        """Return the parsed ``value``, which is a text or a Python value of this kind. Raises ValueError."""
        if isinstance(value, str):
            return self.parse(value)
        if isinstance(value, os.PathLike) and self in _PATHS:
            return self.parse(os.fsdecode(value))
        if self.parse in _TEXTS or isinstance(value, bool) and self.show is str:
            raise ValueError(f"a {self.name}")
        if isinstance(value, (tuple, list, set)) and self in _LISTS:
            return self.parse(", ".join(str(item) for item in value))
        if self is BOOLEAN and value not in (True, False):
            raise ValueError(f"a {self.name}")
        try:
            return self.parse(self.show(value))
        except (TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"a {self.name}") from error


@dataclass(frozen=True)
class Keepalive:
    """TCP probes of a silent peer: after ``idle_s``, then every ``interval_s``, at most ``probes`` times."""

    idle_s: int
    interval_s: int
    probes: int

    def __str__(self) -> str:
        return f"{self.idle_s}:{self.interval_s}:{self.probes}"


def _boolean(text: str) -> bool:
    word = text.strip().lower()
    if word in TRUE_WORDS:
        return True
    if word in FALSE_WORDS:
        return False
    raise ValueError("a yes or no (true, false, yes, no, on, off, 1, 0)")


def _show_boolean(value: bool) -> str:
    return "true" if value else "false"


def integer(least: int, most: int = MOST, wanted: str = "") -> Kind:
    """Return the Kind of integers from ``least`` to ``most``, both included. ``wanted``: text for errors."""
    wanted = wanted or f"a whole number from {least} to {most}"

    def parse(text: str) -> int:
        try:
            number = int(text.strip())
        except ValueError:
            raise ValueError(wanted) from None
        if not least <= number <= most:
            raise ValueError(wanted)
        return number

    return Kind("number", parse)


def choice(*words: str) -> Kind:
    """Return the Kind of a text that is one of ``words``, in upper or lower case; the value is lower case."""

    def parse(text: str) -> str:
        word = text.strip().lower()
        if word not in words:
            raise ValueError("one of " + ", ".join(words))
        return word

    return Kind("one of " + ", ".join(words), parse)


def _log_level(text: str) -> str:
    word = text.strip().lower()
    word = {"warning": "warn", "trace": "debug", "notice": "info"}.get(word, word)
    if word not in LOG_LEVELS:
        raise ValueError("a log level (" + ", ".join(LOG_LEVELS) + ")")
    return word


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _networks(text: str) -> tuple[Any, ...]:
    try:
        return tuple(ip_network(name, strict=False) for name in _names(text))
    except ValueError:
        raise ValueError(
            "a list of addresses and networks (such as 10.0.0.5, 192.168.0.0/16, fd00::/8)"
        ) from None


def _show_networks(value: tuple[Any, ...]) -> str:
    return ", ".join(str(network) for network in value)


def _mode(text: str) -> int:
    try:
        mode = int(text.strip(), 8)
    except ValueError:
        mode = -1
    if not 0 <= mode <= 0o777:
        raise ValueError("permissions in octal (such as 660)")
    return mode


def _keepalive(text: str) -> Keepalive | None:
    if text.strip().lower() in FALSE_WORDS:
        return None
    try:
        idle_s, interval_s, probes = (int(part) for part in text.split(":"))
        for number, most in ((idle_s, KEEPALIVE_S_MAX), (interval_s, KEEPALIVE_S_MAX), (probes, PROBES_MAX)):
            if not 1 <= number <= most:
                raise ValueError
    except ValueError:
        raise ValueError(
            "a keepalive (idle:interval:probes in seconds, such as 60:10:3, at most "
            f"{KEEPALIVE_S_MAX}:{KEEPALIVE_S_MAX}:{PROBES_MAX}, or false)"
        ) from None
    return Keepalive(idle_s, interval_s, probes)


def _show_keepalive(value: Keepalive | None) -> str:
    return str(value) if value else "false"


def _proxy_protocol(text: str) -> int:
    word = text.strip().lower()
    if word in ("1", "2"):
        return int(word)
    try:
        return 2 if _boolean(word) else 0
    except ValueError:
        raise ValueError("a PROXY protocol version (false, true, 1 or 2)") from None


def _memory(text: str) -> float | int:
    """Parse an amount of memory: bytes as int, or a fraction of the machine's memory as float."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:([kmg])(i?)b?)?", text.strip().lower())
    if found is None or (found[2] is None and "." in found[1] and float(found[1]) > 1):
        raise ValueError(
            "an amount of memory (a share such as 0.6, bytes, or a size such as 512MiB; 0 for none)"
        )
    if found[2] is None:
        return float(found[1]) if "." in found[1] else int(found[1])
    base = 1024 if found[3] else 1000
    return int(float(found[1]) * base ** ("kmg".index(found[2]) + 1))


def _possible_memory(text: str) -> float | int:
    if len(text) <= len(str(MOST)) + 3 and (amount := _memory(text)) <= MOST:
        return amount
    raise ValueError(f"an amount of memory that a machine can have: {MOST} bytes are the most")


def _text(text: str) -> str:
    if "\0" in text:
        raise ValueError("a text without a NUL")
    return text.strip()


def _folder(text: str) -> str:
    if not _text(text):
        raise ValueError("a folder's path: it is empty")
    return _text(text)


_BCRYPT = re.compile(r"\$2[aby]\$\d\d\$[./A-Za-z0-9]{53}")


def _password_hash(text: str) -> str:
    text = text.strip()
    try:
        return text if not text or _BCRYPT.fullmatch(text) else salted_hash.check(text)
    except ValueError:
        raise ValueError(
            "a password hash (gomq-py-ctl hash_password prints one; a password itself goes into "
            "$GOMQ_DEFAULT_PASSWORD)"
        ) from None


def _address(text: str) -> str:
    text = _text(text)
    host, colon, port = text.rpartition(":")
    is_port = port.isascii() and port.isdigit() and 0 < int(port) < 65536
    if text and not (host.strip("[]") and colon and is_port):
        raise ValueError("a host:port, such as broker-1:5679 or [::1]:5679")
    return text


def endpoint_parts(text: str) -> tuple[str, int, bool]:
    """Return (host, port, True for TLS) of an etcd server given as host, host:port, or http(s) URL. Raises
    ValueError, which does not quote ``text``, because a URL may contain a password.
    """
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        host, port = parts.hostname, parts.port
    except ValueError:  # of brackets, or of a port
        host, port = None, None
    if (
        not host or port == 0 or parts.scheme not in ("http", "https") or "@" in parts.netloc
        or parts.path.strip("/") or parts.query or parts.fragment or not parts.netloc.isprintable()
        or " " in parts.netloc
    ):
        raise ValueError(
            "etcd servers, comma separated, such as etcd-1:2379, [::1]:2379 or https://etcd-2:2379")
    return host, port or ETCD_PORT, parts.scheme == "https"


def _endpoints(text: str) -> tuple[str, ...]:
    endpoints = _names(text)
    for endpoint in endpoints or ("",):
        endpoint_parts(endpoint)
    return endpoints


def _etcd_prefix(text: str) -> str:
    text = _text(text).strip("/")
    if not text or not text.isprintable():
        raise ValueError("a beginning of keys: printable text that is not empty")
    return text


def _secret(text: str) -> str:
    text = _text(text)
    if text and len(text.encode()) < SECRET_OCTETS:
        raise ValueError(f"a secret of at least {SECRET_OCTETS} bytes")
    return text


TEXT = Kind("text", _text)
PATH = Kind("path", _text)
FOLDER = Kind("folder", _folder)
ADDRESS = Kind("host:port", _address)
SECRET = Kind("secret", _secret, lambda value: "***" if value else "", secret=True)
PASSWORD = Kind("password", _text, lambda value: "***" if value else "", secret=True)
ETCD_PREFIX = Kind("beginning of keys", _etcd_prefix)
PASSWORD_HASH = Kind("password hash", _password_hash, lambda value: "***" if value else "", secret=True)
BOOLEAN = Kind("yes or no", _boolean, _show_boolean)
LOG_LEVEL = Kind("one of " + ", ".join(LOG_LEVELS), _log_level)
NETWORKS = Kind("addresses and networks, comma separated", _networks, _show_networks)
MODE = Kind("permissions in octal", _mode, "{:03o}".format)
NAMES = Kind("names, comma separated", _names, ", ".join)
ENDPOINTS = Kind("etcd servers, comma separated", _endpoints, ", ".join, secret=True)
KEEPALIVE = Kind("idle:interval:probes, or false", _keepalive, _show_keepalive)
PROXY_PROTOCOL = Kind(
    "false, true, 1 or 2", _proxy_protocol, lambda version: str(version) if version else "false"
)
PORT = Kind("port", integer(-1, 65535, "a port (1 to 65535, 0 for any free one, -1 for none)").parse)
COUNT = integer(0)
SOCKET_BUFFER = integer(0, 1073741823)  # the kernel doubles this within 31 bits
MEMORY = Kind("share or bytes", _possible_memory)
_PATHS = (PATH, FOLDER)
_LISTS = (NAMES, NETWORKS, ENDPOINTS)
# Every value can be shown as a text; these kinds accept only a text or a path.
_TEXTS = (_text, _folder, _password_hash, _address, _secret, _etcd_prefix)
