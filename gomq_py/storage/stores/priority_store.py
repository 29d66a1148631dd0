"""Priority store: a message store per priority, for quorum queues and queues with x-max-priority.

Uses message_store. A priority is called a *level*, and locations contain it. The highest level with a ready
message is read first; messages of one level keep their order. An unused level costs nothing. A quorum queue
has only a message store until a message comes whose priority is not the default. The message store then
becomes level 0, and stays in the queue's own folder. Never switches, never flushes.
"""
import os
import re

from gomq_py.storage.format import record
from gomq_py.storage.errors import StoreClosed, StoreError
from gomq_py.storage.stores import message_store, store as _store
from gomq_py.storage.stores.recovery import RecoveryReport, open_store

_NAME = re.compile(r"level\.(\d{3})")


class PriorityStore(_store.Store):
    """Keeps messages in a MessageStore per priority (level). Made by open_priority_store and with_levels.

        max_priority    0 to 255; higher priorities of messages count as this one
        default         priority of messages without a priority
        priorities      list: level -> priority, and also priority -> level. Both numbers are equal, except
                        that the default priority has level 0 and priority 0 has level ``default``
    """

    __slots__ = (
        "max_priority", "default", "priorities", "_levels", "_used", "_top", "_shown", "_opens_aside")

    def __init__(
        self, folder, files, pool, committer, incarnation, max_priority, segment_bytes=8388608, durable=True,
        listener=None, default=0,
    ):
        _store.Store.__init__(
            self, folder, files, pool, committer, incarnation, segment_bytes, durable, listener
        )
        self.max_priority = max_priority
        self.default = default
        self.priorities: list = list(range(max_priority + 1))
        self.priorities[0], self.priorities[default] = default, 0
        self._levels: list = [None] * (max_priority + 1)  # the highest priority last
        self._used = []
        self._top = 0
        self._shown = None
        self._opens_aside = False

    # the hot verbs

    def append(self, message):
        priority = message.priority_or(self.default)
        if priority > self.max_priority:
            priority = self.max_priority
        store = self._levels[priority]
        if store is None:
            store = self._level(priority)
        store.append(message)
        self.ready_count += 1
        self.ready_bytes += message.body_length
        self._raise_top(priority)

    def name_at_once(self):
        if not self.is_named_at_once:
            self.is_named_at_once = True
            store = self._levels[self.default]
            self.pool.name_at_once(level_folder(self.folder, 0) if store is None else store.folder)
        return 0

    def place_of(self, size):
        """Return the location on level 0 at which a record of ``size`` bytes would be appended next."""
        store = self._levels[self.default]
        if store is None:
            store = self._level(self.default)
        return store.place_of(size)

    def has_record(self, place, came_ms):
        """Return whether the record at ``place``, a location from place_of(), is complete or was acked."""
        store = self._levels[self.default]
        return store is not None and store.has_record(place, came_ms)

    def peek(self, message):
        """Set ``message`` to the oldest ready message of the highest level that has any. Returns False if no
        message is ready, or while is_waiting().
        """
        while True:
            store = self._levels[self._top]
            if store is not None and store.ready_count:
                # peek may find damage, and then there are fewer messages
                self._take_off(store)
                try:
                    found = store.peek(message)
                finally:
                    self._put_on(store)
                if found:
                    self._shown = store
                    return True
                if store.is_waiting():
                    return False  # lower levels have to wait
            if self._top == 0:
                return False
            self._top -= 1

    def shift(self):
        store = self._shown
        if store is None:
            raise StoreError(self.folder, 0, "shift without peek")
        self._shown = None
        self._take_off(store)
        try:
            store.shift()
        finally:
            self._put_on(store)

    def is_waiting(self):
        for priority in range(self._top, -1, -1):
            store = self._levels[priority]
            if store is not None and store.ready_count:
                return store.is_waiting()
        return False

    def open_aside(self):
        self._opens_aside = True
        for store in self._used:
            store.open_aside()

    def shows_recovered(self):
        return self._shown is not None and self._shown.shows_recovered()

    def postpone(self):
        store, self._shown = self._shown, None
        self._take_off(store)
        try:
            store.postpone()
        finally:
            self._put_on(store)

    def peeked_due_s(self, now_s):
        return self._shown.peeked_due_s(now_s)

    def wait_until(self, location, count, due_s):
        return self._of(location).wait_until(location, count, due_s)

    def excuse(self, location, more):
        return self._of(location).excuse(location, more)

    def delete(self, location):
        store = self._of(location)
        self._take_off(store)
        try:
            store.delete(location)
        finally:
            self._put_on(store)

    def requeue(self, location):
        store = self._of(location)
        self._take_off(store)
        try:
            store.requeue(location)
        finally:
            self._put_on(store)
        self._raise_top(self.priorities[record.level_of(location)])

    def pick(self, location):
        store = self._of(location)
        self._take_off(store)
        try:
            return store.pick(location)
        finally:
            self._put_on(store)

    def unpick(self, location):
        store = self._of(location)
        self._take_off(store)
        try:
            store.unpick(location)
        finally:
            self._put_on(store)
        self._raise_top(self.priorities[record.level_of(location)])

    def read(self, location, message):
        return self._of(location).read(location, message)

    def body_file(self, message):
        return self._of(message.location).body_file(message)

    def write_out(self):
        for store in self._used:
            store.write_out()

    def mark(self):
        for store in self._used:
            store.mark()

    # the slow verbs

    def purge(self):
        count = 0
        for store in self._used:
            self._take_off(store)
            try:
                count += store.purge()
            finally:
                self._put_on(store)
        return count

    def close(self):
        if self.failure is None:
            self.failure = StoreClosed(self.folder, 0, "the store is closed")
            for store in self._used:
                store.close()

    def delete_files(self):
        self.listener = None
        self.failure = StoreClosed(self.folder, 0, "the store is deleted")
        for store in self._used:
            store.delete_files()
        if self.durable and os.path.isdir(self.folder):
            self.files.remove_tree(self.folder)
            self.committer.mark_folder(os.path.dirname(self.folder))

    def forget_files(self):
        self.listener = None
        self.failure = StoreClosed(self.folder, 0, "the store is deleted")
        for store in self._used:
            store.forget_files()

    def fence(self, error):
        if self.failure is not None:
            return
        self.failure = StoreClosed(self.folder, 0, f"closed after an error: {error}")
        for store in self._used:
            store.fence(error)
        if self.listener is not None:
            self.listener.store_fenced(self, error)

    def adopt_level(self, number, store):
        """Add a store, with its messages, as the level ``number``."""
        priority = self.priorities[number]
        store.listener = self
        self._levels[priority] = store
        self._used.append(store)
        self._put_on(store)
        self._raise_top(priority)

    def hand_over(self, pool, committer):
        _store.Store.hand_over(self, pool, committer)
        for store in self._used:
            store.hand_over(pool, committer)

    # called by Browser and metrics

    def browsed(self):
        """Return the MessageStores of the levels in use, as a tuple, highest priority first."""
        return tuple(filter(None, reversed(self._levels)))

    def oldest_ready_ms(self):
        return min(filter(None, [store.oldest_ready_ms() for store in self._used]), default=0)

    def failed_deliveries(self, bounds):
        counted = [0] * (len(bounds) + 1)
        for store in self._used:
            counted = [sum(pair) for pair in zip(counted, store.failed_deliveries(bounds))]
        return counted

    # called by levels

    def store_fenced(self, store, error):
        """Stop all levels. Called by a level that has stopped after an I/O error."""
        self.fence(error)

    def segment_opened(self, store):
        """Report to the listener that reading can continue. Called by a level."""
        if self.listener is not None:
            self.listener.segment_opened(self)

    def record_damaged(self, store, path, start, end, count):
        """Report damaged records to the listener. Called by a level. For the arguments see Store."""
        if self.listener is not None:
            self.listener.record_damaged(self, path, start, end, count)

    # levels

    def _level(self, priority):
        if self.failure is not None:
            raise self.failure
        number = self.priorities[priority]
        folder = level_folder(self.folder, number) if self.durable else self.folder
        store = message_store.MessageStore(
            folder, self.files, self.pool, self.committer, self.incarnation, self.segment_bytes, self.durable,
            number, self)
        if self.durable:
            store.lie_in(self.folder)
        if self._opens_aside:
            store.open_aside()
        self._levels[priority] = store
        self._used.append(store)
        return store

    def _of(self, location):
        """Return the MessageStore of this location. Raises StoreError for an unused level."""
        number = record.level_of(location)
        store = self._levels[self.priorities[number]] if number <= self.max_priority else None
        if store is None:
            raise StoreError(self.folder, 0, f"no message lies on level {number}")
        return store

    def _raise_top(self, priority):
        if priority > self._top:
            self._top = priority

    def _take_off(self, store):
        """Subtract a level's counts from this store's. ``_put_on`` adds them again after a change."""
        self.ready_count -= store.ready_count
        self.unacked_count -= store.unacked_count
        self.ready_bytes -= store.ready_bytes
        self.unacked_bytes -= store.unacked_bytes

    def _put_on(self, store):
        self.ready_count += store.ready_count
        self.unacked_count += store.unacked_count
        self.ready_bytes += store.ready_bytes
        self.unacked_bytes += store.unacked_bytes


def level_folder(folder, number):
    """Return the path of a level's folder, inside the folder of its queue."""
    return os.path.join(folder, f"level.{number:03d}")


def open_priority_store(
    folder, files, pool, committer, incarnation, max_priority, segment_bytes=8388608, durable=True,
    listener=None,
):
    """Create a store in the folder, or open the levels that an earlier run left there. Returns
    (PriorityStore, RecoveryReport). Raises StoreError if the disk cannot be read.
    """
    store = PriorityStore(
        folder, files, pool, committer, incarnation, max_priority, segment_bytes, durable, listener
    )
    numbers = _levels_of(store.folder, max_priority, pool.listed) if durable else ()
    # all levels are gone, but new segments get higher numbers than theirs
    if numbers and not os.path.isdir(store.folder):
        try:
            files.make_folder(store.folder)
        except OSError as error:
            raise StoreError(store.folder, 0, f"cannot be made again: {error}") from error
        committer.mark_folder(os.path.dirname(store.folder))
    return store, _sum(_open_levels(store, numbers))


def with_levels(store, max_priority, default):
    """Return a PriorityStore with the messages of ``store``, a MessageStore, on level 0. Locations, and the
    message of the last peek, stay valid.
    """
    made = PriorityStore(
        store.folder, store.files, store.pool, store.committer, store.incarnation, max_priority,
        store.segment_bytes, store.durable, store.listener, default,
    )
    made._opens_aside = store.opener is not None
    made._shown = store
    made.adopt_level(0, store)
    return made


def open_with_levels(
    folder, files, pool, committer, incarnation, max_priority, default, segment_bytes=8388608, durable=True,
):
    """Open a MessageStore, or the PriorityStore that with_levels() has made of it in an earlier run. Returns
    (store, RecoveryReport). Raises StoreError if the disk cannot be read.
    """
    store, report = open_store(folder, files, pool, committer, incarnation, segment_bytes, durable)
    numbers = [
        number for number in (_levels_of(store.folder, max_priority, pool.listed) if durable else ())
        if number and _is_used(level_folder(store.folder, number), pool.listed)
    ]
    if not numbers:
        return store, report
    store = with_levels(store, max_priority, default)
    return store, _sum([report, *_open_levels(store, numbers)])


def _open_levels(store, numbers):
    reports = []
    for number in numbers:
        level, report = open_store(
            level_folder(store.folder, number), store.files, store.pool, store.committer, store.incarnation,
            store.segment_bytes, store.durable, number, store)
        level.lie_in(store.folder)
        store.adopt_level(number, level)
        reports.append(report)
    return reports


def _sum(reports):
    return RecoveryReport(
        sum(report.ready_count for report in reports), sum(report.scanned for report in reports),
        sum(report.lost for report in reports),
        tuple(path for report in reports for path in report.removed),
        tuple(path for report in reports for path in report.gone),
        sum(report.gone_count for report in reports))


def _levels_of(folder, max_priority, listed):
    """Return numbers of levels that have a folder or that the last normal stop listed with messages."""
    names = os.listdir(folder) if os.path.isdir(folder) else ()
    found = {int(match[1]) for match in map(_NAME.fullmatch, names) if match is not None}
    return [
        number for number in range(max_priority + 1)
        if number in found or (listed and level_folder(folder, number) in listed)
    ]


def _is_used(folder, listed):
    return folder in listed or bool(os.listdir(folder))
