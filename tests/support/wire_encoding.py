"""AMQP 0-9-1 octets for tests, written from the specification and from nothing else.

Below wire_script. Imports nothing of gomq_py: the broker and our client share a codec, and would share its
mistakes. Tests build good frames with these functions, bad ones by cutting, padding or patching what they
return. Decoding is strict: leftover octets fail the test.
"""
import struct
from dataclasses import dataclass, field

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
FRAME_END = b"\xce"
HEARTBEAT_FRAME = b"\x08\x00\x00\x00\x00\x00\x00\xce"

# Class and method number, name, fields in wire order; `bit`s that follow each other share an octet, lowest
# first (AMQP 0-9-1 §4.2.5.2).
SPECIFICATION = """
10.10 connection.start version_major:octet version_minor:octet server_properties:table mechanisms:longstr locales:longstr
10.11 connection.start-ok client_properties:table mechanism:shortstr response:longstr locale:shortstr
10.20 connection.secure challenge:longstr
10.21 connection.secure-ok response:longstr
10.30 connection.tune channel_max:short frame_max:long heartbeat:short
10.31 connection.tune-ok channel_max:short frame_max:long heartbeat:short
10.40 connection.open virtual_host:shortstr reserved_1:shortstr reserved_2:bit
10.41 connection.open-ok reserved_1:shortstr
10.50 connection.close reply_code:short reply_text:shortstr failing_class:short failing_method:short
10.51 connection.close-ok
10.60 connection.blocked reason:shortstr
10.61 connection.unblocked
10.70 connection.update-secret new_secret:longstr reason:shortstr
10.71 connection.update-secret-ok
20.10 channel.open reserved_1:shortstr
20.11 channel.open-ok reserved_1:longstr
20.20 channel.flow active:bit
20.21 channel.flow-ok active:bit
20.40 channel.close reply_code:short reply_text:shortstr failing_class:short failing_method:short
20.41 channel.close-ok
30.10 access.request realm:shortstr exclusive:bit passive:bit active:bit write:bit read:bit
30.11 access.request-ok ticket:short
40.10 exchange.declare ticket:short exchange:shortstr type:shortstr passive:bit durable:bit auto_delete:bit internal:bit no_wait:bit arguments:table
40.11 exchange.declare-ok
40.20 exchange.delete ticket:short exchange:shortstr if_unused:bit no_wait:bit
40.21 exchange.delete-ok
40.30 exchange.bind ticket:short destination:shortstr source:shortstr routing_key:shortstr no_wait:bit arguments:table
40.31 exchange.bind-ok
40.40 exchange.unbind ticket:short destination:shortstr source:shortstr routing_key:shortstr no_wait:bit arguments:table
40.51 exchange.unbind-ok
50.10 queue.declare ticket:short queue:shortstr passive:bit durable:bit exclusive:bit auto_delete:bit no_wait:bit arguments:table
50.11 queue.declare-ok queue:shortstr message_count:long consumer_count:long
50.20 queue.bind ticket:short queue:shortstr exchange:shortstr routing_key:shortstr no_wait:bit arguments:table
50.21 queue.bind-ok
50.30 queue.purge ticket:short queue:shortstr no_wait:bit
50.31 queue.purge-ok message_count:long
50.40 queue.delete ticket:short queue:shortstr if_unused:bit if_empty:bit no_wait:bit
50.41 queue.delete-ok message_count:long
50.50 queue.unbind ticket:short queue:shortstr exchange:shortstr routing_key:shortstr arguments:table
50.51 queue.unbind-ok
60.10 basic.qos prefetch_size:long prefetch_count:short global_:bit
60.11 basic.qos-ok
60.20 basic.consume ticket:short queue:shortstr consumer_tag:shortstr no_local:bit no_ack:bit exclusive:bit no_wait:bit arguments:table
60.21 basic.consume-ok consumer_tag:shortstr
60.30 basic.cancel consumer_tag:shortstr no_wait:bit
60.31 basic.cancel-ok consumer_tag:shortstr
60.40 basic.publish ticket:short exchange:shortstr routing_key:shortstr mandatory:bit immediate:bit
60.50 basic.return reply_code:short reply_text:shortstr exchange:shortstr routing_key:shortstr
60.60 basic.deliver consumer_tag:shortstr delivery_tag:longlong redelivered:bit exchange:shortstr routing_key:shortstr
60.70 basic.get ticket:short queue:shortstr no_ack:bit
60.71 basic.get-ok delivery_tag:longlong redelivered:bit exchange:shortstr routing_key:shortstr message_count:long
60.72 basic.get-empty reserved_1:shortstr
60.80 basic.ack delivery_tag:longlong multiple:bit
60.90 basic.reject delivery_tag:longlong requeue:bit
60.100 basic.recover-async requeue:bit
60.110 basic.recover requeue:bit
60.111 basic.recover-ok
60.120 basic.nack delivery_tag:longlong multiple:bit requeue:bit
85.10 confirm.select no_wait:bit
85.11 confirm.select-ok
90.10 tx.select
90.11 tx.select-ok
90.20 tx.commit
90.21 tx.commit-ok
90.30 tx.rollback
90.31 tx.rollback-ok
"""

METHODS = {}
NAMES = {}
for _line in SPECIFICATION.split("\n"):
    if _line:
        _number, _name, *_fields = _line.split(" ")
        _class_id, _method_id = _number.split(".")
        METHODS[_name] = (
            int(_class_id), int(_method_id), tuple(tuple(_field.split(":")) for _field in _fields)
        )
        NAMES[int(_class_id), int(_method_id)] = _name

INTEGERS = {"octet": ">B", "short": ">H", "long": ">I", "longlong": ">Q", "timestamp": ">Q"}
# Field table value types with a fixed size, by RabbitMQ's tags (https://www.rabbitmq.com/amqp-0-9-1-errata).
FIXED_FIELDS = {
    "t": ">?", "b": ">b", "B": ">B", "s": ">h", "u": ">H", "I": ">i", "i": ">I", "l": ">q", "L": ">q",
    "f": ">f", "d": ">d", "T": ">Q",
}
# Property names in flag order, from bit 15 down.
PROPERTIES = (
    ("content_type", "shortstr"), ("content_encoding", "shortstr"), ("headers", "table"),
    ("delivery_mode", "octet"), ("priority", "octet"),
    ("correlation_id", "shortstr"), ("reply_to", "shortstr"), ("expiration", "shortstr"),
    ("message_id", "shortstr"), ("timestamp", "timestamp"),
    ("type", "shortstr"), ("user_id", "shortstr"), ("app_id", "shortstr"), ("cluster_id", "shortstr"),
)


@dataclass
class Method:
    """A decoded method: its name, its fields, and its payload as it came."""

    name: str
    fields: dict = field(default_factory=dict)
    payload: bytes = b""

    def __getattr__(self, name):
        try:
            return self.__dict__["fields"][name]
        except KeyError:
            raise AttributeError(name) from None


def as_octets(value):
    """Text as UTF-8, octets as they are."""
    return value.encode() if isinstance(value, str) else bytes(value)


def shortstr(value):
    """At most 255 octets after a length octet."""
    octets = as_octets(value)
    return bytes((len(octets),)) + octets


def longstr(value):
    """Octets after a 32-bit length."""
    octets = as_octets(value)
    return struct.pack(">I", len(octets)) + octets


def field_value(tag, value):
    """One field table value with its type tag: `field_value("I", -1)` is b"I\\xff\\xff\\xff\\xff"."""
    if tag in FIXED_FIELDS:
        content = struct.pack(FIXED_FIELDS[tag], value)
    elif tag in "Sx":
        content = longstr(value)
    elif tag == "D":
        content = struct.pack(">BI", *value)
    elif tag == "F":
        content = table(value)
    elif tag == "A":
        content = longstr(b"".join(any_value(item) for item in value))
    else:
        content = b""
    return tag.encode() + content


def any_value(value):
    """A field value from a Python value; octets are taken as a value already encoded,
    so that tests choose the exact type.
    """
    if isinstance(value, bytes):
        return value
    for kind, tag in ((bool, "t"), (str, "S"), (float, "d"), (dict, "F"), (list, "A")):
        if isinstance(value, kind):
            return field_value(tag, value)
    if value is None:
        return b"V"
    return field_value("I" if -2 ** 31 <= value < 2 ** 31 else "l", value)


def table(entries):
    """A field table with its length; octets are taken as a table already encoded, length included."""
    if isinstance(entries, (bytes, bytearray)):
        return bytes(entries)
    return longstr(b"".join(shortstr(name) + any_value(value) for name, value in (entries or {}).items()))


def encode_field(kind, value):
    """One method or property field that is not a bit."""
    if kind in INTEGERS:
        return struct.pack(INTEGERS[kind], value or 0)
    return {"shortstr": shortstr, "longstr": longstr, "table": table}[kind](
        value or b"" if kind != "table" else value
    )


def method(name, **values):
    """The payload of a method frame; what is not named is zero, empty or false."""
    class_id, method_id, fields = METHODS[name]
    unknown = set(values) - {field_name for field_name, _ in fields}
    if unknown:
        raise TypeError(f"{name} has no {unknown}")
    payload = struct.pack(">HH", class_id, method_id)
    bits = []
    for field_name, kind in fields:
        if kind == "bit":
            bits.append(bool(values.get(field_name)))
            continue
        payload += pack_bits(bits)
        bits = []
        payload += encode_field(kind, values.get(field_name))
    return payload + pack_bits(bits)


def pack_bits(bits):
    """Consecutive bit fields as one octet, the first one lowest; nothing when there are none."""
    return bytes((sum(bit << position for position, bit in enumerate(bits)),)) if bits else b""


def frame(type_, channel, payload):
    """A whole frame."""
    return struct.pack(">BHI", type_, channel, len(payload)) + payload + FRAME_END


def method_frame(channel, name, **values):
    """A whole method frame."""
    return frame(METHOD, channel, method(name, **values))


def properties(**values):
    """Property flags and values as they follow the body size in a content header."""
    flags, octets = 0, b""
    for position, (name, kind) in enumerate(PROPERTIES):
        if name in values:
            flags |= 1 << (15 - position)
            octets += encode_field(kind, values.pop(name))
    if values:
        raise TypeError(f"no such properties: {values}")
    return struct.pack(">H", flags) + octets


def header_frame(channel, body_size, property_octets=b"\x00\x00", class_id=60, weight=0):
    """A content header frame."""
    return frame(HEADER, channel, struct.pack(">HHQ", class_id, weight, body_size) + property_octets)


def publish_frames(
    channel, exchange, routing_key, body=b"", property_octets=b"\x00\x00", mandatory=False, immediate=False,
    body_frame_max=131064,
):
    """Method, header and body frames of one publish; the body is cut into frames of at most
    `body_frame_max` octets of payload.
    """
    body = as_octets(body)
    octets = method_frame(
        channel, "basic.publish", exchange=exchange, routing_key=routing_key, mandatory=mandatory,
        immediate=immediate,
    )
    octets += header_frame(channel, len(body), property_octets)
    for start in range(0, len(body), body_frame_max):
        octets += frame(BODY, channel, body[start:start + body_frame_max])
    return octets


class Cursor:
    """Reads fields from a payload; running off the end or leaving octets over raises."""

    def __init__(self, octets):
        self.octets = octets
        self.offset = 0

    def take(self, count):
        """The next `count` octets."""
        if self.offset + count > len(self.octets):
            raise ValueError(f"{count} octets wanted at {self.offset} of {len(self.octets)}: {self.octets!r}")
        self.offset += count
        return self.octets[self.offset - count:self.offset]

    def unpack(self, layout):
        """One number."""
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    def longstr(self):
        """Octets after a 32-bit length."""
        return self.take(self.unpack(">I"))

    def shortstr(self):
        """Text after a length octet."""
        return self.take(self.unpack(">B")).decode("utf-8", "surrogateescape")

    def table(self):
        """A field table as a dict of Python values."""
        inner, entries = type(self)(self.longstr()), {}
        while not inner.exhausted:
            name = inner.shortstr()
            entries[name] = inner.value()
        return entries

    def value(self):
        """One tagged field value."""
        tag = self.take(1).decode("latin-1")
        if tag in FIXED_FIELDS:
            return self.unpack(FIXED_FIELDS[tag])
        if tag == "S":
            return self.longstr().decode("utf-8", "surrogateescape")
        if tag == "x":
            return self.longstr()
        if tag == "D":
            return self.unpack(">B"), self.unpack(">I")
        if tag == "F":
            return self.table()
        if tag == "A":
            inner, items = type(self)(self.longstr()), []
            while not inner.exhausted:
                items.append(inner.value())
            return items
        if tag == "V":
            return None
        raise ValueError(f"unknown field type {tag!r}")

    @property
    def exhausted(self):
        """Whether everything was read."""
        return self.offset == len(self.octets)


def decode_method(payload):
    """A method payload as a Method."""
    cursor = Cursor(payload)
    name = NAMES[cursor.unpack(">H"), cursor.unpack(">H")]
    fields, bits, bit = {}, 0, 8
    for field_name, kind in METHODS[name][2]:
        if kind == "bit":
            if bit == 8:
                bits, bit = cursor.unpack(">B"), 0
            fields[field_name] = bool(bits >> bit & 1)
            bit += 1
            continue
        bit = 8
        fields[field_name] = cursor.unpack(INTEGERS[kind]) if kind in INTEGERS else getattr(cursor, kind)()
    if not cursor.exhausted:
        raise ValueError(f"{name} has octets left over: {payload[cursor.offset:]!r}")
    return Method(name, fields, payload)


class FieldsInAnyOrder(Cursor):
    """Reads a field table as a sorted list of its fields, so that tables with the same fields are equal."""

    def table(self):
        inner, fields = type(self)(self.longstr()), []
        while not inner.exhausted:
            name, start = inner.shortstr(), inner.offset
            tag, value = inner.octets[start:start + 1], inner.value()
            fields.append((name, tag, value if tag in b"FA" else inner.octets[start:inner.offset]))
        return sorted(fields, key=repr)


class PropertyOctets(bytes):
    """Property flags and values whose headers are compared in any order: RabbitMQ 4 sorts them."""

    __hash__ = bytes.__hash__

    def __eq__(self, other):
        return self._read(self) == self._read(other)

    @staticmethod
    def _read(octets):
        return decode_properties(octets, FieldsInAnyOrder)


class FieldOctets(PropertyOctets):
    """The value of a field, likewise."""

    __hash__ = bytes.__hash__

    @staticmethod
    def _read(octets):
        return FieldsInAnyOrder(octets).value()


def decode_properties(octets, reader=Cursor):
    """Property flags and values as a dict of those present; ``reader``: the Cursor that reads them."""
    cursor = reader(octets)
    flags, values = cursor.unpack(">H"), {}
    for position, (name, kind) in enumerate(PROPERTIES):
        if flags & 1 << (15 - position):
            values[name] = cursor.unpack(INTEGERS[kind]) if kind in INTEGERS else getattr(cursor, kind)()
    if not cursor.exhausted:
        raise ValueError(f"properties have octets left over: {octets!r}")
    return values
