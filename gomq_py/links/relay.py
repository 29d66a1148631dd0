"""Relay: what a source's connection delivers, walked in the buffer it was read into and written as publishes
for the target's connection.

No I/O, and no Python object per message. In and out, for each message:

    deliver  60,60: consumer tag, delivery tag u64, redelivered, exchange, routing key
    publish  60,40: reserved u16 0, exchange, routing key, bits: 1 where it is mandatory, else 0
    header   as it came, but for the channel (or with the properties that ``edit`` makes of it)
    body     as it came, but for the channel; cut where the target's frames are smaller

A message that lies in the buffer as a whole is relayed as a whole. One that does not fit goes on in pieces,
as its body comes (``missing``). Trusts nothing: every size is checked before it is used, and what no broker
says raises an AMQPError, after which the relay is of no use.
"""
from gomq_py import octets
from gomq_py.amqp.wire.errors import ChannelError, FrameError, UnexpectedFrame
from gomq_py.content import header_scan
from gomq_py.content.properties import Properties, PropertyScan

DELIVER, PUBLISH = 0x3C003C, 0x3C0028
# The largest frame that a source may send, as the client asks for it: payload and what is around it.
FRAME_MOST = 131072 + 8
# Larger bodies go through in pieces, and are not kept until they are confirmed.
WHOLE_OCTETS = 128 * 1024
# A frame of a body, and in front of it a method and the largest header, with room for one read.
INPUT_OCTETS = 2 * FRAME_MOST + 64 * 1024
# The same, with other exchanges and routing keys, larger headers, and 8 octets more for every 4088 of body.
OUTPUT_OCTETS = INPUT_OCTETS + FRAME_MOST + 4096
PUBLISH_MOST = 8 + 4 + 2 + 256 + 256 + 1
# Of what is the matter with a message.
TEXT_MOST = 200


class Delivered:
    """What ``edit`` is told of a delivery besides its properties."""

    __slots__ = ("exchange", "routing_key", "redelivered", "delivery_tag")

    def __init__(self, exchange, routing_key, redelivered, delivery_tag):
        self.exchange = exchange
        self.routing_key = routing_key
        self.redelivered = redelivered
        self.delivery_tag = delivery_tag


class Unfit(Exception):
    """The next message cannot be sent to this target, whatever happens: why, and its checksum."""


class Relay:
    """One channel of the source to one of the target.

    ``input`` and ``output`` are shared with other relays: nothing stays in them between two walks.
    ``target_frame_max`` is what was agreed, 0: no limit. ``exchange``, ``routing_key``: other ones than the
    message's, as octets, or None. ``edit(properties, delivered)`` -> Properties, or None to leave it out.
    ``stamp``: a Stamp (links.stamp), by which messages are changed that need not be shown to ``edit``.
    ``offset_header``: the header with the number that a stream has given the message, or nothing.
    ``is_mandatory``: the target is to return what no queue takes.

    After a walk: ``count`` messages began with ``first_tag``, of which ``written`` octets lie in ``output``;
    ``left_out``: none of them is sent. ``others``: (channel, payload) of methods that are not deliveries.
    ``offset``: what the last message has in the offset header, -1 where none was seen. ``checksum``: what
    the last message is known by when it comes again, where ``signs`` asks for it or its body comes in
    pieces.
    """

    __slots__ = (
        "input", "output", "channel", "target_channel", "piece", "target_frame_max", "exchange",
        "routing_key", "edit", "offset_key", "last_tag", "first_tag", "count", "written", "left_out",
        "others", "missing", "discards", "offset", "headers_from", "headers_to", "edited", "scan",
        "skips", "stamp", "signs", "checksum", "is_mandatory",
    )

    def __init__(
        self, input, output, channel, target_channel, target_frame_max, exchange=None, routing_key=None,
        edit=None, offset_header=b"", stamp=None, is_mandatory=False,
    ):
        if len(input) < INPUT_OCTETS or len(output) < OUTPUT_OCTETS:
            raise ValueError("the buffers of a relay are too small")
        if 0 < target_frame_max < 4096:
            raise FrameError(f"a frame_max of {target_frame_max}, which is less than 4096")
        if max(len(exchange or b""), len(routing_key or b""), len(offset_header)) > 255:
            raise ValueError("an exchange, a routing key or a header of more than 255 octets")
        self.input, self.output = input, output
        self.channel, self.target_channel = channel, target_channel
        self.target_frame_max = target_frame_max
        self.piece = target_frame_max - 8 if target_frame_max else len(input)
        self.exchange, self.routing_key = exchange, routing_key
        self.is_mandatory = is_mandatory
        self.edit = edit
        self.stamp = stamp
        self.offset_key = bytes([len(offset_header)]) + offset_header if offset_header else b""
        self.last_tag = self.first_tag = self.count = self.written = self.missing = 0
        self.left_out = self.discards = False
        self.others = []
        self.offset = self.headers_from = self.headers_to = -1
        self.edited = None  # (delivery tag, what edit() answered) of a message that is yet to be relayed
        self.scan = PropertyScan()
        self.skips = False  # the next message is left out, whatever it is
        self.signs = False
        self.checksum = 0

    def walk(self, end, most):
        """Relay what lies in the first ``end`` octets of the input, ``most`` messages at most; the octets
        that are done with. Raises AMQPError, and Unfit where nothing was relayed.
        """
        if end > len(self.input):
            raise IndexError("more octets than the buffer holds")
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

    # The rest is private.

    def unit(self, p, out, at, end):
        """A message, or a frame that is none. Where the next begins; ``at`` where this one is not whole, or
        not for this walk.
        """
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
        """Where the frame at ``at`` ends; ``at`` where it is not whole."""
        if end - at < 7:
            return at
        if p[at] != 1 and p[at] != 2 and p[at] != 3 and p[at] != 8:
            raise FrameError(f"unknown frame type {p[at]}")
        size = octets.be32(p, at + 3)
        if size > FRAME_MOST - 8:
            raise FrameError(f"a frame of {size} octets is larger than was agreed")
        if end - at < size + 8:
            return at
        if p[at + 7 + size] != 0xCE:
            raise FrameError(f"a frame ends with octet {p[at + 7 + size]} instead of 206")
        return at + size + 8

    def content_at(self, p, at, end):
        """Where the first frame from ``at`` on is that does not belong to the connection as a whole."""
        while end - at >= 7 and octets.be16(p, at + 1) == 0:
            following = self.frame_end(p, at, end)
            if following == at:
                break
            at = following
        return at

    def check_header(self, p, at, end):
        """A content header of class 60, weight 0, with flags of properties."""
        if octets.be16(p, at + 1) != self.channel:
            self.control(p, at, end)
        if p[at] != 2:
            raise UnexpectedFrame(f"a frame of type {p[at]} where a content header was expected")
        if end - at < 8 + 14:
            raise FrameError(f"a content header of {end - at - 8} octets")
        if octets.be32(p, at + 7) != 0x3C0000:
            raise UnexpectedFrame("a content header of another class than basic, or with a weight")
        if p[at + 11] > 0x3F:
            raise FrameError(f"a body of {octets.be64(p, at + 11)} octets")
        return 0

    def body_end(self, p, at, end, size):
        """Where the last frame of a body of ``size`` octets ends; -1: it is not there yet."""
        while size > 0:
            at = self.content_at(p, at, end)
            following = self.frame_end(p, at, end)
            if following == at:
                return -1
            size -= self.body_size(p, at, following, size)
            at = following
        return at

    def body_size(self, p, at, end, missing):
        """Octets of body in a frame that must be one of a body."""
        if octets.be16(p, at + 1) != self.channel:
            self.control(p, at, end)
        if p[at] != 3:
            raise UnexpectedFrame(f"a frame of type {p[at]} in the middle of a body")
        if end - at - 8 > missing:
            raise FrameError("a body is longer than its header says")
        return end - at - 8

    def relay(self, p, out, at, method_end, header_at, header_end, body_end, end):
        """Write a message, or as much of it as is there (``body_end`` is -1)."""
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
            except Exception as error:  # of this message: those behind it are as they are
                text = f"the properties of a message cannot be read or changed: {str(error)[:TEXT_MOST]}"
                return self.unfit(text, p, at, routing_at, method_end, header_at, header_end, body_end)
            if content is None:
                return self.leave_out(p, at, method_end, header_at, header_end, body_end, size)
        header_size = 20 + len(content) if content is not None else header_end - header_at
        if self.count and (self.left_out or body_end < 0):
            return at  # in a walk of its own
        if header_size > self.target_frame_max > 0 or header_size > FRAME_MOST:
            text = f"properties of {header_size - 20} octets and a frame of {self.target_frame_max} at most"
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
        """Raise Unfit, in a walk of its own: ``at`` where it is not the first message of this one."""
        if self.count:
            return at
        raise Unfit(text, self.sign(p, routing_at, method_end, header_at, header_end, body_end))

    def sign(self, p, routing_at, method_end, header_at, header_end, body_end):
        """A checksum of what is the same whenever the source delivers this message: its address, size,
        properties and, where it lies here as a whole, body; but not its headers, of which quorum queues make
        others each time.
        """
        start, end = header_at + 19, header_end - 1
        checksum = octets.crc32c(0, p, routing_at, method_end - 1 - routing_at)
        checksum = octets.crc32c(checksum, p, header_at + 11, 8)
        if not self.scan.scan(p, start, end):
            at = self.scan.headers_at
            # no flags: they say whether there are headers
            checksum = octets.crc32c(checksum, p, start + 2, (end if at < 0 else at) - start - 2)
            if at >= 0:
                at += self.scan.headers_length
                checksum = octets.crc32c(checksum, p, at, end - at)
        if body_end > header_end:
            checksum = octets.crc32c(checksum, p, header_end, body_end - header_end)
        return checksum

    def leave_out(self, p, at, method_end, header_at, header_end, body_end, size):
        """Walk past a message that is not sent. Those of one walk are either all sent or all left out."""
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
        """A message was taken from the source."""
        self.count += 1
        self.last_tag += 1
        self.edited = None
        self.skips = False
        return 0

    def go_on(self, p, out, at, end):
        """The body of the message in progress, as far as it is there and there is room for it."""
        while self.missing and not self.others:
            following = self.frame_end(p, at, end)
            if following == at:
                break
            if octets.be16(p, at + 1) == 0:
                self.control(p, at, following)
            elif p[at] == 1 and octets.be16(p, at + 1) == self.channel:
                # the channel is closed, or it is a fault: whoever reads the methods says which
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
        """The properties to send in wire form; None: the message is left out."""
        if self.stamp is not None and self.edited is None:
            content = self.stamp.stamped(p, header_at + 19, header_end - 1, p[tag_at + 8] & 1)
            if content is not None:
                return content or None
        return self.ask_edit(p, tag, tag_at, key_at, method_end, header_at, header_end)

    def ask_edit(self, p, tag, tag_at, key_at, method_end, header_at, header_end):
        """The properties that ``edit`` makes of a message, in wire form; None: it is left out. Asked once."""
        if self.edited is None:
            properties = Properties.decode(bytes(p[header_at + 19:header_end - 1]))
            delivered = Delivered(
                _text(bytes(p[tag_at + 10:key_at])), _text(bytes(p[key_at + 1:method_end - 1])),
                bool(p[tag_at + 8] & 1), tag,
            )
            answer = self.edit(properties, delivered)
            content = None if answer is None else answer.encode()
            self.edited = (content,)
            if self.stamp is not None:
                self.stamp.answered(content)
        return self.edited[0]

    def write_publish(self, p, out, routing_at, key_at, end):
        """basic.publish with the address of the delivery, or another one."""
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
        """A short string of octets that were counted; where it ends."""
        out[at] = len(text)
        octets.copy(out, at + 1, octets.pointer(text), 0, len(text))
        return at + 1 + len(text)

    def write_header(self, p, out, at, end, size, content):
        """The content header, with other properties where ``content`` is not None."""
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
        """The body whose frames stand from ``at`` to ``end``; ``end``."""
        while at < end:
            following = self.frame_end(p, at, end)
            if octets.be16(p, at + 1) == 0:
                self.control(p, at, following)
            else:
                self.write_body(p, out, at + 7, following - at - 8)
            at = following
        return at

    def write_body(self, p, out, at, size):
        """Body frames of ``size`` octets, none larger than the target takes."""
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
        """Take the frames of channel 0 that stand from ``at`` to ``end``."""
        while at < end:
            following = self.frame_end(p, at, end)
            if octets.be16(p, at + 1) == 0:
                self.control(p, at, following)
            at = following
        return 0

    def control(self, p, at, end):
        """A frame that is not of the channel."""
        channel = octets.be16(p, at + 1)
        if channel:
            raise ChannelError(f"a frame of type {p[at]} on channel {channel}, which is not open")
        if p[at] == 1:
            self.others.append((0, bytes(p[at + 7:end - 1])))
        elif p[at] != 8:
            raise UnexpectedFrame(f"a frame of type {p[at]} on channel 0")
        return 0

    def find_offset(self, p):
        """The number in the offset header of the last message; -1: there is none."""
        if self.scan.scan(p, self.headers_from, self.headers_to) or self.scan.headers_at < 0:
            return -1
        end = self.scan.headers_at + self.scan.headers_length
        key = self.offset_key
        at = header_scan.find_key(p, self.scan.headers_at + 4, end, octets.pointer(key), len(key))
        if at < 0:
            return -1
        at += len(key)
        # l: a signed long long
        if end - at < 9 or p[at] != 0x6C or p[at + 1] > 0x7F:
            return -1
        return octets.be64(p, at + 1)


def _text(octets_):
    return octets_.decode("utf-8", "surrogateescape")
