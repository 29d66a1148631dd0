"""Checks of the names that clients choose for exchanges and queues, and names in error texts.

RabbitMQ drops carriage returns and line feeds from the names in topology methods, reserves ``amq.``, and
accepts all other short strings. Names are str, decoded with ``surrogateescape``. Imports no other module of
gomq_py.broker.
"""
import os
from base64 import urlsafe_b64encode

from gomq_py.errors import AccessRefused, PreconditionFailed

RESERVED_PREFIX = "amq."
SERVER_NAMED_PREFIX = "amq.gen-"
# The default of ``VHost.topic_exchange``, which names the exchange of a vhost's topics.
TOPIC_EXCHANGE = "amq.topic"
# Prefix of routing keys of the default exchange that address topics, whatever exchange the topics have.
TOPIC_ADDRESS = "amq.topic."
NAME_OCTETS_MAX = 255

_CR_LF = str.maketrans("", "", "\r\n")


def cleaned(name):
    """Return the name without carriage returns and line feeds, as RabbitMQ does."""
    return name.translate(_CR_LF) if "\n" in name or "\r" in name else name


def check_not_reserved(kind, name, prefixes=()):
    """Raise AccessRefused if a new ``name`` begins with ``amq.`` or with one of ``prefixes``. ``kind``: the
    word for the entity in the error text, such as "queue".
    """
    for prefix in (RESERVED_PREFIX, *prefixes):
        if name.startswith(prefix):
            raise AccessRefused(f"{kind} name '{name}' contains reserved prefix '{prefix}*'")


def check_length(kind, name):
    """Raise PreconditionFailed for a name over AMQP's 255 bytes. ``kind``: what it names, for the error."""
    if len(name) > NAME_OCTETS_MAX // 4 and len(name.encode("utf-8", "surrogateescape")) > NAME_OCTETS_MAX:
        raise PreconditionFailed(f"{kind} name is longer than {NAME_OCTETS_MAX} bytes")


def fits_short_string(text):
    """Return True if the encoded text fits in 255 bytes; False for half a surrogate pair (from JSON)."""
    try:
        return len(text.encode("utf-8", "surrogateescape")) <= NAME_OCTETS_MAX
    except UnicodeEncodeError:
        return False


def server_named():
    """Return a new name, with 128 random bits, for a queue that a client declares without a name."""
    return SERVER_NAMED_PREFIX + urlsafe_b64encode(os.urandom(16)).rstrip(b"=").decode()


def to_octets(text):
    return text.encode("utf-8", "surrogateescape")


def to_text(octets):
    return octets.decode("utf-8", "surrogateescape")


def described(kind, name, vhost):
    """Return the words for an entity in error texts, as in ``queue 'jobs' in vhost '/'``."""
    return f"{kind} '{name}' in vhost '{vhost}'"


def locked(queue, vhost):
    """Return RabbitMQ's error text for a queue that is exclusive to another connection."""
    return (
        f"cannot obtain exclusive access to locked {described('queue', queue.name, vhost)}. It could be "
        "originally declared on another connection or the exclusive property value does not match that of "
        "the original declaration."
    )
