"""Fields: decodes and encodes the data types of MQTT (MQTT 5 §1.5). A leaf.

    Byte, Two Byte Integer, Four Byte Integer   big-endian
    Variable Byte Integer                       1 to 4 octets of 7 bits, lowest first; bit 7: another follows
    UTF-8 Encoded String, Binary Data           u16 length, octets
    UTF-8 String Pair                           two strings
"""
from struct import Struct

from gomq_py.mqtt.wire.constants import MQTT_5, STRING_MAX, VARIABLE_MAX
from gomq_py.mqtt.wire.errors import MalformedPacket

_TWO, _FOUR = Struct(">H"), Struct(">I")


class Reader:
    """Decodes fields one after the other from ``octets`` (bytes), from ``at`` to ``end``. ``packet``: the
    packet's name, for errors. Refuses overlong integers from MQTT 5 on. Raises MalformedPacket if octets are
    missing.
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
        """A new MalformedPacket with this text, for the caller to raise."""
        return MalformedPacket(f"{self.packet}: {text}")

    def take(self, count: int, what: str) -> bytes:
        start = self.at
        if count > self.end - start:
            raise self.fault(f"{what} takes {count} bytes of which {self.end - start} are there")
        self.at = start + count
        return self.octets[start:start + count]

    def byte(self, what: str) -> int:
        return self.take(1, what)[0]

    def two_byte_integer(self, what: str) -> int:
        return _TWO.unpack(self.take(2, what))[0]

    def four_byte_integer(self, what: str) -> int:
        return _FOUR.unpack(self.take(4, what))[0]

    def variable_byte_integer(self, what: str) -> int:
        """A Variable Byte Integer. From MQTT 5 on it must have the fewest octets [MQTT-1.5.5-1]."""
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
        """A UTF-8 Encoded String: well-formed, no surrogates [MQTT-1.5.4-1], no U+0000 [MQTT-1.5.4-2]."""
        octets = self.take(self.two_byte_integer(what), what)
        try:
            text = octets.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.fault(f"{what} is not well-formed UTF-8 at byte {error.start}") from None
        if "\0" in text:
            raise self.fault(f"{what} contains U+0000")
        return text

    def binary_data(self, what: str) -> bytes:
        return bytes(self.take(self.two_byte_integer(what), what))

    def utf8_string_pair(self, what: str) -> tuple[str, str]:
        """A UTF-8 String Pair, as (name, value)."""
        return self.utf8_string(f"the name of {what}"), self.utf8_string(f"the value of {what}")

    def part(self, count: int, what: str) -> "Reader":
        """A new Reader for the next ``count`` octets, which this Reader skips."""
        start = self.at
        self.take(count, what)
        return Reader(self.octets, start, self.at, self.packet, self.version)


def variable_byte_integer(value):
    """The octets of a Variable Byte Integer. Raises ValueError if the value is too large."""
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
    """The octets of Binary Data. Raises ValueError over 65,535 octets."""
    if len(octets) > STRING_MAX:
        raise ValueError(f"{len(octets)} bytes do not fit a string or binary data")
    return _TWO.pack(len(octets)) + octets


def utf8_string(text):
    """The octets of a UTF-8 Encoded String. Raises ValueError for U+0000, surrogates, over 65,535 octets."""
    if "\0" in text:
        raise ValueError("a string contains U+0000")
    return binary_data(text.encode("utf-8"))


def utf8_string_pair(pair):
    """The octets of a UTF-8 String Pair from (name, value). Raises ValueError for an invalid string."""
    name, value = pair
    return utf8_string(name) + utf8_string(value)
