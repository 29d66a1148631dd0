"""Files: the one seam. Every change the broker makes to a file or folder goes through here.

Below segments, logs and the data folder. Two kinds of file: *mapped* ones of a fixed size (segments, acks),
whose writers change the mapping themselves and announce the ranges once per batch, or ``write`` a batch, and
*logs*, which grow by ``append``. Listeners (``storage.disk.replication.Replicator``) hear each change after
it succeeded, in order. Tests put another ``Files`` here, one that fails the Nth call or forgets what was not
synced.

Nothing here retries, swallows or logs: an ``OSError`` (ENOSPC, EIO, EMFILE...) goes to the caller with the
path in it. Everything runs on the hub's thread except what ``storage.flush.group_commit`` calls from its
pool: ``sync`` (unless its flush waits as greenlets do),
``sync_log``, ``sync_folder``, ``make``, ``make_unnamed``, ``make_log``, ``unmake`` and the first half of a
``Change``. Never decides what is durable: that is ``storage.flush.group_commit``. A mapped file needs no
descriptor: its mapping is flushed as it is, and errors of the disk are told to it as to a descriptor (both
are one open file to the kernel). So only the first ``MAPPED_DESCRIPTORS`` have one, and those that calls
often write to. A log takes octets in two ways: ``append`` writes them at once; ``accept`` keeps them in
memory, in room that was reserved ahead, until ``sync_log`` writes and flushes them in a thread.
Descriptors are closed by ``posix.close``: ``os.close`` of a program that gevent has patched closes some time
later, and takes a descriptor of another thread that has the same number for one that is closed already.
"""
import contextlib
import errno
import os
import posix
from collections import Counter, deque

from gomq_py.storage.disk.mapping import CAN_FLUSH_MAPPINGS, flush_mapping, map_file
from gomq_py.storage.disk.pages import fetch_ahead, populate, read_range

# Messages and password hashes are nobody else's (Mosquitto CVE-2017-9868: a world-readable persistence file).
FILE_MODE = 0o600
FOLDER_MODE = 0o700

# So many mapped files keep a descriptor. A level of a priority queue is two files,
# a process may have 1024 descriptors.
MAPPED_DESCRIPTORS = 128
# So many files that have lost their names wait for their room to be given back aside.
# A mapping holds each: a process may have 65 530.
LEAVING = 4096
_ZEROS = bytes(1 << 20)

# What is reserved behind the end of a log, and again when half of it is used: some 3500 declares between two
# flushes ask the disk for no room.
ROOM_AHEAD = 1 << 20

# What fallocate says of a file system that cannot reserve: NFS before 4.2, ZFS before 2.1.
NO_RESERVING = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})

# What a disk says that is full, and a user's quota.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)

# Modes of fallocate, linux/falloc.h.
_KEEP_SIZE = 0x01

# What open() says where O_TMPFILE is not known: NFS, old overlay file systems,
# kernels that see O_DIRECTORY in it.
NO_TMPFILE = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL})


class File:
    """An open file.

    ``map`` is its read-write mapping, or None for a log or an empty file; pointers into it die at truncate,
    extend and close. ``fd`` is -1 where the mapping has to do, and once it is closed; ``identity`` (device,
    inode) is known of those without. ``cached``: what lies behind so many octets is better written with
    calls, because the system has no pages for it.

    While somebody holds it (``retain``: a running sync, a follower, a backup) it is not closed, and its owner
    must not recycle it. Hub thread only.
    """

    __slots__ = (
        "path", "fd", "size", "cached", "synced_size", "map", "mapped", "named", "broken", "identity",
        "closed", "_holders", "_closing", "_aside", "_counted_in",
    )

    def __init__(self, path, fd, size, mapped, named=True):
        self.path = path
        self.fd = -1  # still the caller's
        self.size = self.cached = size
        # how long the file was when the last successful sync of this File began; 0: not known
        self.synced_size = 0
        self.map = None
        self.mapped = mapped
        self.named = named
        self.broken = None  # the OSError after which the end of a log is unknown
        self.identity = None
        self.closed = False
        self._holders = 0
        self._closing = False
        self._aside = None
        self._counted_in = None  # a set of descriptors
        self.map = self._mapping(fd)
        self.fd = fd

    def __del__(self, close=posix.close):
        """Close a file that nobody closed, as when a boot fails halfway, when nobody knows it any more."""
        if self.fd >= 0:
            self._uncount()
            close(self.fd)

    def __repr__(self):
        return f"<File {self.path} fd={self.fd} size={self.size}>"

    @property
    def held(self):
        """Whether somebody still needs the file and its octets as they are."""
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
        """The octets [start, end) as they are now (a copy); fewer at the end of the file."""
        if self.map is not None:
            return self.map[start:end]
        return os.pread(self.fd, end - start, start)

    def remap(self, fd=-1):
        """Map the whole file anew, at its present size; one without a descriptor by ``fd``.

        Raises BufferError while a view into the old mapping lives.
        """
        self.unmap()
        self.map = self._mapping(fd if self.fd < 0 else self.fd)

    def grow(self, size, fd):
        """The file has grown to ``size``: map the whole of it anew.

        The mapping before stays for whoever uses it this moment: a thread may be about to flush it. Raises
        OSError, and nothing has changed.
        """
        self.map = map_file(fd, size, self.path) if self.mapped else None
        self.size = size

    def _mapping(self, fd):
        if not self.mapped or not self.size:
            return None
        return map_file(fd, self.size, self.path)

    def count_in(self, descriptors):
        """Note the file in the set ``descriptors`` for as long as it has a descriptor."""
        descriptors.add(self.fd)
        self._counted_in = descriptors

    def _uncount(self):
        if self._counted_in is not None:
            self._counted_in.discard(self.fd)
            self._counted_in = None

    def give_up_descriptor(self):
        """Close the descriptor; from here on the mapping is enough."""
        status = os.fstat(self.fd)
        self.identity = status.st_dev, status.st_ino
        fd, self.fd = self.fd, -1
        posix.close(fd)

    def unmap(self):
        """Drop the mapping. Raises BufferError while a view into it lives."""
        if self.map is not None:
            self.map.close()
            self.map = None

    def close(self, aside=None):
        """Close now, or when the last holder lets go.

        ``aside(function, *arguments)``: have it done elsewhere, for a file that has lost its name: giving its
        room back to the disk may take tens of milliseconds.
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
    """A mapped file as it is read by somebody who may be slow: it stays open, and is not used again, until
    close(). ``fd`` is a descriptor of it.
    """

    __slots__ = ("file", "fd")

    def __init__(self, file, fd):
        file.retain()
        self.file = file
        self.fd = fd

    def close(self):
        """It is read no more. A second time changes nothing."""
        file, self.file = self.file, None
        if file is not None:
            if self.fd != file.fd:
                posix.close(self.fd)
            file.release()


class LogFile(File):
    """An open log.

    ``size`` is how long the file is; ``accepted`` holds what will be written behind it, in order, up to
    ``end``.

    ``room``: up to where the disk has reserved room; None if it cannot, and then each append is written at
    once. The thread that flushes the log writes, so it changes ``size`` and takes from ``accepted``; the hub
    changes everything else.

    ``is_relied_on``: promises depend on it; False of a second log while the first one still has everything.

    ``failure``: the error of a flush that failed. It stays: what the log held by then may be lost.
    ``failed()``, if set, is called in the hub when that happens, and again while promises are asked for.
    ``fails_all``: from then on all promises fail, whatever they are about. False of a log on which no queue
    depends: it fails only the flushes that it is part of.
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
        """The file has this length, and nothing waits to be written."""
        self.size = self.end = self.told = size  # told: how much of it the listeners have heard of

    @property
    def is_awaited(self):
        """Whether promises depend on what is still to be written."""
        return self.is_in_use and bool(self.accepted)

    @property
    def is_in_use(self):
        """Whether promises depend on it: no other log has taken its place."""
        return self.named and self.is_relied_on

    def forget_accepted(self):
        """Another log has taken this one's place: drop what was not written, for nobody will read it.

        A thread that fails to write it at this moment may put it back.
        """
        self.named = False
        self.accepted.clear()


class Change:
    """A change of a name in two halves: ``act`` asks the system and may block, so a thread calls it; ``told``
    tells the listeners, in the hub.

    ``needed``: it is a fault if the file or folder is not there; otherwise only what the system refuses is
    one.
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
        """It is done: once, after ``act``."""
        self._told(self._result)

    def make(self):
        """Both halves at once: for boot, and where nobody waits. Blocks. Raises OSError."""
        self.act()
        self.told()


class Files:
    """Changes files and folders, and tells the listeners. One per broker."""

    mapped_descriptors = MAPPED_DESCRIPTORS

    def __init__(self, listeners=()):
        self._listeners = tuple(listener for listener in listeners if listener.hears)
        # path -> changes that having_folder gave for it, while nobody was told of it
        self._coming_folders = Counter()
        # path -> the same that are not over, whoever has told
        self._folder_jobs = Counter()
        self._described = set()  # the descriptors of mapped files with a name; threads add to it, too
        # what holds files that have lost their names; threads add to it and take from it
        self._leaving = set()

    @property
    def has_listeners(self):
        """Whether anybody hears of changes: then they must be made in the hub, or told there."""
        return bool(self._listeners)

    # mapped files

    def create(self, path, size):
        """A new mapped file of ``size`` zero octets whose room on the disk is taken now, so that writing to
        it cannot fail (SIGBUS) later.

        Raises FileExistsError; OSError (ENOSPC) leaves no file behind.
        """
        file = self._described_or_not(self._create(os.fspath(path), size))
        self.made(file)
        return file

    def make(self, path, size, fetched=True):
        """As ``create``, for a thread: nobody is told before the hub calls ``made`` of it.

        What it holds is in the system's cache; if ``fetched`` is False, only its head:
        for what is written with calls. Blocks.
        """
        return self._described_or_not(fetch_ahead(self._create(os.fspath(path), size), fetched))

    def make_unnamed(self, folder, size, fetched=True):
        """As ``create_unnamed``, for a thread, and ``make``. Blocks."""
        return fetch_ahead(self._create_unnamed(os.fspath(folder), size), fetched)

    def made(self, file):
        """Tell the listeners of a file that ``make`` or ``make_log`` has made."""
        for listener in self._listeners:
            listener.created(file.path, file.size)

    def unmake(self, file):
        """Remove what ``make`` has made and nobody was told of. Blocks."""
        os.unlink(file.path)
        file.close()

    def create_unnamed(self, folder, size):
        """As ``create``, without a name: the file is gone with the process, and no listener hears of it.

        For transient queues.
        """
        return self._create_unnamed(os.fspath(folder), size)

    def open(self, path):
        """An existing file, mapped read-write in its whole length.

        Its room may have holes: see ``allocate``.
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
        """Let a mapped file keep its descriptor, unless too many others have theirs. Returns the file."""
        if file.map is not None and CAN_FLUSH_MAPPINGS:
            if len(self._described) < self.mapped_descriptors:
                file.count_in(self._described)
            else:
                file.give_up_descriptor()
        return file

    @contextlib.contextmanager
    def _descriptor(self, file):
        """A descriptor of the file; one that has none gets it for a while.

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
        """Fetch [start, end), so that a bad sector or a file cut short is an OSError here and not the end of
        the process (SIGBUS) when the mapping is read next.

        What the system drops from its cache later, it has to read again.
        Blocks; safe in a thread while the file is retained.
        """
        end = file.size if end is None else end
        try:
            if file.map is None or not populate(file.map, start, end):
                with self._descriptor(file) as fd:
                    read_range(fd, start, end)
        except OSError as error:
            raise with_path(error, file.path) from error

    def allocate(self, file):
        """Take the room of a file that may have holes (copied,
        or cut by a crash) before it is written through its mapping.
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
        """Write octets into a mapped file where none were before, and announce them.

        Raises OSError; how much of it was written then is not known.
        """
        if file.fd < 0:
            with contextlib.suppress(OSError):  # then it gets one for each call
                file.fd = self._opened_again(file)
        self._put(file, start, octets)
        self.appended(file, start, start + len(octets))

    def put(self, file, start, octets):
        """As write, for who announces them with others, and writes into many files: one without a descriptor
        gets none to keep.
        """
        self._put(file, start, octets)

    def write_again(self, file, start, end):
        """Write [start, end) over itself, so that the next flush writes it: the system takes what a failed
        flush did not write for written, and later ones succeed without it.

        Blocks; for boot. Raises OSError, but not for want of room: a full file system that copies on write
        must not keep a broker from booting.
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
        """A file to append to, created empty when it is not there. Not mapped."""
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
        """A new, empty log, for a thread: nobody is told before the hub calls ``made`` of it. Blocks."""
        path = os.fspath(path)
        return LogFile(path, self._open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL), 0)

    def append(self, file, octets):
        """Write at the end of a log; all of it or nothing. Returns where it begins.

        Raises OSError; what was written by then is cut off again, and if even that fails the log takes no
        more (a record behind a torn one would look like damage).
        """
        check_sound(file)
        assert not file.accepted, f"{file.path}: what was accepted comes first"
        start = file.size
        self._write_behind(file, start, octets)
        file.end = file.size
        self.tell_written(file)
        return start

    def reserve(self, file, count=ROOM_AHEAD):
        """Take room on the disk for so many octets behind the end of a log, which does not move.

        False where the file system cannot. Blocks. Raises OSError (ENOSPC);
        what was reserved before still is.
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
        """Reserve room, so that ``accept`` of so many octets is not refused.

        Asks the system only if more came than was reserved ahead; then it blocks. Raises OSError: the disk is
        full, or the log takes no more.
        """
        check_sound(file)
        if file.end + count > file.room:
            try:
                self.reserve(file, max(count, ROOM_AHEAD))
            except OSError:
                self.reserve(file, count)  # the last of a disk's room is for those who need it now

    def accept(self, file, octets):
        """Add to what ``sync_log`` is to write. Raises OSError as ``make_room``, and nothing has changed."""
        self.make_room(file, len(octets))
        file.accepted.append(octets)
        file.end += len(octets)

    def tell_written(self, file):
        """Tell the listeners of what was written behind a log since the last time."""
        start, end = file.told, file.size
        file.told = end
        if file.named and start < end:
            for listener in self._listeners:
                listener.appended(file, start, end)

    # both

    def truncate(self, file, size):
        """Cut the file to ``size``; a mapping is made anew."""
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
        """Grow the file to ``size`` with zeros whose room is taken now; a mapping is made anew."""
        assert size >= file.size, (file.path, size, file.size)
        with self._descriptor(file) as fd:
            self._allocate(fd, file.size, size - file.size, file.path)
            file.grow(size, fd)
        self._resized(file)

    def rename(self, source, target, file=None):
        """Give a file or folder another name, in place of what has it now.

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
        """Take a file's name away. Raises FileNotFoundError.

        ``aside`` as in File.close: what it held is given back to the disk elsewhere. Blocks.
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
        """Close now, or when the last holder lets go; ``aside`` as in File.close."""
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
        """Create one folder unless it is there.

        If a thread is making it now, it is made, or the listeners are told of it, here, and only once: they
        must hear of a folder before they hear of what is in it. Raises OSError. Blocks.
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
        """Whether a thread makes this folder, or one in it, or will."""
        path = os.fspath(path)
        return any(coming == path or coming.startswith(path + os.sep) for coming in self._folder_jobs)

    def having_folder(self, path):
        """``have_folder`` as a Change, whose ``told`` is called however it goes."""
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
            if path in self._coming_folders:  # else the hub has told, that needed it before
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
        """Remove a folder with all it holds, each part through the seam."""
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
        """Whether ``sync`` waits for nothing but ``flush``: tests replace it by some that block."""
        return getattr(self.sync, "__func__", None) is Files.sync

    def sync(self, file, flush=None):
        """Flush what was written to the file (mapping included) before this call began, and its size.

        Blocks, for ``storage.flush.group_commit`` and boot; unless ``flush(file)`` is given, which waits for
        the disk in another way: then it may be called in the hub's thread.
        """
        size = file.size
        try:
            (flush or flush_file)(file)
        except OSError as error:
            raise with_path(error, file.path) from error
        file.synced_size = size

    def sync_log(self, file):
        """Write what a log has accepted before this call began, flush it,
        and see that there is room for more.

        Blocks; for ``storage.flush.group_commit``. Raises OSError; what cannot be written stays accepted.
        """
        if file.room is not None:
            check_sound(file)
        if file.accepted:
            self.write_accepted(file)
        if file.room is not None and file.room - file.size < ROOM_AHEAD // 2:
            with contextlib.suppress(OSError):  # whoever finds no room then asks again, and is refused
                self.reserve(file)
        self.sync(file)

    def write_accepted(self, file):
        """Write what a log has accepted, in one piece. Blocks. Raises OSError, and it stays accepted."""
        parts = []
        with contextlib.suppress(IndexError):  # the hub forgets them
            for _ in range(len(file.accepted)):
                parts.append(file.accepted.popleft())
        try:
            self._write_behind(file, file.size, b"".join(parts))
        except BaseException:  # whatever it is, as for want of memory
            file.accepted.extendleft(reversed(parts))
            file.room = file.size  # the cut has taken the rest away
            raise

    def sync_folder(self, path):
        """Flush the names in a folder as they were when this call began.

        Blocks; for ``storage.flush.group_commit`` and boot.
        """
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            posix.close(fd)

    # what tests replace to make the disk misbehave below one call

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
        """Unlink, and give no room back yet.

        Returns what keeps the file on the disk, for ``_let_go``; None if too many wait already, or nothing
        can keep it: then its room was given back here.
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
        """Give back the room of a file that ``_unlink_keeping`` has kept. Blocks."""
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
        """Write at the end of a log, or cut off again what was written;
        if that fails too, the log takes no more.
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
        """Write all of it, however little the kernel takes at a time."""
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
        except OSError:  # it is written through its mapping: three times the work
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
    """Keep the file of a descriptor on the disk, by a mapping or by the descriptor itself, which belongs to
    this function from here on. Returns (mapping or None, descriptor or -1), for ``close_parts``.

    A purge may take away thousands of names at once. Python 3.13 does not map an empty file, which has no
    room to keep.
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
    """Close what a File is to the system: a mapping, or a descriptor (-1: none), or both."""
    try:
        if mapping is not None:
            mapping.close()
    finally:
        if fd >= 0:
            posix.close(fd)


def check_sound(file):
    """Raises OSError for a log that takes no more."""
    if file.broken is not None:
        raise OSError(file.broken.errno, f"log is closed since: {file.broken.strerror}", file.path)


def with_path(error, path):
    """The same error, naming the file, which calls on descriptors do not."""
    return OSError(error.errno, error.strerror, path)


def take_room(fd, start, count):
    """Allocate [start, start + count) for real; what is there already keeps its content."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, start, count)
        return
    size = os.fstat(fd).st_size  # macOS: only what lies behind the end can be had, by writing it
    while size < start + count:
        size += os.pwrite(fd, _ZEROS[:start + count - size], size)


def flush_file(file):
    """Make the file's octets and size outlive a power cut. Blocks without the interpreter's lock."""
    if file.fd >= 0:
        flush_descriptor(file.fd)
    else:
        flush_mapping(file.map)


def flush_descriptor(fd):
    """Make the file's octets and size outlive a power cut. Blocks without the interpreter's lock."""
    if hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    else:
        import fcntl
        # macOS: fsync leaves the bytes in the drive's cache
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # type: ignore[attr-defined]


def reserve_room(fd, start, count):
    """Allocate [start, start + count), which may lie behind the end,
    without a change of the file's size or content.

    False where that cannot be done. Raises OSError without a path.
    """
    number = errno.EINTR
    while number == errno.EINTR:
        number = _fallocate(fd, _KEEP_SIZE, start, count)
    if number and number not in NO_RESERVING:
        raise OSError(number, os.strerror(number))
    return not number


def _fallocate(fd, mode, start, count):
    """0, or the number of the error."""
    import ctypes
    try:
        fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    except AttributeError:
        return errno.ENOSYS
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return 0 if fallocate(fd, mode, start, count) == 0 else ctypes.get_errno()
