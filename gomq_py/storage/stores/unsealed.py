"""Unsealed: makes one flush for all segments that a boot has scanned, in place of three for each queue.

Used by recovery, which seals a scanned segment (writes its closing counts) once its octets and its name are
on disk. At the boot of a promoted follower every queue has such a segment, and clients wait for a thousand
queues. Where the file system can be flushed as a whole, recovery adds segments here, and the boot calls
``seal`` at its end. After an interrupted boot the next boot scans them again.
"""
import os

from gomq_py.storage.disk.open_file import CAN_FLUSH_FILE_SYSTEMS, File, flush_file_system
from gomq_py.storage.format import head as head_format


class Unsealed:
    """The scanned segments of one boot over the data folder ``root``. Blocks. Raises OSError."""

    def __init__(self, files, root):
        self._files = files
        # opened now: a flush reports the failures since the folder was opened
        self._folder = File(root, os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), 0, False)
        self._segments = []

    @staticmethod
    def is_possible():
        """Whether this system can flush a whole file system, and reports its failures."""
        return CAN_FLUSH_FILE_SYSTEMS

    def add(self, msgs, head, seal):
        """Have an open msgs file sealed later, with this Head and Seal (storage.format.head)."""
        self._files.allocate(msgs)
        self._segments.append((msgs.path, head, seal))

    def seal(self):
        """Flush the file system, then seal the added segments. A second call does nothing."""
        segments, self._segments = self._segments, []
        if segments:
            self._files.sync(self._folder, flush_all)
            self._files.register.flushed()  # a follower flushes, too, before the seals
        self.close()
        for path, head, seal in segments:
            self._seal(path, head, seal)

    def close(self):
        """Close the folder; segments that were only added stay without a seal. May be called again."""
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
