"""Unsealed segments: replaces three flushes per queue by one flush of the whole file system at boot.

Used by stores.recovery. A segment that was scanned gets its seal (closing counts) after its bytes and its
name are flushed. At the boot of a promoted follower each queue has such a segment, and clients wait. If the
file system can be flushed as a whole, recovery adds the segments here, and the boot then calls ``seal``. If
the boot is interrupted, the next boot scans the segments again.
"""
import os

from gomq_py.storage.disk.open_file import CAN_FLUSH_FILE_SYSTEMS, File, flush_file_system
from gomq_py.storage.format import head as head_format


class Unsealed:
    """Collects the segments that one boot has scanned, to seal them after one flush. ``root``: path of the
    data folder. The methods block, and raise OSError.
    """

    def __init__(self, files, root):
        self._files = files
        # opened now: a flush reports the failures since the folder was opened
        self._folder = File(root, os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), 0, False)
        self._segments = []

    @staticmethod
    def is_possible():
        """Return whether this system can flush a whole file system and reports errors of that flush."""
        return CAN_FLUSH_FILE_SYSTEMS

    def add(self, msgs, head, seal):
        """Add an open msgs file, which seal() will seal with this Head and Seal (storage.format.head)."""
        self._files.allocate(msgs)
        self._segments.append((msgs.path, head, seal))

    def seal(self):
        """Flush the file system, then write the seals of the added segments. A second call does nothing."""
        segments, self._segments = self._segments, []
        if segments:
            self._files.sync(self._folder, flush_all)
            self._files.register.flushed()  # a follower flushes, too, before the seals
        self.close()
        for path, head, seal in segments:
            self._seal(path, head, seal)

    def close(self):
        """Close the folder without sealing. A second call does nothing."""
        folder, self._folder = self._folder, None
        if folder is not None:
            self._files.close(folder)

    def _seal(self, path, head, seal):
        try:
            msgs = self._files.open(path)
        except FileNotFoundError:  # without messages, and so on its way to the pool
            return
        try:
            proper = head.encode()
            if msgs.read(0, len(proper)) != proper:
                self._files.put(msgs, 0, proper)
            self._files.put(msgs, head_format.SEAL_AT, head_format.encode_seal(head.seed, seal))
            self._files.overwritten(msgs, 0, head_format.HEAD_BYTES)
        finally:
            self._files.close(msgs)


def flush_all(folder):
    """Flush the file system of an open folder. Blocks. Raises OSError."""
    flush_file_system(folder.fd)
