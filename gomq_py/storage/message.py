"""Message: the offsets of one message's parts in a buffer.

The AMQP, MQTT and HTTP servers, queues and stores pass on a Message instead of copying the message. Each
reader or writer reuses one Message, so that publishing and delivering create no Python object per message.

``buffer`` is the connection's read buffer (publishing), the mapping of a segment file (delivering) or a bytes
object held by ``owner`` (slower callers, with ``assign``). The buffer is valid until the next greenlet
switch, ``peek`` or ``read``.
"""
from gomq_py import octets
from gomq_py.content import forms
from gomq_py.content.gathered import Gathered

BASIC = forms.BASIC  # so that its .pxd can type it
PRIORITY_FLAG = 0x08  # in the first octet of basic properties: of content.properties.PRIORITY


class Message:
    """A message, as offsets of its parts in ``buffer``: routing (exchange and routing key as adjacent short
    strings), properties (as sent by the publisher; ``kind``: their encoding, see content.forms) and body.

        timestamp_ms      Unix milliseconds of publishing
        expires_at_ms     Unix milliseconds; 0: never
        location          number that identifies the message in its store
        ordinal           number of the record in its segment
        delivery_count    earlier deliveries that were requeued
        publisher         the client that published it, if routing needs it, else None
        at_once           append() writes the message to a file at once, not at the end of the batch
        may_wait          the publisher can wait until a thread has made files
        lacking           the method ``wait`` of the StoreLater that append() raised
        waits_until_ms    Unix milliseconds until which the message waits for a consumer before it is stored;
                          0: it does not wait
    """

    __slots__ = (
        "buffer", "owner", "routing_at", "routing_length", "properties_at", "properties_length", "body_at",
        "body_length", "timestamp_ms", "expires_at_ms", "location", "delivery_count", "kind", "flags",
        "priority", "persistent", "redelivered", "may_wait", "at_once", "lacking", "ordinal",
        "publisher", "waits_until_ms",
    )

    def __init__(self):
        owner = b""
        self.owner = owner
        self.buffer = octets.pointer(owner)
        self.routing_at = self.routing_length = self.properties_at = self.properties_length = 0
        self.body_at = self.body_length = 0
        self.timestamp_ms = self.expires_at_ms = self.location = self.waits_until_ms = 0
        self.delivery_count = self.flags = self.priority = self.ordinal = 0
        self.kind = BASIC
        self.persistent = self.redelivered = self.may_wait = self.at_once = False
        self.lacking = self.publisher = None

    def restamp(self, now_ms):
        """Set the time of publishing to ``now_ms``, and move the expiry by the same amount."""
        if self.expires_at_ms:
            self.expires_at_ms = self.expires_at_ms + now_ms - self.timestamp_ms
        self.timestamp_ms = now_ms

    def assign(
        self, exchange, routing_key, properties, body, timestamp_ms, expires_at_ms=0, priority=0,
        persistent=False,
    ):
        """Set the message to parts given as bytes, which are joined in a buffer that the message owns.

        ``exchange`` and ``routing_key`` have at most 255 bytes; ``properties`` are basic properties in wire
        form.
        """
        if len(exchange) > 255 or len(routing_key) > 255:
            raise ValueError("exchange and routing key are short strings: at most 255 bytes")
        head = b"".join(
            (bytes((len(exchange),)), exchange, bytes((len(routing_key),)), routing_key, properties))
        start = body.lead(head) if type(body) is Gathered else -1
        if start >= 0:
            self.owner = body
            self.buffer = octets.pointer(body.octets)
        else:
            start = 0
            owner = head + bytes(body)
            self.owner = owner
            self.buffer = octets.pointer(owner)
        self.routing_at = start
        self.routing_length = 2 + len(exchange) + len(routing_key)
        self.properties_at = start + self.routing_length
        self.properties_length = len(properties)
        self.body_at = start + len(head)
        self.body_length = len(body)
        self.timestamp_ms = timestamp_ms
        self.expires_at_ms = expires_at_ms
        self.priority = priority
        self.persistent = persistent
        self.location = self.delivery_count = self.flags = self.ordinal = self.waits_until_ms = 0
        self.kind = BASIC
        self.redelivered = False
        self.publisher = None

    def set_kind(self, kind, flags=0):
        """Set the properties' encoding ``kind`` (content.forms) and its ``flags``, whose bit 0 must be 0."""
        self.kind = kind
        self.flags = flags

    def own(self, properties=None):
        """Copy the parts into a new buffer that the message owns, so that it outlives the old buffer.
        ``properties``: new basic properties in wire form; None: keep the message's present properties.
        """
        if properties is None:
            properties = self.get_raw()
        else:
            self.kind = BASIC
            self.flags = 0
        owner = b"".join((
            bytes(self.buffer[self.routing_at:self.routing_at + self.routing_length]),
            properties,
            bytes(self.buffer[self.body_at:self.body_at + self.body_length]),
        ))
        self.owner = owner
        self.buffer = octets.pointer(owner)
        self.routing_at = 0
        self.properties_at = self.routing_length
        self.properties_length = len(properties)
        self.body_at = self.routing_length + self.properties_length

    def let_go(self):
        """Drop the buffer and all parts, so that a Message kept for reuse does not hold a body in memory."""
        owner = b""
        self.owner = owner
        self.buffer = octets.pointer(owner)
        self.routing_at = self.routing_length = self.properties_at = self.properties_length = 0
        self.body_at = self.body_length = 0

    def readdress(self, other, exchange, routing_key, properties, timestamp_ms, expires_at_ms=0):
        """Become a copy of ``other`` (body, priority, persistence) with new address, properties and times."""
        self.assign(
            exchange, routing_key, properties,
            bytes(other.buffer[other.body_at:other.body_at + other.body_length]), timestamp_ms, expires_at_ms,
            other.priority, other.persistent)

    def priority_or(self, default):
        """Return the message's priority, or ``default`` if the publisher set none."""
        if self.priority or not default:
            return self.priority
        names_one = self.kind == BASIC and self.buffer[self.properties_at] & PRIORITY_FLAG
        return 0 if names_one else default

    def get_exchange(self):
        length = self.buffer[self.routing_at]
        return bytes(self.buffer[self.routing_at + 1:self.routing_at + 1 + length])

    def get_routing_key(self):
        start = self.routing_at + 1 + self.buffer[self.routing_at]
        return bytes(self.buffer[start + 1:start + 1 + self.buffer[start]])

    def get_routing(self):
        """Return a copy of exchange name and routing key as stored: two adjacent short strings."""
        return bytes(self.buffer[self.routing_at:self.routing_at + self.routing_length])

    def get_properties(self, most=forms.BASIC_MAX):
        """Return a copy of the basic properties in wire form: flag words and fields of the content header
        frame.

        Properties of another kind are translated, into at most ``most`` bytes. ``most`` must be at least
        forms.LEAST_ROOM. Raises Malformed for properties that cannot be translated.
        """
        if self.kind != BASIC:
            return forms.of(self.kind).basic(
                self.buffer, self.routing_at, self.properties_at, self.properties_length, self.flags,
                min(most, forms.BASIC_MAX))
        return self.get_raw()

    def get_raw(self):
        """Return a copy of the properties as stored, in the encoding of their ``kind``."""
        return bytes(self.buffer[self.properties_at:self.properties_at + self.properties_length])

    def get_body(self):
        return bytes(self.buffer[self.body_at:self.body_at + self.body_length])

    def body_view(self):
        """Return a view of the body if ``owner`` is a Gathered, otherwise None."""
        if type(self.owner) is not Gathered:
            return None
        return self.owner.octets[self.body_at:self.body_at + self.body_length]

    def get_body_start(self, most):
        """Return a copy of at most ``most`` bytes from the start of the body."""
        return bytes(self.buffer[self.body_at:self.body_at + min(self.body_length, most)])

    def get_body_length(self):
        return self.body_length

    def describe(self):
        """Return the main fields as a dict, for callers and tests that are not compiled with this class."""
        return {
            "timestamp_ms": self.timestamp_ms, "expires_at_ms": self.expires_at_ms, "location": self.location,
            "delivery_count": self.delivery_count, "kind": self.kind, "flags": self.flags,
            "priority": self.priority,
            "persistent": bool(self.persistent), "redelivered": bool(self.redelivered),
        }
