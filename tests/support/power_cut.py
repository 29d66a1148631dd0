"""Power cuts: a Files that knows what would be on the disk if the power went now, and can lay that out as a data folder.

The broker works on a real folder (the cache, so to speak). Beside it stands a model of the disk:

- a file's octets as last flushed. Pages changed since, by appends or through a mapping, may or may not be there, each by itself; so may a changed
  size. A flush takes the content as of its *start*; what is written while it runs is not covered.
- a folder's names as last flushed. Every later create, rename, unlink and folder create may or may not be there, each by itself and in no order
  (a rename inside a folder is one change; between folders it is two). A file whose name is missing is gone, however well it was flushed.
- write-back: at any seam call the disk may take some pages and names early, so that a page can also be at a state between the flush and the cut.

All choices come from one seeded generator. ``PowerCutFiles.cut(target)`` lays out one possible folder and disturbs nothing, so that one run can be
cut many times. Writes that are not flushed *and* not seen by the seam do not exist here: that nothing bypasses it is ``test_layering``'s business.
"""
import errno
import os
import threading

from tests.support.watched_files import POOL_CALLS, WatchedFiles

PAGE = 4096
SECTOR = 512  # what a drive writes whole; some cuts tear pages here


class PowerIsOff(BaseException):
    """Raised by every seam call after ``switch_off``: unwinds the broker without any of its cleaning up. No Exception, so nobody handles it."""


class DiskFile:
    """One file of the model: its octets on the disk, and a descriptor of our own on the cache's file, which outlives its name."""

    __slots__ = ("fd", "octets", "key")

    def __init__(self, path, flushed):
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        status = os.fstat(self.fd)
        self.key = status.st_dev, status.st_ino
        self.octets = self.cached() if flushed else b""

    def cached(self):
        """The content the broker sees."""
        return os.pread(self.fd, os.fstat(self.fd).st_size, 0)

    def flush(self, snapshot):
        self.octets = snapshot

    def possible(self, choice):
        """The octets as they may be on the disk: as flushed, with some of the later pages, and one of the sizes in between."""
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
    """One folder of the model: names on the disk, and changes of names that were not flushed, each a dict {name: node or None}."""

    __slots__ = ("names", "changes")

    def __init__(self):
        self.names = {}
        self.changes = []

    def change(self, names):
        self.changes.append(names)

    def apply(self, change):
        """Put one change on the disk, perhaps before earlier ones: these have no say any more about the names in it."""
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
    """What one cut, or one write-back, takes of what was not flushed. Drawn anew for each: all, nothing, a few, most."""

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


class PowerCutFiles(WatchedFiles):
    """Works on ``root`` (an existing folder, taken as flushed in all its parts) and models its disk.

    ``on_call(call, path)`` is called before every seam call of the hub's thread: the moments at which a test may ``cut`` or ``switch_off``.
    ``flush_pause()`` is called in the middle of every flush, in its thread.
    """

    def __init__(self, root, random, on_call=None, flush_pause=None, write_back=0.05, listeners=()):
        super().__init__(listeners)
        self.root = os.path.abspath(os.fspath(root))
        self.random = random
        self.calls = 0
        self.cuts = 0
        self.off = False
        self.on_call = on_call
        self._flush_pause = flush_pause
        self._write_back = write_back
        self._model_lock = threading.RLock()
        self._nodes = {}  # path in the cache -> node
        self._files = {}  # (device, inode) -> DiskFile
        self._load(self.root)

    # the broker's side: the cache changes, the model takes note

    def about_to(self, call, subject):
        if self.off:
            if call in POOL_CALLS:
                raise OSError(errno.EIO, "the power is off", subject)
            raise PowerIsOff(call)
        if call in POOL_CALLS:
            return
        self.calls += 1
        if self.on_call is not None:
            self.on_call(call, subject)
            if self.off:
                raise PowerIsOff(call)
        if self.random.random() < self._write_back:
            with self._model_lock:
                self._write_some_back()

    def create(self, path, size):
        file = super().create(path, size)
        self._born(file.path)
        return file

    def open_log(self, path):
        file = super().open_log(path)
        if file.path not in self._nodes:
            self._born(file.path)
        return file

    def make_folder(self, path):
        super().make_folder(path)
        with self._model_lock:
            self._link(os.fspath(path), DiskFolder())

    def rename(self, source, target, file=None):
        super().rename(source, target, file)
        source, target = os.fspath(source), os.fspath(target)
        with self._model_lock:
            for path in [path for path in self._nodes if path == source or path.startswith(source + os.sep)]:
                self._nodes[target + path[len(source):]] = self._nodes.pop(path)
            node = self._nodes[target]
            (old_folder, old_name), (new_folder, new_name) = self._parent(source), self._parent(target)
            if old_folder is new_folder:
                old_folder.change({old_name: None, new_name: node})
            else:
                new_folder.change({new_name: node})
                old_folder.change({old_name: None})

    def unlink(self, path):
        super().unlink(path)
        self._gone(os.fspath(path))

    def remove_folder(self, path):
        super().remove_folder(path)
        self._gone(os.fspath(path))

    def sync(self, file):
        self.about_to("sync", file.path)
        size = file.size
        with self._model_lock:
            status = os.fstat(file.fd)
            node = self._files.get((status.st_dev, status.st_ino))
            snapshot = node.cached() if node else None
        self._pause("sync", file.path)
        if node:
            with self._model_lock:
                node.flush(snapshot)
        file.synced_size = size

    def sync_folder(self, path):
        self.about_to("sync_folder", path)
        with self._model_lock:
            folder = self._nodes[os.fspath(path)]
            if not isinstance(folder, DiskFolder):
                raise NotADirectoryError(errno.ENOTDIR, "not a folder", path)
            covered = list(folder.changes)
        self._pause("sync_folder", path)
        with self._model_lock:
            for change in covered:
                if any(change is other for other in folder.changes):
                    folder.apply(change)

    # the test's side

    def switch_off(self):
        """From here on every seam call raises, and no flush succeeds: what is under way in memory dies with the process."""
        self.off = True

    def cut(self, target):
        """Lay out in ``target`` (a folder that is not there yet) one of the data folders that a power cut at this moment may leave. Returns it."""
        with self._model_lock:
            self.cuts += 1
            self._lay_out(self._nodes[self.root], os.fspath(target), Choice(self.random))
        return target

    def lay_out_flushed(self, target):
        """The same with nothing but what was flushed: the worst the disk may do in good faith."""
        with self._model_lock:
            self._lay_out(self._nodes[self.root], os.fspath(target), Nothing())
        return target

    def discard(self):
        """Drop the model and its descriptors."""
        for node in self._files.values():
            os.close(node.fd)
        self._files.clear()

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

    def _born(self, path):
        with self._model_lock:
            self._link(path, self._file(path))

    def _link(self, path, node):
        self._nodes[path] = node
        folder, name = self._parent(path)
        folder.change({name: node})

    def _gone(self, path):
        with self._model_lock:
            self._nodes.pop(path, None)
            folder, name = self._parent(path)
            folder.change({name: None})

    def _parent(self, path):
        return self._nodes[os.path.dirname(path)], os.path.basename(path)

    def _pause(self, call, path):
        if self._flush_pause is not None:
            self._flush_pause()
        if self.off:
            raise OSError(errno.EIO, "the power went during a flush", path)

    def _write_some_back(self):
        """The system writes some pages or names before anybody asks it to."""
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


class Nothing:
    """The choice that takes nothing."""

    def take(self):
        return False

    def unit(self):
        return PAGE

    def size(self, flushed, cached):
        return flushed
