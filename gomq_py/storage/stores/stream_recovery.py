"""Stream recovery: opens a stream's store after a normal stop, a kill or a power failure.

Follows the rules of storage.stores.recovery: each segment is checked by its seal (closing counts) or by
reading every record. A stream has no acks. The newest segment is kept even when empty, because it records the
next offset. May block: only for boot and ``queue.declare``.
"""
import re

from gomq_py.observability.log import logger
from gomq_py.storage.errors import StoreError
from gomq_py.storage.format import head as head_format
from gomq_py.storage.segments import damage
from gomq_py.storage.segments.recovered import Recovered
from gomq_py.storage.segments.segment import Segment
from gomq_py.storage.stores import stream_offsets
from gomq_py.storage.stores.recovery import Recovery
from gomq_py.storage.stores.stream_store import StreamStore

LOG = logger("storage")
_NAME = re.compile(r"msgs\.(\d{10})")


def open_stream_store(folder, files, pool, committer, incarnation, segment_bytes=8388608, listener=None):
    """Create a stream's store, or open the store that an earlier run left in the folder. Returns
    (StreamStore, RecoveryReport). Raises StoreError if the disk cannot be read.
    """
    store = StreamStore(folder, files, pool, committer, incarnation, segment_bytes, listener)
    try:
        return store, StreamRecovery(store).run()
    except OSError as error:
        store.offsets.close()
        raise StoreError(store.folder, 0, f"cannot be opened: {error}") from error


class StreamRecovery(Recovery):
    """Opens one stream's store: checks its segments and its consumers' positions."""

    def run(self):
        names = self._names()
        numbers = sorted(int(match[1]) for match in map(_NAME.fullmatch, names) if match)
        self.store.pool.damage.kept_paths.update(
            self._path_of(name) for name in names if name.startswith("damaged.")
        )
        if any(name.startswith("known.") for name in names):
            damage.forget_known(self.store, names, numbers[0] if numbers else 0)
        found = []
        for number in numbers:
            segment = self._open_segment(number)
            if segment is not None:
                found.append(segment)
        for segment in found:
            if segment.ordinal or segment is found[-1]:
                self.store.adopt(segment)
            else:
                self.files.unlink(self.store.path_of("msgs", segment.number))
        self._miss_segments(set(numbers), numbers)
        if self.listed is not None and self.listed.next_offset > self.store.next_offset:
            self.store.go_on_at(self.listed.next_offset)
        self._check_positions(self.store.offsets.load(self.store.next_offset))
        return self._report()

    def _check_positions(self, found):
        """Log and copy the file of consumers' positions if it changed after the last normal stop. After a
        crash, do so if it is another stream's. ``found``: content of the file.
        """
        left = None if self.listed is None else self.listed.positions
        if left is None:
            is_other = self.store.offsets.file is None and any(found[:stream_offsets.HEAD_BYTES])
        else:
            is_other = stream_offsets.checksum(found) != left
        if is_other:
            damage.keep_copy(self.store, stream_offsets.NAME, found)
            LOG.error(
                "%s is %s: consumers of this stream go on at older positions, or begin anew where they ask "
                "to, and get messages again. Kept as damaged.%s", self._path_of(stream_offsets.NAME),
                "not what the last run left" if found else "gone or empty", stream_offsets.NAME)

    def _open_segment(self, number):
        """Check an msgs file. Returns its Segment; None, after _remove_pair(), if it is not this stream's."""
        msgs = self.files.open(self.store.path_of("msgs", number))
        try:
            head = self._head_of_pair(number, msgs, None)
            if head is None:
                self._remove_pair(number, msgs, None)
                return None
            segment = Segment(number, Recovered())
            segment.attach(msgs, None)
            self._restore_messages(segment, head)
            segment.detach()
            return segment
        finally:
            self.files.close(msgs)

    def _restore_messages(self, segment, head):
        octets = segment.msgs.read(0, head_format.HEAD_BYTES)
        seal = head_format.decode_seal(head.seed, octets)
        segment.restore_synced(
            head_format.decode_mark(head.seed, head_format.SYNCED_SALT, octets, head_format.SYNCED_AT)
        )
        if seal is not None and head_format.HEAD_BYTES <= seal.end <= segment.msgs.size:
            segment.restore(head, seal)
            return
        self._scan(segment, head, seal)
        if seal is not None:
            self._report_missing(segment, seal)
