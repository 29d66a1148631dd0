"""Fields: decodes and encodes the data types of MQTT (MQTT 5 §1.5).

    Byte, Two Byte Integer, Four Byte Integer   big-endian
    Variable Byte Integer                       1 to 4 bytes of 7 bits, lowest first; bit 7: another follows
    UTF-8 Encoded String, Binary Data           u16 length, bytes
    UTF-8 String Pair                           two strings
"""
from struct import Struct

from gomq_py.mqtt.wire.constants import MQTT_5, STRING_MAX, VARIABLE_MAX
from gomq_py.mqtt.wire.errors import MalformedPacket

_TWO, _FOUR = Struct(">H"), Struct(">I")


class Reader:
    """Decodes fields one after the other from ``octets[at:end]``. ``packet``: the packet's name, for error
    texts.

    Raises MalformedPacket if bytes are missing and, from MQTT 5 on, for a Variable Byte Integer that is
    longer than necessary. ``what``, in all methods: the field's name, for error texts.
    """

    __slots__ = ("octets", "at", "end", "packet", "version")

    def __init__(self, octets: bytes, at: int, end: int, packet: str, version: int) -> None:
        self.octets = octets
        self.at = at
        self.end = end
        self.packet = packet
        self.version = version

    def __bool__(self) -> bool:
        return self.at < self.end

    def fault(self, text: str) -> MalformedPacket:
        """Return a MalformedPacket error with this text, for the caller to raise."""
        return MalformedPacket(f"{self.packet}: {text}")

    # A CONNECT has a dozen fields, so the usual kinds of field take one call each.
    def take(self, count: int, what: str) -> bytes:
        start = self.at
        if count > self.end - start:
            raise self._missing(count, what)
        self.at = start + count
        return self.octets[start:start + count]

    def _missing(self, count: int, what: str) -> MalformedPacket:
        return self.fault(f"{what} takes {count} bytes of which {self.end - self.at} are there")

    def byte(self, what: str) -> int:
        at = self.at
        if at >= self.end:
            raise self._missing(1, what)
        self.at = at + 1
        return self.octets[at]

    def two_byte_integer(self, what: str) -> int:
        at = self.at
        if at + 2 > self.end:
            raise self._missing(2, what)
        self.at = at + 2
        return self.octets[at] << 8 | self.octets[at + 1]

    def four_byte_integer(self, what: str) -> int:
        return _FOUR.unpack(self.take(4, what))[0]

    def variable_byte_integer(self, what: str) -> int:
        """Read a Variable Byte Integer. From MQTT 5 on it must be as short as possible [MQTT-1.5.5-1]."""
        value = shift = 0
        while True:
            octet = self.byte(what)
            value |= (octet & 0x7F) << shift
            if octet < 0x80:
                break
            shift += 7
            if shift == 28:
                raise self.fault(f"{what} is a variable byte integer of more than 4 bytes")
        if shift and not octet and self.version >= MQTT_5:
            raise self.fault(f"{what} is a variable byte integer of more bytes than it needs")
        return value

    def utf8_string(self, what: str) -> str:
        """Read a well-formed UTF-8 Encoded String without surrogates or U+0000 [MQTT-1.5.4-1, -2]."""
        octets = self.binary_data(what)
        try:
            text = octets.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.fault(f"{what} is not well-formed UTF-8 at byte {error.start}") from None
        if "\0" in text:
            raise self.fault(f"{what} contains U+0000")
        return text

    def binary_data(self, what: str) -> bytes:
        at, octets = self.at + 2, self.octets
        if at > self.end:
            raise self._missing(2, what)
        end = at + (octets[at - 2] << 8 | octets[at - 1])
        self.at = at
        if end > self.end:
            raise self._missing(end - at, what)
        self.at = end
        return bytes(octets[at:end])

    def utf8_string_pair(self, what: str) -> tuple[str, str]:
        return self.utf8_string(f"the name of {what}"), self.utf8_string(f"the value of {what}")

    def part(self, count: int, what: str) -> "Reader":
        """Return a new Reader for the next ``count`` bytes. This Reader skips them."""
        start = self.at
        self.take(count, what)
        return Reader(self.octets, start, self.at, self.packet, self.version)


def variable_byte_integer(value):
    """Encode a Variable Byte Integer. Raises ValueError if the value is negative or above 268,435,455."""
    if not 0 <= value <= VARIABLE_MAX:
        raise ValueError(f"{value} does not fit a variable byte integer")
    octets = bytearray()
    while value > 0x7F:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    octets.append(value)
    return bytes(octets)


def byte(value):
    return bytes((value,))


def two_byte_integer(value):
    return _TWO.pack(value)


def four_byte_integer(value):
    return _FOUR.pack(value)


def binary_data(octets):
    """Encode Binary Data. Raises ValueError if it has more than 65,535 bytes."""
    if len(octets) > STRING_MAX:
        raise ValueError(f"{len(octets)} bytes do not fit a string or binary data")
    return _TWO.pack(len(octets)) + octets


def utf8_string(text):
    """Encode a UTF-8 Encoded String. Raises ValueError if it has U+0000, surrogates or over 65,535 bytes."""
    if "\0" in text:
        raise ValueError("a string contains U+0000")
    return binary_data(text.encode("utf-8"))


def utf8_string_pair(pair):
    """Encode (name, value) as a UTF-8 String Pair. Raises ValueError for an invalid string."""
    name, value = pair
    return utf8_string(name) + utf8_string(value)
