"""Power cuts: a Files over a model of the disk, which can lay out the data folders that are
possible if the power went now.

The broker works on a real folder (the cache, so to speak). Beside it stands a model of the disk:

- a file's octets as last flushed. Pages changed since, by appends or through a mapping, may or may not be
  there, each by itself; so may a changed size. A flush takes the content as of its *start*; what is written
  while it runs is not covered.
- a folder's names as last flushed. Every later create, rename, unlink and folder create may or may not be
  there, each by itself and in no order (a rename inside a folder is one change; between folders it is two). A
  file whose name is missing is gone, however well it was flushed.
- a flush that fails: what it was to write counts as written for the system,
  and a later flush that succeeds does not write it, unless it is written again in between.
- write-back: at any seam call the disk may take some pages and names early, so that a page can also be at a
  state between the flush and the cut.

All choices come from one seeded generator. ``Disk.cut(target)`` lays out one possible folder and disturbs
nothing, so that one run can be cut many times. What goes around the seam is not on the modelled disk at all,
so a test that needs it fails.
"""
import errno
import os
import threading

from gomq_py.storage.stores.unsealed import flush_all
from tests.durability.flush_pool import is_in_pool
from tests.support.watched_files import POOL_CALLS, WatchedFiles

PAGE = 4096
SECTOR = 512  # what a drive writes whole; some cuts tear pages here


class PowerIsOff(BaseException):
    """Raised by every seam call after ``switch_off``: unwinds the broker without any of its cleaning up.

    No Exception, so nobody handles it.
    """


class DiskFile:
    """One file of the model: its octets on the disk, and a descriptor of our own on the cache's file,
    which outlives its name.
    """

    __slots__ = ("fd", "octets", "key", "forgotten")

    def __init__(self, path, flushed):
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        status = os.fstat(self.fd)
        self.key = status.st_dev, status.st_ino
        self.octets = self.cached() if flushed else b""
        self.forgotten = {}  # page number -> its octets when a flush of them failed

    def cached(self):
        """The content the broker sees."""
        return os.pread(self.fd, os.fstat(self.fd).st_size, 0)

    def flush(self, snapshot):
        """Write the file as it was when the flush began, but for pages that an earlier failed flush forgot
        and nobody has changed since.
        """
        content = bytearray(snapshot) if self.forgotten else snapshot
        for page, octets in list(self.forgotten.items()):
            start = page * PAGE
            if snapshot[start:start + PAGE] == octets:
                content[start:start + PAGE] = self.octets[start:start + len(octets)].ljust(len(octets), b"\0")
            else:
                del self.forgotten[page]
        self.octets = bytes(content)

    def forget(self, snapshot):
        """A flush failed: Linux takes the pages for clean all the same,
        so that the next flush succeeds without writing them.
        """
        for start in range(0, len(snapshot), PAGE):
            if snapshot[start:start + PAGE] != self.octets[start:start + PAGE]:
                self.forgotten[start // PAGE] = snapshot[start:start + PAGE]

    def possible(self, choice):
        """The octets as they may be on the disk: as flushed, with some of the later pages,
        and one of the sizes in between.
        """
        flushed, cached = self.octets, self.cached()
        if flushed == cached:
            return flushed
        size = choice.size(len(flushed), len(cached))
        content = bytearray(flushed[:size].ljust(size, b"\0"))
        unit = choice.unit()
        for start in range(0, min(size, len(cached)), unit):
            page = cached[start:min(start + unit, size)]
            if content[start:start + len(page)] != page and choice.take():
                content[start:start + len(page)] = page
        return bytes(content)


class DiskFolder:
    """One folder of the model: names on the disk, and changes of names that were not flushed,
    each a dict {name: node or None}.
    """

    __slots__ = ("names", "changes")

    def __init__(self):
        self.names = {}
        self.changes = []

    def change(self, names):
        self.changes.append(names)

    def apply(self, change):
        """Put one change on the disk, perhaps before earlier ones:
        these have no say any more about the names in it.
        """
        for earlier in self.changes:
            if earlier is change:
                break
            for name in change:
                earlier.pop(name, None)
        self.changes = [other for other in self.changes if other is not change and other]
        put(self.names, change)

    def possible(self, choice):
        """The names as they may be on the disk."""
        names = dict(self.names)
        for change in self.changes:
            if choice.take():
                put(names, change)
        return names


def put(names, change):
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


class Choice:
    """What one cut, or one write-back, takes of what was not flushed.

    Drawn anew for each: all, nothing, a few, most.
    """

    def __init__(self, random):
        self._random = random
        self._share = random.choice((0.0, 1.0, 0.5, 0.1, 0.9, random.random()))
        self._unit = random.choice((PAGE, PAGE, SECTOR))

    def take(self):
        return self._random.random() < self._share

    def unit(self):
        return self._unit

    def size(self, flushed, cached):
        """One of the two sizes, or, while the file grew, any between them."""
        if not self.take():
            return flushed
        if flushed < cached and self._random.random() < 0.3:
            return self._random.randrange(flushed, cached + 1)
        return cached


class Disk:
    """The model of the disk under ``root`` (an existing folder, taken as flushed in all its parts).

    Outlives the processes that use it.

    ``cut`` lays out in a new folder one of the data folders that a power cut at this moment may leave;
    it changes nothing.
    """

    def __init__(self, root, random, write_back=0.05):
        self.root = os.path.abspath(os.fspath(root))
        self.random = random
        self.cuts = 0
        self.lock = threading.RLock()
        self._write_back = write_back
        self._nodes = {}  # path in the cache -> node
        self._files = {}  # (device, inode) -> DiskFile
        self._load(self.root)

    # the test's side

    def cut(self, target):
        """The disk after a power cut now, one of many possible. Returns ``target``."""
        with self.lock:
            self.cuts += 1
            self._lay_out(self._nodes[self.root], os.fspath(target), Choice(self.random))
        return target

    def lay_out_flushed(self, target):
        """The same with nothing but what was flushed: the least a disk may keep."""
        with self.lock:
            self._lay_out(self._nodes[self.root], os.fspath(target), Nothing())
        return target

    def write_back(self, path):
        """The system writes a file's octets, though nobody asked for it; its name is another matter."""
        with self.lock:
            node = self._nodes[os.fspath(path)]
            node.octets = node.cached()

    def flush_all(self):
        """Flush every file and folder, as syncfs does."""
        with self.lock:
            for node in self._files.values():
                node.flush(node.cached())
            for node in list(self._nodes.values()):
                if isinstance(node, DiskFolder):
                    for change in list(node.changes):
                        if any(change is other for other in node.changes):
                            node.apply(change)

    def discard(self):
        """Drop the model and its descriptors."""
        for node in self._files.values():
            os.close(node.fd)
        self._files.clear()

    # the files' side: what has happened in the cache

    def tick(self):
        """Time passes; now and then the system writes something back that nobody asked for."""
        if self.random.random() < self._write_back:
            with self.lock:
                self._write_some_back()

    def born(self, path):
        """A file was created."""
        with self.lock:
            self._link(path, self._file(path))

    def folder_born(self, path):
        with self.lock:
            self._link(path, DiskFolder())

    def linked(self, source, target):
        """A file got a second name."""
        with self.lock:
            self._link(target, self._nodes[source])

    def gone(self, path):
        """A file or folder lost its name."""
        with self.lock:
            self._nodes.pop(path, None)
            folder, name = self._parent(path)
            folder.change({name: None})

    def renamed(self, source, target):
        with self.lock:
            for path in [path for path in self._nodes if path == source or path.startswith(source + os.sep)]:
                self._nodes[target + path[len(source):]] = self._nodes.pop(path)
            node = self._nodes[target]
            (old_folder, old_name), (new_folder, new_name) = self._parent(source), self._parent(target)
            if old_folder is new_folder:
                old_folder.change({old_name: None, new_name: node})
            else:
                new_folder.change({new_name: node})
                old_folder.change({old_name: None})

    def begin_flush(self, file):
        """What a flush that begins now will have written when it ends: for ``end_flush``.

        None for a file without a name.
        """
        with self.lock:
            node = self._node_of(file)
            return node and (node, node.cached())

    def end_flush(self, flush):
        if flush is not None:
            node, snapshot = flush
            with self.lock:
                node.flush(snapshot)

    def fail_flush(self, flush):
        """The flush ended with an error; what it was to write is on the disk in part,
        and nobody will try again.
        """
        if flush is not None:
            node, snapshot = flush
            with self.lock:
                node.forget(snapshot)

    def written_again(self, file, start, end):
        """These octets were written, which nobody sees: they are what they were."""
        with self.lock:
            node = self._node_of(file)
            if node is not None:
                for page in range(start // PAGE, -(-end // PAGE)):
                    node.forgotten.pop(page, None)

    def begin_folder_flush(self, path):
        with self.lock:
            folder = self._nodes.get(path)
            if folder is None:
                raise FileNotFoundError(errno.ENOENT, "no such folder", path)
            if not isinstance(folder, DiskFolder):
                raise NotADirectoryError(errno.ENOTDIR, "not a folder", path)
            return folder, list(folder.changes)

    def end_folder_flush(self, flush):
        folder, covered = flush
        with self.lock:
            for change in covered:
                if any(change is other for other in folder.changes):
                    folder.apply(change)

    def knows(self, path):
        return path in self._nodes

    # helpers

    def _load(self, folder):
        node = self._nodes[folder] = DiskFolder()
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    node.names[entry.name] = self._load(entry.path)
                else:
                    node.names[entry.name] = self._nodes[entry.path] = self._file(entry.path, flushed=True)
        return node

    def _file(self, path, flushed=False):
        node = DiskFile(path, flushed)
        self._files[node.key] = node
        return node

    def _link(self, path, node):
        self._nodes[path] = node
        folder, name = self._parent(path)
        folder.change({name: node})

    def _node_of(self, file):
        """The model's file; None for one without a name."""
        identity = file.identity
        if identity is None:
            status = os.fstat(file.fd)
            identity = status.st_dev, status.st_ino
        return self._files.get(identity)

    def _parent(self, path):
        return self._nodes[os.path.dirname(path)], os.path.basename(path)

    def _write_some_back(self):
        choice = Choice(self.random)
        node = self.random.choice(list(self._nodes.values()))
        if isinstance(node, DiskFile):
            node.octets = node.possible(choice)
        else:
            for change in list(node.changes):
                if choice.take() and any(change is other for other in node.changes):
                    node.apply(change)

    def _lay_out(self, folder, target, choice):
        os.mkdir(target)
        for name, node in sorted(folder.possible(choice).items()):
            path = os.path.join(target, name)
            if isinstance(node, DiskFolder):
                self._lay_out(node, path, choice)
            else:
                with open(path, "wb") as file:
                    file.write(node.possible(choice))


class PowerCutFiles(WatchedFiles):
    """The files of one process on a Disk.

    ``switch_off`` is that process's death (a kill, or the end of a cut): another one may go on with the Disk.

    ``on_call(call, path)`` is called before every seam call of the hub's thread: the moments at which a test
    may cut. ``flush_pause(path)`` is called in the middle of every flush, in its thread; an OSError from it
    is the flush's failure.
    """

    def __init__(self, disk, on_call=None, flush_pause=None, listeners=()):
        super().__init__(listeners)
        self.disk = disk
        self.calls = 0
        self.off = False
        self.on_call = on_call
        self._hub = threading.get_native_id()
        self.flush_pause = flush_pause
        self._opened = []

    def switch_off(self):
        """From here on every seam call raises, and no flush succeeds: what is under way in memory dies with
        the process, and its descriptors.
        """
        self.off = True
        opened, self._opened = self._opened, []
        for file in opened:
            if file.fd >= 0:
                os.close(file.fd)
                file.fd = -1

    def about_to(self, call, subject):
        if self.off:
            if call in POOL_CALLS:
                raise OSError(errno.EIO, "the process is dead", subject)
            raise PowerIsOff(call)
        if call in POOL_CALLS:
            return
        self.calls += 1
        if self.on_call is not None and threading.get_native_id() == self._hub:
            self.on_call(call, subject)
            if self.off:
                raise PowerIsOff(call)
        self.disk.tick()

    def create(self, path, size):
        file = super().create(path, size)
        self._opened.append(file)
        self.disk.born(file.path)
        return file

    def make(self, path, size, fetched=True):
        file = super().make(path, size, fetched)
        self._opened.append(file)
        self.disk.born(file.path)
        return file

    def make_log(self, path):
        file = super().make_log(path)
        self._opened.append(file)
        self.disk.born(file.path)
        return file

    def unmake(self, file):
        super().unmake(file)
        self.disk.gone(file.path)

    def open(self, path):
        file = super().open(path)
        self._opened.append(file)
        return file

    def open_log(self, path):
        file = super().open_log(path)
        self._opened.append(file)
        if not self.disk.knows(file.path):
            self.disk.born(file.path)
        return file

    def _make_folder(self, path):
        super()._make_folder(path)
        self.disk.folder_born(path)
        self._pause_in_pool(path)

    def _rename(self, source, target):
        super()._rename(source, target)
        self.disk.renamed(source, target)
        self._pause_in_pool(source)

    def _unlink(self, path):
        answer = super()._unlink(path)
        self.disk.gone(path)
        self._pause_in_pool(path)
        return answer

    def _remove_folder(self, path):
        super()._remove_folder(path)
        self.disk.gone(path)

    def write_again(self, file, start, end):
        super().write_again(file, start, end)
        self.disk.written_again(file, start, end)

    may_sync_in_hub = True  # a pause switches

    def sync(self, file, flush=None):
        if flush is flush_all:
            self.sync_all(file)
            return
        self.about_to("sync", file.path)
        size = file.size
        flush = self.disk.begin_flush(file)
        try:
            self._pause(file.path)
        except OSError:
            if not self.off:
                self.disk.fail_flush(flush)
            raise
        self.disk.end_flush(flush)
        file.synced_size = size

    def sync_folder(self, path):
        self.about_to("sync_folder", path)
        flush = self.disk.begin_folder_flush(os.fspath(path))
        self._pause(path)
        self.disk.end_folder_flush(flush)

    def open_plain(self, path, size=None):
        file = super().open_plain(path, size)
        self._opened.append(file)
        if size is not None:
            self.disk.born(file.path)
        return file

    def _link(self, source, target):
        super()._link(source, target)
        self.disk.linked(source, target)

    def sync_all(self, folder):
        self.about_to("sync_all", folder.path)
        self._pause(folder.path)
        self.disk.flush_all()

    def _pause_in_pool(self, path):
        """The hub goes on while a thread changes names."""
        if is_in_pool() and self.flush_pause is not None and not self.off:
            self.flush_pause(path)

    def _pause(self, path):
        if self.flush_pause is not None:
            self.flush_pause(path)
        if self.off:
            raise OSError(errno.EIO, "the process died during a flush", path)


class Nothing:
    """The choice that takes nothing."""

    def take(self):
        return False

    def unit(self):
        return PAGE

    def size(self, flushed, cached):
        return flushed
