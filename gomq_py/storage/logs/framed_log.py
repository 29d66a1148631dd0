"""Framed log: a checksummed append-only file of small records, for state that is rebuilt by a replay.

Uses ``storage.disk.files``. Appended records are kept in memory, with space reserved on the disk, until a
thread writes and flushes them for the group commit. So a full disk refuses an append, a slow disk delays
nothing, and a killed process loses appends that no flush has covered. Without group commit, or if the file
system cannot reserve space, an append writes at once. A damaged record is reported and skipped; later records
are still found.

storage.format.log defines the records. Blocks only in ``replay`` and ``rewrite``, or if more is appended
between two flushes than was reserved. Never interprets a payload.
"""
import contextlib
import os

from gomq_py.storage.disk import atomic_file
from gomq_py.storage.disk.files import ROOM_AHEAD
from gomq_py.storage.format.log import (  # noqa: F401  (for those who look for them here)
    HEAD, HEAD_SIZE, Damage, LogError, LogScan, encode_log, encode_record, new_log_id,
)

# Most copies kept of a log that is damaged repeatedly; later damage is not copied.
KEPT_COPIES = 10


class FramedLog:
    """One log, open for appending. Exhaust ``replay`` before the first ``append``; a new log needs no replay.

        is_new        the file was empty when it was opened
        born_whole    ``rewrite`` writes the first content, so no crash leaves the file without a readable
                      record
        committer     flushes each append; None: the caller flushes
        fails_all     see LogFile; ``left``: see LogScan
    """

    def __init__(
        self, files, path, born_whole=False, file=None, committer=None, fails_all=True, left=None,
        new_id=None
    ):
        """Open the log at ``path``, which blocks for a new log. ``file``: a LogFile that was just created, to
        be used instead. ``new_id``: log id of a new log; None: a random id. Raises OSError.
        """
        self.path = os.fspath(path)
        self.file = file or files.open_log(self.path)
        # new, or unflushed when the last run was killed: a log keeps nothing before its name is on disk
        if file is None and not self.file.size:
            try:
                files.sync_folder(os.path.dirname(self.path))
            except OSError:
                files.close(self.file)
                raise
        self.damage = []  # Damage found by replay, in file order
        # the file still holds damage: its owner rewrites the log, or every boot reports the damage again
        self.holds_damage = False
        self.kept_as = None  # path of the damaged log's copy
        self._replayed_to = 0
        self.record_count = 0
        self._files = files
        self._committer = committer
        self._born_whole = born_whole
        self._left = left
        self._fails_all = self.file.fails_all = fails_all
        self._log_id = None
        self._new_id = new_id
        self._ordinal = 0
        self._replayed = self.is_new = self.file.size == 0
        if file is None and self._replayed:
            self._reserve()

    def __repr__(self):
        return f"<FramedLog {self.path} records={self.record_count}>"

    def replay(self):
        """Iterate over the payloads of all valid records in order, as bytes. For boot: blocks.

        At its end, an incomplete last record is cut off, and the log is ready for ``append``. ``damage``
        lists the damage; a log with other damage than a torn end is first copied to ``<path>.damaged``.
        Raises LogError, without changing the file, if the log has an unknown version, or is ``born_whole``
        and has no readable record.
        """
        # The content is written again and flushed: after a kill, or a failed flush, it may only be in the
        # system's cache, and must not be lost later.
        if self._replayed:
            return
        scan = LogScan(self.path, self.file.read(0, self.file.size), self._left)
        for payload in scan:
            self.record_count += 1
            yield payload
        self.damage = scan.damage
        if (
            self._born_whole and not self.record_count
            and (scan.log_id is None or any(damage.promised for damage in self.damage))
        ):
            raise LogError(
                self.path, f"the file is damaged, none of its {self.file.size} bytes can be read as a record"
            )
        self._log_id = scan.log_id
        self._ordinal = scan.next_ordinal
        self.holds_damage = any(damage.start < scan.end for damage in self.damage)
        if self.holds_damage or any(damage.promised for damage in self.damage):
            self._set_aside()
        self._replayed_to = scan.end
        if scan.end < self.file.size:
            self._files.truncate(self.file, scan.end)
        self._files.write_again(self.file, 0, scan.end)
        self._files.sync(self.file)
        self._reserve()
        self._replayed = True

    @property
    def on_disk(self):
        """{log id: flushed bytes of the log}; empty before the log's first record."""
        return {} if self._log_id is None else {self._log_id: self.file.synced_size}

    def append(self, payload):
        """Append a record with this payload. The next group commit flushes it. Raises OSError; then nothing
        was appended.
        """
        self.append_all((payload,))

    def make_room(self, payload):
        """Reserve disk space, so that an ``append`` of this payload cannot be refused. Raises OSError. No
        effect if appends write at once.
        """
        if self.file.room is not None:
            self._files.make_room(self.file, 2 * HEAD_SIZE + len(payload))

    def append_all(self, payloads):
        """Append several records, all or none (after a crash perhaps some). Raises OSError."""
        assert self._replayed, f"{self.path}: append before replay"
        if self._log_id is None:
            log_id, ordinal, parts = new_log_id() if self._new_id is None else self._new_id, 1, []
            parts.append(encode_record(log_id, 0, 0, b""))
        else:
            log_id, ordinal, parts = self._log_id, self._ordinal, []
        payloads = tuple(payloads)
        for payload in payloads:
            parts.append(encode_record(log_id, ordinal, self.file.synced_size, payload))
            ordinal += 1
        if self.file.room is None:
            self._files.append(self.file, b"".join(parts))
        else:
            self._files.accept(self.file, b"".join(parts))
        self._log_id, self._ordinal = log_id, ordinal
        self.record_count += len(payloads)
        if self._committer is not None:
            self._committer.mark_file(self.file)

    def mark(self):
        """Return the log's present end, for ``take_back``. Only for a log whose appends write at once."""
        return self.file.size, self._log_id, self._ordinal, self.record_count

    def take_back(self, mark):
        """Cut off all records appended since ``mark``. If that fails, the log refuses further appends. No
        effect on a log that reserves disk space (make_room).
        """
        if self.file.room is not None:
            return
        size, self._log_id, self._ordinal, self.record_count = mark
        try:
            self._files.truncate(self.file, size)
        except OSError as error:
            self.file.broken = error

    def rewrite(self, payloads):
        """Replace the whole log by records with these payloads (compaction), atomically. For boot: blocks.
        Raises OSError; the file is then the old or the new log, and this object refuses further appends.
        """
        content, log_id, count = encode_log(payloads)
        try:
            atomic_file.replace(self._files, self.path, content)
        except OSError as error:
            self.file.broken = error
            raise
        self._files.close(self.file)
        self.file = self._files.open_log(self.path)
        self.file.fails_all = self._fails_all
        self.file.synced_size = self.file.size
        self._log_id, self._ordinal, self.record_count = log_id, count + 1, count
        self._replayed = True
        self._reserve()

    def close(self):
        """Close the file, or have the committer close it after flushing the appends."""
        self._files.close(self.file)

    def abandon(self):
        """Close a log that was removed or replaced by another file, and drop its unwritten appends."""
        self.file.forget_accepted()
        self._files.close(self.file)

    def _reserve(self):
        if self._committer is not None and self._committer.enabled:
            reserve(self._files, self.file)

    def say_damage(self, logger, what, advice):
        """Log damage to ``what`` found by replay: a torn end as warning, other as error with ``advice``."""
        for damage in self.damage:
            if damage.promised or damage.start < self._replayed_to:
                logger.error(
                    "%s: %s: changes in bytes %d to %d are lost: %s; a copy of the file is kept as %s. %s",
                    what, self.path, damage.start, damage.end, damage.reason, self.kept_as, advice,
                )
            else:
                logger.warning(
                    "%s: %s: bytes %d to %d were being written when the last run was cut off, "
                    "and are left out (%s)",
                    what, self.path, damage.start, damage.end, damage.reason,
                )

    def _set_aside(self):
        """Copy a damaged log to ``<path>.damaged[.N]`` for the operator, unless an equal copy exists."""
        content = self.file.read(0, self.file.size)
        for number in range(1, KEPT_COPIES + 1):
            self.kept_as = f"{self.path}.damaged" + (f".{number}" if number > 1 else "")
            if not os.path.exists(self.kept_as):
                atomic_file.replace(self._files, self.kept_as, content)
                return
            with open(self.kept_as, "rb") as file:
                if file.read() == content:  # copied by a run that ended before the rewrite
                    return


def reserve(files, file, count=ROOM_AHEAD):
    """Reserve disk space after a log's end, for appends of the next flush. Blocks. Ignores OSError."""
    try:
        files.reserve(file, count)
    except OSError:
        file.room = file.size  # full disk: each append tries again


def keep_left_out(files, path, payloads):
    """Save unusable records of a log in ``<path>.left-out``, because compaction drops them. For boot: blocks.
    Raises OSError.
    """
    kept_path = f"{os.fspath(path)}.left-out"
    kept = []
    if os.path.exists(kept_path):
        with open(kept_path, "rb") as file, contextlib.suppress(LogError):
            kept.extend(LogScan(kept_path, file.read()))
    new = [payload for payload in dict.fromkeys(payloads) if payload not in kept]
    if new:
        atomic_file.replace(files, kept_path, encode_log(kept + new)[0])
