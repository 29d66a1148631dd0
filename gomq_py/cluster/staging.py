"""Staging: receives a full sync in the folder ``.sync``, and replaces the data folder's content at the end.

Used by ``applier``; a kind of Replica. The leader lists its files and sends the blocks that differ. The same
stream has all the leader's events since the sync began. Operations on files not listed yet are skipped,
because their content is sent later. Until the swap (``storage.disk.swap``) the data folder stays unchanged. A
listed file begins as a hard link to the data folder's file of that name, and is copied before the first write
into it.
"""
import contextlib
import os
import posix
import stat
from collections import deque

from gomq_py.cluster import identity as identities
from gomq_py.cluster.replica import Replica, ReplicaError, real_path
from gomq_py.cluster.wire.messages import BLOCK_OCTETS, block_digest
from gomq_py.storage.disk import swap
from gomq_py.storage.disk.data_dir import NOT_CONTENT, SCHEMA
from gomq_py.storage.disk.open_file import CAN_FLUSH_FILE_SYSTEMS, ZEROS


class Staging(Replica):
    """The next content of the data folder ``root``.

    The follower answers each listed file with the ``checksums`` of its copy. ``trusts_disk``: False after a
    failed flush or read, when a file on the disk may differ from its cached content. Then no file of the data
    folder is used, and the leader sends everything.
    """

    def __init__(self, files, root, trusts_disk=True):
        swap.finish(files, root, NOT_CONTENT)
        files.make_folder(os.path.join(root, swap.SYNC))
        super().__init__(files, os.path.join(root, swap.SYNC))
        self.is_whole = self._is_listed = False
        self._data = root
        self._trusts_disk = trusts_disk
        self._linked = set()  # ids
        self._listed = deque()  # see take_listed

    def complete(self, identity):
        """Flush the received content, move it into the data folder, and return the folder's new Replica.

        ``identity``: the Identity that is written with the content. Closes this object.
        """
        identities.write(self._files, self._root, identity)
        with self._doubting():
            self._flush_everything()
        self.close()
        swap.swap(self._files, self._data, NOT_CONTENT)
        return Replica(self._files, self._data, self.paths)

    # operations of a sync

    def listed_folder(self, path):
        """Create a folder that the leader has."""
        self._begin()
        self._have_folder(path)

    def listed(self, file_id, size, path):
        """Add a file of the leader, beginning with the data folder's copy of the file."""
        # A file that is here with its path is dead at the leader.
        self._begin()
        kept = 0
        if file_id not in self.paths:
            self._make_way(path)
            kept = self._linked_size(file_id, path)
            if kept is None:
                self._create(file_id, size, path)
            elif kept != size:
                self.resized(file_id, size)
        self._listed.append((file_id, -(-min(kept or 0, size) // BLOCK_OCTETS)))

    def listed_all(self):
        """Note that the listing is complete, which ``synced`` requires."""
        self._begin()
        self._is_listed = True

    def synced(self):
        """Set ``is_whole``, because all content was received; the Applier then calls ``complete``.

        Raises ReplicaError if the content is not a data folder.
        """
        # It must not take the place of one.
        self._begin()
        if not self._is_listed:
            raise ReplicaError("the leader ended a sync before its listing was complete")
        if SCHEMA not in self._ids:
            raise ReplicaError(f"the leader ended a sync without the file {SCHEMA}")
        self.is_whole = True

    # operations of the stream: those of files that are not listed yet are skipped

    def created(self, file_id, size, path):
        self._begin()
        self._make_way(path)
        super().created(file_id, size, path)

    def folder_created(self, path):
        self.listed_folder(path)

    def written(self, file_id, start, octets):
        if self._is_here(file_id):
            super().written(file_id, start, octets)

    def resized(self, file_id, size):
        if self._is_here(file_id):
            self._copy(file_id, size)
            super().resized(file_id, size)

    def renamed(self, file_id, source, target):
        if not file_id:
            if os.path.isdir(self._at(source)):
                self._have_folder(os.path.dirname(target))
                super().renamed(file_id, source, target)
        elif self._is_here(file_id):
            self._have_folder(os.path.dirname(target))
            super().renamed(file_id, source, target)
        else:
            self._unlink_if_here(target)

    def unlinked(self, file_id, path):
        if self._is_here(file_id):
            super().unlinked(file_id, path)

    def folder_removed(self, path):
        self._begin()
        if os.path.isdir(self._at(path)):
            super().folder_removed(path)

    def flushed(self):
        """Do nothing: everything is flushed before the swap."""

    hurry = flushed

    # for the hashes

    def take_listed(self, files, blocks):
        """Remove and return the next listed files: [(file id, number of blocks in the data folder's copy)].

        Returns at most ``files`` entries, with at most ``blocks`` blocks together; but at least one if any
        file is left.
        """
        taken = []
        while self._listed and len(taken) < files:
            blocks -= self._listed[0][1]
            if taken and blocks < 0:
                break
            taken.append(self._listed.popleft())
        return taken

    def checksums(self, parts):
        """Return the checksums (block_digest) of blocks: a list for each (file id, first block, end block).

        Runs in another thread. A list is shorter at the file's end, and empty if the file is missing.
        """
        return [self._checksums(*part) for part in parts]

    def _checksums(self, file_id, first, end):
        found = []
        fd = self._open_for_reading(file_id) if first < end else None
        if fd is not None:
            try:
                for at in range(first * BLOCK_OCTETS, end * BLOCK_OCTETS, BLOCK_OCTETS):
                    with self._doubting():
                        octets = os.pread(fd, BLOCK_OCTETS, at)
                    if octets:
                        found.append(block_digest(octets))
            finally:
                posix.close(fd)
        return found

    # helpers

    def _begin(self):
        if self.is_whole:
            raise ReplicaError("an operation came in one frame with the end of the sync, or behind it")

    def _open_for_reading(self, file_id):
        while (path := self.paths.get(file_id)) is not None:
            with contextlib.suppress(FileNotFoundError):  # it is being renamed
                return os.open(self._at(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        return None

    def _is_here(self, file_id):
        self._begin()
        return file_id in self.paths

    def _make_way(self, path):
        """Make the parent folders of a path, and remove a file at the path."""
        self._have_folder(os.path.dirname(path))
        self._unlink_if_here(path)

    def _unlink_if_here(self, path):
        if path in self._ids:
            self._unlink(self._ids[path])

    def _have_folder(self, path):
        if path and not os.path.isdir(self._at(path)):
            self._have_folder(os.path.dirname(path))
            self._files.make_folder(self._at(path))
            self._folder_changed(path)

    def _linked_size(self, file_id, path):
        """Make a hard link to the data folder's file at ``path``. Returns the file's size.

        Returns None, without a link, if there is no usable file.
        """
        try:
            own = real_path(self._data, path)
            status = os.lstat(own)
            if not self._trusts_disk or not stat.S_ISREG(status.st_mode):
                return None
            self._files.link(own, self._at(path))
        except (OSError, ReplicaError):
            return None  # the leader sends all of it
        self._linked.add(file_id)
        self._name(file_id, path)
        return status.st_size

    def _file(self, file_id):
        self._copy(file_id)
        return super()._file(file_id)

    def _copy(self, file_id, size=None):
        """Replace the file, if it is a hard link, by a copy of its first ``size`` bytes (None: all)."""
        if file_id not in self._linked:
            return
        path = self._at(self.paths[file_id])
        source = self._files.open_plain(path)
        copied = source.size if size is None else min(size, source.size)
        # renamed when it is whole: a thread may read it for its hashes
        copy = self._files.open_plain(os.path.join(self._data, swap.COPY), copied)
        try:
            for at in range(0, copied, BLOCK_OCTETS):
                with self._doubting():
                    octets = source.read(at, min(at + BLOCK_OCTETS, copied))
                if octets != ZEROS[:len(octets)]:
                    self._files.put(copy, at, octets)
        finally:
            self._files.close(source)
            self._files.close(copy)
        self._files.rename(copy.path, path)
        self._linked.remove(file_id)

    def _forget(self, file_id):
        super()._forget(file_id)
        self._linked.discard(file_id)

    def _flush_everything(self):
        # Another process may have written into linked files without a flush.
        if CAN_FLUSH_FILE_SYSTEMS:
            self._files.sync_all(self._folder)
        else:
            for folder, _, names in os.walk(self._root, topdown=False):
                for name in names:
                    file = self._files.open_plain(os.path.join(folder, name))
                    self._files.sync(file)
                    self._files.close(file)
                self._files.sync_folder(folder)
