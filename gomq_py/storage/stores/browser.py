"""Browser: shows the ready messages of a store, oldest first, without changing anything.

Reads a message_store, which may change between two calls. Messages that have left the store are skipped.
Messages appended after the browser was made are not shown. Closed segments are mapped while they are read.
``skip`` and ``next`` never switch, so the caller of a long walk has to let other greenlets run.
"""
import heapq
import mmap
import os
import posix
from array import array

from gomq_py import octets
from gomq_py.storage.disk.pages import read_range
from gomq_py.storage.format import record
from gomq_py.storage.format.head import HEAD_BYTES
from gomq_py.storage.segments import segment as _segment
from gomq_py.storage.stores import message_store as _message_store  # noqa: F401  (its .pxd types the store)

# Requeued messages sorted at once, in about 2 ms. Sorted runs are merged as they are read.
SORTED_AT_ONCE = 20_000

_NOWHERE = b""


class Browser:
    """Shows the ready messages of one MessageStore, requeued messages first. A message that ``next`` has
    filled is valid until the next call or switch.
    """

    __slots__ = (
        "store", "_requeued", "_number", "_at", "_segment", "_last", "_last_end", "_own", "_own_acks",
        "_runs", "_run_at", "_p", "_is_proven",
    )

    def __init__(self, store):
        self.store = store
        self._requeued = _sorted_runs(store)
        self._number = self._at = self._run_at = 0
        self._segment = self._own = self._own_acks = None
        self._runs = None
        self._last, self._last_end = store.end_of_log()
        self._is_proven = False
        self._p = octets.pointer(_NOWHERE)

    def next(self, message):
        """Set ``message`` to the next ready message. Returns False if there are no more."""
        while self._requeued is not None:
            location = next(self._requeued, 0)
            if location == 0:
                self._requeued = None
            elif self._is_requeued(location) and self.store.read(location, message):
                return True
        while self._come_to_segment():
            segment = self._segment
            at = self._next_ready(segment)
            if at < 0:
                self._leave_segment()
                continue
            self._show(segment, at, message)
            return True
        return False

    def skip(self, count, limit):
        """Skip up to ``count`` messages, reading at most ``limit`` records. Returns how many were skipped."""
        passed = 0
        while self._requeued is not None and passed < count and passed < limit:
            if next(self._requeued, 0) == 0:
                self._requeued = None
            else:
                passed += 1
        while self._requeued is None and passed < count and limit > 0 and self._come_to_segment():
            segment = self._segment
            waiting = segment.count - segment.taken
            if (
                self._at <= HEAD_BYTES and segment is not self.store.read_segment
                and waiting <= count - passed and segment.number != self._last
            ):
                passed += waiting
                self._leave_segment()
            elif self._next_ready(segment) < 0:
                self._leave_segment()
            else:
                passed += 1
            limit -= 1
        return passed

    def close(self):
        """Close the browser's own mapping, and end the walk."""
        self._let_go()
        self._requeued = None
        self._number = 1 << 40

    def _is_requeued(self, location):
        requeued = self.store.requeued
        return (
            requeued is not None and requeued.counts.get(location) > 0 or self.store.is_passed_over(location))

    # segments

    def _come_to_segment(self):
        """Map the current segment or, if it is gone or unreadable, a later one. Returns False at the end."""
        while True:
            segment = self.store.browsable(self._number)
            if segment is None or segment.number > self._last:
                self._let_go()
                return False
            if segment is not self._segment:
                self._enter(segment)
            if segment is self.store.read_segment and self._at < self.store.read_at:
                self._at = self.store.read_at
            if self._point(segment):
                return True
            self._leave_segment()

    def _enter(self, segment):
        self._let_go()
        self._segment = segment
        self._is_proven = False
        self._number = segment.number
        self._at = HEAD_BYTES
        self._run_at = 0
        if segment.recovered is not None:
            self._own_acks = self._acks_of(segment)
            self._runs = self._own_acks.runs

    def _leave_segment(self):
        self._number += 1
        self._let_go()

    def _let_go(self):
        own, self._own = self._own, None
        self._p = octets.pointer(_NOWHERE)
        self._segment = self._own_acks = None
        self._runs = None
        if own is not None:
            own.close()

    def _point(self, segment):
        """Point to the segment's bytes in memory, mapping a closed file first. Returns False on failure."""
        if segment.is_open:
            recovered = segment.recovered
            if recovered is not None and not self._is_proven and recovered.proven < segment.end:
                try:
                    self.store.files.read_through(segment.msgs, 0, segment.end)
                except OSError:
                    return False
            self._is_proven = True
            self._p = octets.pointer(segment.msgs.map)
            return True
        if self._own is None:
            try:
                self._own = _mapped(segment.msgs, self.store.path_of("msgs", segment.number), segment.end)
            except (OSError, ValueError):
                # just removed or cut short; the store reports it when it gets there
                return False
            if len(self._own) < segment.end:
                return False
        self._p = octets.pointer(self._own)
        return True

    def _acks_of(self, segment):
        """Return all record.Acks of an earlier run's segment, also from this run; empty if unreadable."""
        if segment.is_open:
            return record.load_acks(segment.acks.map, segment.ack_seed)
        try:
            with open(self.store.path_of("acks", segment.number), "rb") as file:
                return record.load_acks(file.read(), segment.ack_seed)
        except OSError:
            return record.Acks()

    # records

    def _next_ready(self, segment):
        """Return the position of the next ready record in the segment, or -1 at its end."""
        p, seed = self._p, segment.seed
        end = segment.end
        if segment.number == self._last and end > self._last_end:
            end = self._last_end
        while self._at < end:
            at = self._at
            size = record.measure(p, at, end)
            if size == 0 or not record.header_is_sound(p, at, seed):
                at = record.find(p, at + record.ALIGNMENT, end, seed, 0)
                self._at = end if at < 0 else at
                continue
            self._at = at + size
            if segment.is_picked(at) or self._is_gone(at):
                continue
            if segment.recovered is None or record.content_is_sound(p, at, seed):
                return at
        return -1

    def _is_gone(self, at):
        runs = self._runs
        if runs is None:
            return False
        while self._run_at < len(runs) and runs[self._run_at + 1] <= at:
            self._run_at += 2
        return self._run_at < len(runs) and runs[self._run_at] <= at

    def _show(self, segment, at, message):
        _segment.fill(self._p, at, segment.begun_ms, message)
        failed = 0
        if segment.recovered is not None:
            kept = self._own_acks.counts.get(at)
            failed = kept[0] if kept is not None else (1 if at < segment.recovered.delivered else 0)
        message.location = record.location_of(record.level_bits(self.store.level), segment.number, at)
        message.delivery_count = failed
        message.redelivered = failed > 0


class ChainedBrowser:
    """Shows the ready messages of several stores (priority levels), one store after the other."""

    def __init__(self, stores):
        self._browsers = [Browser(store) for store in stores]

    def next(self, message):
        while self._browsers:
            if self._browsers[0].next(message):
                return True
            self._browsers.pop(0).close()
        return False

    def skip(self, count, limit):
        """Skip up to ``count`` messages, reading about ``limit`` records. Returns how many were skipped."""
        passed = 0
        while self._browsers and passed < count:
            some = self._browsers[0].skip(count - passed, limit)
            if some == 0:
                self._browsers.pop(0).close()
            passed += some
            limit -= max(some, 1)
            if limit <= 0:
                break
        return passed

    def close(self):
        for browser in self._browsers:
            browser.close()
        self._browsers = []


def browse(store):
    """Return a Browser for the ready messages of a queue's store, or a ChainedBrowser for several levels."""
    stores = store.browsed()
    return Browser(stores[0]) if len(stores) == 1 else ChainedBrowser(stores)


def _mapped(file, path, end):
    """Map an msgs file for reading, after reading it from the disk up to ``end``. Raises OSError, ValueError.
    ``file``: the open File, or None if closed.
    """
    # A bad sector raises here; a read of the mapping would end the process.
    if file is not None and file.fd >= 0:
        read_range(file.fd, 0, end)
        return mmap.mmap(file.fd, file.size, access=mmap.ACCESS_READ)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        read_range(fd, 0, end)
        return mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
    finally:
        posix.close(fd)


def _sorted_runs(store):
    """Return an iterator over locations of requeued and skipped messages, lowest first; None without any."""
    locations = array("Q", store.passed_over())
    if store.requeued is not None:
        locations.extend(store.requeued.heap.snapshot())
    if not locations:
        return None
    return heapq.merge(
        *(sorted(locations[at:at + SORTED_AT_ONCE]) for at in range(0, len(locations), SORTED_AT_ONCE))
    )
