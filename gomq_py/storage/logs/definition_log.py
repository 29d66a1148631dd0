"""Definition log: the definitions of operators and clients, as a log of changes that is replayed at boot.

Uses storage.logs.framed_log and storage.logs.log_records. broker.broker keeps vhosts and their content in one
such log, auth.users the users in another. A record is a field table (content.fields) with a key ``op``, and
describes one whole definition, such as a queue. Answers to clients wait until the next group commit has
flushed the append. Never switches greenlets.

A long log is compacted if a count shows that it has many more records than there are definitions in memory
(the *model*). Compaction writes a second log beside the first, while every change goes to both. When the
second log is on disk, it gets the first log's name. Count and compaction run in slices. The model may change
between slices: a later record of the same definition replaces the earlier one. The second log is opened,
renamed and removed in threads, so that a slow disk does not block the event loop.

After a failed flush a log may have lost content. Confirms that depend on the log fail while it is in use. The
model has everything, so the log is compacted at once, and at each later change until a compaction succeeds.
"""
import os

from gomq_py.content.fields import encode_table
from gomq_py.hub.scheduler import Job, SliceClock
from gomq_py.observability.log import logger
from gomq_py.storage.disk.files import ROOM_AHEAD
from gomq_py.storage.format.log import new_log_id
from gomq_py.storage.logs.framed_log import FramedLog, keep_left_out, reserve
from gomq_py.storage.logs.log_records import RecordError, read_record

LOG = logger("storage")
NEXT = ".next"

# Definitions written before others get their turn, about a millisecond.
SLICE = 200
# Definitions counted before others get their turn, about half a millisecond.
COUNTED = 2000
# Items of a snapshot between two checks of the clock: some 10 us.
LOOKS = 16


class DefinitionLog:
    """One log. Call ``open``, then iterate ``replay`` to its end, before the first ``append``.

        what           describes the content in log lines
        shapes         see log_records.read_record
        slack          the log is compacted at more than ``slack`` records beyond twice the number of
                       definitions
        born_whole     see FramedLog
        fails_all      see LogFile
        left           see LogScan
        note(left)     saves ``left`` for the next boot; called in a thread before and after a compaction
                       and, with ``notes_growth``, soon after new records are flushed
    """

    def __init__(
        self, files, path, committer, scheduler, what, shapes, slack, born_whole=False, fails_all=True,
        left=None, note=None, notes_growth=False
    ):
        self._files = files
        self._path = os.fspath(path)
        self._committer = committer
        self._scheduler = scheduler
        self._what = what
        self._shapes = shapes
        self._slack = slack
        self._born_whole = born_whole
        self._fails_all = fails_all
        self._left = left
        self._note = note
        self._notes_growth = notes_growth and note is not None and committer.enabled
        self._is_growth_due = False
        self._next_id = None  # id of the log that will replace this one, or has
        self._snapshot = None
        self._size_hint = 0  # definitions at the last count, or 0
        self._next = None
        self._counting = self._opening = self._renaming = self._closed = False
        self._unreadable = []  # payloads that replay could not use
        self._is_left = False  # an abandoned second log could not be removed
        self._log = None  # None until open()

    def open(self):
        """Open the file. Returns this object. For boot: blocks. Raises OSError."""
        # left by a compaction before a crash; the first log has everything
        if os.path.exists(self._path + NEXT):
            self._files.unlink(self._path + NEXT)
        self._log = FramedLog(
            self._files, self._path, born_whole=self._born_whole, committer=self._committer,
            fails_all=self._fails_all, left=self._left)
        self._log.file.failed = self._replace_failed
        self._committer.mark_folder(os.path.dirname(self._path))  # its name may be new
        return self

    @property
    def record_count(self):
        return self._log.record_count

    @property
    def is_compacting(self):
        """True while a compaction runs, or while definitions are counted to decide on one."""
        return self._counting or self._opening or self._next is not None

    @property
    def has_failed(self):
        """Whether a flush of this log has failed, so that some records may be missing on the disk."""
        return self._log.file.failure is not None

    @property
    def path(self):
        return self._path

    @property
    def on_disk(self):
        """{log id: flushed bytes of the log}; empty before the log's first record."""
        return self._log.on_disk

    @property
    def is_new(self):
        """Whether the file was empty when it was opened, and begin() has not been called."""
        return self._log.is_new

    @property
    def damage(self):
        """List of the storage.format.log.Damage that replay found in the file."""
        return self._log.damage

    @property
    def lacks_records(self):
        """Whether replay skipped records that may have been confirmed, not only the torn end of a crash."""
        return bool(
            self._unreadable or self._log.holds_damage or any(damage.promised for damage in self._log.damage)
        )

    @property
    def is_damaged(self):
        """Whether replay found any damage, including the torn end of a crash, or an unusable record."""
        return bool(self._log.damage or self._unreadable)

    def say_damage(self, advice):
        """Log the damage that replay found. ``advice``: end of the error line, for the operator."""
        self._log.say_damage(LOG, self._what, advice)

    def replay(self):
        """Iterate over all records in order, as dicts. For boot: blocks. Raises LogError. Logs unusable
        records and leaves them out.
        """
        for payload in self._log.replay():
            try:
                yield read_record(payload, self._shapes)
            except RecordError as error:
                self._unreadable.append(payload)
                LOG.error("%s: a record is left out: %s", self._what, error)

    def leave_out(self, records):
        """Save unusable records in ``<path>.left-out``: ``records`` (dicts), and the records that replay()
        left out. For boot: blocks.
        """
        left_out = [*self._unreadable, *map(encode_table, records)]
        if not left_out:
            return
        try:
            keep_left_out(self._files, self._path, left_out)
            LOG.error("%s: what was left out is kept in %s.left-out", self._what, self._path)
        except OSError as error:
            LOG.error(
                "%s: what was left out stands in %s only until that is compacted, for it cannot be "
                "copied: %s", self._what, self._path, error,
            )

    def begin(self, records):
        """Write the first records (dicts) of a new log, all of them or none. They are on disk on return. For
        boot: blocks. Raises OSError.
        """
        self._log.rewrite([encode_table(record) for record in records])
        self._log.is_new = False
        self._log.file.failed = self._replace_failed

    def compact_when_long(self, snapshot):
        """Compact the log now if it is damaged, and now or later when it has many more records than
        definitions.

        ``snapshot()`` iterates over functions, each of which returns the record (a dict) of one definition,
        or None if the definition is gone. It may yield None for a definition that is not durable. Definitions
        may change during the iteration, which must neither raise nor be slow.
        """
        self._snapshot = snapshot
        if self._log.holds_damage:
            self._compact()
        else:
            self._compact_if_long()

    def append(self, record):
        """Append a record, a dict. Raises OSError, or ValueError if replay() could not read the record; then
        nothing was appended.
        """
        payload = encode_table(record)
        read_record(payload, self._shapes)
        self._compact_if_long()
        if self._renaming:
            self._append_to_both(payload)
        else:
            self._log.append(payload)
            if self._next is not None:
                self._append_to_next([payload])
        if self._notes_growth and not self._is_growth_due:
            self._is_growth_due = True
            self._committer.after_sync(self._note_soon, hurry=False, about_logs=False)

    def close(self):
        self._closed = True
        if self._next is not None and not self._renaming:
            self._give_up("the broker stops; it begins anew at the next boot")
        if self._log is not None:
            self._log.close()

    # compaction

    def _is_long(self):
        return self._log.record_count > 2 * self._size_hint + self._slack

    def _compact_if_long(self):
        if self._snapshot is None or self.is_compacting:
            return
        if self._log.file.failure is not None:
            self._compact()
        elif self._is_long():
            self._counting = True
            self._scheduler.start(Count(self, self._snapshot()))

    def _replace_failed(self):
        if not self._closed:
            self._compact_if_long()

    def counted(self, count):
        """Store the result of a Count of definitions, and compact if the log is still long."""
        self._counting = False
        self._size_hint = max(self._size_hint, count)
        if (self._is_long() or self._log.file.failure is not None) and not self._closed:
            self._compact()

    def count_failed(self, error):
        """End the count of definitions because of ``error``, without a compaction."""
        self._counting = False
        self._give_up(error)

    def _compact(self):
        if self._is_left:
            self._is_left = False
            self._committer.names.change([self._files.unlinking(self._path + NEXT)], self._removed)
            return
        self._opening = True
        self._next_id = new_log_id()
        if self._note is None:
            self._make_next_aside(None, None)
        else:
            self._committer.background.long.add(self._note_left, done=self._make_next_aside)

    def _make_next_aside(self, _, error):
        if error is not None:
            self._opened(None, error)
        else:
            self._committer.background.short.add(self._make_next, self._log.file.end, done=self._opened)

    def _note_soon(self, _=None):
        self._is_growth_due = False
        self._committer.background.long.add(self._note_left, done=self._noted)

    def _noted(self, _, error):
        if error is not None:  # the earlier note stays right
            LOG.warning("%s: how long %s is cannot be noted: %s", self._what, self._path, error)

    def _note_left(self):
        """Save, by ``note``, this log's flushed length and the id of its successor. Runs in a thread."""
        self._note({**({} if self._next_id is None else {self._next_id: 0}), **self._log.on_disk})

    def _make_next(self, size):
        """Make and return the empty second log, with at least ``size`` bytes reserved. Runs in a thread."""
        file = self._files.make_log(self._path + NEXT)
        if self._committer.enabled:
            reserve(self._files, file, max(size, ROOM_AHEAD))
        return file

    def _opened(self, file, error):
        """Write the definitions into the second log. From here on every change goes to both logs."""
        self._opening = False
        if error is not None:
            self._give_up(error)
            return
        self._files.made(file)
        file.is_relied_on = False  # the first log has everything
        following = FramedLog(
            self._files, self._path + NEXT, file=file, committer=self._committer, fails_all=self._fails_all,
            new_id=self._next_id)
        self._next = following
        if self._closed:
            self._give_up("the broker stops; it begins anew at the next boot")
            return
        self._size_hint = 0
        self._scheduler.start(Rewriting(self, self._snapshot(), following))

    def compaction_failed(self, following, error):
        """End the compaction into ``following``, unless that log is complete and being renamed."""
        # a log that is being renamed is complete, and needed
        if self._next is following and not self._renaming:
            self._give_up(error)

    def write_some(self, following, definitions):
        """Append the records of some ``definitions`` (functions of the snapshot) to the second log. Returns
        whether the compaction continues.
        """
        if self._next is not following:
            return False
        records = []
        self._size_hint += len(definitions)
        for definition in definitions:
            try:
                record = definition()
                if record is not None:
                    records.append(encode_table(record))
            except (ValueError, TypeError) as error:
                self._give_up(f"a definition cannot be written: {error}")
                return False
        return not records or self._append_to_next(records)

    def written(self, following):
        """Have the complete second log flushed, and then renamed to the first log's name."""
        if self._next is following and (following.record_count or self._append_to_next(())):
            # An empty snapshot still writes the log's birth: the next boot takes an empty file for a lost
            # one. Waits for this file's flush alone: others may fail, also the first log's, which this one
            # replaces.
            self._committer.after_flush_of(following.file, lambda error: self._replace(following, error))

    def _append_to_next(self, payloads):
        try:
            self._next.append_all(payloads)
            return True
        except OSError as error:
            self._give_up(error)
            return False

    def _append_to_both(self, payload):
        """Append to both logs while the second is being renamed. Raises OSError if either log refuses; then
        neither has the record.
        """
        self._next.make_room(payload)
        self._log.make_room(payload)
        mark = self._next.mark()
        self._next.append(payload)
        try:
            self._log.append(payload)
        except OSError:
            self._next.take_back(mark)
            raise

    def _replace(self, following, error):
        """Rename the flushed second log, and flush the folder. After an ``error`` of its flush, stop."""
        if self._next is not following:
            return
        if error is not None:
            self._give_up(error)
            return
        self._renaming = following.file.is_relied_on = True
        self._committer.names.change(
            [self._files.renaming(following.file.path, self._path, following.file)], self._renamed
        )
        self._committer.mark_folder(os.path.dirname(self._path))

    def _renamed(self, error):
        self._renaming = False
        following = self._next
        if error is not None:
            self._give_up(error)
            return
        LOG.info(
            "%s: %d records rewritten as %d", self._what, self._log.record_count, following.record_count)
        old, self._log, self._next = self._log, following, None
        old.abandon()
        if self._note is not None:
            self._note_soon()
        following.file.failed = self._replace_failed
        if self._closed:
            following.close()

    def _give_up(self, reason):
        """Abandon the compaction or count. The next attempt follows when the log is twice as long."""
        LOG.warning("%s: compaction given up: %s", self._what, reason)
        self._size_hint = self._log.record_count
        abandoned, self._next = self._next, None
        if abandoned is not None:
            abandoned.abandon()
            self._committer.names.change([self._files.unlinking(abandoned.file.path)], self._removed)

    def _removed(self, error):
        if error is not None:
            LOG.warning("%s: %s stays until the next attempt: %s", self._what, self._path + NEXT, error)
            self._is_left = not isinstance(error, FileNotFoundError)


class Walk(Job):
    """A job that iterates in slices over ``definitions``, the snapshot iterator of ``log``."""

    name = "compacting the definitions"

    def __init__(self, log, definitions):
        super().__init__()
        self._log = log
        self._definitions = definitions

    def _take(self, most):
        clock, taken = SliceClock(every=LOOKS), []
        for definition in self._definitions:
            if definition is not None:
                taken.append(definition)
            if len(taken) == most or clock.is_over():
                return taken, True
        return taken, False


class Count(Walk):
    """Counts the definitions, so that ``log`` can decide whether to compact."""

    def __init__(self, log, definitions):
        super().__init__(log, definitions)
        self._count = 0

    def step(self):
        taken, has_more = self._take(COUNTED)
        self._count += len(taken)
        if not has_more:
            self._log.counted(self._count)
        return has_more

    def failed(self, error):
        """End the count. The next count follows when the log has grown."""
        self._log.count_failed(error)
        return False


class Rewriting(Walk):
    """Compaction job: writes the present definitions of ``log`` into ``following``, the second log."""

    def __init__(self, log, definitions, following):
        super().__init__(log, definitions)
        self._following = following

    def step(self):
        taken, has_more = self._take(SLICE)
        if not self._log.write_some(self._following, taken):
            return False
        if not has_more:
            self._log.written(self._following)
        return has_more

    def failed(self, error):
        """End the compaction. The next compaction follows when the log has grown."""
        self._log.compaction_failed(self._following, error)
        return False
