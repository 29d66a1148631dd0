"""Files: the only interface for changing files and folders.

Used by segments, logs and the data folder. A *mapped* file (segments, acks) has a fixed size. Its writers
change the mapping and report the ranges once per batch, or call ``write``. A *log* grows. ``append``
writes bytes at once. ``accept`` keeps bytes in memory, with space reserved on the disk, until ``sync_log``
writes and flushes them in a thread. Replicators (``storage.disk.replication``) get each change after it
succeeded, in order.

Nothing here retries or logs: the caller gets an ``OSError`` (ENOSPC, EIO, EMFILE...) with the path. Most
methods are for the event loop's thread; ``storage.flush.group_commit`` calls some from its threads, and
decides what is durable. Tests replace ``Files`` by a class that fails the Nth call or forgets unsynced data.

A mapped file needs no descriptor, because ``msync`` of the mapping reports the disk's errors as ``fdatasync``
of the descriptor would. Only the first ``MAPPED_DESCRIPTORS`` mapped files, and files often written with
system calls, have one.
"""
import contextlib
import errno
import os
import posix
from collections import Counter

from gomq_py.storage.disk.mapping import CAN_FLUSH_MAPPINGS
from gomq_py.storage.disk.open_file import (
    ZEROS, File, LogFile, Reading, check_sound, close_parts, flush_file, reserve_room,
    retain_room, take_room,
)
from gomq_py.storage.disk.pages import fetch_ahead, populate, read_range
from gomq_py.storage.disk.register import NullRegister, Register

# Messages and password hashes are private (Mosquitto CVE-2017-9868: a world-readable persistence file).
FILE_MODE = 0o600
FOLDER_MODE = 0o700

# Most mapped files with a descriptor. A level of a priority queue is two files, and a process may have 1024
# descriptors.
MAPPED_DESCRIPTORS = 128
# Most unlinked files whose room is freed in the background. A mapping holds each: a process may have 65 530.
LEAVING = 4096

# Room reserved behind the end of a log, and again when half of it is used: some 3500 declares between two
# flushes need no new room.
ROOM_AHEAD = 1 << 20

# Errors of a full disk, and of a user's quota.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)

# open()'s errors without O_TMPFILE: NFS, old overlay file systems, kernels that see O_DIRECTORY in it.
NO_TMPFILE = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL})


class Change:
    """A pending change of a file's or folder's name. ``act`` makes it, in a thread, because it may block.

    ``told`` then reports it to the replicators, in the event loop. ``needed``: whether a missing file or
    folder fails the flush that waits for this change.
    """

    __slots__ = ("path", "needed", "_act", "_told", "_result")

    def __init__(self, path, act, told, needed=False):
        self.path = path
        self.needed = needed
        self._act = act
        self._told = told
        self._result = None

    def act(self):
        """Make the change. Blocks. Raises OSError; then nothing has changed."""
        self._result = self._act()

    def told(self):
        """Report the change to the replicators, after ``act``. Call once."""
        self._told(self._result)

    def make(self):
        """Call ``act`` and ``told``, for callers that may block. Raises OSError."""
        self.act()
        self.told()


class Files:
    """Changes files and folders, and reports the changes to the replicators. One per broker."""

    mapped_descriptors = MAPPED_DESCRIPTORS

    def __init__(self, replicators=()):
        # storage.disk.register, which tells the replicators of each change
        self.register = Register(replicators) if replicators else NullRegister()
        # path -> changes of having_folder that replicators have not heard of
        self._coming_folders = Counter()
        # path -> changes of having_folder that are not finished
        self._folder_jobs = Counter()
        self._described = set()  # descriptors of named mapped files; threads add, too
        # holders of unlinked files; threads add and remove
        self._leaving = set()

    # mapped files

    def create(self, path, size):
        """Return a new mapped file of ``size`` zero bytes. Raises FileExistsError; another OSError leaves no
        file. Disk space is allocated now, so that later writes to the mapping cannot fail (SIGBUS).
        """
        file = self._described_or_not(self._create(os.fspath(path), size))
        self.made(file)
        return file

    def make(self, path, size, fetched=True):
        """Create a mapped file as ``create`` does. For a thread: the event loop calls ``made`` later. Blocks.

        ``fetched``: whether to read the whole file into the page cache. False, for files written with system
        calls, reads only the first page.
        """
        return self._described_or_not(fetch_ahead(self._create(os.fspath(path), size), fetched))

    def make_unnamed(self, folder, size, fetched=True):
        """Create and return a mapped file without a name, which is not replicated. For a thread. Blocks."""
        return fetch_ahead(self._create_unnamed(os.fspath(folder), size), fetched)

    def made(self, file):
        """Report a file from ``make`` or ``make_log`` to the replicators."""
        self.register.created(file.path, file.size)

    def unmake(self, file):
        """Remove a file that ``make`` returned and that ``made`` has not reported. Blocks."""
        os.unlink(file.path)
        file.close()

    def create_unnamed(self, folder, size):
        """Create and return a mapped file without a name, for a transient queue. The file vanishes with the
        process, and is not replicated.
        """
        return self._create_unnamed(os.fspath(folder), size)

    def open(self, path):
        """Open an existing file, map all of it for reading and writing, and return the File. A file with
        holes needs ``allocate`` before its mapping is written.
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
        if file.map is not None and CAN_FLUSH_MAPPINGS:
            if len(self._described) < self.mapped_descriptors:
                file.count_in(self._described)
            else:
                file.give_up_descriptor()
        return file

    @contextlib.contextmanager
    def _descriptor(self, file):
        """Return a context manager that gives the file's descriptor, or opens one for the ``with`` block.
        Raises OSError, also if another file has taken this file's name.
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
        """Read the bytes [start, end), so that a bad sector or a short file raises OSError here. Blocks.
        Safe in a thread while the file is retained.
        """
        # Without this, the next access to the mapping would kill the process (SIGBUS). Pages that the system
        # drops later are read from the disk again.
        end = file.size if end is None else end
        try:
            if file.map is None or not populate(file.map, start, end):
                with self._descriptor(file) as fd:
                    read_range(fd, start, end)
        except OSError as error:
            raise with_path(error, file.path) from error

    def allocate(self, file):
        """Allocate disk space for a file's holes (from a copy or a crash), before its mapping is written."""
        with self._descriptor(file) as fd:
            self._allocate(fd, 0, file.size, file.path)

    def appended(self, file, start, end):
        """Report to replicators the new bytes [start, end) of a mapped file. Call once per batch."""
        if self.register.replicators and file.named:
            self.register.appended(file, start, end)

    def reading(self, file):
        """Return a Reading, by which a slow reader keeps a mapped file open. Raises OSError."""
        return Reading(file, file.fd if file.fd >= 0 else self._opened_again(file))

    def write(self, file, start, octets):
        """Write new bytes into a mapped file with a system call, and report them to replicators. Raises
        OSError; then an unknown part of the bytes was written.
        """
        if file.fd < 0:
            with contextlib.suppress(OSError):  # then one is opened for each call
                file.fd = self._opened_again(file)
        self.put(file, start, octets)
        self.appended(file, start, start + len(octets))

    def put(self, file, start, octets):
        """Write bytes into a mapped file with a system call, without a report to replicators. The caller
        makes one report for several writes.
        """
        # Opens no lasting descriptor: such callers write into many files.
        try:
            self._write(file, start, octets)
        except OSError as error:
            raise with_path(error, file.path) from error

    def write_again(self, file, start, end):
        """Write the present bytes [start, end) again, so that the next flush covers them. Blocks; for boot.
        Raises OSError, but not on a full disk.
        """
        # After a failed flush the system regards unwritten pages as written, and later flushes succeed
        # without them. A full copy-on-write file system must not stop the boot.
        try:
            for at in range(start, end, len(ZEROS)):
                self.put(file, at, file.read(at, min(end, at + len(ZEROS))))
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise

    def overwritten(self, file, start, end):
        """Report to replicators that [start, end) of a mapped file was changed. Call once per batch."""
        if self.register.replicators and file.named:
            self.register.overwritten(file, start, end)

    # logs

    def open_log(self, path):
        """Open or create a file for appending, and return the LogFile. The file is not mapped."""
        path = os.fspath(path)
        try:
            fd = self._open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            fd = self._open(path, os.O_RDWR)
            return LogFile(path, fd, os.fstat(fd).st_size)
        self.register.created(path, 0)
        return LogFile(path, fd, 0)

    def make_log(self, path):
        """Create and return an empty LogFile. For a thread: the event loop calls ``made`` later. Blocks."""
        path = os.fspath(path)
        return LogFile(path, self._open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL), 0)

    def append(self, file, octets):
        """Write at the end of a log, all or nothing. Returns the position at which the bytes begin.

        Raises OSError after cutting a partial write off. If the cut fails, too, the log refuses further
        appends, because a record after a torn record would look like damage.
        """
        check_sound(file)
        assert not file.accepted, f"{file.path}: what was accepted comes first"
        start = file.size
        self._write_behind(file, start, octets)
        file.end = file.size
        self.tell_written(file)
        return start

    def reserve(self, file, count=ROOM_AHEAD):
        """Reserve disk space for ``count`` bytes after the end of a log, without moving the end. Returns
        False if the file system cannot do this. Blocks. Raises OSError (ENOSPC); earlier reservations stay.
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
        """Reserve disk space, so that ``accept`` of ``count`` bytes is not refused. Blocks only if more is
        needed than was reserved before. Raises OSError if the disk is full or the log refuses appends.
        """
        check_sound(file)
        if file.end + count > file.room:
            try:
                self.reserve(file, max(count, ROOM_AHEAD))
            except OSError:
                self.reserve(file, count)  # no reserve ahead from the last room of a disk

    def accept(self, file, octets):
        """Keep bytes in memory until ``sync_log`` appends them. Raises OSError, such as ENOSPC."""
        self.make_room(file, len(octets))
        file.accepted.append(octets)
        file.end += len(octets)

    def tell_written(self, file):
        """Report to the replicators the bytes written to a log since the last report."""
        start, end = file.told, file.size
        file.told = end
        if self.register.replicators and file.named and start < end:
            self.register.appended(file, start, end)

    # logs and mapped files

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
        """Grow the file to ``size`` with zeros in allocated disk space, and map it again."""
        assert size >= file.size, (file.path, size, file.size)
        with self._descriptor(file) as fd:
            self._allocate(fd, file.size, size - file.size, file.path)
            file.grow(size, fd)
        self._resized(file)

    def rename(self, source, target, file=None):
        """Rename a file or folder. Replaces a file that has the name ``target``. Blocks. ``file``: the open
        File of ``source``, if any; its ``path`` becomes ``target``.
        """
        self.renaming(source, target, file).make()

    def renaming(self, source, target, file=None, needed=False):
        """Return a Change that renames a file or folder. For the arguments see ``rename`` and Change."""
        source, target = os.fspath(source), os.fspath(target)
        file_id = self.register.id_of(source)

        def told(_):
            if file is not None:
                file.path = target
            self.register.renamed(source, target, file_id)

        return Change(source, lambda: self._rename(source, target), told, needed)

    def unlink(self, path):
        """Delete a file. Raises FileNotFoundError. Blocks."""
        self.unlinking(path).make()

    def unlinking(self, path, aside=None):
        """Return a Change that deletes a file. ``aside``: as for File.close, to free the disk space later."""
        path = os.fspath(path)
        file_id = self.register.id_of(path)

        def told(kept):
            if kept is not None:
                aside(self._let_go, kept)
            self.register.unlinked(path, file_id)

        return Change(
            path, lambda: self._unlink_keeping(path) if aside is not None else self._unlink(path), told
        )

    def close(self, file, aside=None):
        """Close the file, or have its last user close it. ``aside``: see File.close."""
        file.close(aside)

    # folders

    def make_folder(self, path):
        """Create one folder. Raises FileExistsError. Blocks."""
        self.making_folder(path).make()

    def making_folder(self, path):
        """Return a Change that creates one folder. Its ``act`` raises FileExistsError."""
        path = os.fspath(path)
        return Change(path, lambda: self._make_folder(path), lambda _: self.register.folder_created(path))

    def have_folder(self, path):
        """Create one folder if missing. Blocks. Raises OSError."""
        # A folder that a thread is making now is created here too, and announced here: replicators must hear
        # of it once and before its content.
        path = os.fspath(path)
        if path in self._coming_folders:
            with contextlib.suppress(FileExistsError):
                self._make_folder(path)
            del self._coming_folders[path]
            self.register.folder_created(path)
        elif not os.path.isdir(path):
            self.make_folder(path)

    def lacks_folder(self, path):
        """Return whether this folder is missing, or created by a thread and not yet reported."""
        return path in self._coming_folders or not os.path.isdir(path)

    def is_making_folder(self, path):
        """Return whether a thread is making, or will make, this folder or a folder in it."""
        path = os.fspath(path)
        return any(coming == path or coming.startswith(path + os.sep) for coming in self._folder_jobs)

    def having_folder(self, path):
        """Return a Change that makes a missing folder. Call its ``told`` even if the folder existed."""
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
            if path in self._coming_folders:  # otherwise the hub has told the replicators already
                self._coming_folders[path] -= 1
                if made or not self._coming_folders[path]:
                    del self._coming_folders[path]
                if made:
                    self.register.folder_created(path)

        return Change(path, act, told)

    def remove_folder(self, path):
        """Remove an empty folder. Raises OSError (ENOTEMPTY). Blocks."""
        self.removing_folder(path).make()

    def removing_folder(self, path):
        """Return a Change that removes an empty folder. Its ``act`` raises OSError (ENOTEMPTY)."""
        path = os.fspath(path)
        return Change(path, lambda: self._remove_folder(path), lambda _: self.register.folder_removed(path))

    def remove_tree(self, path):
        """Remove a folder and its content. Reports each removal to the replicators. Blocks."""
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
        """Whether the event loop may call ``sync``. False if a test replaced ``sync``: it may block."""
        return getattr(self.sync, "__func__", None) is Files.sync

    def sync(self, file, flush=None):
        """Flush the file's size and all bytes written before this call, including those in the mapping.

        Blocks, unless ``flush(file)`` is given, which switches greenlets while the disk works. The event loop
        may then call this. For ``storage.flush.group_commit`` and boot.
        """
        size = file.size
        try:
            (flush or flush_file)(file)
        except OSError as error:
            raise with_path(error, file.path) from error
        file.synced_size = size

    def sync_log(self, file):
        """Write the bytes kept by ``accept``, flush the log, and reserve more disk space. Blocks. For
        ``storage.flush.group_commit``. Raises OSError; unwritten bytes are kept for the next call.
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
        """Write the bytes kept by ``accept``, without a flush. Blocks. After an OSError they are kept."""
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
        """Flush the folder itself, so that the names in it survive a power failure. Blocks. For
        ``storage.flush.group_commit`` and boot.
        """
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            posix.close(fd)

    # tests replace these to make the disk misbehave

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
        """Delete a file's name without freeing its disk space. Returns an object for ``_let_go``, or None if
        the space was freed at once.
        """
        kept = None
        if len(self._leaving) < LEAVING:
            with contextlib.suppress(OSError):
                kept = retain_room(self._open(path, os.O_RDWR | os.O_NOFOLLOW))
                self._leaving.add(kept)
        try:
            self._unlink(path)
        except BaseException:
            if kept is not None:
                self._let_go(kept)
            raise
        return kept

    def _let_go(self, kept):
        """Free the disk space of a file that _unlink_keeping() has deleted. Blocks."""
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
        """Write ``octets`` at ``start``, the end of a log. A partial write is cut off. If the cut fails, the
        log refuses further appends.
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
            self.register.resized(file.path, file.size)


def with_path(error, path):
    """Return a copy of an OSError with the file's ``path``, which calls on descriptors do not report."""
    return OSError(error.errno, error.strerror, path)
