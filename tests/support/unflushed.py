"""Files that flush nothing, for tests that open stores and brokers by the thousand and are
not about what a disk keeps.

What a power cut leaves is modelled (``power_cut``); that a flush is asked for and awaited is watched
(``watched_files``). A real flush in the midst of these proves nothing and takes most of their time.
"""
from gomq_py.storage.disk.files import Files


class Unflushed(Files):
    """``Files``, with flushes that succeed at once."""

    def sync(self, file, flush=None):
        file.synced_size = file.size

    def sync_folder(self, path):
        pass
