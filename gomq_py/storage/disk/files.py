"""Files: the only interface for changing files and folders.

Below segments, logs and the data folder. Two kinds of file: *mapped* ones of a fixed size (segments, acks),
whose writers change the mapping and announce the ranges once per batch, or ``write`` a batch, and *logs*,
which grow by ``append``. Listeners (``storage.disk.replication.Replicator``) hear each change after it
succeeded, in order. Tests replace ``Files`` by one that fails the Nth call or forgets unsynced data.

Nothing here retries, swallows or logs: the caller gets an ``OSError`` (ENOSPC, EIO, EMFILE...) with the path.
Everything runs on the hub's thread except what ``storage.flush.group_commit`` calls from its pool: ``sync``
(unless its flush waits as greenlets do), ``sync_log``, ``sync_folder``, ``make``, ``make_unnamed``,
``make_log``, ``unmake`` and the first half of a ``Change``. Never decides what is durable: that is
``storage.flush.group_commit``.

A mapped file needs no descriptor: its mapping is flushed itself, and gets the disk's errors as a descriptor
would (both are one open file to the kernel). So only the first ``MAPPED_DESCRIPTORS`` have one, and those
often written with calls. A log takes bytes in two ways: ``append`` writes them at once; ``accept`` keeps them
in memory, with room reserved on the disk, until ``sync_log`` writes and flushes them in a thread. Descriptors
are closed by ``posix.close``: ``os.close`` patched by gevent closes later, and mistakes a new descriptor of
another thread for a closed one with the same number.
"""
import contextlib
import errno
import os
import posix
from collections import Counter, deque

from gomq_py.storage.disk.mapping import CAN_FLUSH_MAPPINGS, flush_mapping, map_file
from gomq_py.storage.disk.pages import fetch_ahead, populate, read_range

# Messages and password hashes are private (Mosquitto CVE-2017-9868: a world-readable persistence file).
FILE_MODE = 0o600
FOLDER_MODE = 0o700

# Most mapped files with a descriptor. A level of a priority queue is two files, and a process may have 1024
# descriptors.
MAPPED_DESCRIPTORS = 128
# Most unlinked files whose room is freed in the background. A mapping holds each: a process may have 65 530.
LEAVING = 4096
_ZEROS = bytes(1 << 20)

# Room reserved behind the end of a log, and again when half of it is used: some 3500 declares between two
# flushes need no new room.
ROOM_AHEAD = 1 << 20

# fallocate's errors on file systems that cannot reserve: NFS before 4.2, ZFS before 2.1.
NO_RESERVING = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})

# Errors of a full disk, and of a user's quota.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)

# Modes of fallocate, linux/falloc.h.
_KEEP_SIZE = 0x01

# open()'s errors without O_TMPFILE: NFS, old overlay file systems, kernels that see O_DIRECTORY in it.
NO_TMPFILE = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL})


class File:
    """An open file.

    ``map``: its read-write mapping, or None for a log or an empty file; pointers into it die at truncate,
    extend and close. ``fd``: -1 if only mapped, or closed; ``identity`` (device, inode) is known of those
    without. ``cached``: the system has pages up to here; later bytes are better written with calls.

    A held file (``retain``: a running sync, a follower, a backup) is not closed, and must not be recycled.
    Hub thread only.
    """

    __slots__ = (
        "path", "fd", "size", "cached", "synced_size", "map", "mapped", "named", "broken", "identity",
        "closed", "_holders", "_closing", "_aside", "_counted_in",
    )

    def __init__(self, path, fd, size, mapped, named=True):
        self.path = path
        self.fd = -1  # the caller still owns it
        self.size = self.cached = size
        # size of the file when its last successful sync began; 0: unknown
        self.synced_size = 0
        self.map = None
        self.mapped = mapped
        self.named = named
        self.broken = None  # error after which a log's end is unknown
        self.identity = None
        self.closed = False
        self._holders = 0
        self._closing = False
        self._aside = None
        self._counted_in = None  # set of descriptors that counts it
        self.map = self._mapping(fd)
        self.fd = fd

    def __del__(self, close=posix.close):
        """Close a file that was not closed, as when a boot fails halfway."""
        if self.fd >= 0:
            self._uncount()
            close(self.fd)

    def __repr__(self):
        return f"<File {self.path} fd={self.fd} size={self.size}>"

    @property
    def held(self):
        """Whether the file and its content are still needed."""
        return self._holders > 0

    def retain(self):
        """Keep the file open, and unrecycled, until ``release``."""
        self._holders += 1

    def release(self):
        """Undo one ``retain``; closes the file if its owner has closed it meanwhile."""
        assert self._holders > 0, self.path
        self._holders -= 1
        if self._closing and not self._holders:
            self.close()

    def read(self, start, end):
        """A copy of the bytes [start, end); fewer at the end of the file."""
        if self.map is not None:
            return self.map[start:end]
        return os.pread(self.fd, end - start, start)

    def remap(self, fd=-1):
        """Map the whole file again, at its present size; by ``fd`` if it has no descriptor.

        Raises BufferError while a view of the old mapping exists.
        """
        self.unmap()
        self.map = self._mapping(fd if self.fd < 0 else self.fd)

    def grow(self, size, fd):
        """Map the file again after it grew to ``size``.

        The old mapping stays for its present users: a thread may be about to flush it. Raises OSError, and
        nothing has changed.
        """
        self.map = map_file(fd, size, self.path) if self.mapped else None
        self.size = size

    def _mapping(self, fd):
        if not self.mapped or not self.size:
            return None
        return map_file(fd, self.size, self.path)

    def count_in(self, descriptors):
        """Count the file in the set ``descriptors`` while it has a descriptor."""
        descriptors.add(self.fd)
        self._counted_in = descriptors

    def _uncount(self):
        if self._counted_in is not None:
            self._counted_in.discard(self.fd)
            self._counted_in = None

    def give_up_descriptor(self):
        """Close the descriptor; the mapping is enough from here on."""
        status = os.fstat(self.fd)
        self.identity = status.st_dev, status.st_ino
        fd, self.fd = self.fd, -1
        posix.close(fd)

    def unmap(self):
        """Drop the mapping. Raises BufferError while a view of it exists."""
        if self.map is not None:
            self.map.close()
            self.map = None

    def close(self, aside=None):
        """Close now, or when the last holder releases it.

        ``aside(function, *arguments)`` closes an unlinked file in the background: freeing its room may take
        tens of milliseconds.
        """
        self._closing = True
        self._aside = aside or self._aside
        if self._holders or self.closed:
            return
        self.closed = True
        self._uncount()
        mapping, fd, self.map, self.fd = self.map, self.fd, None, -1
        if self._aside is None:
            close_parts(mapping, fd)
        else:
            self._aside(close_parts, mapping, fd)


class Reading:
    """A mapped file for a reader that may be slow: it stays open, and is not recycled, until close(). ``fd``:
    a descriptor of it.
    """

    __slots__ = ("file", "fd")

    def __init__(self, file, fd):
        file.retain()
        self.file = file
        self.fd = fd

    def close(self):
        """End the reading. May be called again."""
        file, self.file = self.file, None
        if file is not None:
            if self.fd != file.fd:
                posix.close(self.fd)
            file.release()


class LogFile(File):
    """An open log.

    ``size``: length of the file; ``accepted``: bytes to be written behind it, in order, up to ``end``.

    ``room``: end of the reserved room; None if the disk cannot reserve, and then each append is written at
    once. The thread that flushes the log writes, so it changes ``size`` and takes from ``accepted``; the hub
    changes everything else.

    ``is_relied_on``: promises depend on it; False for a second log while the first one still has everything.

    ``failure``: the error of a failed flush. It stays: what the log held by then may be lost. ``failed()``,
    if set, is called in the hub then, and again while promises are asked for. ``fails_all``: from then on all
    promises fail. False for a log on which no queue depends: it fails only the flushes that include it.
    """

    __slots__ = ("accepted", "end", "room", "told", "is_relied_on", "fails_all", "failure", "failed")

    def __init__(self, path, fd, size):
        super().__init__(path, fd, size, False)
        self.accepted = deque()
        self.room = None
        self.is_relied_on = self.fails_all = True
        self.failure = self.failed = None
        self.begin_at(size)

    def begin_at(self, size):
        """Set the file's length, with nothing to be written."""
        self.size = self.end = self.told = size  # told: end of what listeners have heard

    @property
    def is_awaited(self):
        """Whether promises depend on bytes still to be written."""
        return self.is_in_use and bool(self.accepted)

    @property
    def is_in_use(self):
        """Whether promises depend on it: no other log has replaced it."""
        return self.named and self.is_relied_on

    def forget_accepted(self):
        """Drop what was not written, because another log has replaced this one.

        A thread that fails to write it at this moment may put it back.
        """
        self.named = False
        self.accepted.clear()


class Change:
    """A change of a name in two halves: ``act`` does it and may block, so a thread calls it; ``told`` tells
    the listeners, in the hub.

    ``needed``: a missing file or folder is an error; otherwise only a refusal of the system is one.
    """

    __slots__ = ("path", "needed", "_act", "_told", "_result")

    def __init__(self, path, act, told, needed=False):
        self.path = path
        self.needed = needed
        self._act = act
        self._told = told
        self._result = None

    def act(self):
        """Do it. Blocks. Raises OSError, and nothing has changed."""
        self._result = self._act()

    def told(self):
        """Tell the listeners, once, after ``act``."""
        self._told(self._result)

    def make(self):
        """Both halves at once: for boot, and other callers that may block. Raises OSError."""
        self.act()
        self.told()


class Files:
    """Changes files and folders, and tells the listeners. One per broker."""

    mapped_descriptors = MAPPED_DESCRIPTORS

    def __init__(self, listeners=()):
        self._listeners = tuple(listener for listener in listeners if listener.hears)
        # path -> changes of having_folder that listeners have not heard of
        self._coming_folders = Counter()
        # path -> changes of having_folder that are not finished
        self._folder_jobs = Counter()
        self._described = set()  # descriptors of named mapped files; threads add, too
        # holders of unlinked files; threads add and remove
        self._leaving = set()

    @property
    def has_listeners(self):
        """Whether there are listeners: changes must then be made, or told, in the hub."""
        return bool(self._listeners)

    # mapped files

    def create(self, path, size):
        """A new mapped file of ``size`` zero bytes whose room is allocated now, so that writing to it cannot
        fail (SIGBUS) later.

        Raises FileExistsError; OSError (ENOSPC) leaves no file behind.
        """
        file = self._described_or_not(self._create(os.fspath(path), size))
        self.made(file)
        return file

    def make(self, path, size, fetched=True):
        """``create`` for a thread: the hub calls ``made`` later to tell listeners.

        Its content is in the system's cache; only its head if ``fetched`` is False, for files that are
        written with calls. Blocks.
        """
        return self._described_or_not(fetch_ahead(self._create(os.fspath(path), size), fetched))

    def make_unnamed(self, folder, size, fetched=True):
        """``create_unnamed`` for a thread; ``fetched`` as in ``make``. Blocks."""
        return fetch_ahead(self._create_unnamed(os.fspath(folder), size), fetched)

    def made(self, file):
        """Tell the listeners of a file from ``make`` or ``make_log``."""
        for listener in self._listeners:
            listener.created(file.path, file.size)

    def unmake(self, file):
        """Remove a file from ``make`` that listeners have not heard of. Blocks."""
        os.unlink(file.path)
        file.close()

    def create_unnamed(self, folder, size):
        """``create`` without a name: the file is gone with the process, and no listener hears of it.

        For transient queues.
        """
        return self._create_unnamed(os.fspath(folder), size)

    def open(self, path):
        """An existing file, mapped read-write as a whole.

        It may have holes: see ``allocate``.
        """
        path = os.fspath(path)
        fd = self._open(path, os.O_RDWR)
        try:
            file = File(path, fd, os.fstat(fd).st_size, True)
        except BaseException:
            posix.close(fd)
            raise
        return self._described_or_not(file)

    def _described_or_not(self, file):
        """Let a mapped file keep its descriptor, unless too many have one. Returns the file."""
        if file.map is not None and CAN_FLUSH_MAPPINGS:
            if len(self._described) < self.mapped_descriptors:
                file.count_in(self._described)
            else:
                file.give_up_descriptor()
        return file

    @contextlib.contextmanager
    def _descriptor(self, file):
        """The file's descriptor, or a temporary one.

        Raises OSError, also if another file has its name by now.
        """
        if file.fd >= 0:
            yield file.fd
            return
        fd = self._opened_again(file)
        try:
            yield fd
        finally:
            posix.close(fd)

    def _opened_again(self, file):
        fd = self._open(file.path, os.O_RDWR)
        status = os.fstat(fd)
        if (status.st_dev, status.st_ino) != file.identity:
            posix.close(fd)
            raise OSError(errno.ESTALE, "another file has the name", file.path)
        return fd

    def read_through(self, file, start=0, end=None):
        """Read [start, end), so that a bad sector or a file cut short raises OSError here instead of killing
        the process (SIGBUS) at the next access to the mapping.

        Pages that the system drops later are read from the disk again. Blocks; safe in a thread while the
        file is retained.
        """
        end = file.size if end is None else end
        try:
            if file.map is None or not populate(file.map, start, end):
                with self._descriptor(file) as fd:
                    read_range(fd, start, end)
        except OSError as error:
            raise with_path(error, file.path) from error

    def allocate(self, file):
        """Allocate the holes of a file (copied, or cut by a crash) before it is written through its mapping.
        """
        with self._descriptor(file) as fd:
            self._allocate(fd, 0, file.size, file.path)

    def appended(self, file, start, end):
        """Announce that [start, end) of a mapping was written for the first time. Once per batch."""
        if file.named:
            for listener in self._listeners:
                listener.appended(file, start, end)

    def reading(self, file):
        """A Reading of a mapped file. Raises OSError."""
        return Reading(file, file.fd if file.fd >= 0 else self._opened_again(file))

    def write(self, file, start, octets):
        """Write bytes into a mapped file for the first time, and announce them.

        Raises OSError; how much was written then is unknown.
        """
        if file.fd < 0:
            with contextlib.suppress(OSError):  # then one is opened for each call
                file.fd = self._opened_again(file)
        self._put(file, start, octets)
        self.appended(file, start, start + len(octets))

    def put(self, file, start, octets):
        """``write`` without the announcement, for callers that announce several writes together and write
        into many files: opens no lasting descriptor.
        """
        self._put(file, start, octets)

    def write_again(self, file, start, end):
        """Write [start, end) over itself, so that the next flush writes it: after a failed flush the system
        regards unwritten pages as written, and later flushes succeed without them.

        Blocks; for boot. Raises OSError, but not for lack of room: a full copy-on-write file system must not
        stop the boot.
        """
        try:
            for at in range(start, end, len(_ZEROS)):
                self._put(file, at, file.read(at, min(end, at + len(_ZEROS))))
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise

    def _put(self, file, start, octets):
        try:
            self._write(file, start, octets)
        except OSError as error:
            raise with_path(error, file.path) from error

    def overwritten(self, file, start, end):
        """Announce that [start, end) of a mapping was changed. Once per batch."""
        if file.named:
            for listener in self._listeners:
                listener.overwritten(file, start, end)

    # logs

    def open_log(self, path):
        """A file to append to, created empty if missing. Not mapped."""
        path = os.fspath(path)
        try:
            fd = self._open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            fd = self._open(path, os.O_RDWR)
            return LogFile(path, fd, os.fstat(fd).st_size)
        for listener in self._listeners:
            listener.created(path, 0)
        return LogFile(path, fd, 0)

    def make_log(self, path):
        """A new, empty log, for a thread: the hub calls ``made`` later to tell listeners. Blocks."""
        path = os.fspath(path)
        return LogFile(path, self._open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL), 0)

    def append(self, file, octets):
        """Write at the end of a log, all or nothing. Returns the position.

        Raises OSError after cutting a partial write off; if even that fails the log refuses further appends
        (a record behind a torn one would look like damage).
        """
        check_sound(file)
        assert not file.accepted, f"{file.path}: what was accepted comes first"
        start = file.size
        self._write_behind(file, start, octets)
        file.end = file.size
        self.tell_written(file)
        return start

    def reserve(self, file, count=ROOM_AHEAD):
        """Reserve room for ``count`` bytes behind the end of a log, which does not move.

        False if the file system cannot. Blocks. Raises OSError (ENOSPC); earlier reservations stay.
        """
        start, behind = file.size, file.end + count
        try:
            if not self._reserve(file.fd, start, behind - start):
                return False
        except OSError as error:
            raise with_path(error, file.path) from error
        file.room = max(file.room or 0, behind)
        return True

    def make_room(self, file, count):
        """Reserve room, so that ``accept`` of ``count`` bytes is not refused.

        Blocks only if more is needed than was reserved ahead. Raises OSError: the disk is full, or the log
        refuses appends.
        """
        check_sound(file)
        if file.end + count > file.room:
            try:
                self.reserve(file, max(count, ROOM_AHEAD))
            except OSError:
                self.reserve(file, count)  # no reserve ahead from the last room of a disk

    def accept(self, file, octets):
        """Add bytes for ``sync_log`` to write. Raises OSError as ``make_room``, and nothing has changed."""
        self.make_room(file, len(octets))
        file.accepted.append(octets)
        file.end += len(octets)

    def tell_written(self, file):
        """Tell the listeners of bytes written to a log since the last time."""
        start, end = file.told, file.size
        file.told = end
        if file.named and start < end:
            for listener in self._listeners:
                listener.appended(file, start, end)

    # both

    def truncate(self, file, size):
        """Cut the file to ``size`` and map it again."""
        assert size <= file.size, (file.path, size, file.size)
        with self._descriptor(file) as fd:
            file.unmap()  # before the cut: touching a mapped page behind the end kills the process (SIGBUS)
            try:
                self._cut(fd, size)
                if file.mapped:
                    file.size = size
                else:
                    assert not file.accepted and file.room is None, file.path
                    file.begin_at(size)
            except OSError as error:
                raise with_path(error, file.path) from error
            finally:
                file.remap(fd)
        self._resized(file)

    def extend(self, file, size):
        """Grow the file to ``size`` with zeros whose room is allocated now, and map it again."""
        assert size >= file.size, (file.path, size, file.size)
        with self._descriptor(file) as fd:
            self._allocate(fd, file.size, size - file.size, file.path)
            file.grow(size, fd)
        self._resized(file)

    def rename(self, source, target, file=None):
        """Rename a file or folder, replacing one of that name.

        ``file``: the open File, whose path follows. Blocks.
        """
        self.renaming(source, target, file).make()

    def renaming(self, source, target, file=None, needed=False):
        """``rename`` as a Change."""
        source, target = os.fspath(source), os.fspath(target)

        def told(_):
            if file is not None:
                file.path = target
            for listener in self._listeners:
                listener.renamed(source, target)

        return Change(source, lambda: self._rename(source, target), told, needed)

    def unlink(self, path, aside=None):
        """Unlink a file. Raises FileNotFoundError.

        ``aside`` as in File.close: frees its room in the background. Blocks.
        """
        self.unlinking(path, aside).make()

    def unlinking(self, path, aside=None):
        """``unlink`` as a Change."""
        path = os.fspath(path)

        def told(kept):
            if kept is not None:
                aside(self._let_go, kept)
            for listener in self._listeners:
                listener.unlinked(path)

        return Change(
            path, lambda: self._unlink_keeping(path) if aside is not None else self._unlink(path), told
        )

    def close(self, file, aside=None):
        """Close now, or when the last holder releases it; ``aside`` as in File.close."""
        file.close(aside)

    # folders

    def make_folder(self, path):
        """Create one folder. Raises FileExistsError. Blocks."""
        self.making_folder(path).make()

    def making_folder(self, path):
        """``make_folder`` as a Change."""
        path = os.fspath(path)
        return Change(path, lambda: self._make_folder(path), lambda _: self._tell("folder_created", path))

    def have_folder(self, path):
        """Create one folder if missing.

        If a thread is making it now, it is made here, or the listeners are told here, and only once: they
        must hear of a folder before its content. Raises OSError. Blocks.
        """
        path = os.fspath(path)
        if path in self._coming_folders:
            with contextlib.suppress(FileExistsError):
                self._make_folder(path)
            del self._coming_folders[path]
            self._tell("folder_created", path)
        elif not os.path.isdir(path):
            self.make_folder(path)

    def lacks_folder(self, path):
        """Whether ``have_folder`` would have to make it."""
        return path in self._coming_folders or not os.path.isdir(path)

    def is_making_folder(self, path):
        """Whether a thread is making, or will make, this folder or one in it."""
        path = os.fspath(path)
        return any(coming == path or coming.startswith(path + os.sep) for coming in self._folder_jobs)

    def having_folder(self, path):
        """``have_folder`` as a Change, whose ``told`` is called in any case."""
        path = os.fspath(path)
        self._coming_folders[path] += 1
        self._folder_jobs[path] += 1

        def act():
            try:
                self._make_folder(path)
            except FileExistsError:
                if not os.path.isdir(path):
                    raise
                return False
            return True

        def told(made):
            self._folder_jobs[path] -= 1
            if not self._folder_jobs[path]:
                del self._folder_jobs[path]
            if path in self._coming_folders:  # otherwise the hub has told the listeners already
                self._coming_folders[path] -= 1
                if made or not self._coming_folders[path]:
                    del self._coming_folders[path]
                if made:
                    self._tell("folder_created", path)

        return Change(path, act, told)

    def remove_folder(self, path):
        """Remove an empty folder. Raises OSError (ENOTEMPTY). Blocks."""
        self.removing_folder(path).make()

    def removing_folder(self, path):
        """``remove_folder`` as a Change."""
        path = os.fspath(path)
        return Change(path, lambda: self._remove_folder(path), lambda _: self._tell("folder_removed", path))

    def _tell(self, event, path):
        for listener in self._listeners:
            getattr(listener, event)(path)

    def remove_tree(self, path):
        """Remove a folder and its content, each part through this object."""
        path = os.fspath(path)
        with os.scandir(path) as entries:
            inside = sorted((entry.path, entry.is_dir(follow_symlinks=False)) for entry in entries)
        for inner, is_folder in inside:
            if is_folder:
                self.remove_tree(inner)
            else:
                self.unlink(inner)
        self.remove_folder(path)

    # flushes: in a pool thread

    @property
    def may_sync_in_hub(self):
        """Whether ``sync`` waits only in ``flush``: tests replace it by blocking ones."""
        return getattr(self.sync, "__func__", None) is Files.sync

    def sync(self, file, flush=None):
        """Flush the file's size and what was written to it (mapping included) before this call.

        Blocks, for ``storage.flush.group_commit`` and boot; with ``flush(file)``, which waits for the disk in
        another way, it may be called in the hub's thread.
        """
        size = file.size
        try:
            (flush or flush_file)(file)
        except OSError as error:
            raise with_path(error, file.path) from error
        file.synced_size = size

    def sync_log(self, file):
        """Write what a log has accepted before this call, flush it, and reserve more room.

        Blocks; for ``storage.flush.group_commit``. Raises OSError; what cannot be written stays accepted.
        """
        if file.room is not None:
            check_sound(file)
        if file.accepted:
            self.write_accepted(file)
        if file.room is not None and file.room - file.size < ROOM_AHEAD // 2:
            with contextlib.suppress(OSError):  # the next append without room tries again and is refused
                self.reserve(file)
        self.sync(file)

    def write_accepted(self, file):
        """Write what a log has accepted, at once. Blocks. Raises OSError, and it stays accepted."""
        parts = []
        with contextlib.suppress(IndexError):  # the hub forgets them
            for _ in range(len(file.accepted)):
                parts.append(file.accepted.popleft())
        try:
            self._write_behind(file, file.size, b"".join(parts))
        except BaseException:  # any error, such as lack of memory
            file.accepted.extendleft(reversed(parts))
            file.room = file.size  # the cut has freed the rest
            raise

    def sync_folder(self, path):
        """Flush the names in a folder as of this call.

        Blocks; for ``storage.flush.group_commit`` and boot.
        """
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            posix.close(fd)

    # replaced by tests to make the disk misbehave

    def _open(self, path, flags):
        return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)

    def _rename(self, source, target):
        os.rename(source, target)

    def _unlink(self, path):
        os.unlink(path)

    def _make_folder(self, path):
        os.mkdir(path, FOLDER_MODE)

    def _remove_folder(self, path):
        os.rmdir(path)

    def _unlink_keeping(self, path):
        """Unlink a file without freeing its room yet.

        Returns the holder of the file for ``_let_go``; None if too many wait already, or there can be no
        holder: then the room was freed here.
        """
        kept = None
        if len(self._leaving) < LEAVING:
            with contextlib.suppress(OSError):
                kept = hold(self._open(path, os.O_RDWR | os.O_NOFOLLOW))
                self._leaving.add(kept)
        try:
            self._unlink(path)
        except BaseException:
            if kept is not None:
                self._let_go(kept)
            raise
        return kept

    def _let_go(self, kept):
        """Free the room of a file from ``_unlink_keeping``. Blocks."""
        self._leaving.discard(kept)
        close_parts(*kept)

    def _create(self, path, size):
        fd = self._open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            self._allocate(fd, 0, size, path)
            return File(path, fd, size, True)
        except BaseException:
            posix.close(fd)
            os.unlink(path)
            raise

    def _create_unnamed(self, folder, size):
        path = os.path.join(folder, "unnamed")
        fd = self._open_unnamed(folder)
        try:
            self._allocate(fd, 0, size, path)
            return File(path, fd, size, True, named=False)
        except BaseException:
            posix.close(fd)
            raise

    def _open_unnamed(self, folder):
        if hasattr(os, "O_TMPFILE"):
            try:
                return self._open(folder, os.O_RDWR | os.O_TMPFILE)
            except OSError as error:
                if error.errno not in NO_TMPFILE:
                    raise
        path = os.path.join(folder, f"unnamed.{os.urandom(8).hex()}")
        fd = self._open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        os.unlink(path)
        return fd

    def _reserve(self, fd, start, count):
        return reserve_room(fd, start, count)

    def _write_behind(self, file, start, octets):
        """Write at the end of a log, or cut a partial write off; if that fails too, the log refuses further
        appends.
        """
        try:
            self._write(file, start, octets)
        except OSError as error:
            self._undo_append(file, start, error)
            raise with_path(error, file.path) from error
        file.size = start + len(octets)

    def _allocate(self, fd, start, count, path):
        if count:
            try:
                take_room(fd, start, count)
            except OSError as error:
                raise with_path(error, path) from error

    def _write(self, file, at, octets):
        """Write all of it, in as many calls as the kernel needs."""
        rest = memoryview(octets)
        while rest:
            written = self._write_once(file, at, rest)
            at += written
            rest = rest[written:]

    def _write_once(self, file, at, octets):
        if file.fd >= 0:
            return os.pwrite(file.fd, octets, at)
        try:
            fd = self._opened_again(file)
        except OSError:  # then it is written through its mapping: three times slower
            file.map[at:at + len(octets)] = octets
            return len(octets)
        try:
            return os.pwrite(fd, octets, at)
        finally:
            posix.close(fd)

    def _cut(self, fd, size):
        os.ftruncate(fd, size)

    def _undo_append(self, file, start, error):
        try:
            self._cut(file.fd, start)
        except OSError:
            file.broken = error

    def _resized(self, file):
        if file.named:
            for listener in self._listeners:
                listener.resized(file.path, file.size)


def hold(fd):
    """Keep an unlinked file on the disk, by a mapping or by its descriptor, which belongs to this function
    from here on. Returns (mapping or None, descriptor or -1), for ``close_parts``.

    A purge may unlink thousands of files at once. Python 3.13 cannot map an empty file, which has no room to
    keep.
    """
    if not CAN_FLUSH_MAPPINGS:
        return None, fd
    mapping = None
    try:
        if os.fstat(fd).st_size:
            mapping = map_file(fd, 1)
    except OSError:
        return None, fd
    posix.close(fd)
    return mapping, -1


def close_parts(mapping, fd):
    """Close a File's mapping, or descriptor (-1: none), or both."""
    try:
        if mapping is not None:
            mapping.close()
    finally:
        if fd >= 0:
            posix.close(fd)


def check_sound(file):
    """Raises OSError for a log that refuses appends."""
    if file.broken is not None:
        raise OSError(file.broken.errno, f"log is closed since: {file.broken.strerror}", file.path)


def with_path(error, path):
    """The same error with the file's path, which calls on descriptors lack."""
    return OSError(error.errno, error.strerror, path)


def take_room(fd, start, count):
    """Allocate [start, start + count) for real; existing content stays."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, start, count)
        return
    size = os.fstat(fd).st_size  # macOS: can only allocate behind the end, by writing
    while size < start + count:
        size += os.pwrite(fd, _ZEROS[:start + count - size], size)


def flush_file(file):
    """Make the file's content and size survive a power cut. Blocks without the interpreter's lock."""
    if file.fd >= 0:
        flush_descriptor(file.fd)
    else:
        flush_mapping(file.map)


def flush_descriptor(fd):
    """Make the file's content and size survive a power cut. Blocks without the interpreter's lock."""
    if hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    else:
        import fcntl
        # macOS: fsync leaves the bytes in the drive's cache
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # type: ignore[attr-defined]


def reserve_room(fd, start, count):
    """Allocate [start, start + count), which may lie behind the end, without changing the file's size or
    content.

    False if impossible. Raises OSError without a path.
    """
    number = errno.EINTR
    while number == errno.EINTR:
        number = _fallocate(fd, _KEEP_SIZE, start, count)
    if number and number not in NO_RESERVING:
        raise OSError(number, os.strerror(number))
    return not number


def _fallocate(fd, mode, start, count):
    """0, or the error number."""
    import ctypes
    try:
        fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    except AttributeError:
        return errno.ENOSYS
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return 0 if fallocate(fd, mode, start, count) == 0 else ctypes.get_errno()
