"""Body buffers: what large message bodies are received into, kept for the next ones.

Beside the body budget (hub.bodies), which says how many octets may be held: here is where they lie. A body of
a mebibyte in fresh memory is 256 page faults, and as many again each time that it is joined or copied. A
buffer is free when nobody looks into it any more: no owner has to give it back. What is kept goes when no
body has come for KEPT_MS; idle, no timer runs.
"""
import mmap
import weakref
from contextlib import suppress

# One body of the largest size that is usual (max_message_size), or some of the sizes that clients send.
KEPT_OCTETS = 160 * 1024 * 1024
KEPT_MS = 5000
# Buffers are multiples of this, so that one does for bodies of about the same size.
STEP_OCTETS = 256 * 1024


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
