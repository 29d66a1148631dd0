"""Segment pool: pairs of segment files waiting to be used, emptied ones and new ones that were made ahead of need, one pool per broker.

Fresh pages cost more than all else an append does (1.6x at 16-octet messages, 2.3x at 1 KiB), so segments go round: fd and mapping kept, file
renamed into place. What makes that safe: a new generation in the head seeds every checksum; a pair that ever held something durable is used again
only after the names of both its files were flushed where they left from; only pairs made in this run go round; nobody holds them.

Making a pair and giving one's room back to the disk take milliseconds, tens of them while the disk is busy: both are done aside, in a thread. A
writer says in time that it will roll (``expect``), and the roll takes what is there. Emptied ones lose their names in the committer's threads, too,
before its next flush. Between message_store and files; never flushes by itself.
"""
import errno
import os

from gomq_py.storage.damage import DamageNotes
from gomq_py.storage.data_dir import POWER_LOST
from gomq_py.storage.format.acks import capacity_for
from gomq_py.storage.format.head import HEAD_BYTES
from gomq_py.storage.opening import Openings
from gomq_py.storage.resting import Resting
from gomq_py.storage.stage import Stage

SEGMENT_BYTES = 8 * 1024 * 1024

# A queue's first segment, and how much larger each next one is until segment_bytes: many queues hold only a few messages.
FIRST_SEGMENT_BYTES = 65536
SEGMENT_GROWTH = 8

# 8 pairs are about 75 MiB of disk and kept one busy queue from ever waiting for a fresh segment.
KEPT_PAIRS = 8
# Of each smaller size, some 10 MiB in all: a queue needs each of them once.
KEPT_SMALL_PAIRS = 2
# A pair is made ahead where the disk has room for this many more: nobody else's last room is taken.
ROOM_FOR_PAIRS = 8


class SegmentPool:
    """Hands out pairs of files for new segments and takes back emptied ones. ``folder`` is the pool's own and holds nothing else.

    ``in_threads=False``: nothing is made ahead, and what is given back goes at once, for whoever compares folders between two steps.
    ``start_timer`` as in Resting. ``stage``: the broker's.
    """

    def __init__(self, folder, files, committer=None, segment_bytes=SEGMENT_BYTES, kept_pairs=KEPT_PAIRS, in_threads=True, start_timer=None):
        self.folder = os.fspath(folder)
        self.files = files
        self.committer = committer
        self.segment_bytes = segment_bytes
        self.resting = Resting(start_timer)
        self._aside = committer.aside if committer is not None and in_threads else None
        self.openings = Openings(None if self._aside is None else getattr(committer, "aside_for_readers", None), start_timer)
        self._kept = {size: KEPT_SMALL_PAIRS for size in growth(segment_bytes)} | {segment_bytes: kept_pairs}
        self._pairs = {size: [] for size in self._kept}
        self._unnamed = {size: [] for size in self._kept}
        self._expected = {}  # (msgs_bytes, folder of unnamed ones or None) -> how many writers will need such files soon
        self._in_making = dict.fromkeys(self._kept, 0)
        self._coming = dict.fromkeys(self._kept, 0)  # pairs of which the msgs file is on its way here, or has come before the acks file
        self._retiring = {}  # queue folder -> its Retiring pairs, whose msgs file is about to leave, or has left and that is to be flushed
        self.stage = Stage()
        self._closed = False
        # How the last run ended, for recovery at boot: what only a loss of power explains is no fault after one.
        self.last_end = POWER_LOST
        self.listed = {}  # queue folder -> segment_list.Listed of what the last run left there, for recovery at boot
        self.damage = DamageNotes()
        self._numbers = 0
        self._generation = int.from_bytes(os.urandom(7), "little")
        self._clear_folder()

    def next_generation(self):
        """A number that no segment had before."""
        self._generation += 1
        return self._generation

    def take(self, msgs_path, acks_path, msgs_bytes, failed=None):
        """Two mapped files for a segment of this size, which have these names or get them before the next sync flushes. Raises OSError, leaving
        neither. ``failed(error)``: they will not get their names. What is in them then goes with them.

        The acks file gets its name first: a process that is killed in between must not leave the messages without the acks it has seen.
        """
        if self._pairs.get(msgs_bytes):
            msgs, acks = pair = self._pairs[msgs_bytes].pop()
            names = [self.files.renaming(acks.path, acks_path, acks, True), self.files.renaming(msgs.path, msgs_path, msgs, True)]
            self._change(names, lambda error: error is None or self._name_failed(pair, failed, error), soon=True)
            return pair
        try:
            return self._create(msgs_path, acks_path, msgs_bytes)
        except OSError as error:
            if error.errno != errno.ENOSPC or not self._give_up_spares():
                raise
        return self._create(msgs_path, acks_path, msgs_bytes)

    def take_unnamed(self, folder, msgs_bytes):
        """One mapped file without a name, for a segment of a transient queue."""
        if self._unnamed.get(msgs_bytes):
            return self._unnamed[msgs_bytes].pop()
        try:
            return self.files.create_unnamed(folder, msgs_bytes)
        except OSError as error:
            if error.errno != errno.ENOSPC or not self._give_up_spares():
                raise
        return self.files.create_unnamed(folder, msgs_bytes)

    # ahead of need

    def expect(self, msgs_bytes, unnamed_in=None):
        """A writer will soon take files of this size, without a name in the folder ``unnamed_in`` where that is given: have them ready."""
        key = (msgs_bytes, unnamed_in)
        self._expected[key] = self._expected.get(key, 0) + 1
        self._make_ahead(key)

    def unexpect(self, msgs_bytes, unnamed_in=None):
        """The writer has taken them, or is gone."""
        key = (msgs_bytes, unnamed_in)
        self._expected[key] -= 1
        if self._expected[key]:
            self._make_ahead(key)
        else:
            del self._expected[key]

    def retire(self, msgs, acks, msgs_path, acks_path, synced):
        """Take the files of an emptied segment: keep the pair, or unlink it. ``msgs`` and ``acks`` are None where a file is not open,
        ``msgs_path`` where there is none.

        If anything of it may be on the disk (``synced``: its octets or its name were flushed), the msgs file's name is gone for good before the acks
        file is touched: a power cut that brought back the one without the other would bring back what was acked.
        """
        pair = Retiring(msgs, acks, acks_path)
        folder = os.path.dirname(acks_path)
        self._retiring.setdefault(folder, []).append(pair)
        leaving = [self._leaving(pair, msgs_path)] if msgs_path is not None else []
        if not synced:
            self._finish_retiring(folder, pair, leaving)
            return
        if leaving:
            self._change(leaving, lambda error: self._msgs_left(pair, error))
        self.committer.mark_folder(folder)
        self.committer.after_sync(lambda error: self._names_flushed(folder, pair, error), hurry=False)

    def retire_unnamed(self, msgs):
        """Take the file of a transient queue's segment."""
        if msgs.map is not None and not msgs.held and len(self._unnamed.get(msgs.size, ())) < self._kept.get(msgs.size, 0):
            self._unnamed[msgs.size].append(msgs)
        else:
            self.files.close(msgs, self._aside)

    def let_go(self, file):
        """Close a segment's file, whose name stays or is the caller's business."""
        self.files.close(file, self._aside)

    def forget(self, folder):
        """The folder goes away with all that is in it."""
        for pair in self._retiring.pop(folder, ()):
            for path in (pair.pool_path, pair.acks_path):
                if path is not None and os.path.dirname(path) == self.folder:
                    self._change([self.files.unlinking(path)], _nothing)
            self._keep_out(pair)
            self._close(pair)

    def describe(self):
        """What it holds, for people."""
        pairs, unnamed = (sum(len(files) for files in kept.values()) for kept in (self._pairs, self._unnamed))
        retiring = sum(len(waiting) for waiting in self._retiring.values())
        return (
            f"{pairs} pairs and {unnamed} without names wait to be used, {retiring} for their names to be flushed; "
            f"{sum(self._in_making.values())} are being made"
        )

    def close(self):
        """Let go of all kept files; what is being made goes when it is there."""
        self._closed = True
        self.resting.stop()
        self.openings.stop()
        for pairs in self._pairs.values():
            while pairs:
                for file in pairs.pop():
                    self._drop_now(file, self._aside)
        for files in self._unnamed.values():
            while files:
                self.files.close(files.pop(), self._aside)

    # made ahead

    def _make_ahead(self, key):
        msgs_bytes, unnamed_in = key
        if self._aside is None or self._closed or msgs_bytes not in self._kept:
            return
        # One at a time for each size: the next is begun when that is there, if it is still expected.
        ready = self._pairs if unnamed_in is None else self._unnamed
        if self._in_making[msgs_bytes] or len(ready[msgs_bytes]) >= min(self._expected.get(key, 0), self._kept[msgs_bytes]):
            return
        self._in_making[msgs_bytes] += 1
        if unnamed_in is None:
            paths = self._new_paths()
            self._aside(self._make_pair, *paths, msgs_bytes, done=lambda pair, error: self._made(key, pair, error))
        else:
            self._aside(self._make_unnamed, unnamed_in, msgs_bytes, done=lambda file, error: self._made(key, file, error))

    def _make_pair(self, msgs_path, acks_path, msgs_bytes):
        """In a thread: as _create, nobody being told. Blocks. Raises OSError."""
        acks_bytes = capacity_for(msgs_bytes)
        self._check_room(self.folder, msgs_bytes + acks_bytes)
        msgs = self.files.make(msgs_path, msgs_bytes)
        try:
            return msgs, self.files.make(acks_path, acks_bytes)
        except OSError:
            self.files.unmake(msgs)
            raise

    def _make_unnamed(self, folder, msgs_bytes):
        """In a thread. Blocks. Raises OSError."""
        self._check_room(folder, msgs_bytes)
        return self.files.make_unnamed(folder, msgs_bytes)

    def _check_room(self, folder, count):
        figures = os.statvfs(folder)
        if figures.f_bavail * figures.f_frsize < (1 + ROOM_FOR_PAIRS) * count:
            raise OSError(errno.ENOSPC, "the disk has too little room to make segments ahead", folder)

    def _made(self, key, made, error):
        """Files that were made ahead are there, or could not be made: then whoever needs them will hear why."""
        msgs_bytes, unnamed_in = key
        self._in_making[msgs_bytes] -= 1
        if error is not None:
            return
        if unnamed_in is not None:
            self._unnamed[msgs_bytes].append(made)
        else:
            for file in made:
                self.files.made(file)
            self._pairs[msgs_bytes].append(made)
        if self._closed:
            self.close()
        for other in list(self._expected):
            if other[0] == msgs_bytes:
                self._make_ahead(other)

    def _give_up_spares(self):
        """The disk is full: what waits to be used goes, at once. False: there was nothing."""
        found = False
        for pairs in self._pairs.values():
            while pairs:
                found = True
                for file in pairs.pop():
                    self._drop_now(file, None)
        for files in self._unnamed.values():
            while files:
                found = True
                self.files.close(files.pop())
        return found

    # away

    def _change(self, changes, done, soon=False):
        if self._aside is not None:
            self.committer.change(changes, done, soon)
            return
        for change in changes:
            change.make()
        done(None)

    def _leaving(self, pair, path):
        """The change that moves the msgs file into the pool, or unlinks it. The sync that is running may still hold it."""
        msgs = pair.msgs
        if msgs is not None and len(self._pairs.get(msgs.size, ())) + self._coming.get(msgs.size, 0) < self._kept.get(msgs.size, 0):
            pair.pool_path = self._new_paths()[0]
            self._coming[msgs.size] += 1
            return self.files.renaming(path, pair.pool_path, msgs)
        return self.files.unlinking(path, self._aside if msgs is None else None)

    def _msgs_left(self, pair, error):
        if pair.pool_path is not None and error is None:
            return
        self._keep_out(pair)
        msgs, pair.msgs = pair.msgs, None
        if msgs is not None:
            self.files.close(msgs, self._aside)

    def _names_flushed(self, folder, pair, error):
        """The msgs file is gone from the queue's folder for good, unless the sync failed: then the acks stay where they are."""
        if pair not in self._retiring.get(folder, ()):
            return  # the folder was removed meanwhile
        if error is None:
            self._finish_retiring(folder, pair, [])
        else:
            self._retired(folder, pair)
            self._keep_out(pair)
            self._close(pair)

    def _finish_retiring(self, folder, pair, leaving):
        """The acks file follows, behind the changes ``leaving``."""
        if self._is_usable(pair):
            pair.acks_path, path = os.path.join(self.folder, f"acks.{os.path.basename(pair.pool_path)[5:]}"), pair.acks_path
            changes = [*leaving, self.files.renaming(path, pair.acks_path, pair.acks)]
            self._change(changes, lambda error: self._retired(folder, pair) and self._keep(pair, error), soon=True)
            return
        changes = [*leaving, self.files.unlinking(pair.acks_path, self._aside if pair.acks is None else None)]
        if pair.pool_path is not None:
            changes.append(self.files.unlinking(pair.pool_path))
            self._keep_out(pair)
        self._change(changes, lambda error: self._retired(folder, pair) and self._close(pair), soon=True)

    def _keep(self, pair, error):
        """Both files are in the pool now, or stay where they are until the next boot."""
        self._keep_out(pair)
        if error is not None:
            self._close(pair)
            return
        for file in (pair.msgs, pair.acks):  # nobody's from here on: a killed process must not leave them in another queue with a head that is whole
            file.map[:HEAD_BYTES] = bytes(HEAD_BYTES)  # all of it: what is left of a head would look like a damaged one
            self.files.overwritten(file, 0, HEAD_BYTES)
        self._pairs[pair.msgs.size].append((pair.msgs, pair.acks))
        if self._closed:
            self.close()

    def _keep_out(self, pair):
        """The pair is not on its way here any more: it has come, or will not."""
        if pair.pool_path is not None:
            pair.pool_path = None
            self._coming[pair.msgs.size] -= 1

    def _close(self, pair):
        for file in (pair.msgs, pair.acks):
            if file is not None:
                self.files.close(file, self._aside)

    def _is_usable(self, pair):
        msgs, acks = pair.msgs, pair.acks
        return pair.pool_path is not None and acks is not None and not msgs.held and not acks.held and acks.size == capacity_for(msgs.size)

    def _retired(self, folder, pair):
        """False where the folder was removed meanwhile, and the pair with it."""
        pairs = self._retiring.get(folder, [])
        if pair not in pairs:
            return False
        pairs.remove(pair)
        if not pairs:
            del self._retiring[folder]
        return True

    def _drop_now(self, file, aside):
        self.files.unlink(file.path)
        self.files.close(file, aside)

    # there

    def _create(self, msgs_path, acks_path, msgs_bytes):
        msgs = self.files.create(msgs_path, msgs_bytes)
        try:
            return msgs, self.files.create(acks_path, capacity_for(msgs_bytes))
        except OSError:
            self.files.close(msgs)
            self.files.unlink(msgs_path)
            raise

    def _name_failed(self, pair, failed, error):
        """A pair that was taken did not get its names: its writer hears why, and what is still here goes."""
        if failed is not None:
            failed(error)
        for file in pair:
            if os.path.dirname(file.path) == self.folder:
                self._change([self.files.unlinking(file.path)], _nothing)

    def _new_paths(self):
        self._numbers += 1
        return [os.path.join(self.folder, f"{kind}.{self._numbers:010d}") for kind in ("msgs", "acks")]

    def _clear_folder(self):
        """Files of an earlier run are not used again: what their pages on the disk hold is not known."""
        if not os.path.isdir(self.folder):
            self.files.make_folder(self.folder)
        for name in sorted(os.listdir(self.folder)):
            path = os.path.join(self.folder, name)
            if os.path.isdir(path) and not os.path.islink(path):  # not from us, but in the way
                self.files.remove_tree(path)
            else:
                self.files.unlink(path)


class Retiring:
    """A pair of files on its way out of a queue's folder. ``pool_path``: where its msgs file goes, unless that is unlinked."""

    __slots__ = ("msgs", "acks", "acks_path", "pool_path")

    def __init__(self, msgs, acks, acks_path):
        self.msgs = msgs
        self.acks = acks
        self.acks_path = acks_path
        self.pool_path = None


def _nothing(error):
    """The committer has said why."""


def growth(segment_bytes):
    """The sizes that a queue's segments take, one after the other."""
    size = min(FIRST_SEGMENT_BYTES, segment_bytes)
    while size < segment_bytes:
        yield size
        size = min(size * SEGMENT_GROWTH, segment_bytes)
    yield segment_bytes
