"""Stream: reads one connection, and passes the bytes to a lane, the protocol's parser.

The event loop calls a stream when its socket is readable. The stream does one read per poll, so that a busy
connection delays other connections by one read's work. Each read goes to the lane in one call, in the input
buffer that all streams share. No greenlet lies between the socket and the lane, so a lane must neither switch
greenlets nor keep the buffer.
"""
import time

import gevent

from gomq_py.net import receiving
from gomq_py.net.receiving import has_to_write_first, is_not_now, parts_function, receive_functions

READABLE = 1
# A flood of small segments: so many reads in a row, each of fewer octets, in less time. 16 000 reads a second
# are fewer than pika's floods on a good processor, and more than its round trips. A read finds several
# messages of 1 KiB.
FLOOD_READS = 16
SMALL_OCTETS = 8192
FLOOD_S = FLOOD_READS * 60e-6
# A frame's last octet, and the head of the next frame up to its length.
HEAD_OCTETS = 8
# Interval of tries while OpenSSL needs room in the socket to answer a change of keys. The socket is not
# watched meanwhile, because OpenSSL would not read.
ANSWER_S = 0.01
# Small segments per read by the clock, or the stream leaves the clock: 12 000 a second.
LEAST_TOGETHER = 3


class Hold:
    """Keeps a connection from being read until release(). ``waits_for``: the reason, for operators."""

    __slots__ = ("stream", "waits_for")

    def __init__(self, stream, waits_for):
        self.stream = stream
        self.waits_for = waits_for

    def release(self):
        """End this pause. Reading resumes after the stream's last Hold. A second call does nothing."""
        stream, self.stream = self.stream, None
        if stream is not None:
            stream.let_go(self)


class Lane:
    """Base class of the protocols' parsers, which parse the bytes of a stream."""

    __slots__ = ()

    def process(self, start, end, now_ms):
        """Handle the bytes ``input[start:end]`` of the shared input buffer. ``now_ms``: Unix milliseconds.
        Returns the offset of the first byte that must be passed again, or ``end``.
        """
        raise NotImplementedError

    def finish(self):
        """End the handling of one read. Called after process(), before output is sent."""


class Stream:
    """Reads ``socket`` until its end, and passes the bytes to a Lane (parser).

        received_octets         number of bytes read
        error                   the exception that ended the stream, or None
        handler.has_plenty()    returns True if the peer has so much to send that it waits for no answer
    """

    __slots__ = (
        "buffers", "output", "received_octets", "socket", "receive_into", "receive_parts", "pending",
        "watcher", "lane", "handler", "over", "is_over", "direct", "direct_octets", "error", "after_poll",
        "tail", "holds", "rewalk", "coalescer", "together", "least_octets", "small_reads", "small_octets",
        "flood_began", "flood_sent_octets", "full_read", "reads_more", "goes_by_clock", "after_s",
        "lacks_room",
    )

    def __init__(self, socket, buffers, output, coalescer):
        self.buffers = buffers
        self.output = output
        self.received_octets = 0
        self.socket = socket
        self.receive_into, self.pending = receive_functions(socket)
        self.receive_parts = None
        self.goes_by_clock = not hasattr(socket, "receive_functions")
        self.watcher = self.lane = self.handler = self.after_poll = self.over = self.error = None
        self.is_over = self.rewalk = self.together = self.lacks_room = False
        self.tail = b""
        self.holds = self.direct = None
        self.direct_octets = 0
        self.coalescer = coalescer
        self.least_octets = self.small_reads = self.small_octets = 0
        self.flood_sent_octets = 0
        self.flood_began = self.after_s = 0.0
        self.full_read = 0  # number of this stream's last full read among the hub's
        self.reads_more = False  # until another stream has a full read

    def begin(self, lane, handler, rest, over):
        """Begin to read, and return at once. ``over()`` is called when the stream ends. ``over()`` must not
        switch greenlets, and must ensure that end() is called later. The call may come before this returns,
        or while the lane (parser) runs. ``rest``: bytes that a handshake read before; the lane gets them
        first.
        """
        self.lane = lane
        self.handler = handler
        self.output.on_broken = self.stop
        if self.is_over:
            over()
            return
        self.over = over
        self.watcher = gevent.get_hub().loop.io(self.socket.fileno(), READABLE)
        if not self.holds:
            self.watcher.start(self._readable)
        if rest:
            self.tail = rest
            self.rewalk = True
            self._read_again()
        elif self.pending is not None and self.pending() and not self.holds:
            self._read_again()

    def go_on_with(self, lane, handler):
        """Pass later bytes to a new lane (parser). Only the present lane may call this, within process(). If
        ``lane`` is None, handler.make_lane() makes it when bytes come. Bytes are counted from 0 again.
        """
        self.lane = lane
        self.handler = handler
        self.received_octets = self.output.sent_octets = 0

    def finish(self):
        """Close the socket's watchers, and raise the error that ended the stream, if any."""
        self.end()
        error, self.error = self.error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback holds this frame

    def end(self):
        """Close the socket's watchers, and read no more."""
        self.is_over = True
        self._stop_watching()
        for watcher in (self.watcher, self.after_poll):
            if watcher is not None:
                watcher.close()
        self.watcher = self.after_poll = self.over = self.direct = None
        self.lane = self.handler = None  # they hold the connection, which holds this

    def stop(self, error=None):
        """Read no more: finish() then raises ``error`` if given. A second call does nothing."""
        if self.is_over:
            return
        self.is_over = True
        if isinstance(error, OSError):
            error.__traceback__ = None  # its frames hold this
        self.error = error
        self._stop_watching()
        over, self.over = self.over, None
        if over is not None:
            over()

    def pause_reading(self, waits_for):
        """Stop reading, and return a Hold. Reading resumes when all Holds of the stream are released. Frames
        already read are still handled, until the handler of a frame returns False.
        """
        hold = Hold(self, waits_for)
        self.holds = self.holds or {}
        self.holds[hold] = None
        self.full_read = 0  # its reads bring more already than the broker can take
        self._stop_watching()
        return hold

    def let_go(self, hold):
        """Remove a Hold. After the last Hold, parse bytes that were already read, then read on."""
        del self.holds[hold]
        if self.holds:
            return
        self.holds = None
        if self.watcher is not None and not self.is_over:
            self.watcher.start(self._readable)
            if self.tail or (self.pending is not None and self.pending()):
                self.rewalk = True
                self._read_again()

    def release_all(self):
        """Release all Holds, so that the stream is read again."""
        for hold in list(self.holds or ()):
            hold.release()

    def _stop_watching(self):
        if self.watcher is not None:
            self.watcher.stop()
        if self.after_poll is not None:
            self.after_poll.stop()
        self.lacks_room = False
        if self.together:
            self.together = False
            self.coalescer.discard(self)

    @property
    def paused(self):
        """Whether a Hold keeps the stream from being read."""
        return self.holds is not None and len(self.holds) > 0

    @property
    def waits_for(self):
        """The reasons of the stream's Holds, a list of texts. Empty while the stream is read."""
        return list(dict.fromkeys([hold.waits_for for hold in self.holds or ()]))

    def _readable(self):
        """Read the socket; if too many streams have ended in this poll, leave the read to the next."""
        if self.buffers.ends_left > 0 or self.buffers.is_next_poll():
            self._read_and_look()

    def _read_and_look(self):
        count = self._read()
        if count >= SMALL_OCTETS or self.together or not self.goes_by_clock:
            self.small_reads = self.small_octets = 0
        elif count > 0:
            self.small_reads += 1
            self.small_octets += count
            if self.small_reads == FLOOD_READS:
                self._look_for_flood()

    def _look_for_flood(self):
        """After FLOOD_READS quick small reads, let the coalescer read, if the peer waits for no answer."""
        now = time.monotonic()
        is_flood = now - self.flood_began < FLOOD_S
        self.flood_began = now
        if is_flood and not self.holds and not self.is_over and self._can_wait():
            self.together = self.coalescer.add(self)
        if self.together:
            self.watcher.stop()
            self.least_octets = self.small_octets * LEAST_TOGETHER // FLOOD_READS
        self.small_reads = self.small_octets = 0

    def _can_wait(self):
        """Return True if the peer awaits no answer: it has plenty to send, or was sent nothing lately."""
        before, self.flood_sent_octets = self.flood_sent_octets, self.output.sent_octets
        return before == self.output.sent_octets or self.handler.has_plenty()

    def read_together(self):
        """Read at a coalescer tick. Leave the coalescer if little or too much came, or the peer waits."""
        # After a full read more octets follow, so that the cost of a poll for them does not matter.
        if not self.together:
            return
        count = self._read()
        if not self.least_octets <= count < self.buffers.input_octets or not self._can_wait():
            if self.together:  # the read may have ended that
                self.together = False
                self.coalescer.discard(self)
                self.watcher.start(self._readable)

    def _read(self):
        """Read once, and have the bytes parsed. Returns their number, 0 also at the stream's end."""
        if self.rewalk:
            # Octets read before come first; a paused stream's rest may not fit in front of a new read.
            return 0
        if self.direct is not None:
            count = self._read_direct()
        else:
            buffers = self.buffers
            is_long = self.reads_more and self.full_read == buffers.full_reads
            is_first = self.received_octets < buffers.first_octets and not self.together
            count = self._receive(
                buffers.flood_room if is_long else buffers.first_room if is_first else buffers.input_room)
            if count >= buffers.input_octets:
                self._was_full()
            if count:
                tail = self.tail
                self._walk(buffers.reserve - len(tail), buffers.reserve + count, tail)
        if self.lacks_room:
            self._stop_watching()
            self.lacks_room = True
            self._read_again(ANSWER_S)
        elif self.pending is not None and not self.is_over and self.pending() and not self.holds:
            if self.goes_by_clock or not self.socket.wait(self):
                self._read_again()
        return count

    def _was_full(self):
        """Record that a read filled the buffer, and decide whether the next read may be longer."""
        # It may if the hub's last full read was of this stream, too: no other stream is in a flood that a
        # longer read would delay.
        self.reads_more = self.full_read == self.buffers.full_reads
        self.buffers.full_reads += 1
        self.full_read = self.buffers.full_reads

    def read_into(self, target, count):
        """Receive the next ``count`` bytes, the rest of a large frame, straight into ``target``. The parser
        calls this last in process(), after all other bytes. ``target.room(count)`` returns the memory to
        fill. ``target.came(count)`` reports the bytes, in one or several calls.
        """
        if count:
            if self.receive_parts is None and self.pending is None:  # most clients send no large body
                self.receive_parts = parts_function(self.socket)
            self.direct = target
            self.direct_octets = count

    def _read_direct(self):
        """Read the rest of a large frame into the target of read_into(), then the head of the next frame."""
        rest, head = self.direct.room(self.direct_octets), self.buffers.input_room[:HEAD_OCTETS]
        if self.receive_parts is not None:
            count = self._receive((rest, head), self.receive_parts)
        else:
            count = self._receive(rest)
            if count == self.direct_octets:
                count += self._receive(head)
        here = min(count, self.direct_octets)
        if here:
            self.direct.came(here)
            self.direct_octets -= here
        if not self.direct_octets:
            self.direct = None
        if count > here:
            self._walk(self.buffers.reserve, self.buffers.reserve + count - here, b"")
        return count

    def _receive(self, room, receive=None):
        """Read into the view ``room`` or, by the function ``receive``, into several views. Returns the number
        of bytes, 0 also at the stream's end.
        """
        try:
            if receive is not None:
                count = receive(room)[0]
            elif self.output.descriptor >= 0 and self.pending is None:
                count = receiving.receive(self.output.descriptor, room)
            else:
                count = self.receive_into(room)
        except BlockingIOError:
            return 0
        except Exception as error:  # a fault of the broker, too
            if not is_not_now(error):
                self.buffers.count_end()
                self.stop(error)
            elif has_to_write_first(error):
                self.lacks_room = not self.is_over and not self.holds
            return 0
        if count == 0:
            self.buffers.count_end()
            self.stop()
        self.received_octets += count
        return count

    def _read_again(self, after_s=0.0):
        if self.after_poll is None or self.after_s != after_s:
            if self.after_poll is not None:
                self.after_poll.close()
            # Not hub.timers, which make one per call: started per read. A repeating timer: libev takes one
            # that has run out for due at once when it is started anew.
            self.after_poll, self.after_s = gevent.get_hub().loop.timer(after_s, after_s), after_s
        self.after_poll.start(self._readable_again)

    def _readable_again(self):
        """After the next poll, parse bytes left by a Hold, or read bytes held by TLS or the WebSocket."""
        # A poll does not show octets that TLS or the WebSocket holds.
        self.after_poll.stop()
        if self.lacks_room:
            self.lacks_room = False
            self.watcher.start(self._readable)
        if self.rewalk:
            self.rewalk = False
            tail = self.tail
            if tail:
                self._walk(0, len(tail), tail)
            if self.pending is None or not self.pending() or self.holds:
                return
        self._read_and_look()

    def _walk(self, start, end, tail):
        output = self.output
        output.cork()
        try:
            if tail:
                self.buffers.input[start:start + len(tail)] = tail
                self.tail = b""
            if self.lane is None:
                self.lane = self.handler.make_lane()
            try:
                now_s = time.time()
                now_ms = int(now_s * 1000)
                lane = self.lane  # lives as long as its call, even if the call ends the stream
                position = lane.process(start, end, now_ms)
                if position < end:
                    self._keep_tail(position, end)
            finally:
                lane = self.lane
                if lane is not None:
                    lane.finish()
        except Exception as error:
            self.stop(error)
        finally:
            output.uncork()

    def _keep_tail(self, position, end):
        self.tail = bytes(self.buffers.input_view[position:end])
        if len(self.tail) > self.buffers.reserve and not self.holds and not self.rewalk:
            raise AssertionError(f"a lane left {len(self.tail)} bytes, more than fit before the next read")
