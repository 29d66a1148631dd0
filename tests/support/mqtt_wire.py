"""MQTT octet by octet, for tests that hold a server to the words of the specification: packets are written
out in hexadecimal, and nothing of our own codec is used.

    32 LL 00 03 'a/b' 00 01 {00} 'x'    # a comment

``'text'`` stands for its octets in UTF-8, ``LL`` for the remaining length of what follows, ``{...}`` for what
only MQTT 5 has, ``'x'*300`` and ``00*4`` for repetitions. In what is awaited, ``..`` is any octet.
"""
import re
import socket
import time

from tests.support.waiting import TIMEOUT_S, in_time

_TOKEN = re.compile(r"'([^']*)'(?:\*(\d+))?|([0-9a-fA-F]{2})(?:\*(\d+))?|(LL)|(\.\.)|\s+|#.*")
ANY = None
# How long silence has to last to be believed where there is nothing to wait for instead.
SILENCE_S = 0.3


def elements(text, version=4):
    """A written packet as a list of octets, with ``ANY`` where any will do."""
    text = re.sub(r"\{(.*?)\}", r"\1" if version == 5 else "", text, flags=re.DOTALL)
    found, at, length_at = [], 0, None
    while at < len(text):
        token = _TOKEN.match(text, at)
        assert token, f"no octet: {text[at:at + 20]!r}"
        at = token.end()
        words, many_words, pair, many, length, anything = token.groups()
        if words is not None:
            found += list(words.encode()) * int(many_words or 1)
        elif pair:
            found += [int(pair, 16)] * int(many or 1)
        elif length:
            length_at = len(found)
        elif anything:
            found.append(ANY)
    if length_at is not None:
        found[length_at:length_at] = variable(len(found) - length_at)
    return found


def octets(text, version=4):
    """A written packet as bytes."""
    return bytes(elements(text, version))


def variable(number):
    """A variable byte integer in as few octets as it needs."""
    written = []
    while True:
        number, low = divmod(number, 128)
        written.append(low | (0x80 if number else 0))
        if not number:
            return bytes(written)


def string(text):
    """A length in two octets, and the text."""
    encoded = text if isinstance(text, bytes) else text.encode()
    return len(encoded).to_bytes(2, "big") + encoded


def connect_packet(
    version, client, clean=True, properties="", will="", will_flags=0, keep_alive=0, user="guest",
    password="guest",
):
    """CONNECT, for tests that are about something else; ``properties`` and ``will`` (all of its part of the
    payload) are written octets.
    """
    flags = 0xC0 | (0x02 if clean else 0) | will_flags
    head = {3: "00 06 'MQIsdp' 03", 4: "00 04 'MQTT' 04", 5: "00 04 'MQTT' 05"}[version]
    body = octets(head) + bytes([flags]) + keep_alive.to_bytes(2, "big")
    if version == 5:
        written = octets(properties)
        body += variable(len(written)) + written
    body += string(client) + octets(will, version) + string(user) + string(password)
    return b"\x10" + variable(len(body)) + body


class MQTTWire:
    """A socket to an MQTT server that has said nothing yet."""

    def __init__(self, address, version=4):
        self.version = version
        self.socket = socket.create_connection(address, TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._read = b""

    # talking

    def send(self, *texts):
        """Send written packets, or bytes as they are."""
        parts = [text if isinstance(text, bytes) else octets(text, self.version) for text in texts]
        self.socket.sendall(b"".join(parts))

    def ask(self, question, answer):
        """Send, and expect. Returns the octets that were open in the answer."""
        self.send(question)
        return self.expect(answer)

    def connect(self, client, **options):
        """Log in; returns the CONNACK."""
        self.send(connect_packet(self.version, client, **options))
        answer = self.packet()
        assert answer is not None and answer[0] == 0x20, f"CONNACK was awaited: {answer}"
        assert answer[body_at(answer) + 1] == 0, f"refused: {answer.hex(' ')}"
        return answer

    # listening

    def packet(self, timeout_s=TIMEOUT_S):
        """The next packet; None at the end of the stream. TimeoutError where nothing comes."""
        deadline = time.monotonic() + timeout_s
        while True:
            taken = _first(self._read)
            if taken:
                packet, self._read = self._read[:taken], self._read[taken:]
                return packet
            self.socket.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                data = self.socket.recv(65536)
            except ConnectionError:
                return None
            if not data:
                assert not self._read, f"the stream ends within a packet: {self._read.hex(' ')}"
                return None
            self._read += data

    def expect(self, text):
        """The next packet must be this one; returns the octets that were left open."""
        wanted = elements(text, self.version)
        try:
            packet = self.packet()
        except TimeoutError:
            raise AssertionError(f"nothing came, and this was awaited: {text}") from None
        assert packet is not None, f"the connection was closed, and this was awaited: {text}"
        same = len(packet) == len(wanted) and all(
            want in (ANY, have) for want, have in zip(wanted, packet)
        )
        assert same, f"\nawaited {text}\ncame    {packet.hex(' ')}  {packet!r}"
        return bytes(have for want, have in zip(wanted, packet) if want is ANY)

    def expect_live(self, text):
        """The next packet that is no retained message must be this one."""
        while True:
            packet = self.packet()
            assert packet is not None, f"the connection was closed, and this was awaited: {text}"
            if packet[0] & 0xF1 != 0x31:
                break
        self._read = packet + self._read
        return self.expect(text)

    def expect_all(self, *texts):
        """These packets must come, in any order."""
        wanted = [elements(text, self.version) for text in texts]
        for _ in texts:
            packet = self.packet()
            assert packet is not None, "the connection was closed"
            for one in wanted:
                if len(one) == len(packet) and all(w in (ANY, h) for w, h in zip(one, packet)):
                    wanted.remove(one)
                    break
            else:
                raise AssertionError(f"not awaited: {packet.hex(' ')}  {packet!r}")

    def expect_end(self):
        """The server must close without another packet."""
        try:
            packet = self.packet()
        except TimeoutError:
            raise AssertionError("the connection was to be closed, and is open") from None
        assert packet is None, f"the end was awaited, but this came: {packet.hex(' ')}"

    def expect_refusal(self, *codes):
        """The connection ends; in MQTT 5 a CONNACK or DISCONNECT may say why, with one of these codes."""
        try:
            packet = self.packet()
        except TimeoutError:
            raise AssertionError("the connection was to be refused, and is open") from None
        if packet is None:
            return None
        assert self.version == 5, f"the end was awaited, but this came: {packet.hex(' ')}"
        assert packet[0] in (0x20, 0xE0), f"a refusal was awaited: {packet.hex(' ')}"
        code = packet[body_at(packet) + (packet[0] == 0x20)]
        assert code in codes, f"reason code {code:#04x}, and one of {[hex(one) for one in codes]} was awaited"
        self.expect_end()
        return code

    def expect_silence(self):
        """Nothing comes, not for a while, and not before the answer to a PINGREQ."""
        try:
            packet = self.packet(SILENCE_S)
        except TimeoutError:
            self.ask("c0 00", "d0 00")
            return
        raise AssertionError("the connection was closed" if packet is None else packet.hex(" "))

    def fence(self):
        """All that was sent before has been worked off: PINGREQ and its answer."""
        self.ask("c0 00", "d0 00")

    # ending

    def disconnect(self):
        """Leave in order, and wait until the server has closed."""
        self.send("e0 00")
        self.socket.settimeout(in_time(10))
        try:
            while self.socket.recv(65536):
                pass
        except OSError:
            pass
        self.socket.close()

    def abort(self):
        """Drop the connection; the server sees it end without DISCONNECT."""
        self.socket.close()


def body_at(packet):
    """The offset behind the remaining length."""
    at = 2
    while packet[at - 1] & 0x80:
        at += 1
    return at


def _first(read):
    """How long the packet at the front is; 0 while it is not complete."""
    length, shift = 0, 0
    for at in range(1, min(5, len(read))):
        length |= (read[at] & 0x7F) << shift
        shift += 7
        if read[at] < 0x80:
            return at + 1 + length if len(read) >= at + 1 + length else 0
    return 0


# identifier -> kind of value (MQTT 5 §2.2.2.2)
_KINDS = {
    0x01: 1, 0x02: 4, 0x03: "text", 0x08: "text", 0x09: "binary", 0x0B: "variable", 0x11: 4, 0x12: "text",
    0x13: 2, 0x15: "text", 0x16: "binary", 0x17: 1, 0x18: 4, 0x19: 1, 0x1A: "text", 0x1C: "text",
    0x1F: "text", 0x21: 2, 0x22: 2, 0x23: 2, 0x24: 1, 0x25: 1, 0x26: "pair", 0x27: 4, 0x28: 1, 0x29: 1,
    0x2A: 1,
}


def properties_at(packet, at):
    """The properties that begin at this offset of a packet, as a list of (identifier, value)."""
    def number():
        nonlocal at
        value, shift = 0, 0
        while True:
            octet = packet[at]
            at += 1
            value |= (octet & 0x7F) << shift
            shift += 7
            if octet < 0x80:
                return value

    def binary():
        nonlocal at
        size = int.from_bytes(packet[at:at + 2], "big")
        at += 2 + size
        return packet[at - size:at]

    found = []
    length = number()
    end = at + length
    while at < end:
        identifier = number()
        kind = _KINDS[identifier]
        if kind == "variable":
            value = number()
        elif kind == "binary":
            value = binary()
        elif kind == "text":
            value = binary().decode()
        elif kind == "pair":
            value = (binary().decode(), binary().decode())
        else:
            value = int.from_bytes(packet[at:at + kind], "big")
            at += kind
        found.append((identifier, value))
    assert at == end, "a property is longer than all of them"
    return found


def connack_properties(packet):
    """Those of a CONNACK of MQTT 5, by identifier."""
    return dict(properties_at(packet, body_at(packet) + 2))


def publish_properties(packet):
    """Those of a PUBLISH of MQTT 5: a list of (identifier, value)."""
    at = body_at(packet)
    at += 2 + int.from_bytes(packet[at:at + 2], "big") + (2 if packet[0] & 6 else 0)
    return properties_at(packet, at)
