"""Basic properties: scans them in place as a message passes, and decodes them only for a reader.

The bytes are those of a content header after class, weight and body size (§4.2.6.1): a u16 of flags, then
the flagged properties in this order:

    bit 15 content_type s   14 content_encoding s   13 headers F   12 delivery_mode B   11 priority B
    10 correlation_id s   9 reply_to s   8 expiration s   7 message_id s   6 timestamp T   5 type s
    4 user_id s   3 app_id s   2 cluster_id s
    (s short string, F table, B u8, T u64)

Bit 1 names no property and is ignored, as in RabbitMQ. Bit 0 announces a second flag word, which the basic
class does not have, so properties with bit 0 are malformed. No function reads past the end that it is given.
The arguments ``p``, ``at`` and ``end`` are as in content.fields.

The headers of a message in a delayed exchange (broker.exchanges.delayed) are read in place, too. ``due_ms()``
returns when the message is due, ``negate()`` copies the table for the next exchange. Both return UNTOLD for
types that clients rarely use; the exchange then decodes the table.
"""
from struct import Struct
from typing import TYPE_CHECKING, Any

from gomq_py import octets
from gomq_py.content import fields
from gomq_py.content.fields import decode_table, encode_shortstr, encode_table, seconds_of
from gomq_py.errors import Malformed

if TYPE_CHECKING:
    from datetime import datetime

CONTENT_TYPE, CONTENT_ENCODING, HEADERS, DELIVERY_MODE, PRIORITY = 0x8000, 0x4000, 0x2000, 0x1000, 0x0800
CORRELATION_ID, REPLY_TO, EXPIRATION, MESSAGE_ID, TIMESTAMP = 0x0400, 0x0200, 0x0100, 0x0080, 0x0040
TYPE, USER_ID, APP_ID, CLUSTER_ID, CONTINUED = 0x0020, 0x0010, 0x0008, 0x0004, 0x0001

# Values of delivery_mode.
TRANSIENT, PERSISTENT = 1, 2

# (name, flag, kind) in wire order
FIELDS = (
    ("content_type", 0x8000, "shortstr"), ("content_encoding", 0x4000, "shortstr"),
    ("headers", 0x2000, "table"), ("delivery_mode", 0x1000, "octet"),
    ("priority", 0x0800, "octet"), ("correlation_id", 0x0400, "shortstr"), ("reply_to", 0x0200, "shortstr"),
    ("expiration", 0x0100, "shortstr"),
    ("message_id", 0x0080, "shortstr"), ("timestamp", 0x0040, "timestamp"), ("type", 0x0020, "shortstr"),
    ("user_id", 0x0010, "shortstr"), ("app_id", 0x0008, "shortstr"), ("cluster_id", 0x0004, "shortstr"),
)

EMPTY_TABLE = encode_table({})

# The headers that delay a message: for so many milliseconds, and until a time.
X_DELAY, X_DELIVER_AT = "x-delay", "x-deliver-at"
# The header that repeats a message (broker.exchanges.schedule).
X_SCHEDULE = "x-schedule"
_DELAY, _DELIVER_AT = X_DELAY.encode(), X_DELIVER_AT.encode()  # kept, because C points there
_SCHEDULE = X_SCHEDULE.encode()
DELAY, DELAY_BYTES = _DELAY, len(_DELAY)
DELIVER_AT, DELIVER_AT_BYTES = _DELIVER_AT, len(_DELIVER_AT)
SCHEDULE, SCHEDULE_BYTES = _SCHEDULE, len(_SCHEDULE)
# Ten years: a longer delay is a mistake, and its sum with the clock must not overflow.
MAX_DELAY_MS = 10 * 365 * 24 * 3600 * 1000
MOST_MS = MAX_DELAY_MS
# The largest integer that a header holds.
LARGEST_INTEGER = (1 << 63) - 1
LARGEST = LARGEST_INTEGER
LAST_DATE_S = fields.LAST_DATETIME_S
# Most octets that a table grows when negated: an integer of one octet then takes four.
MOST_LONGER = 6

# Answers of due_ms(): not delayed; ask broker.exchanges.delayed.due_ms_of().
NOT_DELAYED = 0
UNTOLD = -1

_SHORT, _LONGLONG = Struct(">H"), Struct(">Q")


def skip_shortstr(p, at, end):
    """Return the offset after the short string at ``at``; -1 if the string runs past ``end``."""
    if at >= end or p[at] > end - at - 1:
        return -1
    return at + 1 + p[at]


def headers_at(p, at):
    """Return the offset where headers are, or would be, in the already checked properties at ``at``."""
    flags = octets.be16(p, at)
    at += 2
    if flags & CONTENT_TYPE:
        at += 1 + p[at]
    if flags & CONTENT_ENCODING:
        at += 1 + p[at]
    return at


class PropertyScan:
    """Finds the properties that the broker uses. ``scan()`` fills the same object again for every message.

        headers_at          offset of the table's u32 size, which ``headers_length`` counts too
        expiration_at, user_id_at, reply_to_at
                            offsets of a short string's u8 size
        delivery_mode, priority
                            0 when absent
        special             the headers have CC, BCC or mqtt.retain

    Offsets are into the scanned buffer; -1 for an absent property.
    """

    __slots__ = (
        "flags", "headers_at", "headers_length", "expiration_at", "user_id_at", "reply_to_at",
        "delivery_mode", "priority", "special",
    )

    def __init__(self):
        self.flags = 0
        self.headers_at = self.expiration_at = self.user_id_at = self.reply_to_at = -1
        self.headers_length = 0
        self.delivery_mode = self.priority = 0
        self.special = False

    def scan(self, p, start, end):
        """Scan properties that must fill [``start``, ``end``). Return 0, or -1 if they are malformed."""
        self.headers_at = self.expiration_at = self.user_id_at = self.reply_to_at = -1
        self.headers_length = 0
        self.delivery_mode = self.priority = 0
        self.special = False
        if end - start < 2:
            return -1
        flags = octets.be16(p, start)
        self.flags = flags
        if flags & CONTINUED:
            return -1
        at = start + 2
        if flags & 0xF800:
            at = self.scan_head(p, at, end)
            if at < 0:
                return -1
        if flags & 0x07FC:
            at = self.scan_tail(p, at, end)
        return 0 if at == end else -1

    def scan_head(self, p, at, end):
        """Scan content_type to priority. Return the offset after them, or -1 if they are malformed."""
        if self.flags & CONTENT_TYPE:
            at = skip_shortstr(p, at, end)
            if at < 0:
                return -1
        if self.flags & CONTENT_ENCODING:
            at = skip_shortstr(p, at, end)
            if at < 0:
                return -1
        if self.flags & HEADERS:
            if end - at < 4:
                return -1
            self.headers_at = at
            self.headers_length = 4 + octets.be32(p, at)
            if self.headers_length > end - at:
                return -1
            special = fields.check_table(p, at + 4, at + self.headers_length, 0)
            if special < 0:
                return -1
            self.special = special > 0
            at += self.headers_length
        if self.flags & DELIVERY_MODE:
            if at >= end:
                return -1
            self.delivery_mode = p[at]
            at += 1
        if self.flags & PRIORITY:
            if at >= end:
                return -1
            self.priority = p[at]
            at += 1
        return at

    def scan_tail(self, p, at, end):
        """Scan correlation_id to cluster_id. Return the offset after them, or -1 if they are malformed."""
        flags = CORRELATION_ID
        while flags >= CLUSTER_ID:
            if self.flags & flags:
                if flags == TIMESTAMP:
                    at = at + 8 if end - at >= 8 else -1
                else:
                    if flags == EXPIRATION:
                        self.expiration_at = at
                    elif flags == REPLY_TO:
                        self.reply_to_at = at
                    elif flags == USER_ID:
                        self.user_id_at = at
                    at = skip_shortstr(p, at, end)
                if at < 0:
                    return -1
            flags >>= 1
        return at

    def scan_octets(self, data):
        """Scan basic properties in a bytes-like object. Return True if they are well-formed."""
        return self.scan(octets.pointer(data), 0, len(data)) == 0


class PropertyEdit:
    """Edits encoded basic properties. Properties that are not set stay byte for byte. The caller may
    replace ``headers`` (raw table, u32 size first), and remove the ``expiration`` (text) by setting None.
    """

    __slots__ = ("headers", "expiration", "_properties", "_scan")

    def __init__(self, properties):
        """Parse ``properties``. Raises ValueError if malformed: protocol servers refuse such messages."""
        scan = PropertyScan()
        if not scan.scan_octets(properties):
            raise ValueError("malformed basic properties")
        self._properties = properties
        self._scan = scan
        at = scan.headers_at
        self.headers = properties[at:at + scan.headers_length] if at >= 0 else EMPTY_TABLE
        at = scan.expiration_at
        self.expiration = (
            None if at < 0 else properties[at + 1:at + 1 + properties[at]].decode("utf-8", "surrogateescape")
        )

    def octets(self):
        """Return the edited properties, encoded. Empty headers are left out if the original had none."""
        properties, scan = self._properties, self._scan
        flags = scan.flags & ~EXPIRATION
        start = scan.headers_at if scan.headers_at >= 0 else self._place_of_headers()
        end = start + scan.headers_length if scan.headers_at >= 0 else start
        headers = self.headers
        if scan.headers_at >= 0 or headers != EMPTY_TABLE:
            flags |= HEADERS
        else:
            headers = b""
        if self.expiration is None and scan.expiration_at >= 0:
            after = scan.expiration_at + 1 + properties[scan.expiration_at]
            rest = properties[end:scan.expiration_at] + properties[after:]
        else:
            flags |= scan.flags & EXPIRATION
            rest = properties[end:]
        return flags.to_bytes(2, "big") + properties[2:start] + headers + rest

    def _place_of_headers(self):
        """Return the offset for new headers: after content_type and content_encoding."""
        at = 2
        for flag in (CONTENT_TYPE, CONTENT_ENCODING):
            if self._scan.flags & flag:
                at += 1 + self._properties[at]
        return at


class Properties:
    """A message's properties as attributes by name. An absent property is None. ``headers`` is a dict,
    ``timestamp`` seconds since 1970 (or a datetime), the rest str or int.
    """

    __slots__ = (
        "content_type", "content_encoding", "headers", "delivery_mode", "priority", "correlation_id",
        "reply_to", "expiration", "message_id", "timestamp", "type", "user_id", "app_id", "cluster_id",
    )

    if TYPE_CHECKING:  # the slots are set by names of FIELDS, which a type checker cannot see
        content_type: str | None
        content_encoding: str | None
        headers: dict[str, Any] | None
        delivery_mode: int | None
        priority: int | None
        correlation_id: str | None
        reply_to: str | None
        expiration: str | None
        message_id: str | None
        timestamp: int | datetime | None
        type: str | None
        user_id: str | None
        app_id: str | None
        cluster_id: str | None

    def __init__(self, **values: Any) -> None:
        for name, _, _ in FIELDS:
            setattr(self, name, values.pop(name, None))
        if values:
            raise TypeError(f"not a basic property: {', '.join(sorted(values))}")

    @classmethod
    def decode(cls, data: bytes) -> "Properties":
        """Decode properties, flags first. Raises Malformed, also if other bytes follow."""
        data = bytes(data)
        if not PropertyScan().scan_octets(data):
            raise Malformed("malformed basic properties")
        flags = _SHORT.unpack_from(data)[0]
        at = 2
        values: dict[str, Any] = {}
        for name, flag, kind in FIELDS:
            if not flags & flag:
                continue
            if kind == "shortstr":
                end = at + 1 + data[at]
                values[name] = data[at + 1:end].decode("utf-8", "surrogateescape")
            elif kind == "octet":
                values[name], end = data[at], at + 1
            elif kind == "table":
                values[name], end = decode_table(data, at)
            else:
                values[name], end = _LONGLONG.unpack_from(data, at)[0], at + 8
            at = end
        return cls(**values)

    def encode(self) -> bytes:
        """Encode properties, flags first. Raises ValueError or TypeError for an invalid value."""
        flags = 0
        parts = [b""]
        for name, flag, kind in FIELDS:
            value = getattr(self, name)
            if value is None:
                continue
            flags |= flag
            if kind == "shortstr":
                parts.append(encode_shortstr(value))
            elif kind == "octet":
                parts.append(bytes((value,)))
            elif kind == "table":
                parts.append(encode_table(value))
            else:
                parts.append(_LONGLONG.pack(seconds_of(value)))
        parts[0] = _SHORT.pack(flags)
        return b"".join(parts)

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name, _, _ in FIELDS if getattr(self, name) is not None}

    def __eq__(self, other):
        return isinstance(other, Properties) and self.as_dict() == other.as_dict()

    def __hash__(self):
        return hash(self.encode())

    def __repr__(self):
        return "Properties(" + ", ".join(f"{name}={value!r}" for name, value in self.as_dict().items()) + ")"


def due_ms(p, at, end, arrived_ms):
    """Return the Unix time in ms when a message is due, from its headers; NOT_DELAYED without a delay.

    The entries in [``at``, ``end``) are checked already. ``arrived_ms`` is when the message arrived, in Unix
    ms. Returns UNTOLD for x-schedule, and for values that must be decoded to Python first.
    """
    delay_at = deliver_at = -1
    while at < end:
        value = at + 1 + p[at]
        if delay_at < 0 and is_key(p, at, DELAY, DELAY_BYTES):
            delay_at = value
        elif deliver_at < 0 and is_key(p, at, DELIVER_AT, DELIVER_AT_BYTES):
            deliver_at = value
        elif is_key(p, at, SCHEDULE, SCHEDULE_BYTES):
            return UNTOLD
        at = fields.skip_value(p, value)
    due = NOT_DELAYED
    if delay_at >= 0:
        if not fields.is_integer(p, delay_at):
            return UNTOLD
        number = fields.integer(p, delay_at)
        if number > 0:
            due = arrived_ms + (number if number < MOST_MS else MOST_MS)
    if deliver_at >= 0:
        if not is_told(p, deliver_at):
            return UNTOLD
        number = told(p, deliver_at)
        if number > 0:
            due = number if number < arrived_ms + MOST_MS else arrived_ms + MOST_MS
    return due


def negate(target, to, p, at, end):
    """Copy the header entries in [``at``, ``end``) to ``target[to]``, with the two delay headers negated.

    The copy may be MOST_LONGER bytes longer. Returns the offset after it, or UNTOLD if ``told()`` cannot
    read one of the two values.
    """
    delay_at = deliver_at = -1
    while at < end:
        value = at + 1 + p[at]
        after = fields.skip_value(p, value)
        length = after - at
        if delay_at < 0 and is_key(p, at, DELAY, DELAY_BYTES):
            delay_at = value
            length = value - at
        elif deliver_at < 0 and is_key(p, at, DELIVER_AT, DELIVER_AT_BYTES):
            deliver_at = value
            length = value - at
        octets.copy(target, to, p, at, length)
        to += length
        if at + length < after:
            if not is_told(p, value):
                return UNTOLD
            number = told(p, value)
            to = fields.put_integer(target, to, -number if number > 0 else number)
        at = after
    return to


def is_key(p, at, key, length):
    """Return whether the table entry at ``at`` has this ``key``, given as ``length`` bytes without a size."""
    return p[at] == length and octets.same(p, at + 1, key, 0, length)


def is_told(p, at):
    """Return whether told() can read the value at ``at``: a timestamp, or an integer above -2**63."""
    if p[at] == fields.TIMESTAMP:
        return octets.be64(p, at + 1) <= LAST_DATE_S
    return fields.is_integer(p, at) and fields.integer(p, at) >= -LARGEST


def told(p, at):
    """Decode the value at ``at``: an integer, or a timestamp in milliseconds."""
    return octets.be64(p, at + 1) * 1000 if p[at] == fields.TIMESTAMP else fields.integer(p, at)
