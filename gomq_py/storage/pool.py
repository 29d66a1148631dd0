"""Segment pool: emptied pairs of segment files waiting to be used again, one pool per broker.

Fresh pages cost more than all else an append does (1.6x at 16-octet messages, 2.3x at 1 KiB), so full-size segments go round: fd and mapping
kept, file renamed into place. What makes that safe: a new generation in the head seeds every checksum; a pair that ever held something
durable is used again only after the names of both its files were flushed where they left from; only pairs made in this run go round; nobody
holds them. Between message_store and files; never flushes by itself.
"""
import os

from gomq_py.storage.format.acks import capacity_for

SEGMENT_BYTES = 8 * 1024 * 1024

# 8 pairs are about 75 MiB of disk and kept one busy queue from ever waiting for a fresh segment.
KEPT_PAIRS = 8


class SegmentPool:
    """Hands out pairs of files for new segments and takes back emptied ones. ``folder`` is the pool's own and holds nothing else."""

    def __init__(self, folder, files, committer=None, segment_bytes=SEGMENT_BYTES, kept_pairs=KEPT_PAIRS):
        self.folder = os.fspath(folder)
        self.files = files
        self.committer = committer
        self.segment_bytes = segment_bytes
        self.kept_pairs = kept_pairs
        self._pairs = []
        self._unnamed = []
        self._retiring = {}  # queue folder -> pairs whose msgs file has left, waiting for that to be flushed
        self._numbers = 0
        self._generation = int.from_bytes(os.urandom(7), "little")
        self._clear_folder()

    def next_generation(self):
        """A number that no segment had before."""
        self._generation += 1
        return self._generation

    def take(self, msgs_path, acks_path, msgs_bytes):
        """Two mapped files with these names, for a segment of this size. Raises OSError, leaving neither."""
        if msgs_bytes == self.segment_bytes and self._pairs:
            return self._take_kept(msgs_path, acks_path)
        msgs = self.files.create(msgs_path, msgs_bytes)
        try:
            return msgs, self.files.create(acks_path, capacity_for(msgs_bytes))
        except OSError:
            self.files.close(msgs)
            self.files.unlink(msgs_path)
            raise

    def take_unnamed(self, folder, msgs_bytes):
        """One mapped file without a name, for a segment of a transient queue."""
        if msgs_bytes == self.segment_bytes and self._unnamed:
            return self._unnamed.pop()
        return self.files.create_unnamed(folder, msgs_bytes)

    def retire(self, msgs, acks, msgs_path, acks_path, synced):
        """Take the files of an emptied segment: keep the pair, or unlink it. ``msgs`` and ``acks`` are None where a file is not open,
        ``msgs_path`` where
        there is none.

        If anything of it was ever flushed (``synced``), the msgs file's name is gone for good before the acks file is touched: a power cut
        that brought back the one without the other would bring back what was acked.
        """
        kept = self._retire_msgs(msgs, msgs_path) if msgs_path is not None else None
        if not synced:
            self._finish_retiring(kept, acks, acks_path)
            return
        folder = os.path.dirname(acks_path)
        waiting = (kept, acks, acks_path)
        self._retiring.setdefault(folder, []).append(waiting)
        self.committer.mark_folder(folder)
        self.committer.after_sync(lambda error: self._names_flushed(folder, waiting, error), hurry=False)

    def retire_unnamed(self, msgs):
        """Take the file of a transient queue's segment."""
        if msgs.size == self.segment_bytes and msgs.map is not None and not msgs.held and len(self._unnamed) < self.kept_pairs:
            self._unnamed.append(msgs)
        else:
            self.files.close(msgs)

    def forget(self, folder):
        """The folder goes away with all that is in it."""
        for _, acks, _ in self._retiring.pop(folder, ()):
            if acks is not None:
                self.files.close(acks)

    def describe(self):
        """What it holds, for people."""
        retiring = sum(len(waiting) for waiting in self._retiring.values())
        return f"{len(self._pairs)} pairs and {len(self._unnamed)} without names wait to be used again, {retiring} for their names to be flushed"

    def close(self):
        """Let go of all kept files."""
        for msgs, acks in self._pairs:
            for file in (msgs, acks):
                self.files.unlink(file.path)
                self.files.close(file)
        for msgs in self._unnamed:
            self.files.close(msgs)
        self._pairs, self._unnamed = [], []

    def _retire_msgs(self, msgs, path):
        """Move the file into the pool, or unlink it and return None. The sync that is running may still hold it."""
        if msgs is not None and msgs.size == self.segment_bytes and len(self._pairs) < self.kept_pairs:
            self._numbers += 1
            self.files.rename(path, os.path.join(self.folder, f"msgs.{self._numbers:010d}"), msgs)
            return msgs
        self._drop(msgs, path)
        return None

    def _names_flushed(self, folder, waiting, error):
        """The msgs file is gone from the queue's folder for good, unless the sync failed: then the acks stay where they are."""
        retiring = self._retiring.get(folder)
        if retiring is None or waiting not in retiring:
            return  # the folder was removed meanwhile
        retiring.remove(waiting)
        if not retiring:
            del self._retiring[folder]
        if error is None:
            self._finish_retiring(*waiting)

    def _finish_retiring(self, msgs, acks, acks_path):
        if msgs is None:
            self._drop(acks, acks_path)
        elif msgs.held or acks.held or acks.size != capacity_for(self.segment_bytes) or len(self._pairs) >= self.kept_pairs:
            self._drop(acks, acks_path)
            self._drop(msgs, msgs.path)
        else:
            self.files.rename(acks_path, os.path.join(self.folder, f"acks.{os.path.basename(msgs.path)[5:]}"), acks)
            self._pairs.append((msgs, acks))

    def _drop(self, file, path):
        self.files.unlink(path)
        if file is not None:
            self.files.close(file)

    def _take_kept(self, msgs_path, acks_path):
        msgs, acks = self._pairs.pop()
        self.files.rename(msgs.path, msgs_path, msgs)
        self.files.rename(acks.path, acks_path, acks)
        return msgs, acks

    def _clear_folder(self):
        """Files of an earlier run are not used again: what their pages on the disk hold is not known."""
        if not os.path.isdir(self.folder):
            self.files.make_folder(self.folder)
        for name in sorted(os.listdir(self.folder)):
            path = os.path.join(self.folder, name)
            if os.path.isdir(path) and not os.path.islink(path):  # not from us, but in the way
                self.files.remove_tree(path)
            else:
                self.files.unlink(path)
