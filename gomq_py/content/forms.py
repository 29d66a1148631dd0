"""Forms translate message properties of other protocols into AMQP basic properties. No I/O.

Imports only gomq_py.octets and gomq_py.errors. A message of another protocol is stored as its server received
it, under its own ``kind`` (storage.format.record). ``Message.get_properties`` calls the Form registered for
the kind. All brokers of a process share the table of Forms.
"""
from gomq_py import octets
from gomq_py.errors import Malformed

# The kind of content whose properties are basic properties already and are delivered as stored.
BASIC = 1

# Most octets of properties that a Form writes: they fit in one frame of the usual frame_max, 131072, beside
# x-stream-offset and the frame's own octets.
BASIC_MAX = 65536


class Form:
    """Translates the properties of one ``kind`` of messages into AMQP basic properties. In methods
    ``p`` points to a message's bytes. ``routing_at`` and ``properties_at`` are offsets in these bytes.
    """

    __slots__ = ("kind",)

    def __init__(self, kind):
        self.kind = kind

    def basic_bound(self, properties_length):
        """Return the most bytes that ``write_basic()`` writes for properties of this length."""
        raise NotImplementedError

    def write_basic(self, out, at, most, p, routing_at, properties_at, properties_length, flags):
        """Write the basic properties of a message at ``out[at]``. Leave out properties that do not fit.

        Writes at most ``most`` and at most ``basic_bound()`` bytes; ``out`` must have room for the smaller
        number. ``most`` is LEAST_ROOM or more. Returns the offset after the last byte written, or
        -1 if the message's properties are malformed.
        """
        raise NotImplementedError

    def basic(self, p, routing_at, properties_at, properties_length, flags, most):
        """Return the basic properties of a message, at most ``most`` bytes. Raises Malformed."""
        data = bytearray(self.basic_bound(properties_length))
        end = self.write_basic(
            octets.pointer(data), 0, most, p, routing_at, properties_at, properties_length, flags)
        if end < 0:
            raise malformed(self.kind)
        return bytes(data[:end])


# Octets that write_basic() can always use: a header frame of the smallest frame_max, 4096, has more.
LEAST_ROOM = 4000

_FORMS: list = [None] * 256


def register(form):
    """Register a Form for its ``kind``, replacing any earlier. Raises ValueError for BASIC or above 255."""
    if not BASIC < form.kind < 256:
        raise ValueError(f"content of kind {form.kind} needs no form, or cannot be stored")
    _FORMS[form.kind] = form


def forget(kind):
    _FORMS[kind] = None


def malformed(kind):
    """Return the Malformed error for properties that the Form of this kind cannot read."""
    return Malformed(f"malformed content of kind {kind}")


def of(kind):
    """Return the Form registered for a kind. Raises Malformed if none is registered."""
    form = _FORMS[kind]
    if form is None:
        raise Malformed(f"content of kind {kind}, which is unknown here")
    return form
