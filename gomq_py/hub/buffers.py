"""Hub buffers: one input and one output buffer for all connections of a hub, and what large message bodies
are received into.

The first two are never module-level (several brokers may live in one process) and never live across a switch:
what a connection has not finished with at the end of its turn, it copies out.

A body of a mebibyte in fresh memory is 256 page faults, and as many again each time that it is joined or
copied: BodyBuffers keeps buffers for the next ones. The body budget (hub.budget) says how many octets may be
held: here is where they lie. A buffer is free when nobody looks into it any more: no owner has to give it
back. What is kept goes when no body has come for KEPT_MS; idle, no timer runs.
"""
import mmap
import weakref
from contextlib import suppress

import gevent

from gomq_py import octets

# What a read brings at most: 0.2 ms of work with the smallest messages, which others wait for. Where one
# client alone floods it may bring more: then a message of 1 KiB costs a sixth less, because there are fewer
# polls and fewer wake-ups of whoever consumes. 128 KiB made half of the difference.
INPUT_OCTETS = 64 * 1024
FLOOD_OCTETS = 256 * 1024
# Until a client has sent so much, a read brings no more: what is behind the first publish to a new queue is
# kept until that has its files, and of a thousand publishers at once the whole reads were 66 MB.
FIRST_OCTETS = 8 * 1024
# Reads of one poll that may find the end of their stream. Such a read takes 3 us, and libev takes 0.5 to hand
# over a ready socket, read or not: where 14 000 connections end at once a poll takes 16 ms, and not 41.
ENDS = 2048
# What deliveries to one consumer fill before they are sent, and what has room for all of such a read, whose
# frames grow by a third where messages are small: for a consumer that keeps up, because what the socket does
# not take is kept. All of it stays in a second-level cache of 1 MiB.
OUTPUT_OCTETS = 128 * 1024
FLOOD_OUTPUT_OCTETS = 512 * 1024
# Method and header frames that may stand before a body frame of the largest size, kept together with it.
MARGIN_OCTETS = 4 * 1024
# What one message's properties are rewritten in: MQTT has 64 KiB of them at the most.
SCRATCH_OCTETS = 64 * 1024
# Spare buffers that connections gather output in between two polls of the loop. A small one does for a few
# messages, which is all that most get at once; so many of each are kept for the next poll.
SMALL_SPARE_OCTETS, SPARE_OCTETS = 2 * 1024, 64 * 1024
SPARES = 64
# One body of the largest size that is usual (max_message_size), or some of the sizes that clients send.
KEPT_OCTETS = 160 * 1024 * 1024
KEPT_MS = 5000
# Buffers are multiples of this, so that one does for bodies of about the same size.
STEP_OCTETS = 256 * 1024


class HubBuffers:
    """``input``: ``reserve`` octets of room for a connection's incomplete tail, then room to read into:
    ``input_octets``, which are ``input_room``, or all of it, the ``flood_room``; at first ``first_octets``,
    the ``first_room``. ``full_reads`` counts reads that filled ``input_octets``. ``ends_left``: reads of this
    poll that may still find the end of a stream. ``output``: where deliveries are built, in
    ``output_octets``, or ``flood_output_octets``, which are all of it, from ``output_at`` on; ``scratch()``:
    where parts of one of them are.

    ``frame_max`` is the largest frame any connection of this hub may negotiate; it sets the reserve.
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
        # The memory of a page is taken when it is first used, and not for a bytearray's zeros.
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
        self._small_spares = []
        self._spares = []

    def count_end(self):
        """A read found the end of its stream."""
        self.is_next_poll()
        self.ends_left -= 1

    def is_next_poll(self):
        """Whether the loop has polled since the last call, by its time, which each poll sets: then all of
        ``ends_left`` is there again.
        """
        polled_at = gevent.get_hub().loop.now()
        if polled_at == self._polled_at:
            return False
        self._polled_at = polled_at
        self.ends_left = ENDS
        return True

    def scratch(self):
        """A bytearray of SCRATCH_OCTETS, for whoever fills and reads it in one go."""
        if self._scratch is None:
            self._scratch = bytearray(SCRATCH_OCTETS)
        return self._scratch

    def take_spare(self, is_small):
        """A bytearray of SMALL_SPARE_OCTETS or SPARE_OCTETS, the caller's until it is given back."""
        spares = self._small_spares if is_small else self._spares
        if spares:
            return spares.pop()
        return bytearray(SMALL_SPARE_OCTETS if is_small else SPARE_OCTETS)

    def give_spare(self, spare):
        """The end of take_spare()."""
        spares = self._small_spares if len(spare) == SMALL_SPARE_OCTETS else self._spares
        if len(spares) < SPARES:
            spares.append(spare)


class Lent:
    """A buffer in use, as the view ``octets``, for as long as somebody has this."""

    __slots__ = ("octets", "__weakref__")

    def __init__(self, buffer):
        self.octets = memoryview(buffer)


class BodyBuffers:
    """One per hub. ``timers`` is the hub's."""

    def __init__(self, timers):
        self._timers = timers
        self._kept = []  # [buffer, weak reference to the last Lent of it]
        self._used = False
        self._timer = None

    def take(self, octets):
        """A Lent of at least so many octets, which may hold anything. Raises OSError."""
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
        """Octets of the buffers that are kept, in use or not."""
        return sum(len(buffer) for buffer, _ in self._kept)

    def _make_room(self, octets):
        """Let go of kept buffers that are free, the oldest first, where one of this size could be kept."""
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
    # Pages of 2 MiB would be fewer faults, but a client that sends an octet of each body took so much for it,
    # which nobody counts; many systems give them to whoever does not refuse.
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        with suppress(OSError):  # a system that has none
            buffer.madvise(mmap.MADV_NOHUGEPAGE)
    return buffer
