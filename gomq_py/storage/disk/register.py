"""Register: gives each file of a data folder an id, by which the replicators identify the file.

storage.disk.files reports each change to the register by path; the register reports it to the replicators by
id. A renamed file keeps its id, and a later file of the same name gets a new id. So a late change still
reaches the right file. A file made by a thread is registered when it is reported.
"""
import os
import stat

from gomq_py.observability.log import logger
from gomq_py.storage.errors import DataDirError

LOG = logger("storage")
# What files tell a register: see replication.Replicator.
VERBS = (
    "created", "folder_created", "appended", "overwritten", "resized", "renamed", "unlinked",
    "folder_removed", "flushing", "flushed",
)


class NullRegister:
    """The register of a broker that begins without replicators. Ignores changes until one is attached."""

    replicators = ()
    told = 0  # also while a replicator is attached: no promise waits for that one

    def attach(self, replicator):
        """Report changes to ``replicator`` from now on. Returns the FillingRegister that does so."""
        register = FillingRegister((replicator,))
        for verb in ("replicators", "id_of", *VERBS):
            setattr(self, verb, getattr(register, verb))
        return register

    def detach(self, replicator):
        """Stop reporting changes to ``replicator``."""
        vars(self).clear()

    def ignore(self, *arguments):
        """Accept the report of a change, and do nothing."""

    def id_of(self, path):
        """Return 0: no file has an id."""
        return 0

    seed = created = folder_created = appended = overwritten = resized = ignore
    renamed = unlinked = folder_removed = flushing = flushed = ignore


class Register:
    """The files and folders that replicators know. ``paths``: {id: path} of files. ``folders``: {path: None}.
    ``told``: number of reported changes.
    """

    def __init__(self, replicators):
        self.replicators = tuple(replicators)
        self.paths = {}
        self.folders = {}
        self.told = 0
        self._ids = {}  # path -> id
        self._former_ids = {}
        self._last_id = 0

    def go_on(self, ids, told):
        """Continue the register of another folder, of which this folder is a copy. Call before ``seed``.

        ``ids``: {path: id} in the other register. The files keep these ids. If ``seed`` finds other files, it
        reports ``diverged`` to the replicators. ``told``: number of changes that the other register has
        reported.
        """
        self._former_ids, self.told = ids, told
        self._last_id = max(ids.values(), default=0)

    def seed(self, root, left_out):
        """Register the files of the folder ``root``, without the names ``left_out`` directly in it. For boot,
        before the first change; blocks. Raises DataDirError for a symbolic link.
        """
        self.paths.clear()
        self.folders.clear()
        self._ids.clear()
        for path, is_folder in listing(root, left_out):
            if is_folder:
                self.folders[path] = None
            else:
                self._add(path)
        former, self._former_ids = self._former_ids, {}
        if former and former != self._ids:
            LOG.error("%s has other files than the leader that it was copied from", root)
            self._tell("diverged")

    is_filling = False

    def attach(self, replicator):
        """Report changes to one more replicator. Returns this register."""
        self.replicators = (*self.replicators, replicator)
        return self

    def detach(self, replicator):
        """Stop reporting changes to a replicator."""
        self.replicators = tuple(one for one in self.replicators if one is not replicator)

    def id_of(self, path):
        """Return the id of the file with this path; 0 if the register does not have the file."""
        return self._ids.get(path, 0)

    # what files tell: see replication.Replicator

    def created(self, path, size):
        self._tell("created", self._add(path), path, size)

    def folder_created(self, path):
        self.folders[path] = None
        self._tell("folder_created", path)

    def appended(self, file, start, end):
        self._tell_of("appended", file.path, file, start, end)

    def overwritten(self, file, start, end):
        self._tell_of("overwritten", file.path, file, start, end)

    def resized(self, path, size):
        self._tell_of("resized", path, path, size)

    def renamed(self, source, target, file_id):
        """Register and report a rename. ``file_id``: id_of(source) when the change was requested."""
        file_id = self._still(file_id, source)
        if file_id:
            self._forget(self._ids.get(target, 0))
            self._forget(file_id)
            self._ids[target] = file_id
            self.paths[file_id] = target
        else:
            self._rename_folder(source, target)
        self._tell("renamed", file_id, source, target)

    def unlinked(self, path, file_id):
        """Forget a deleted file, and report this. ``file_id``: id_of(path) at the request to delete."""
        file_id = self._still(file_id, path)
        self._forget(file_id)
        self._tell("unlinked", file_id, path)

    def folder_removed(self, path):
        self.folders.pop(path, None)
        self._tell("folder_removed", path)

    def flushing(self):
        for replicator in self.replicators:
            replicator.flushing()

    def flushed(self):
        self._tell("flushed")

    # helpers

    def _tell(self, event, *arguments):
        self.told += 1
        for replicator in self.replicators:
            getattr(replicator, event)(*arguments)

    def _tell_of(self, event, path, *arguments):
        """Report a change of the file with this path. An unregistered file is registered; the replicators
        must then compare everything (``diverged``).
        """
        file_id = self._ids.get(path)
        if file_id is None:
            LOG.error("%s was changed and is not in the register: each follower has to sync anew", path)
            if os.path.lexists(path):
                self._add(path)
            self._tell("diverged")
        else:
            self._tell(event, file_id, *arguments)

    def _still(self, file_id, path):
        """Return the id of the file at this path: ``file_id``, unless another file has taken the name."""
        return file_id if self.paths.get(file_id) == path else self._ids.get(path, 0)

    def _add(self, path):
        file_id = self._former_ids.get(path)
        if file_id is None:
            file_id = self._last_id = self._last_id + 1
        self._ids[path] = file_id
        self.paths[file_id] = path
        return file_id

    def _forget(self, file_id):
        path = self.paths.pop(file_id, None)
        if self._ids.get(path) == file_id:  # otherwise another file has the name
            del self._ids[path]

    def _rename_folder(self, source, target):
        inside = source + os.sep
        moved = [path for path in self.folders if path == source or path.startswith(inside)]
        for path in moved:
            del self.folders[path]
        self.folders.update(dict.fromkeys(target + path[len(source):] for path in moved))
        for path in [path for path in self._ids if path.startswith(inside)]:
            file_id = self._ids.pop(path)
            renamed = self.paths[file_id] = target + path[len(source):]
            self._ids[renamed] = file_id


class FillingRegister(Register):
    """A register that is filled while the folder is in use: found() registers the files while ``is_filling``.

    While ``is_filling``, no replicator has a copy of the folder yet. Afterwards a change of an unregistered
    file is reported as ``diverged``. A thread's change may be reported after found() has registered the
    changed file.
    """

    def __init__(self, replicators):
        super().__init__(replicators)
        self.is_filling = True

    def found(self, path, is_folder):
        """Register a file or folder if it still exists. Does not block for long."""
        if is_folder:
            if os.path.isdir(path):
                self.folders[path] = None
        elif path not in self._ids and os.path.lexists(path):
            self._add(path)

    def created(self, path, size):
        if path in self._ids:  # listed before it was reported
            super().unlinked(path, self._ids[path])
        super().created(path, size)

    def folder_created(self, path):
        if path not in self.folders:
            super().folder_created(path)

    def folder_removed(self, path):
        if path in self.folders:
            super().folder_removed(path)

    def renamed(self, source, target, file_id):
        is_known = self._still(file_id, source) or source in self.folders
        if is_known:
            super().renamed(source, target, file_id)
        elif not self.is_filling:
            self._tell("diverged")
        if self.is_filling or not is_known:
            for path, is_folder in ((target, os.path.isdir(target)), *listing(target)):
                self.found(path, is_folder)

    def unlinked(self, path, file_id):
        if self._still(file_id, path):
            super().unlinked(path, file_id)

    def _tell_of(self, event, path, *arguments):
        if self.is_filling:
            self.found(path, False)
        if path in self._ids or not self.is_filling:  # else it is gone again
            super()._tell_of(event, path, *arguments)


def listing(root, left_out=()):
    """Return [(path, whether it is a folder)] of all files and folders below ``root``, without the names
    ``left_out`` directly in ``root``. Leaves out files removed during the call. Blocks. Raises DataDirError
    for a symbolic link.
    """
    found = []
    for folder, folders, names in os.walk(root):
        if folder == root:
            folders[:] = [name for name in folders if name not in left_out]
            names = [name for name in names if name not in left_out]
        for path in [os.path.join(folder, name) for name in (*folders, *names)]:
            try:
                mode = os.lstat(path).st_mode
            except FileNotFoundError:
                continue
            if stat.S_ISLNK(mode):
                raise DataDirError(
                    f"{path} is a link: a broker with followers, or a backup, needs one folder, without "
                    "links. Mount the other disk there instead")
            if stat.S_ISDIR(mode) or stat.S_ISREG(mode):  # ctl's socket is none
                found.append((path, stat.S_ISDIR(mode)))
    return found
