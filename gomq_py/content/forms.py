"""Forms: how content of each kind is read as basic properties.

A leaf, no I/O.

The core reads of a message what AMQP calls its basic properties (content.properties). Content that came by
another protocol is stored as its door took it, under a kind of its own (storage.format.record), and
translated only where somebody wants it as basic properties. Whoever adds a kind registers the Form for it,
which ``Message.get_properties`` asks.

The table is all that is kept here. Forms are pure functions and the same for every broker of a process.
"""
from gomq_py import octets
from gomq_py.errors import Malformed

# The kind whose properties are basic already, and are delivered as they are stored.
BASIC = 1

# The longest properties that a Form writes. They are one frame of AMQP: it fits the frame_max of 131072 that
# nearly all clients have, beside x-stream-offset and the frame's own octets.
BASIC_MAX = 65536


class Form:
    """Content of one ``kind``. Each part of a message lies where Message says, in ``p``."""

    __slots__ = ("kind",)

    def __init__(self, kind):
        self.kind = kind

    def basic_bound(self, properties_length):
        """How many octets write_basic() writes at most."""
        raise NotImplementedError

    def write_basic(self, out, at, most, p, routing_at, properties_at, properties_length, flags):
        """Write basic properties at ``out[at]``, where there is room for basic_bound(): ``most`` octets (at
        least LEAST_ROOM), without what does not fit.

        Returns the offset behind them; -1: the content is malformed.
        """
        raise NotImplementedError

    def basic(self, p, routing_at, properties_at, properties_length, flags, most):
        """The basic properties as bytes, ``most`` of them. Raises Malformed."""
        data = bytearray(self.basic_bound(properties_length))
        end = self.write_basic(
            octets.pointer(data), 0, most, p, routing_at, properties_at, properties_length, flags)
        if end < 0:
            raise malformed(self.kind)
        return bytes(data[:end])


# What write_basic() may count on: less than the smallest frame_max of AMQP, 4096, leaves of a header frame.
LEAST_ROOM = 4000

_FORMS: list = [None] * 256


def register(form):
    """``form`` reads its kind from now on. The same kind may be registered again."""
    if not BASIC < form.kind < 256:
        raise ValueError(f"content of kind {form.kind} needs no form, or cannot be stored")
    _FORMS[form.kind] = form


def forget(kind):
    """Nobody reads this kind any more."""
    _FORMS[kind] = None


def malformed(kind):
    """The error of content that its Form cannot read."""
    return Malformed(f"malformed content of kind {kind}")


def of(kind):
    """The Form of a kind. Raises Malformed for one that nobody has registered."""
    form = _FORMS[kind]
    if form is None:
        raise Malformed(f"content of kind {kind}, which is unknown here")
    return form
