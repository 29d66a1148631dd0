"""Definition: checks a shovel's definition key by key. The keys have the names of RabbitMQ and LavinMQ.

Imports no other module of this package. An error names the key and its valid values, but not the given value,
which may hold a password.
"""
import json
from typing import Any
from urllib.parse import quote, urlsplit

from gomq_py.content.fields import decode_table, encode_table
from gomq_py.errors import Malformed
from gomq_py.links import uris
from gomq_py.links.ends import ACK_MODES, ON_CONFIRM

NEVER, QUEUE_LENGTH = "never", "queue-length"
VHOST = "vhost"  # key in a section of the configuration
_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
PROTOCOL = "amqp091"
# Longest short string of AMQP.
NAME_OCTETS = 255
SECRET_CHARACTERS = FILE_CHARACTERS = 4096
VERIFY = ("verify_peer", "verify_none")
# Largest table of arguments or headers: it goes into one frame beside the message's own.
TABLE_OCTETS = 32768
# A 16-bit field in RabbitMQ, where 0 means no limit; a shovel's memory has a limit.
PREFETCH_MOST = 65535
MOST = (1 << 63) - 1
SECONDS_MOST = 86400
# Properties that dest-publish-properties may set, by the kind of their values.
_TEXTS = (
    "content_type", "content_encoding", "correlation_id", "reply_to", "expiration", "message_id", "type",
    "user_id", "app_id", "cluster_id",
)
PROPERTIES = (*_TEXTS, "headers", "delivery_mode", "priority", "timestamp")
# Older names that RabbitMQ still accepts, and their present names.
OLD_NAMES = {
    "prefetch-count": "src-prefetch-count", "delete-after": "src-delete-after",
    "add-forward-headers": "dest-add-forward-headers", "add-timestamp-header": "dest-add-timestamp-header",
    "publish-properties": "dest-publish-properties",
}


class DefinitionError(ValueError):
    """The definition cannot be used. The text says why, for the user who sets the shovel."""


class Definition:
    """The checked definition of one shovel. It has an attribute for each key of KEYS (underscores for
    hyphens), with the given value or the default.
    """

    def __init__(self, value):
        """Check ``value``, the definition as decoded JSON. Raises DefinitionError."""
        if not isinstance(value, dict):
            raise DefinitionError("a shovel is an object with src-uri, dest-uri and what to move")
        given = _by_new_names(value)
        for key, (check, default) in KEYS.items():
            setattr(self, key.replace("-", "_"), check(key, given[key]) if key in given else default)
        self._check_ends(given)

    def _check_ends(self, given):
        for key in ("src-uri", "dest-uri"):
            if key not in given:
                raise DefinitionError(f"{key} is missing: the URI of the broker to {_WHAT_FOR[key]}")
        _one_of(given, "src-queue", "src-exchange", True)
        _one_of(given, "dest-queue", "dest-exchange", False)
        for key, of in (
            ("src-exchange-key", "src-exchange"), ("src-queue-args", "src-queue"),
            ("dest-queue-args", "dest-queue"),
        ):
            if key in given and of not in given:
                raise DefinitionError(f"{key} is about {of}, which is not given")
        kinds = {uris.parse(uri, uris.DESTINATIONS).scheme in uris.HTTP for uri in self.dest_uri}
        self.is_webhook = True in kinds
        if len(kinds) > 1:
            raise DefinitionError("dest-uri names brokers and web servers: it may name one kind")
        if self.is_webhook:
            for key in _NOT_OF_WEBHOOKS:
                if key in given:
                    raise DefinitionError(f"{key} is of brokers: dest-uri is a web server")
            for key in _OF_TLS:
                if key in given and not all(uri.lower().startswith("https:") for uri in self.dest_uri):
                    raise DefinitionError(f"{key} is of TLS: dest-uri does not begin with https://")
            if "dest-keyfile" in given and "dest-certfile" not in given:
                raise DefinitionError("dest-keyfile is given without dest-certfile")
        else:
            for key in _OF_WEBHOOKS:
                if key in given:
                    raise DefinitionError(f"{key} is of web servers: dest-uri is a broker" + (
                        ", whose URI says it in its query" if key in _OF_TLS else ""))
        if self.src_prefetch_count == 0:
            raise DefinitionError("src-prefetch-count is from 1 to 65535: without a limit memory has none")

    def __getattr__(self, name: str) -> Any:  # declares to type checkers the attributes that __init__ sets
        raise AttributeError(name)

    @property
    def dest_tls(self):
        """TLS options for a web server as destination: {option: value}, named as in an AMQP URI's query."""
        options = {key.removeprefix("dest-"): getattr(self, key.replace("-", "_")) for key in _OF_TLS}
        return {
            key.replace("-", "_"): value for key, value in options.items() if value is not None}

    @property
    def is_predeclared(self):
        """True if src-predeclared or dest-predeclared is set: the shovel declares nothing at that end."""
        return self.src_predeclared or self.dest_predeclared


def is_local(uri):
    return uris.parse(uri, uris.DESTINATIONS).is_local


def vhost_of(uri, vhost_name):
    """Return the virtual host in an AMQP URI, or ``vhost_name`` if the URI has none, as in RabbitMQ."""
    return uris.parse(uri).path or ("/" if urlsplit(uri).path else vhost_name)


def with_vhost(uri, vhost_name):
    """Return an AMQP URI with ``vhost_name`` added if it has no virtual host. Other URIs stay unchanged."""
    parts = urlsplit(uri)
    if parts.scheme.lower() not in uris.AMQP or parts.path:
        return uri
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{parts.netloc}/{quote(vhost_name, safe='')}{query}"


def _by_new_names(value):
    """Return the definition with old key names replaced, without keys whose value is None. Raises
    DefinitionError for an unknown key, or one given twice.
    """
    given = {}
    for key, item in value.items():
        name = OLD_NAMES.get(key, key)
        if name not in KEYS:
            raise DefinitionError(
                f"{key[:NAME_OCTETS]!r} is no key of a shovel; there are {', '.join(KEYS)}")
        if name in given:
            raise DefinitionError(f"{name} is given twice, once as {key}" if name != key else (
                f"{name} is given twice"))
        given[name] = item
    return {key: item for key, item in given.items() if item is not None}


def _one_of(given, one, other, is_needed):
    if one in given and other in given:
        raise DefinitionError(f"{one} and {other} are both given: a shovel has one of them")
    if is_needed and one not in given and other not in given:
        raise DefinitionError(f"{one} or {other} is missing: what to take messages from")


# checks: each takes (key, value) and returns the value to keep. Values in the configuration are text; a
# check's ``wants`` is the kind of value to parse the text as.

OBJECT, TRUTH, NUMBER, URIS, TEXT = "object", "truth", "number", "uris", "text"


def _wants(kind):
    def marked(check):
        check.wants = kind
        return check

    return marked


def _protocol(key, value):
    if value != PROTOCOL:
        raise DefinitionError(f"{key} may be {PROTOCOL} only: this broker's shovels speak AMQP 0-9-1")
    return value


def _uris(schemes):
    @_wants(URIS)
    def check(key, value):
        try:
            uris.parse_list(value, schemes)
        except uris.URIError as error:
            raise DefinitionError(f"{key}: {error}") from None
        return tuple(value) if isinstance(value, list) else (value,)

    return check


def _fits(text):
    try:
        return len(text.encode("utf-8", "surrogateescape")) <= NAME_OCTETS
    except UnicodeEncodeError:  # half of a surrogate pair in JSON
        return False


def _name(key, value):
    if not isinstance(value, str) or not value or not _fits(value):
        raise DefinitionError(f"{key} is a name of 1 to {NAME_OCTETS} bytes")
    return value


def _maybe_empty(key, value):
    if not isinstance(value, str) or not _fits(value):
        raise DefinitionError(f"{key} is a text of up to {NAME_OCTETS} bytes")
    return value


@_wants(OBJECT)
def _table(key, value):
    if value == []:  # some clients write an empty object as a list
        return {}
    if not isinstance(value, dict):
        raise DefinitionError(f"{key} is an object of arguments")
    for name in value:
        if not _fits(name):
            raise DefinitionError(f"{key} has a name of more than {NAME_OCTETS} bytes")
    try:
        octets = encode_table(value)
    except (ValueError, TypeError, RecursionError):
        raise DefinitionError(f"{key} holds what AMQP cannot: numbers have up to 64 bits") from None
    if len(octets) > TABLE_OCTETS:
        raise DefinitionError(f"{key} has {len(octets)} bytes, and may have {TABLE_OCTETS}")
    try:
        decode_table(octets)
    except Malformed:
        raise DefinitionError(f"{key} is nested too deep") from None
    return dict(value)


@_wants(TRUTH)
def _truth(key, value):
    if not isinstance(value, bool):
        raise DefinitionError(f"{key} is true or false")
    return value


def _whole(least, most):
    @_wants(NUMBER)
    def check(key, value):
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise DefinitionError(f"{key} is a whole number from {least} to {most}")
        return value

    return check


def _seconds(least):
    @_wants(NUMBER)
    def check(key, value):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not (
                least <= value <= SECONDS_MOST):  # this form also refuses NaN
            raise DefinitionError(f"{key} is a number of seconds from {least} to {SECONDS_MOST}")
        return value

    return check


@_wants(NUMBER)
def _delete_after(key, value):
    if value in (NEVER, QUEUE_LENGTH):
        return None if value == NEVER else value
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST:
        raise DefinitionError(f"{key} is {NEVER}, {QUEUE_LENGTH} or a number of messages")
    return value


def _ack_mode(key, value):
    if value not in ACK_MODES:
        raise DefinitionError(f"{key} is one of {', '.join(ACK_MODES)}")
    return value


def _file(key, value):
    if not isinstance(value, str) or not 1 <= len(value) <= FILE_CHARACTERS:
        raise DefinitionError(f"{key} is the name of a file in tls_folder of [links]")
    return value


def _verify(key, value):
    if value not in VERIFY:
        raise DefinitionError(f"{key} is {' or '.join(VERIFY)}")
    return value


def _secret(key, value):
    if not isinstance(value, str) or not 1 <= len(value) <= SECRET_CHARACTERS:
        raise DefinitionError(f"{key} is a text of 1 to {SECRET_CHARACTERS} characters")
    return value


@_wants(OBJECT)
def _properties(key, value):
    if value == []:
        return {}
    if not isinstance(value, dict):
        raise DefinitionError(f"{key} is an object of properties: {', '.join(PROPERTIES)}")
    return {
        name.replace("-", "_"): _property(f"{name} in {key}", name.replace("-", "_"), item)
        for name, item in value.items()
    }


def _property(place, name, value):
    if name not in PROPERTIES:
        raise DefinitionError(f"{place[:NAME_OCTETS]} is no property: there are {', '.join(PROPERTIES)}")
    if name == "headers":
        return _table(place, value)
    if name == "delivery_mode":
        return _whole(1, 2)(place, value)
    if name == "priority":
        return _whole(0, 255)(place, value)
    if name == "timestamp":
        return _whole(0, MOST)(place, value)
    return _maybe_empty(place, value)


# key: (check, default)
KEYS = {
    "src-protocol": (_protocol, PROTOCOL),
    "src-uri": (_uris(uris.AMQP), ()),
    "src-queue": (_name, None),
    "src-queue-args": (_table, {}),
    "src-exchange": (_name, None),
    "src-exchange-key": (_maybe_empty, ""),
    "src-consumer-args": (_table, {}),
    "src-prefetch-count": (_whole(0, PREFETCH_MOST), 1000),
    "src-delete-after": (_delete_after, None),  # None: never
    "src-predeclared": (_truth, False),
    "dest-protocol": (_protocol, PROTOCOL),
    "dest-uri": (_uris(uris.DESTINATIONS), ()),
    "dest-queue": (_name, None),
    "dest-queue-args": (_table, {}),
    "dest-exchange": (_maybe_empty, None),
    "dest-exchange-key": (_maybe_empty, None),
    "dest-predeclared": (_truth, False),
    "dest-add-forward-headers": (_truth, False),
    "dest-add-timestamp-header": (_truth, False),
    "dest-publish-properties": (_properties, {}),
    "dest-refusal-limit": (_whole(0, MOST), 0),  # 0: for ever
    "dest-secret": (_secret, None),
    "dest-timeout": (_seconds(1), 30),
    "dest-cacertfile": (_file, None),
    "dest-certfile": (_file, None),
    "dest-keyfile": (_file, None),
    "dest-verify": (_verify, None),
    "dest-server-name-indication": (_name, None),
    "dest-depth": (_whole(0, 100), None),
    "ack-mode": (_ack_mode, ON_CONFIRM),
    "reconnect-delay": (_seconds(0), 5),
}
_WHAT_FOR = {"src-uri": "take messages from", "dest-uri": "bring them to"}
_OF_TLS = (
    "dest-cacertfile", "dest-certfile", "dest-keyfile", "dest-verify", "dest-server-name-indication",
    "dest-depth",
)
_OF_WEBHOOKS = ("dest-secret", "dest-timeout", *_OF_TLS)
_NOT_OF_WEBHOOKS = (
    "dest-protocol", "dest-queue", "dest-queue-args", "dest-exchange", "dest-exchange-key",
    "dest-predeclared",
)


def values_of(section):
    """Return (vhost name, definition) from a section [shovel:NAME] of the configuration file.

    ``section``: {key: text}. The keys are those of a shovel's definition, and ``vhost``, the virtual host
    that the shovel belongs to. The definition has the values decoded from the text: lists of URIs are
    separated by commas, objects are JSON. Raises DefinitionError, which names the key.
    """
    value = {}
    for key, text in section.items():
        if key != VHOST:
            value[key] = _value_of(OLD_NAMES.get(key, key), text)
    Definition(value)
    return section.get(VHOST, "/"), value


def _value_of(key, text):
    wanted = getattr(KEYS[key][0], "wants", TEXT) if key in KEYS else TEXT
    if wanted == URIS:
        uris = [uri.strip() for uri in text.split(",") if uri.strip()]
        return uris if len(uris) != 1 else uris[0]
    if wanted == OBJECT:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise DefinitionError(f"{key} is an object as JSON writes it") from None
    if wanted == TRUTH:
        return _WORDS.get(text.lower(), text)
    if wanted == NUMBER and len(text) < 20:
        for kind in (int, float):
            try:
                return kind(text)
            except ValueError:
                pass
    return text
