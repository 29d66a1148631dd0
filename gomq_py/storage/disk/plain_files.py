"""Plain files: changes the files of a follower, which are copies of the leader's files and are not mapped."""
import os

from gomq_py.storage.disk.files import Files, with_path
from gomq_py.storage.disk.open_file import File, flush_file_system


class PlainFiles(Files):
    """Changes files that are not mapped and may be written at any position. Has no replicators."""

    def open_plain(self, path, size=None):
        """Open an existing file or, if ``size`` is given, create a file of so many zero bytes without
        allocating disk space. Returns the File. Blocks. Raises OSError.
        """
        path = os.fspath(path)
        if size is None:
            fd = self._open(path, os.O_RDWR | os.O_NOFOLLOW)
            return File(path, fd, os.fstat(fd).st_size, False)
        fd = self._open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        file = File(path, fd, 0, False)
        self.set_size(file, size)
        return file

    def set_size(self, file, size):
        """Cut a plain file to ``size``, or extend it with zeros without allocating disk space. Blocks."""
        try:
            self._cut(file.fd, size)
        except OSError as error:
            raise with_path(error, file.path) from error
        file.size = size

    def link(self, source, target):
        """Give a file a second name. Raises OSError. Blocks."""
        self._link(os.fspath(source), os.fspath(target))

    def open_folder(self, path):
        """Open a folder, and return it for ``sync_all``. Raises OSError."""
        return File(path, self._open(path, os.O_RDONLY | os.O_DIRECTORY), 0, False)

    def sync_all(self, folder):
        """Flush every file and name of the file system that holds the folder. Blocks. Raises OSError, also
        for failures since the folder was opened.
        """
        try:
            flush_file_system(folder.fd)
        except OSError as error:
            raise with_path(error, folder.path) from error

    def _link(self, source, target):
        os.link(source, target, follow_symlinks=False)
