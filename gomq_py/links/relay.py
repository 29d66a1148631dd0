"""Relay: rewrites deliveries of the source as publishes to the target, from the read to the write buffer.

Does no I/O, and makes no Python object per message. Input and output of a message:

    deliver  60,60: consumer tag, delivery tag u64, redelivered, exchange, routing key
    publish  60,40: reserved u16 0, exchange, routing key, bits: 1 for mandatory, else 0
    header   copied but for the channel (or with the properties that ``edit`` returns)
    body     copied but for the channel; split if the target's frames are smaller

A complete message in the buffer is relayed at once, a larger one in pieces as its body arrives. Sizes are
checked before use. After malformed or unexpected frames (AMQPError) the relay must not be used.

A HeaderStamp adds a header to the encoded properties of each message, without decoding. For a message that
has the header already, the relay calls ``edit``; the result is cached for messages with equal headers.
"""
from struct import Struct

from gomq_py import octets
from gomq_py.amqp.wire.errors import ChannelError, FrameError, UnexpectedFrame
from gomq_py.content import fields, properties
from gomq_py.content.properties import Properties, PropertyScan

DELIVER, PUBLISH = 0x3C003C, 0x3C0028
# The largest frame that the client negotiates with a source: payload, frame header and end.
FRAME_MOST = 131072 + 8
# Larger bodies are relayed in pieces, and are not kept until they are confirmed.
WHOLE_OCTETS = 128 * 1024
# Room for a method, the largest header and one body frame, and for one read.
INPUT_OCTETS = 2 * FRAME_MOST + 64 * 1024
# The same with longer exchanges, routing keys and headers, and 8 bytes more per 4088 of body.
OUTPUT_OCTETS = INPUT_OCTETS + FRAME_MOST + 4096
PUBLISH_MOST = 8 + 4 + 2 + 256 + 256 + 1
# Longest error text about a message.
TEXT_MOST = 200
# Property flags; structs of the flags field and of the headers' length.
HEADERS, USER_ID, CONTINUED = 0x2000, 0x0010, 0x0001
HEAD, LENGTH = Struct(">H"), Struct(">I")
# Most cached header tables, and most octets of one.
KNOWN_MOST, KNOWN_OCTETS = 64, 1024


class Delivered:
    """The fields of a basic.deliver, as an argument of ``edit`` (links.ends.TargetEnd)."""

    __slots__ = ("exchange", "routing_key", "redelivered", "delivery_tag")

    def __init__(self, exchange, routing_key, redelivered, delivery_tag):
        self.exchange = exchange
        self.routing_key = routing_key
        self.redelivered = redelivered
        self.delivery_tag = delivery_tag


class Unfit(Exception):
    """The next message can never be sent to this target. ``args``: (reason, checksum of the message)."""


class HeaderStamp:
    """Adds a header to encoded properties. ``key``: the header's encoded name. ``entry``: the encoded header,
    for messages with neither this key nor a user id. ``entry_again``: ``entry`` for redelivered messages.
    """

    __slots__ = ("key", "entry", "entry_again", "scan", "known", "unknown")

    def __init__(self, key, entry, entry_again):
        self.key, self.entry, self.entry_again = key, entry, entry_again
        self.scan = PropertyScan()
        self.known = None  # {(encoded headers, redelivered): encoded table from edit, b"": left out}
        self.unknown = None  # key of the answer that edit is to give

    def stamped(self, p, start, end, redelivered):
        """Return encoded properties with the header; b"" to leave the message out; None to call ``edit``."""
        self.unknown = None
        if self.scan.scan(p, start, end) or self.scan.flags & (USER_ID | CONTINUED):
            return None
        entry = self.entry_again if redelivered else self.entry
        if self.scan.headers_at < 0:
            at = properties.headers_at(p, start)
            return b"".join((
                HEAD.pack(self.scan.flags | HEADERS), bytes(p[start + 2:at]), LENGTH.pack(len(entry)), entry,
                bytes(p[at:end]),
            ))
        at = self.scan.headers_at
        length = self.scan.headers_length - 4
        following = at + 4 + length
        if fields.find_key(p, at + 4, following, octets.pointer(self.key), len(self.key)) >= 0:
            if length > KNOWN_OCTETS:
                return None
            table = self.table_known(bytes(p[at + 4:following]), redelivered)
            return table and b"".join((bytes(p[start:at]), table, bytes(p[following:end])))
        return b"".join((
            bytes(p[start:at]), LENGTH.pack(length + len(entry)), bytes(p[at + 4:following]), entry,
            bytes(p[following:end]),
        ))

    def answered(self, content):
        """Cache the result of ``edit``, encoded properties or None, for messages with equal headers."""
        if self.unknown is None:
            return 0
        table = b""
        if content is not None:
            if self.scan.scan(octets.pointer(content), 0, len(content)) or self.scan.headers_at < 0:
                return 0
            at = self.scan.headers_at
            table = content[at:at + self.scan.headers_length]
        if len(self.known) >= KNOWN_MOST:
            self.known.clear()
        self.known[self.unknown] = table
        return 0

    def table_known(self, headers, redelivered):
        """Return the table cached for ``headers``; b"" to leave the message out; None to call ``edit``."""
        key = headers, redelivered
        if self.known is None:
            self.known = {}
        table = self.known.get(key)
        if table is None:
            self.unknown = key
        return table


class Relay:
    """Relays deliveries of one channel of the source as publishes on one channel of the target.

        input, output             buffers shared with other relays, and empty between two walks
        target_frame_max          as negotiated, 0: no limit
        exchange, routing_key     bytes that replace the message's own, or None
        edit, header_stamp        of links.ends.TargetEnd, the latter as a HeaderStamp
        offset_header             name of the header with a stream's offset, or empty
        is_mandatory              the target returns unroutable messages

    After a walk:

        count, first_tag          number of messages read, and delivery tag of the first
        written                   bytes in ``output``
        left_out                  True if these messages must be acknowledged and not sent
        others                    (channel, payload) of methods that are not deliveries
        offset                    stream offset of the last message, or -1
        checksum                  recognizes the last message; set if ``signs``, or if its body is in pieces
    """

    __slots__ = (
        "input", "output", "channel", "target_channel", "piece", "target_frame_max", "exchange",
        "routing_key", "edit", "offset_key", "last_tag", "first_tag", "count", "written", "left_out",
        "others", "missing", "discards", "offset", "headers_from", "headers_to", "edited", "scan",
        "skips", "header_stamp", "signs", "checksum", "is_mandatory",
    )

    def __init__(
        self, input, output, channel, target_channel, target_frame_max, exchange=None, routing_key=None,
        edit=None, offset_header=b"", header_stamp=None, is_mandatory=False,
    ):
        if len(input) < INPUT_OCTETS or len(output) < OUTPUT_OCTETS:
            raise ValueError("the buffers of a relay are too small")
        if 0 < target_frame_max < 4096:
            raise FrameError(f"a frame_max of {target_frame_max}, which is less than 4096")
        if max(len(exchange or b""), len(routing_key or b""), len(offset_header)) > 255:
            raise ValueError("an exchange, a routing key or a header of more than 255 bytes")
        self.input, self.output = input, output
        self.channel, self.target_channel = channel, target_channel
        self.target_frame_max = target_frame_max
        self.piece = target_frame_max - 8 if target_frame_max else len(input)
        self.exchange, self.routing_key = exchange, routing_key
        self.is_mandatory = is_mandatory
        self.edit = edit
        self.header_stamp = header_stamp
        self.offset_key = bytes([len(offset_header)]) + offset_header if offset_header else b""
        self.last_tag = self.first_tag = self.count = self.written = self.missing = 0
        self.left_out = self.discards = False
        self.others = []
        self.offset = self.headers_from = self.headers_to = -1
        self.edited = None  # (delivery tag, answer of edit()) of a message not yet relayed
        self.scan = PropertyScan()
        self.skips = False  # leave out the next message
        self.signs = False
        self.checksum = 0

    def walk(self, end, most):
        """Relay up to ``most`` messages. Returns the number of input bytes used. Raises AMQPError, Unfit."""
        if end > len(self.input):
            raise IndexError("more bytes than the buffer holds")
        p = octets.pointer(self.input)
        out = octets.pointer(self.output)
        self.first_tag = self.last_tag + 1
        self.count = self.written = 0
        self.left_out = self.discards
        self.offset = self.headers_from = -1
        at = 0
        if self.missing:
            at = self.go_on(p, out, 0, end)
        else:
            while at < end and self.count < most and not self.missing and not self.others:
                following = self.unit(p, out, at, end)
                if following == at:
                    break
                at = following
        if self.headers_from >= 0 and self.offset_key:
            self.offset = self.find_offset(p)
        return at

    # private from here on

    def unit(self, p, out, at, end):
        """Process the frame or message at ``p[at]``. Returns the offset after it; ``at`` if it must wait."""
        method_end = self.frame_end(p, at, end)
        if method_end == at:
            return at
        if octets.be16(p, at + 1) != self.channel:
            self.control(p, at, method_end)
            return method_end
        if p[at] != 1:
            raise UnexpectedFrame(f"a frame of type {p[at]} where a method was expected")
        if method_end - at < 12:
            raise FrameError("a method without class and method id")
        if octets.be32(p, at + 7) != DELIVER:
            self.others.append((int(self.channel), bytes(p[at + 7:method_end - 1])))
            return method_end
        header_at = self.content_at(p, method_end, end)
        header_end = self.frame_end(p, header_at, end)
        if header_end == header_at:
            if at == 0 and end == len(self.input):
                raise FrameError("too many frames between a method and its content")
            return at
        self.check_header(p, header_at, header_end)
        size = octets.be64(p, header_at + 11)
        body_end = self.body_end(p, header_end, end, size) if size <= WHOLE_OCTETS else -1
        if body_end < 0 and size <= WHOLE_OCTETS and (at or end < len(self.input)):
            return at
        return self.relay(p, out, at, method_end, header_at, header_end, body_end, end)

    def frame_end(self, p, at, end):
        """Return the offset after the frame at ``p[at]``; ``at`` if it is incomplete. Raises FrameError."""
        if end - at < 7:
            return at
        if p[at] != 1 and p[at] != 2 and p[at] != 3 and p[at] != 8:
            raise FrameError(f"unknown frame type {p[at]}")
        size = octets.be32(p, at + 3)
        if size > FRAME_MOST - 8:
            raise FrameError(f"a frame of {size} bytes is larger than was agreed")
        if end - at < size + 8:
            return at
        if p[at + 7 + size] != 0xCE:
            raise FrameError(f"a frame ends with byte {p[at + 7 + size]} instead of 206")
        return at + size + 8

    def content_at(self, p, at, end):
        """Return the offset of the first frame from ``at`` on that is not on channel 0."""
        while end - at >= 7 and octets.be16(p, at + 1) == 0:
            following = self.frame_end(p, at, end)
            if following == at:
                break
            at = following
        return at

    def check_header(self, p, at, end):
        """Check a content header's class (60), weight (0) and size. Raises an AMQPError."""
        if octets.be16(p, at + 1) != self.channel:
            self.control(p, at, end)
        if p[at] != 2:
            raise UnexpectedFrame(f"a frame of type {p[at]} where a content header was expected")
        if end - at < 8 + 14:
            raise FrameError(f"a content header of {end - at - 8} bytes")
        if octets.be32(p, at + 7) != 0x3C0000:
            raise UnexpectedFrame("a content header of another class than basic, or with a weight")
        if p[at + 11] > 0x3F:
            raise FrameError(f"a body of {octets.be64(p, at + 11)} bytes")
        return 0

    def body_end(self, p, at, end, size):
        """Return the offset after a body of ``size`` bytes that begins at ``at``; -1 if a part is missing."""
        while size > 0:
            at = self.content_at(p, at, end)
            following = self.frame_end(p, at, end)
            if following == at:
                return -1
            size -= self.body_size(p, at, following, size)
            at = following
        return at

    def body_size(self, p, at, end, missing):
        """Return a body frame's payload size. Raises AMQPError if it exceeds ``missing``."""
        if octets.be16(p, at + 1) != self.channel:
            self.control(p, at, end)
        if p[at] != 3:
            raise UnexpectedFrame(f"a frame of type {p[at]} in the middle of a body")
        if end - at - 8 > missing:
            raise FrameError("a body is longer than its header says")
        return end - at - 8

    def relay(self, p, out, at, method_end, header_at, header_end, body_end, end):
        """Write a message, or its beginning if ``body_end`` is -1. Returns the offset to continue at."""
        # 9: delivery tag and redelivered
        tag_at = at + 12 + p[at + 11] if method_end - at >= 8 + 4 + 1 + 9 + 2 else method_end
        routing_at = tag_at + 9
        key_at = routing_at + 1 + p[routing_at] if routing_at < method_end - 1 else method_end
        if key_at >= method_end - 1 or key_at + 1 + p[key_at] != method_end - 1:
            raise FrameError("cannot decode basic.deliver")
        tag = octets.be64(p, tag_at)
        if tag != self.last_tag + 1:
            raise UnexpectedFrame(f"delivery tag {tag} follows {self.last_tag}")
        size = octets.be64(p, header_at + 11)
        content = None
        if self.skips:
            return self.leave_out(p, at, method_end, header_at, header_end, body_end, size)
        if self.edit is not None:
            try:
                content = self.changed(p, tag, tag_at, key_at, method_end, header_at, header_end)
            except Exception as error:  # only this message is at fault, not those behind it
                text = f"the properties of a message cannot be read or changed: {str(error)[:TEXT_MOST]}"
                return self.unfit(text, p, at, routing_at, method_end, header_at, header_end, body_end)
            if content is None:
                return self.leave_out(p, at, method_end, header_at, header_end, body_end, size)
        header_size = 20 + len(content) if content is not None else header_end - header_at
        if self.count and (self.left_out or body_end < 0):
            return at  # left for a separate walk
        if header_size > self.target_frame_max > 0 or header_size > FRAME_MOST:
            text = f"properties of {header_size - 20} bytes and a frame of {self.target_frame_max} at most"
            return self.unfit(text, p, at, routing_at, method_end, header_at, header_end, body_end)
        need = PUBLISH_MOST + header_size
        if body_end >= 0:
            need += body_end - header_end + 8 * (size // self.piece + 1)
        if self.written + need > len(self.output):
            return at
        if self.signs or body_end < 0:
            self.checksum = self.sign(p, routing_at, method_end, header_at, header_end, body_end)
        self.write_publish(p, out, routing_at, key_at, method_end - 1)
        self.controls(p, method_end, header_at)
        self.write_header(p, out, header_at, header_end, size, content)
        self.headers_from, self.headers_to = header_at + 19, header_end - 1
        self.begun()
        if body_end < 0:
            self.missing = size
            return self.go_on(p, out, header_end, end)
        return self.write_bodies(p, out, header_end, body_end)

    def unfit(self, text, p, at, routing_at, method_end, header_at, header_end, body_end):
        """Raise Unfit. If this walk has relayed messages, only return ``at``: the next walk raises."""
        if self.count:
            return at
        raise Unfit(text, self.sign(p, routing_at, method_end, header_at, header_end, body_end))

    def sign(self, p, routing_at, method_end, header_at, header_end, body_end):
        """Return a checksum of those parts of a message that are equal in all its deliveries."""
        # Address, size, properties, and a whole body; not headers, which quorum queues change each time.
        start, end = header_at + 19, header_end - 1
        checksum = octets.crc32c(0, p, routing_at, method_end - 1 - routing_at)
        checksum = octets.crc32c(checksum, p, header_at + 11, 8)
        if not self.scan.scan(p, start, end):
            at = self.scan.headers_at
            # without the flags, which say whether there are headers
            checksum = octets.crc32c(checksum, p, start + 2, (end if at < 0 else at) - start - 2)
            if at >= 0:
                at += self.scan.headers_length
                checksum = octets.crc32c(checksum, p, at, end - at)
        if body_end > header_end:
            checksum = octets.crc32c(checksum, p, header_end, body_end - header_end)
        return checksum

    def leave_out(self, p, at, method_end, header_at, header_end, body_end, size):
        """Skip an unwanted message. Returns the offset after it, or ``at`` to leave it for the next walk."""
        if self.count and (not self.left_out or body_end < 0):
            return at
        self.left_out = True
        self.begun()
        self.controls(p, method_end, header_at)
        self.headers_from, self.headers_to = header_at + 19, header_end - 1
        if body_end < 0:
            self.missing = size
            self.discards = True
            return header_end
        self.controls(p, header_end, body_end)
        return body_end

    def begun(self):
        self.count += 1
        self.last_tag += 1
        self.edited = None
        self.skips = False
        return 0

    def go_on(self, p, out, at, end):
        """Relay more of a large message's body. Returns the offset in ``p`` after the last relayed frame."""
        while self.missing and not self.others:
            following = self.frame_end(p, at, end)
            if following == at:
                break
            if octets.be16(p, at + 1) == 0:
                self.control(p, at, following)
            elif p[at] == 1 and octets.be16(p, at + 1) == self.channel:
                # channel.close or a protocol error: left to the reader of the methods
                self.others.append((int(self.channel), bytes(p[at + 7:following - 1])))
            else:
                size = self.body_size(p, at, following, self.missing)
                if self.written + size + 8 * (size // self.piece + 1) > len(self.output):
                    break
                if not self.discards:
                    self.write_body(p, out, at + 7, size)
                self.missing -= size
            at = following
        if not self.missing:
            self.discards = False
        return at

    def changed(self, p, tag, tag_at, key_at, method_end, header_at, header_end):
        """Return properties to send, from ``header_stamp`` or ``edit``, or None to leave the message out."""
        if self.header_stamp is not None and self.edited is None:
            content = self.header_stamp.stamped(p, header_at + 19, header_end - 1, p[tag_at + 8] & 1)
            if content is not None:
                return content or None
        return self.ask_edit(p, tag, tag_at, key_at, method_end, header_at, header_end)

    def ask_edit(self, p, tag, tag_at, key_at, method_end, header_at, header_end):
        """Return ``edit``'s encoded properties, or None to leave the message out. One call per message."""
        if self.edited is None:
            properties = Properties.decode(bytes(p[header_at + 19:header_end - 1]))
            delivered = Delivered(
                _text(bytes(p[tag_at + 10:key_at])), _text(bytes(p[key_at + 1:method_end - 1])),
                bool(p[tag_at + 8] & 1), tag,
            )
            answer = self.edit(properties, delivered)
            content = None if answer is None else answer.encode()
            self.edited = (content,)
            if self.header_stamp is not None:
                self.header_stamp.answered(content)
        return self.edited[0]

    def write_publish(self, p, out, routing_at, key_at, end):
        """Write basic.publish, with the delivery's exchange and routing key or their replacements."""
        at = self.written
        out[at] = 1
        octets.put_be16(out, at + 1, self.target_channel)
        octets.put_be32(out, at + 7, PUBLISH)
        octets.put_be16(out, at + 11, 0)
        if self.exchange is None:
            octets.copy(out, at + 13, p, routing_at, key_at - routing_at)
            to = at + 13 + key_at - routing_at
        else:
            to = self.write_shortstr(out, at + 13, self.exchange)
        if self.routing_key is None:
            octets.copy(out, to, p, key_at, end - key_at)
            to += end - key_at
        else:
            to = self.write_shortstr(out, to, self.routing_key)
        out[to] = 1 if self.is_mandatory else 0
        out[to + 1] = 0xCE
        octets.put_be32(out, at + 3, to + 1 - at - 7)
        self.written = to + 2
        return 0

    def write_shortstr(self, out, at, text):
        """Write a short string at ``out[at]``. Returns the offset after it."""
        out[at] = len(text)
        octets.copy(out, at + 1, octets.pointer(text), 0, len(text))
        return at + 1 + len(text)

    def write_header(self, p, out, at, end, size, content):
        """Write the content header, with the encoded properties ``content`` or, if None, the delivery's."""
        to = self.written
        if content is None:
            octets.copy(out, to, p, at, end - at)
            octets.put_be16(out, to + 1, self.target_channel)
            self.written = to + end - at
            return 0
        out[to] = 2
        octets.put_be16(out, to + 1, self.target_channel)
        octets.put_be32(out, to + 3, 12 + len(content))
        octets.put_be32(out, to + 7, 0x3C0000)
        octets.put_be64(out, to + 11, size)
        octets.copy(out, to + 19, octets.pointer(content), 0, len(content))
        to += 19 + len(content)
        out[to] = 0xCE
        self.written = to + 1
        return 0

    def write_bodies(self, p, out, at, end):
        while at < end:
            following = self.frame_end(p, at, end)
            if octets.be16(p, at + 1) == 0:
                self.control(p, at, following)
            else:
                self.write_body(p, out, at + 7, following - at - 8)
            at = following
        return at

    def write_body(self, p, out, at, size):
        """Write body bytes ``p[at:at + size]`` as frames that are no larger than the target allows."""
        to = self.written
        while size > 0:
            part = size if size < self.piece else self.piece
            out[to] = 3
            octets.put_be16(out, to + 1, self.target_channel)
            octets.put_be32(out, to + 3, part)
            octets.copy(out, to + 7, p, at, part)
            to += 7 + part
            out[to] = 0xCE
            to += 1
            at += part
            size -= part
        self.written = to
        return 0

    def controls(self, p, at, end):
        while at < end:
            following = self.frame_end(p, at, end)
            if octets.be16(p, at + 1) == 0:
                self.control(p, at, following)
            at = following
        return 0

    def control(self, p, at, end):
        """Process the frame on channel 0 in ``p[at:end]``. Raises ChannelError for any other channel."""
        channel = octets.be16(p, at + 1)
        if channel:
            raise ChannelError(f"a frame of type {p[at]} on channel {channel}, which is not open")
        if p[at] == 1:
            self.others.append((0, bytes(p[at + 7:end - 1])))
        elif p[at] != 8:
            raise UnexpectedFrame(f"a frame of type {p[at]} on channel 0")
        return 0

    def find_offset(self, p):
        """Return the stream offset in the last message's headers, or -1."""
        if self.scan.scan(p, self.headers_from, self.headers_to) or self.scan.headers_at < 0:
            return -1
        end = self.scan.headers_at + self.scan.headers_length
        key = self.offset_key
        at = fields.find_key(p, self.scan.headers_at + 4, end, octets.pointer(key), len(key))
        if at < 0:
            return -1
        at += len(key)
        # 0x6C, "l": a signed long long
        if end - at < 9 or p[at] != 0x6C or p[at + 1] > 0x7F:
            return -1
        return octets.be64(p, at + 1)


def _text(octets_):
    return octets_.decode("utf-8", "surrogateescape")
