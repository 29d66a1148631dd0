"""Sync source: brings one follower's copy to the leader's present state while the leader keeps working.

Uses the register of files and the stream of events. Lists folders and files, waits for the checksums of the
follower's copies (HASHES), and sends the blocks that differ.

Nothing is locked. A chunk of a block is read on the event loop, and put into the stream without a switch of
greenlets in between, after all present events. So the chunk is never older than these events, and all later
changes come as events. Threads read the disk and compute checksums, which also brings the chunks into the
system's cache.
"""
import contextlib
import os
import posix
import stat
import time
from collections import deque

import gevent
from gevent.event import Event

from gomq_py.cluster.sealed import holds_messages, lost_in
from gomq_py.cluster.wire import events
from gomq_py.cluster.wire.messages import BLOCK_OCTETS, block_digest
from gomq_py.hub.scheduler import SliceClock
from gomq_py.hub.threads import in_thread
from gomq_py.hub.turns import give_way

# Octets that are read and sent at once.
CHUNK_OCTETS = 64 * 1024
_ZEROS = bytes(BLOCK_OCTETS)
# Names that are listed in one turn of the loop: some 0.2 ms.
SLICE_NAMES = 50
# Files and blocks that a thread checks in one go: a call of a thread costs as much as a small file.
BATCH_FILES = 64
BATCH_BLOCKS = 16
# Time of the hub for reading chunks, between two polls of the loop.
SLICE_S = 0.001
# A file that a thread has renamed is looked for again after this time, until the hub has told of the rename.
RENAMED_S = 0.02
# A flush tells of a rename within this time, even of a slow disk.
MISSING_MOST_S = 60.0
# Between two looks whether awaited files still exist.
LOOK_S = 0.5
# A follower checks a file in less time, and takes what is sent.
ANSWER_MOST_S = 60.0
# Least rate at which a follower compares files, each of which counts as a chunk more, and takes octets: other
# followers wait for its turn. It is that of a line of 1 Mbit/s, or of a disk that reads two files a second.
LEAST_OCTETS_S = 128 * 1024


class SyncError(Exception):
    """A sync cannot continue. The text says why."""


class SyncSource:
    """The leader's side of one full sync. ``done_octets`` of ``total_octets`` bytes were compared.

        register               the register of files below the data folder ``root``
        put(payload)           sends a payload of EVENTS after all present events, without a switch
        wait_for_room()        returns when the link has room; may switch greenlets
        found_damage(what)     called for a damaged file of the leader that differs at the follower; returns
                               whether that ends the sync; may switch greenlets
    """

    def __init__(self, root, register, put, wait_for_room, found_damage=lambda what: True):
        self._inside = os.path.join(os.path.abspath(os.fspath(root)), "")
        self._register = register
        self._put = put
        self._wait_for_room = wait_for_room
        self._found_damage = found_damage
        self.done_octets = self.total_octets = self.sent_octets = 0
        self._sizes = {}  # id -> (size, inode) of listed files that were not compared yet
        self._tasks = deque()
        self._checked = set()  # ids of segments
        self._answered = Event()
        self._answers, self._takes = _Patience(), _Patience()
        self._paid_octets = 0  # of those sent, what was counted in favour of the follower
        self._clock = SliceClock(SLICE_S)

    def blocks_of(self, file_id):
        """Return the number of blocks of a file whose checksums are awaited; None for another file."""
        found = self._sizes.get(file_id)
        return None if found is None else -(-found[0] // BLOCK_OCTETS)

    def hashes(self, file_id, checksums):
        """Take the follower's checksums of a file.

        Returns False, without any effect, if they are not awaited.
        """
        # Another file may have been removed meanwhile.
        found = self._sizes.pop(file_id, None)
        if found is None:
            return False
        size, inode = found
        self._answers.earn(min(size, len(checksums) * BLOCK_OCTETS) + CHUNK_OCTETS)
        self._tasks.extend(
            _Task(file_id, size, inode, checksums, first)
            for first in range(0, -(-size // BLOCK_OCTETS), BATCH_BLOCKS))
        self._answered.set()
        return True

    def run(self):
        """List everything, send the blocks that differ, and end with SYNCED. May switch greenlets.

        Raises SyncError; OSError if a file cannot be read.
        """
        # The follower hears of later files as events; if it heard of one twice, its content would be compared
        # with that of an older file.
        file_ids = list(self._register.paths)
        listed = set()
        self._list_folders(listed)
        self._list_files(file_ids)
        self._list_folders(listed)  # renamed meanwhile; no switch from here to the end of the listing
        self._put(events.listed_all())
        while self._sizes or self._tasks:
            if self._tasks or self._await_answers():
                self._compare(self._next_batch())
        self._put(events.synced())

    # the listing

    def _list_folders(self, listed):
        """List the folders that are not in the set ``listed``, and add them to it. May switch greenlets."""
        # Does not switch after the last one.
        while True:
            folders = [path for path in self._register.folders if path not in listed]
            if not folders:
                return
            for some in _slices(folders):
                listed.update(some)
                self._put_row([
                    events.listed_folder(self._name(path)) for path in some
                    if path in self._register.folders and self._is_sent(path)
                ])
                self._give_way()

    def _list_files(self, missing):
        give_up_s = time.monotonic() + MISSING_MOST_S
        while missing:
            left = []
            for some in _slices(missing):
                in_thread(_look_at, [self._register.paths.get(file_id) for file_id in some])
                left += self._list_some(some)
                self._give_way()
            if left and time.monotonic() > give_up_s:
                raise SyncError(f"{self._register.paths.get(left[0])} is missing in the leader's folder")
            missing = left
            if missing:
                gevent.sleep(RENAMED_S)

    def _list_some(self, file_ids):
        """List files with their present sizes.

        Returns the ids of files that were not found, because a thread has renamed them.
        """
        missing, listed = [], []
        for file_id in file_ids:
            path = self._register.paths.get(file_id)
            if path is None or not self._is_sent(path):
                continue
            try:
                status = os.stat(path, follow_symlinks=False)
            except FileNotFoundError:
                missing.append(file_id)
                continue
            if stat.S_ISREG(status.st_mode):
                self._sizes[file_id] = status.st_size, status.st_ino
                self.total_octets += status.st_size
                listed.append(events.listed(file_id, status.st_size, self._name(path)))
        self._put_row(listed)
        return missing

    def _put_row(self, operations):
        if operations:
            self._put(b"".join(operations))

    def _name(self, path):
        return path.removeprefix(self._inside)

    def _is_sent(self, path):
        return not events.is_of_one_node(self._name(path).partition(os.sep)[0])

    # the content

    def _await_answers(self):
        """Wait up to LOOK_S for checksums. Returns whether any came. May switch greenlets.

        Raises SyncError if the follower is too slow.
        """
        self._answered.clear()
        with self._answers:
            if self._answered.wait(LOOK_S):
                return True
        paths = self._register.paths
        for file_id in [file_id for file_id in self._sizes if file_id not in paths]:
            # the follower has heard of the file's end, and may not answer
            self.done_octets += self._sizes.pop(file_id)[0]
        return False

    def _next_batch(self):
        batch, blocks = [], 0
        while self._tasks and len(batch) < BATCH_FILES and blocks < BATCH_BLOCKS:
            task = self._tasks.popleft()
            task.path = self._register.paths.get(task.file_id)
            if task.path is None:  # the file is gone, which the follower hears as an event
                self._done(task)
            else:
                batch.append(task)
                blocks += task.until - task.first
        return batch

    def _compare(self, batch):
        found = in_thread(_check, [
            (task.path, task.inode, task.first, task.until, task.checksums) for task in batch])
        for task, differing in zip(batch, found, strict=True):
            try:
                if differing is None:
                    raise FileNotFoundError
                self._check_source(task, differing)
                self._send_blocks(task, differing)
            except FileNotFoundError:
                self._missing(task)
            else:
                self._done(task)
        self._give_way()

    def _check_source(self, task, differing):
        """Check a segment for damage before its blocks replace data of the follower. May switch greenlets.

        ``differing``: numbers of the blocks to send. Raises SyncError, FileNotFoundError.
        """
        # The other content may be the sound one.
        replaces = bool(differing) and differing[0] < len(task.checksums)
        if not replaces or task.file_id in self._checked or not holds_messages(task.path):
            return
        lost = in_thread(lost_in, task.path)
        if lost:
            text = f"the leader's {task.path} is damaged ({lost}), and the follower's copy may be sound"
            if self._found_damage(text):
                raise SyncError(text)
        self._checked.add(task.file_id)

    def _send_blocks(self, task, blocks):
        """Send the numbered ``blocks`` of a file. Raises FileNotFoundError. May switch greenlets."""
        if blocks:
            fd = _open(task.path, task.inode)  # a thread has just opened it: this is quick
            try:
                for block in blocks:
                    self._send_block(task, fd, block)
            finally:
                posix.close(fd)

    def _send_block(self, task, fd, block):
        """Send the chunks of a block. Zeros after the end of the follower's file are skipped.

        May switch greenlets.
        """
        is_lacked = block >= len(task.checksums)
        for at in range(block * BLOCK_OCTETS, min(task.size, (block + 1) * BLOCK_OCTETS), CHUNK_OCTETS):
            if self._clock.is_over():
                self._give_way()
            octets = os.pread(fd, CHUNK_OCTETS, at)  # no switch between this read and the put
            if octets and not (is_lacked and octets == _ZEROS[:len(octets)]):
                self._put(events.written(task.file_id, at, octets))
                self.sent_octets += len(octets)

    def _missing(self, task):
        """Queue a task again whose file a thread has renamed, and wait for RENAMED_S. May switch greenlets.

        Raises SyncError after MISSING_MOST_S.
        """
        task.give_up_s = task.give_up_s or time.monotonic() + MISSING_MOST_S
        if time.monotonic() > task.give_up_s:
            raise SyncError(f"{task.path} is missing in the leader's folder")
        self._tasks.append(task)
        gevent.sleep(RENAMED_S)

    def _done(self, task):
        self.done_octets += min(task.size, task.until * BLOCK_OCTETS) - task.first * BLOCK_OCTETS

    def _give_way(self):
        give_way()
        sent, self._paid_octets = self.sent_octets - self._paid_octets, self.sent_octets
        self._takes.earn(sent)
        with self._takes:
            self._wait_for_room()
        self._clock.begin()


class _Patience:
    """Limits how long the leader waits for a follower.

    A context manager for each wait, which raises SyncError at the limit. The limit is at most ANSWER_MOST_S.
    It grows with the follower's work, by a second per LEAST_OCTETS_S bytes.
    """

    def __init__(self):
        self._left_s = ANSWER_MOST_S
        self._since_s = 0.0

    def earn(self, octets):
        """Extend the limit, because the follower has handled ``octets`` bytes."""
        self._left_s = min(ANSWER_MOST_S, self._left_s + octets / LEAST_OCTETS_S)

    def __enter__(self):
        self._since_s = time.monotonic()

    def __exit__(self, *error):
        self._left_s -= time.monotonic() - self._since_s
        if self._left_s < 0:
            raise SyncError(
                f"the follower is too slow: it was waited for {ANSWER_MOST_S:g} s longer than the least rate "
                f"of {LEAST_OCTETS_S >> 10} KiB/s allows")


class _Task:
    """A task to compare the blocks from ``first`` to ``until`` (exclusive) of a file.

    ``inode``: inode number of the listed file. ``checksums``: one for each block of the follower's file.
    """

    __slots__ = ("file_id", "size", "inode", "checksums", "first", "until", "path", "give_up_s")

    def __init__(self, file_id, size, inode, checksums, first):
        self.file_id = file_id
        self.size = size
        self.inode = inode
        self.checksums = checksums
        self.first = first
        self.until = min(first + BATCH_BLOCKS, -(-size // BLOCK_OCTETS))
        self.path = None
        self.give_up_s = 0.0


# in threads

def _look_at(paths):
    """Bring metadata of files into the system's cache."""
    for path in filter(None, paths):
        with contextlib.suppress(OSError):
            os.stat(path, follow_symlinks=False)


def _check(tasks):
    """Compare blocks of files. Returns for each task a list: the numbers of the blocks that differ.

    ``tasks``: tuples of ``_differing``'s arguments. A missing file has None for a list. Raises OSError.
    """
    return [_differing(*task) for task in tasks]


def _differing(path, inode, first, until, checksums):
    try:
        fd = _open(path, inode)
    except FileNotFoundError:
        return None
    try:
        return [
            block for block in range(first, until)
            if _differs(os.pread(fd, BLOCK_OCTETS, block * BLOCK_OCTETS), block, checksums)
        ]
    finally:
        posix.close(fd)


def _open(path, inode):
    """Return a descriptor of the file. Raises FileNotFoundError, also if its inode number differs."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if os.fstat(fd).st_ino != inode:
        posix.close(fd)
        raise FileNotFoundError(path)
    return fd


def _differs(octets, block, checksums):
    if block >= len(checksums):
        return octets != _ZEROS[:len(octets)]
    return block_digest(octets) != checksums[block]


def _slices(names):
    return (names[at:at + SLICE_NAMES] for at in range(0, len(names), SLICE_NAMES))
