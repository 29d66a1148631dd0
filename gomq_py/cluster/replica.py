"""Replica: repeats a leader's operations on a follower's data folder, and flushes them.

Used by ``applier``, which calls one method for each of the leader's events (``cluster.wire.events``), in one
thread at a time. Every change is made by ``storage.disk.files``; ``files`` has no replicators. Paths are
relative to the data folder. A file is identified by its id at the leader.

After ``flushed()`` the next operation waits for a flush of all earlier ones. The operation, such as the
removal of a queue's files, may rely on the leader's flush.
"""
import contextlib
import os
import stat
from collections import OrderedDict

from gomq_py.storage.disk.open_file import CAN_FLUSH_FILE_SYSTEMS

# Most open files. A process may have 1024 descriptors.
OPEN_FILES = 256
# Most files and folders that are flushed one by one. Measured: 4 of them take as long as one syncfs, 100 of
# them three times as long.
FEW = 4


class ReplicaError(Exception):
    """An operation cannot be repeated here, so the follower must sync again. The text names the operation."""


def real_path(root, path):
    """Return ``path`` joined to the folder ``root``.

    Raises OSError; ReplicaError if a parent is not a folder, such as a symbolic link.
    """
    at = root
    for name in path.split("/")[:-1]:
        at = f"{at}/{name}"
        if not stat.S_ISDIR(os.lstat(at).st_mode):
            raise ReplicaError(f"{path}: {at} is not a folder")
    return os.path.join(root, path)


class Replica:
    """A copy of a data folder, at ``root``. ``paths``: {id: path} of its files.

    Every method blocks, and raises ReplicaError or OSError. After an error the folder must be synced again.
    """

    def __init__(self, files, root, paths=None):
        self.paths = dict(paths or {})
        self._files = files
        self._root = os.fspath(root)
        self._ids = {path: file_id for file_id, path in self.paths.items()}
        self._open = OrderedDict()  # id -> plain File, the one used last at the end
        self._dirty = set()  # ids
        self._dirty_folders = set()
        self.is_behind_flush = False  # the last operations ended with flushed()
        self.flushes = 0  # count of flushed()
        self.is_hurried = False  # hurry() was called since the last flush
        # whether a flush or a read has failed: files may then be other on the disk than they read
        self.is_doubtful = False
        self._folder = files.open_folder(self._root)

    @property
    def is_dirty(self):
        """Whether something was changed since the last flush."""
        return bool(self._dirty or self._dirty_folders)

    def close(self):
        """Close all files, without a flush. May be called again."""
        while self._open:
            self._files.close(self._open.popitem()[1])
        self._files.close(self._folder)

    def flush(self):
        """Flush all changes. Raises OSError; then the disk's content is unknown."""
        if self.is_dirty:
            with self._doubting():
                if CAN_FLUSH_FILE_SYSTEMS and len(self._dirty) + len(self._dirty_folders) > FEW:
                    self._files.sync_all(self._folder)
                else:
                    self._flush_each()
        self._dirty.clear()
        self._dirty_folders.clear()
        self.is_behind_flush = self.is_hurried = False

    # the operations: see cluster.wire.events

    def created(self, file_id, size, path):
        """Create a file of ``size`` zero bytes."""
        self._begin()
        if file_id in self.paths:
            raise ReplicaError(f"created {path}: file {file_id} is here as {self.paths[file_id]}")
        self._create(file_id, size, path)

    def folder_created(self, path):
        self._begin()
        self._files.make_folder(real_path(self._root, path))
        self._folder_changed(path)

    def written(self, file_id, start, octets):
        """Write bytes into a file, which is extended if necessary."""
        self._begin()
        self._known(file_id, "written")
        self._files.put(self._file(file_id), start, octets)
        self._dirty.add(file_id)

    def resized(self, file_id, size):
        """Cut a file, or extend it with zeros."""
        self._begin()
        self._known(file_id, "resized")
        self._files.set_size(self._file(file_id), size)
        self._dirty.add(file_id)

    def renamed(self, file_id, source, target):
        """Rename a file, which may replace another file. ``file_id`` 0: rename a folder."""
        self._begin()
        if not file_id:
            self._rename_folder(source, target)
            return
        if self._known(file_id, "renamed") != source:
            raise ReplicaError(f"renamed {source}: file {file_id} is {self.paths[file_id]} here")
        if source == target:
            return
        self._forget(self._ids.get(target, 0))
        self._files.rename(
            real_path(self._root, source), real_path(self._root, target), self._open.get(file_id))
        del self._ids[source]
        self._name(file_id, target)
        self._changed(source)
        self._changed(target)

    def unlinked(self, file_id, path):
        """Unlink a file.

        ``file_id`` 0: the leader's register lacks the file, and so does this copy: do nothing.
        """
        self._begin()
        if file_id:
            if self._known(file_id, "unlinked") != path:
                raise ReplicaError(f"unlinked {path}: file {file_id} is {self.paths[file_id]} here")
            self._unlink(file_id)

    def folder_removed(self, path):
        self._begin()
        self._files.remove_folder(real_path(self._root, path))
        self._dirty_folders.discard(path)
        self._changed(path)

    def flushed(self):
        """Note that the leader has flushed: the next operation flushes first."""
        self.is_behind_flush = True
        self.flushes += 1

    def hurry(self):
        """Ask the Applier to flush soon, by ``is_hurried``."""
        self.is_hurried = True

    def listed_folder(self, path):
        """Raise ReplicaError: only a Staging receives listings."""
        raise ReplicaError(f"{path} was listed, which belongs to a sync; none is going on")

    def listed(self, file_id, size, path):
        """Raise ReplicaError: only a Staging receives listings."""
        self.listed_folder(path)

    def listed_all(self):
        """Raise ReplicaError: only a Staging receives listings."""
        self.listed_folder("everything")

    synced = listed_all

    # helpers

    def _begin(self):
        if self.is_behind_flush:
            self.flush()

    def _flush_each(self):
        for file_id in self._dirty:
            self._files.sync(self._file(file_id))
        for folder in self._dirty_folders:
            self._files.sync_folder(self._at(folder))

    @contextlib.contextmanager
    def _doubting(self):
        """Context manager for a flush or read: an OSError sets ``is_doubtful``."""
        try:
            yield
        except OSError:
            self.is_doubtful = True
            raise

    def _known(self, file_id, event):
        """Return the path of a file.

        Raises ReplicaError, with the name of the ``event``, if the file is unknown.
        """
        path = self.paths.get(file_id)
        if path is None:
            raise ReplicaError(f"{event}: there is no file {file_id} of the leader here")
        return path

    def _create(self, file_id, size, path):
        self._keep_open(file_id, self._files.open_plain(real_path(self._root, path), size))
        self._name(file_id, path)
        self._dirty.add(file_id)
        self._changed(path)

    def _name(self, file_id, path):
        self.paths[file_id] = path
        self._ids[path] = file_id

    def _unlink(self, file_id):
        path = self.paths[file_id]
        self._forget(file_id)
        self._files.unlink(real_path(self._root, path))
        self._changed(path)

    def _forget(self, file_id):
        self._close(file_id)
        self._dirty.discard(file_id)
        self._ids.pop(self.paths.pop(file_id, None), None)

    def _rename_folder(self, source, target):
        real = real_path(self._root, source)
        if not stat.S_ISDIR(os.lstat(real).st_mode):
            raise ReplicaError(f"renamed {source}: this is not a folder here")
        self._files.rename(real, real_path(self._root, target))
        inside = source + os.sep
        for path in [path for path in self._ids if path.startswith(inside)]:
            file_id = self._ids.pop(path)
            self._close(file_id)  # it would keep its former path
            self._name(file_id, target + path[len(source):])
        for path in [path for path in self._dirty_folders if path == source or path.startswith(inside)]:
            self._dirty_folders.remove(path)
            self._dirty_folders.add(target + path[len(source):])
        self._changed(source)
        self._changed(target)

    def _file(self, file_id):
        file = self._open.get(file_id)
        if file is None:
            path = real_path(self._root, self.paths[file_id])
            file = self._keep_open(file_id, self._files.open_plain(path))
        self._open.move_to_end(file_id)
        return file

    def _keep_open(self, file_id, file):
        if len(self._open) >= OPEN_FILES:
            self._files.close(self._open.popitem(last=False)[1])
        self._open[file_id] = file
        return file

    def _close(self, file_id):
        file = self._open.pop(file_id, None)
        if file is not None:
            self._files.close(file)

    def _folder_changed(self, path):
        self._dirty_folders.add(path)
        self._changed(path)

    def _changed(self, path):
        self._dirty_folders.add(os.path.dirname(path))

    def _at(self, path):
        return os.path.join(self._root, path) if path else self._root
