"""Buffers: one input and one output buffer shared by all connections, and buffers for large bodies.

The contents of the shared buffers do not outlive a switch of greenlets: a connection copies its unfinished
bytes out before the next connection is served. BodyBuffers keeps buffers for later bodies, because a mebibyte
of fresh memory costs 256 page faults. A buffer becomes free when no view of it is left. Kept buffers are
dropped when no body has come for KEPT_MS. Without bodies no timer runs. The body budget (hub.budget) limits
the bytes.
"""
import mmap
import weakref
from contextlib import suppress

import gevent

from gomq_py import octets

# Most octets of a read: 0.2 ms of work with the smallest messages, for which others wait. A read of a client
# that floods alone may be longer: a message of 1 KiB then costs a sixth less, because of fewer polls and
# fewer wake-ups of consumers. 128 KiB made half of the difference.
INPUT_OCTETS = 64 * 1024
FLOOD_OCTETS = 256 * 1024
# Reads are this short until a client has sent so many octets: octets behind the first publish to a new queue
# are kept until the queue has its files, and full reads of a thousand publishers at once were 66 MB.
FIRST_OCTETS = 8 * 1024
# Most reads of one poll that find the end of their stream. Such a read takes 3 us, and libev takes 0.5 to
# hand over a ready socket, read or not: when 14 000 connections end at once a poll takes 16 ms instead of 41.
ENDS = 2048
# Octets of deliveries to one consumer that are sent together. The larger number is for a consumer that keeps
# up, since octets that the socket does not take are kept: it has room for a flood's read, whose frames grow
# by a third if messages are small. Both buffers stay in a second-level cache of 1 MiB.
OUTPUT_OCTETS = 128 * 1024
FLOOD_OUTPUT_OCTETS = 512 * 1024
# Method and header frames that may stand before a body frame of the largest size, kept together with it.
MARGIN_OCTETS = 4 * 1024
# Room to rewrite one message's properties: MQTT has 64 KiB of them at most.
SCRATCH_OCTETS = 64 * 1024
# Spare buffers in which connections gather output between two polls. A small one holds the few messages that
# most get at once; SPARES of each size are kept.
SMALL_SPARE_OCTETS, SPARE_OCTETS = 2 * 1024, 64 * 1024
SPARES = 64
SMALL_SPARES = 8
# One body of the usual largest size (max_message_size), or several of usual sizes.
KEPT_OCTETS = 160 * 1024 * 1024
KEPT_MS = 5000
# Buffers are multiples of this, so that one buffer serves bodies of about the same size.
STEP_OCTETS = 256 * 1024


class HubBuffers:
    """The input buffer and the output buffer that all connections of an event loop share.

        input           its first ``reserve`` bytes are for the beginning of a frame whose rest is read next
        flood_room      all bytes after the reserve, for reads of a client that sends very much
        input_room      the part of flood_room, ``input_octets``, for usual reads
        first_room      a smaller part of flood_room, for new clients
        full_reads      number of reads that filled ``input_octets``
        ends_left       how many more connections may end in this poll of the event loop
        output          at address ``output_at``; has ``flood_output_octets``, of which usually
                        ``output_octets`` are used
        frame_max       largest frame that a connection may negotiate; it sets ``reserve``
    """

    __slots__ = (
        "input", "output", "input_view", "output_view", "first_room", "input_room", "flood_room", "reserve",
        "first_octets", "input_octets", "output_octets", "flood_output_octets", "full_reads", "ends_left",
        "input_at", "output_at", "_polled_at", "_scratch", "_small_spares", "_spares",
    )

    def __init__(self, frame_max=131072, input_octets=INPUT_OCTETS, output_octets=OUTPUT_OCTETS):
        self.reserve = frame_max + 8 + MARGIN_OCTETS
        self.input_octets = input_octets
        self.output_octets = output_octets
        self.flood_output_octets = max(output_octets, FLOOD_OUTPUT_OCTETS)
        self.full_reads = 1
        self.ends_left = ENDS
        self._polled_at = 0.0
        # mmap takes a page's memory at its first use; a bytearray would write zeros to all.
        self.input = mmap.mmap(-1, self.reserve + FLOOD_OCTETS, mmap.MAP_PRIVATE)
        self.output = mmap.mmap(-1, self.flood_output_octets, mmap.MAP_PRIVATE)
        self.input_view = memoryview(self.input)
        self.flood_room = self.input_view[self.reserve:]
        self.input_room = self.flood_room[:input_octets]
        self.first_octets = min(input_octets, FIRST_OCTETS)
        self.first_room = self.flood_room[:self.first_octets]
        self.output_view = memoryview(self.output)
        self.input_at = octets.pointer(self.input)
        self.output_at = octets.pointer(self.output)
        self._scratch = None
        # A few from the start: a list that gets empty gives its memory back, and asks for it again each time.
        self._small_spares = [bytearray(SMALL_SPARE_OCTETS) for _ in range(SMALL_SPARES)]
        self._spares = []

    def count_end(self):
        """Subtract 1 from ``ends_left``, after a read has found its connection ended."""
        self.is_next_poll()
        self.ends_left -= 1

    def is_next_poll(self):
        """Whether the event loop has polled since the last call. If so, resets ``ends_left``."""
        polled_at = gevent.get_hub().loop.now()
        if polled_at == self._polled_at:
            return False
        self._polled_at = polled_at
        self.ends_left = ENDS
        return True

    def scratch(self):
        """Return a bytearray of SCRATCH_OCTETS for any use until the next switch of greenlets."""
        if self._scratch is None:
            self._scratch = bytearray(SCRATCH_OCTETS)
        return self._scratch

    def take_spare(self, is_small):
        """Lend a bytearray of SMALL_SPARE_OCTETS (``is_small``) or SPARE_OCTETS bytes until give_spare()."""
        spares = self._small_spares if is_small else self._spares
        if spares:
            return spares.pop()
        return bytearray(SMALL_SPARE_OCTETS if is_small else SPARE_OCTETS)

    def give_spare(self, spare):
        """Return a bytearray that take_spare() lent."""
        spares = self._small_spares if len(spare) == SMALL_SPARE_OCTETS else self._spares
        if len(spares) < SPARES:
            spares.append(spare)


class Lent:
    """A buffer in use. ``octets`` is a memoryview. The buffer is free for reuse when nothing refers to this
    Lent any more.
    """

    __slots__ = ("octets", "__weakref__")

    def __init__(self, buffer):
        self.octets = memoryview(buffer)


class BodyBuffers:
    """Lends buffers for large message bodies to connections, and keeps them for reuse."""

    def __init__(self, timers):
        self._timers = timers
        self._kept = []  # [buffer, weak reference to the last Lent of it]
        self._used = False
        self._timer = None

    def take(self, octets):
        """Return a Lent buffer of at least ``octets`` bytes, with undefined content. Raises OSError."""
        self._used = True
        for kept in self._kept:
            buffer, lent = kept
            if octets <= len(buffer) <= 4 * octets + STEP_OCTETS and lent() is None:
                lent = Lent(buffer)
                kept[1] = weakref.ref(lent)
                return lent
        buffer = _made(octets)
        lent = Lent(buffer)
        self._make_room(len(buffer))
        if self.kept_octets() + len(buffer) <= KEPT_OCTETS:
            self._kept.append([buffer, weakref.ref(lent)])
            if self._timer is None:
                self._timer = self._timers.start(KEPT_MS, self._look)
        return lent

    def kept_octets(self):
        """Number of bytes in buffers that are kept for reuse, lent out or free."""
        return sum(len(buffer) for buffer, _ in self._kept)

    def _make_room(self, octets):
        """Drop free buffers, oldest first, until a new buffer of ``octets`` bytes can be kept."""
        for kept in list(self._kept):
            if self.kept_octets() + octets <= KEPT_OCTETS or octets > KEPT_OCTETS:
                break
            if kept[1]() is None:
                self._kept.remove(kept)

    def _look(self):
        self._timer = None
        if self._used:
            self._used = False
            self._timer = self._timers.start(KEPT_MS, self._look)
        else:
            self._kept.clear()


def _made(octets):
    size = (octets + STEP_OCTETS - 1) // STEP_OCTETS * STEP_OCTETS
    buffer = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # Pages of 2 MiB, which many systems give by default, would be fewer faults. But one octet of each body
    # would then take 2 MiB that no budget counts.
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        with suppress(OSError):  # a system without large pages
            buffer.madvise(mmap.MADV_NOHUGEPAGE)
    return buffer
