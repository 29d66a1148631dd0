"""Names of exchanges and queues: what a client may choose, how the broker writes them.

A leaf of the broker; knows no entity.

RabbitMQ drops carriage returns and line feeds from the names in topology methods, keeps ``amq.`` for itself,
and accepts everything else a short string can hold. Names are str, decoded with ``surrogateescape``.
"""
import os
from base64 import urlsafe_b64encode

from gomq_py.errors import AccessRefused, PreconditionFailed

RESERVED_PREFIX = "amq."
SERVER_NAMED_PREFIX = "amq.gen-"
# The exchange of a vhost's topics, unless another one is said to be it (``VHost.topic_exchange``).
TOPIC_EXCHANGE = "amq.topic"
# Keys of the default exchange that are addresses of topics begin so, whichever exchange these have.
TOPIC_ADDRESS = "amq.topic."
NAME_OCTETS_MAX = 255

_CR_LF = str.maketrans("", "", "\r\n")


def cleaned(name):
    """The name without carriage returns and line feeds, as RabbitMQ does in topology methods."""
    return name.translate(_CR_LF) if "\n" in name or "\r" in name else name


def check_not_reserved(kind, name, prefixes=()):
    """Refuse ``amq.``, and these prefixes, to clients that create something. Raises AccessRefused."""
    for prefix in (RESERVED_PREFIX, *prefixes):
        if name.startswith(prefix):
            raise AccessRefused(f"{kind} name '{name}' contains reserved prefix '{prefix}*'")


def check_length(kind, name):
    """Refuse names that no short string holds: over AMQP there are none, other doors ask for them.

    Raises PreconditionFailed.
    """
    if len(name) > NAME_OCTETS_MAX // 4 and len(name.encode("utf-8", "surrogateescape")) > NAME_OCTETS_MAX:
        raise PreconditionFailed(f"{kind} name is longer than {NAME_OCTETS_MAX} octets")


def fits_short_string(text):
    """Whether a field of at most 255 octets holds the text; one with half a character in it, as JSON may
    have, fits nowhere.
    """
    try:
        return len(text.encode("utf-8", "surrogateescape")) <= NAME_OCTETS_MAX
    except UnicodeEncodeError:
        return False


def server_named():
    """A fresh name for a queue declared without one: 132 random bits, enough never to meet another."""
    return SERVER_NAMED_PREFIX + urlsafe_b64encode(os.urandom(16)).rstrip(b"=").decode()


def described(kind, name, vhost):
    """How reply texts name an entity: ``queue 'jobs' in vhost '/'``."""
    return f"{kind} '{name}' in vhost '{vhost}'"


def locked(queue, vhost):
    """RabbitMQ's words to somebody who asks for another connection's exclusive queue."""
    return (
        f"cannot obtain exclusive access to locked {described('queue', queue.name, vhost)}. It could be "
        "originally declared on another connection or the exclusive property value does not match that of "
        "the original declaration."
    )
