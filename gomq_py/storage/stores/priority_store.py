"""Priority store: a message store per priority, for quorum queues and queues with x-max-priority.

Uses message_store; a priority is a *level*, and locations contain it. The highest level with a ready message
is shown first; within a level messages keep their order. An unused level costs nothing. A quorum queue has a
message store alone until a message of another priority comes; that store then is level 0, and stays in the
queue's own folder. Never switches, never flushes.
"""
import os
import re

from gomq_py.storage.format import record
from gomq_py.storage.errors import StoreClosed, StoreError
from gomq_py.storage.stores import message_store, store as _store
from gomq_py.storage.stores.recovery import RecoveryReport, open_store

_NAME = re.compile(r"level\.(\d{3})")


class PriorityStore(_store.Store):
    """Keeps messages in a MessageStore for each priority, a level. Made by open_priority_store, with_levels.

        max_priority    0 to 255; a message's higher priority counts as this
        default         the priority of messages that name none
        priorities      the priority of each level, by its number. The default one has level 0, priority 0 has
                        the level ``default``, and any other level the number of its priority; so these are
                        also the numbers of levels, by priority
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
        """Copy the message into the level of its priority and set its location. Raises StoreError."""
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
        """Have new files of level 0 renamed into its folder before they are used, so that its appends survive
        a kill.
        """
        if not self.is_named_at_once:
            self.is_named_at_once = True
            store = self._levels[self.default]
            self.pool.name_at_once(level_folder(self.folder, 0) if store is None else store.folder)
        return 0

    def place_of(self, size):
        """Position of a record of ``size`` bytes on level 0, if appended next. Makes the level if missing."""
        store = self._levels[self.default]
        if store is None:
            store = self._level(self.default)
        return store.place_of(size)

    def has_record(self, place, came_ms):
        """Whether a message lies, or was acked, at ``place``, a position of level 0 from place_of()."""
        store = self._levels[self.default]
        return store is not None and store.has_record(place, came_ms)

    def peek(self, message):
        """Set ``message`` to the oldest ready message of the highest level with ready messages. Returns False
        if no message is ready, or while is_waiting().
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
        """Take the message of the last peek: it becomes unacked."""
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
        """True if peek() can show the next message only after a thread has opened or read its file."""
        for priority in range(self._top, -1, -1):
            store = self._levels[priority]
            if store is not None and store.ready_count:
                return store.is_waiting()
        return False

    def open_aside(self):
        """Have threads open closed segments from now on; peek() returns False meanwhile."""
        self._opens_aside = True
        for store in self._used:
            store.open_aside()

    def shows_recovered(self):
        """Whether the last peek showed a message that an earlier run delivered and this run has not."""
        return self._shown is not None and self._shown.shows_recovered()

    def postpone(self):
        """Take the message of the last peek without delivering it or counting a failed delivery."""
        store, self._shown = self._shown, None
        self._take_off(store)
        try:
            store.postpone()
        finally:
            self._put_on(store)

    def peeked_due_s(self, now_s):
        """Unix seconds until which an earlier run has postponed the peeked message; 0 if not."""
        return self._shown.peeked_due_s(now_s)

    def wait_until(self, location, count, due_s):
        """Save for later runs that an unacked message must wait until ``due_s``, in Unix seconds."""
        return self._of(location).wait_until(location, count, due_s)

    def excuse(self, location, more):
        """Save that ``more`` deliveries (0 or 1) of a taken or peeked message were no failures. Returns how
        many of its deliveries were none.
        """
        return self._of(location).excuse(location, more)

    def delete(self, location):
        """Remove an unacked message for good."""
        store = self._of(location)
        self._take_off(store)
        try:
            store.delete(location)
        finally:
            self._put_on(store)

    def requeue(self, location):
        """Make an unacked message ready again, at its old position in its level."""
        store = self._of(location)
        self._take_off(store)
        try:
            store.requeue(location)
        finally:
            self._put_on(store)
        self._raise_top(self.priorities[record.level_of(location)])

    def pick(self, location):
        """Take a ready message of any level out of order. Returns False if the message is not ready."""
        store = self._of(location)
        self._take_off(store)
        try:
            return store.pick(location)
        finally:
            self._put_on(store)

    def unpick(self, location):
        """Undo pick(): the message is ready, with its earlier count of failed deliveries."""
        store = self._of(location)
        self._take_off(store)
        try:
            store.unpick(location)
        finally:
            self._put_on(store)
        self._raise_top(self.priorities[record.level_of(location)])

    def read(self, location, message):
        """Set ``message`` to the unacked message at ``location``. Returns False if the store has stopped."""
        return self._of(location).read(location, message)

    def body_file(self, message):
        return self._of(message.location).body_file(message)

    def write_out(self):
        """End a batch: all changes so far, of all levels, survive a kill of the process."""
        for store in self._used:
            store.write_out()

    def mark(self):
        """Have the committer flush the acks of every level at its next sync."""
        for store in self._used:
            store.mark()

    # the slow verbs

    def purge(self):
        """Drop the ready messages of all levels. Returns the number of dropped messages."""
        count = 0
        for store in self._used:
            self._take_off(store)
            try:
                count += store.purge()
            finally:
                self._put_on(store)
        return count

    def close(self):
        """Refuse all further calls, and close all levels. Their files stay."""
        if self.failure is None:
            self.failure = StoreClosed(self.folder, 0, "the store is closed")
            for store in self._used:
                store.close()

    def delete_files(self):
        """Stop the store and remove its files."""
        self.listener = None
        self.failure = StoreClosed(self.folder, 0, "the store is deleted")
        for store in self._used:
            store.delete_files()
        if self.durable and os.path.isdir(self.folder):
            self.files.remove_tree(self.folder)
            self.committer.mark_folder(os.path.dirname(self.folder))

    def forget_files(self):
        """Stop the store; the caller removes its folder."""
        self.listener = None
        self.failure = StoreClosed(self.folder, 0, "the store is deleted")
        for store in self._used:
            store.forget_files()

    def fence(self, error):
        """Stop all levels: an I/O error on one level is an error of the whole store."""
        if self.failure is not None:
            return
        self.failure = StoreClosed(self.folder, 0, f"closed after an error: {error}")
        for store in self._used:
            store.fence(error)
        if self.listener is not None:
            self.listener.store_fenced(self, error)

    def adopt_level(self, number, store):
        """Add the store of a level that has messages already."""
        priority = self.priorities[number]
        store.listener = self
        self._levels[priority] = store
        self._used.append(store)
        self._put_on(store)
        self._raise_top(priority)

    def hand_over(self, pool, committer):
        """Use this pool and committer for all levels from now on, instead of a thread's stand-ins."""
        _store.Store.hand_over(self, pool, committer)
        for store in self._used:
            store.hand_over(pool, committer)

    # called by Browser and metrics

    def browsed(self):
        """The MessageStores of the levels in use as a tuple, the highest priority first."""
        return tuple(filter(None, reversed(self._levels)))

    def oldest_ready_ms(self):
        """About when the oldest ready message came in, Unix milliseconds; 0 if there is none or unknown."""
        return min(filter(None, [store.oldest_ready_ms() for store in self._used]), default=0)

    def failed_deliveries(self, bounds):
        """Histogram of failed deliveries: element n counts messages with more than ``bounds[n - 1]`` and at
        most ``bounds[n]``; the last element counts messages above all bounds.
        """
        counted = [0] * (len(bounds) + 1)
        for store in self._used:
            counted = [sum(pair) for pair in zip(counted, store.failed_deliveries(bounds))]
        return counted

    # called by levels

    def store_fenced(self, store, error):
        """Called by a level that was fenced: fences all levels."""
        self.fence(error)

    def segment_opened(self, store):
        """Called by a level whose reader can go on: informs the listener."""
        if self.listener is not None:
            self.listener.segment_opened(self)

    def record_damaged(self, store, path, start, end, count):
        """Called by a level with a damaged record: informs the listener."""
        if self.listener is not None:
            self.listener.record_damaged(self, path, start, end, count)

    # levels

    def _level(self, priority):
        """Create the store of a priority's level, at its first use."""
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
        """The level that has the message of this location. Raises StoreError for an unused level."""
        number = record.level_of(location)
        store = self._levels[self.priorities[number]] if number <= self.max_priority else None
        if store is None:
            raise StoreError(self.folder, 0, f"no message lies on level {number}")
        return store

    def _raise_top(self, priority):
        """A message of this priority is ready: let peek() begin at its level or a higher one."""
        if priority > self._top:
            self._top = priority

    def _take_off(self, store):
        """Subtract a level's counts from the sums. ``_put_on`` adds them again."""
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
    """Path of a level's folder, inside the folder of its queue."""
    return os.path.join(folder, f"level.{number:03d}")


def open_priority_store(
    folder, files, pool, committer, incarnation, max_priority, segment_bytes=8388608, durable=True,
    listener=None,
):
    """Create a store in the folder, or open the levels that an earlier run left there.

    Returns (PriorityStore, RecoveryReport). Raises StoreError if the disk cannot be read.
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
    """Return a PriorityStore that has the messages of ``store``, a MessageStore, on level 0. Locations, and
    the message of a last peek, stay valid.
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
    """Open a MessageStore or, if an earlier run left messages with priorities, a PriorityStore that
    with_levels() has made of it.

    Returns (store, RecoveryReport). Raises StoreError if the disk cannot be read.
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
    """Open the stores of these levels, and add them. Returns their RecoveryReports."""
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
    """Numbers of the levels that have a folder, or that the last orderly stop ``listed`` with messages."""
    names = os.listdir(folder) if os.path.isdir(folder) else ()
    found = {int(match[1]) for match in map(_NAME.fullmatch, names) if match is not None}
    return [
        number for number in range(max_priority + 1)
        if number in found or (listed and level_folder(folder, number) in listed)
    ]


def _is_used(folder, listed):
    """False for the folder of a level whose files are all gone in order."""
    return folder in listed or bool(os.listdir(folder))
