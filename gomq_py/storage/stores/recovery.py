"""Recovery: opens a queue's store after a normal stop, a kill or a power failure.

Called once per queue at boot, before any other access to the queue's folder. Each segment is checked by
itself: the heads of its two files, then its seal (closing counts), or every record if there is no valid seal,
then its acks. Recovery writes what a second recovery would find as well: the same bytes if they may not be
on the disk, a seal, acks for damaged ranges. So a crash during recovery does no harm. May block: only for
boot and for ``queue.declare`` of a name whose folder was left over.
"""
import os
import re
from array import array
from typing import NamedTuple

from gomq_py.observability.log import logger
from gomq_py.storage.disk.data_dir import POWER_LOST, STOPPED, move_aside
from gomq_py.storage.errors import StoreError
from gomq_py.storage.format import head as head_format
from gomq_py.storage.format import record
from gomq_py.storage.format.known_damage import lost_among
from gomq_py.storage.format.record import LEAST_BYTES, RecordScanner
from gomq_py.storage.segments import damage
from gomq_py.storage.segments.recovered import Recovered
from gomq_py.storage.segments.segment import Segment
from gomq_py.storage.stores.message_store import MessageStore

LOG = logger("storage")

# Octets of a record beside properties and body, at least: of a small one with two empty names.
_LEAST_BESIDE = 16

_NAME = re.compile(r"(msgs|acks)\.(\d{10})")


class RecoveryReport(NamedTuple):
    """What recovery has found when it opened a store.

        ready_count    number of ready messages
        scanned        number of segments that were read record by record
        lost           number of damaged or missing records that had been flushed
        removed        paths of removed files
        gone           paths of missing msgs files that had messages when the last run stopped
        gone_count     number of messages in these files
    """

    ready_count: int = 0
    scanned: int = 0
    lost: int = 0
    removed: tuple = ()
    gone: tuple = ()
    gone_count: int = 0


def open_store(
    folder, files, pool, committer, incarnation, segment_bytes=8388608, durable=True, level=0, listener=None,
    make=MessageStore,
):
    """Create a queue's store, or open the store that an earlier run left in the folder. ``make``: class of
    the store. Returns (MessageStore, RecoveryReport). Raises StoreError if the disk cannot be read.
    """
    store = make(folder, files, pool, committer, incarnation, segment_bytes, durable, level, listener)
    if not durable:
        return store, RecoveryReport()
    try:
        return store, Recovery(store).run()
    except OSError as error:
        raise StoreError(store.folder, 0, f"cannot be opened: {error}") from error


class Recovery:
    """Opens one queue's store. The subclass StreamRecovery opens a stream's store."""

    def __init__(self, store):
        self.store = store
        self.files = store.files
        # the content that an orderly stop has listed, or None
        self.listed = store.pool.listed.pop(store.folder, None)
        self.scanned = self.lost = 0
        self.removed = []
        self.gone = {}  # number of a missing segment -> its messages

    def run(self):
        names = self._names()
        if not names and not self._counts_listed():
            return RecoveryReport()  # quick for a new queue: thousands may be declared per second
        found = {}
        for name in names:
            match = _NAME.fullmatch(name)
            if match:
                found.setdefault(int(match[2]), set()).add(match[1])
            elif name.startswith("damaged."):
                self.store.pool.damage.kept_paths.add(self._path_of(name))
        for number in sorted(found):
            if "msgs" in found[number]:
                self._open_pair(number, "acks" in found[number])
            else:
                self._remove_acks(number)
        self._miss_segments({number for number, kinds in found.items() if "msgs" in kinds}, found)
        return self._report()

    def _names(self):
        """Return the names of the files in the store's folder; empty without a folder."""
        return os.listdir(self.store.folder) if os.path.isdir(self.store.folder) else ()

    def _miss_segments(self, present, numbers):
        """Find segments that the last normal stop listed and ``present`` lacks. Count their messages as lost.
        ``numbers``: the segment numbers of all files.
        """
        # New segments get higher numbers than missing ones and all ``numbers`` in use, because a missing file
        # may be restored later.
        listed = self._counts_listed()
        self.gone.update((number, count) for number, count in listed.items() if number not in present)
        if self.gone:
            damage.note_gone(self.store, sum(self.gone.values()))
        if numbers or listed:
            self.store.begin_behind(max((*numbers, *listed)))

    def _counts_listed(self):
        """Return {segment number: count of unacked messages} from the last normal stop; empty if unknown."""
        return {} if self.listed is None else self.listed.counts

    def _report(self):
        gone = tuple(self.store.path_of("msgs", number) for number in sorted(self.gone))
        return RecoveryReport(
            self.store.ready_count, self.scanned, self.lost, tuple(self.removed), gone,
            sum(self.gone.values()),
        )

    def _open_pair(self, number, has_acks):
        """Check a segment's two files. Add it to the store, or remove it if all its messages are acked."""
        store = self.store
        msgs = self.files.open(store.path_of("msgs", number))
        acks = None
        try:
            if has_acks:
                acks = self.files.open(store.path_of("acks", number))
            self.files.read_through(msgs, 0, min(msgs.size, head_format.HEAD_BYTES))
            if acks is not None:
                self.files.read_through(acks)
            head = self._head_of_pair(number, msgs, acks)
            if head is None:
                self._remove_pair(number, msgs, acks)
                return
            if acks is None:
                self._report_missing_acks(number, head, msgs)
            acks_head = head.twin(head_format.ACKS_MAGIC)
            if acks is not None and self._are_foreign(acks_head, acks):
                acks = self._set_acks_aside(acks)
            unreadable = self._unreadable_acks(acks)
            if unreadable is not None and number not in self.listed.counts:
                self._keep_settled(number, msgs, acks)
                return
            acks = self._sound_acks(number, acks_head, acks)
            segment = Segment(number, Recovered())
            segment.attach(msgs, acks)
            self._restore(segment, head, acks_head)
            self._report_damaged_acks(segment, unreadable)
            segment.detach()
        finally:
            self.files.close(msgs)
            if acks is not None:
                self.files.close(acks)
        if segment.acked >= segment.count:
            store.pool.boot.note_settled(store.folder, number, segment, None)
            store.pool.retire(None, None, msgs.path, acks.path, True)
        else:
            store.adopt(segment)

    # heads

    def _head_of_pair(self, number, msgs, acks):
        """Return the Head of the msgs file, rebuilt from the acks file's head if its own is unreadable.
        None if the msgs file belongs to another segment, or if neither head is usable.
        """
        head = self._bound_head(number, msgs, head_format.MSGS_MAGIC)
        if head is None and _head_in(msgs, head_format.MSGS_MAGIC) is not None:
            return None  # an intact head of another segment, which owns the records
        if head is None and acks is not None and msgs.size >= head_format.HEAD_BYTES:
            twin = self._bound_head(number, acks, head_format.ACKS_MAGIC)
            head = None if twin is None else twin.twin(head_format.MSGS_MAGIC)
        return head

    def _bound_head(self, number, file, magic):
        head = _head_in(file, magic)
        if (
            head is None or head.incarnation != self.store.incarnation or head.number != number
            or file.size < head_format.HEAD_BYTES
        ):
            return None
        return head

    def _sound_acks(self, number, acks_head, acks):
        """Create or repair the acks file: a valid head and space for all acks. Returns the open file."""
        # Entries written under another head have wrong checksums from then on.
        path = self.store.path_of("acks", number)
        size = record.capacity_for(acks_head.capacity, acks_head.version)
        if acks is None or acks.size < head_format.HEAD_BYTES:
            if acks is not None:
                self.files.close(acks)
                self.files.unlink(path)
            acks = self.files.create(path, size)
            self.store.committer.mark_folder(self.store.folder)
        elif acks.size < size:
            self.files.extend(acks, size)
        try:
            if _head_in(acks, head_format.ACKS_MAGIC) != acks_head:
                self.files.allocate(acks)
                acks.map[:head_format.HEAD_BYTES] = acks_head.encode().ljust(head_format.HEAD_BYTES, b"\0")
                self.files.overwritten(acks, 0, head_format.HEAD_BYTES)
        except OSError:
            self.files.close(acks)  # the caller may not have it
            raise
        return acks

    # counts

    def _restore(self, segment, head, acks_head):
        msgs_octets = segment.msgs.read(0, head_format.HEAD_BYTES)
        acks_octets = segment.acks.read(0, head_format.HEAD_BYTES)
        seal = head_format.decode_seal(head.seed, msgs_octets)
        missing = None
        if seal is not None and not head_format.HEAD_BYTES <= seal.end <= segment.msgs.size:
            seal, missing = None, seal
        segment.restore_synced(
            head_format.decode_mark(head.seed, head_format.SYNCED_SALT, msgs_octets, head_format.SYNCED_AT)
        )
        acks_seal = head_format.decode_acks_seal(acks_head.seed, acks_octets)
        delivered = head_format.decode_mark(
            acks_head.seed, head_format.DELIVERED_SALT, acks_octets, head_format.DELIVERED_AT
        )
        segment.restore_acks(acks_head.seed, acks_seal, delivered)
        segment.load_acks()
        if seal is not None and not _adds_up(seal, acks_seal):
            seal = None
        if acks_seal is not None and segment.entries != acks_seal.entries:
            segment.restore_acks(acks_head.seed, None, delivered)
            segment.load_acks()
            acks_seal = None
        if acks_seal is None and self.store.committer.enabled:
            # otherwise the next flush need not cover them, and entries behind them could not be found
            entries_end = head_format.HEAD_BYTES + 8 * segment.entries
            self.files.write_again(
                segment.acks, head_format.HEAD_BYTES,
                segment.acks.size if segment.recovered.patchy else entries_end)
        if seal is None:
            self._scan(segment, head, missing)
            if missing is not None:
                self._report_missing(segment, missing)
            return
        segment.restore(head, seal)
        if acks_seal is None and segment.recovered.runs():
            self.files.read_through(segment.msgs, 0, segment.end)
            scanner = RecordScanner(
                segment.msgs.map, head_format.HEAD_BYTES, segment.end, head.seed, head.begun_ms)
            scanner.tally(segment.recovered.runs(), False)
            segment.restore_acked(scanner.acked, scanner.acked_bytes)

    def _scan(self, segment, head, missing=None):
        """Check every record of a segment without valid closing counts (seal), then flush and seal it.
        ``missing``: None, or the seal of a file that was cut short; ordinals of missing records are not
        reused.
        """
        # At a promoted follower's boot all segments are flushed and sealed together (unsealed).
        unsealed = self.store.pool.boot.unsealed
        if not self.scanned and self.store.committer.enabled and unsealed is None:
            # After a kill a name may only be in the system's cache. Names are flushed before any seal is
            # written: if this boot is interrupted, the next one finds no seal and flushes them.
            self.files.sync_folder(self.store.folder)
            self.files.sync_folder(os.path.dirname(self.store.folder))
        self.scanned += 1
        msgs, runs = segment.msgs, segment.recovered.runs()
        self.files.read_through(msgs)
        scanner = RecordScanner(msgs.map, head_format.HEAD_BYTES, msgs.size, head.seed, head.begun_ms)
        scanner.tally(runs)
        damaged = _joined(
            (start, end, lost) for start, end, count in scanner.damaged
            if (lost := lost_among(start, end, count, runs)))
        next_ordinal = scanner.next_ordinal
        if missing is not None:
            next_ordinal = max(next_ordinal, missing.next_ordinal)
        elif scanner.at < segment.synced:
            damaged.append((scanner.at, min(segment.synced, msgs.size), damage.UNKNOWN))
            # An upper bound of the missing records: a stream must not reuse their offsets.
            next_ordinal += (segment.synced - scanner.at) // LEAST_BYTES
        seal = head_format.Seal(
            scanner.count, next_ordinal, scanner.body_bytes, scanner.at, scanner.first_timestamp_ms,
            scanner.timestamp_ms)
        segment.restore(head, seal)
        segment.restore_acked(scanner.acked, scanner.acked_bytes)
        for start, end, count in damaged:
            if start < segment.synced:
                self.lost += 1 if count == damage.UNKNOWN else count
            damage.set_aside(self.store, segment, start, end, count)
        if self.store.committer.enabled:
            self.files.write_again(msgs, segment.synced, scanner.at)
            if unsealed is not None:
                unsealed.add(msgs, head, seal)
                return
            self.files.sync(msgs)
            self.files.register.flushed()  # a follower flushes, too, before the seal
        self.files.allocate(msgs)
        segment.write_head(head)
        self.files.overwritten(msgs, 0, head_format.HEAD_BYTES)

    def _report_missing(self, segment, seal):
        """Log that a msgs file is shorter than its closing counts say: it was cut while no broker ran."""
        lost = max(0, seal.records - segment.count)
        self.lost += lost
        LOG.error(
            "damaged: %s has %d bytes, and had %d: cut short while no broker ran; %d message(s) of it are "
            "lost or were acked", segment.path(), segment.msgs.size, seal.end, lost,
        )

    # unwanted files

    def _remove_pair(self, number, msgs, acks):
        """Remove files that are no segment of this queue. Files that may have messages are only renamed."""
        # Removed are files of an earlier queue of this name, or without content, as a crash leaves them.
        # Files with unreadable heads, or in which the last run left messages, are renamed and kept; files
        # with messages of another queue are moved into set-aside/.
        if self._set_foreign_aside(msgs, acks):
            return
        count = self._counts_listed().get(number, 0)
        if count:
            self.gone[number] = count
        for file in (msgs, acks):
            if file is None:
                continue
            octets = file.read(0, head_format.HEAD_BYTES)
            is_readable = head_format.decode(octets) is not None or not any(octets)
            if is_readable and not count:
                self.removed.append(file.path)
                self.files.unlink(file.path)
            else:
                what = "holds nothing of this segment any more" if is_readable else "has an unreadable head"
                LOG.error("damaged: %s %s; kept as damaged.%s", file.path, what, os.path.basename(file.path))
                kept = self._path_of(f"damaged.{os.path.basename(file.path)}")
                self.files.rename(file.path, kept)
                self.store.pool.damage.kept_paths.add(kept)

    def _path_of(self, name):
        return os.path.join(self.store.folder, name)

    def _set_foreign_aside(self, msgs, acks):
        """Move the files into set-aside/ if the msgs file has unacked messages of another segment. Returns
        whether they were moved.
        """
        head = _head_in(msgs, head_format.MSGS_MAGIC)
        if head is None or msgs.size < head_format.HEAD_BYTES:
            return False
        count = self._count_left(head, msgs, acks)
        if count == 0:
            return False
        kept = ", ".join(self._move_aside(file.path) for file in (msgs, acks) if file is not None)
        text = (
            "%s holds segment %d of queues/*.%s with %d message(s), and nothing of its own: the files are "
            "not where they belong; kept as %s"
        )
        if self.store.pool.last_end == POWER_LOST:
            LOG.warning(text + ". Or it was about to be used anew when the power went",
                        msgs.path, head.number, head.incarnation[:8].hex(), count, kept)
        else:
            LOG.error(text, msgs.path, head.number, head.incarnation[:8].hex(), count, kept)
        return True

    def _count_left(self, head, msgs, acks):
        self.files.read_through(msgs)
        runs = array("Q")
        twin = head.twin(head_format.ACKS_MAGIC)
        if acks is not None and _head_in(acks, head_format.ACKS_MAGIC) == twin:
            runs = record.load_acks(acks.map, twin.seed).runs
        scanner = RecordScanner(msgs.map, head_format.HEAD_BYTES, msgs.size, head.seed, head.begun_ms)
        scanner.tally(runs)
        return scanner.count - scanner.acked

    def _move_aside(self, path):
        """Move a file to the data folder's set-aside/. Returns its new path."""
        parts = path.split(os.sep)
        name = ".".join(parts[-3:] if parts[-2].startswith("level.") else parts[-2:])
        return move_aside(self.files, os.path.dirname(self.store.pool.folder), path, name)

    def _report_missing_acks(self, number, head, msgs):
        """Log that the acks file was removed while no broker ran. Logs nothing after a power failure."""
        # The broker removes an acks file after the msgs file, never before. After a loss of power a new
        # file's name may not have been flushed.
        if self.store.pool.last_end == POWER_LOST:
            return
        octets = msgs.read(0, head_format.HEAD_BYTES)
        if head_format.decode_seal(head.seed, octets) is not None \
                or head_format.decode_mark(head.seed, head_format.SYNCED_SALT, octets, head_format.SYNCED_AT):
            LOG.error(
                "%s is gone: the messages of this segment that had been acknowledged come back",
                self.store.path_of("acks", number),
            )

    def _unreadable_acks(self, acks):
        """Return the content of an acks file whose head is unreadable after a normal stop; otherwise None."""
        # After a crash always None: the file may have been recycled just then.
        if self.listed is None or acks is None:
            return None
        octets = acks.read(0, acks.size)
        return octets if head_format.decode(octets, head_format.ACKS_MAGIC) is None else None

    def _keep_settled(self, number, msgs, acks):
        """Rename files with unreadable acks to ``damaged.NAME``: the last stop listed no message in them."""
        # All were acked, unless somebody has restored the file.
        kept = []
        for file in (msgs, acks):
            kept.append(self._path_of(f"damaged.{os.path.basename(file.path)}"))
            self.files.rename(file.path, kept[-1])
        self.store.pool.damage.kept_paths.update(kept)
        LOG.error(
            "damaged: the acknowledgements of segment %d cannot be read, the disk returned something else "
            "than was written. No message is lost and none comes back: the last run left none in it. Kept as "
            "%s", number, " and ".join(kept),
        )

    def _report_damaged_acks(self, segment, unreadable):
        """Log that acks are unreadable or missing after a normal stop, and copy the acks file."""
        # The last run's list of segments tells how many acked messages are ready again.
        left = None if self.listed is None else self.listed.counts.get(segment.number)
        back = 0 if left is None else segment.count - segment.acked - left
        if unreadable is None and back <= 0:
            return
        octets = segment.acks.read(0, segment.acks.size) if unreadable is None else unreadable
        name = os.path.basename(segment.acks.path)
        damage.keep_copy(self.store, name, octets)
        LOG.error(
            "damaged: %s: the disk returned something else than was written; %d message(s) that had been "
            "acknowledged come back, the last run left %d in this segment; kept as damaged.%s",
            segment.acks.path, max(0, back), left, name,
        )

    def _are_foreign(self, acks_head, acks):
        """Return whether the acks file belongs to another segment. Always False after a crash."""
        # A crash may have interrupted the reuse of an old acks file, whose acks are then of the file's former
        # segment. After an orderly stop, which lists this store's segments, somebody has put the file here.
        found = _head_in(acks, head_format.ACKS_MAGIC)
        return self.listed is not None and found is not None and found != acks_head

    def _set_acks_aside(self, acks):
        """Move another segment's acks file into set-aside/. Returns None, as no acks file is left."""
        head = _head_in(acks, head_format.ACKS_MAGIC)
        self.files.close(acks)
        LOG.error(
            "%s holds the acks of segment %d of queues/*.%s and is not where it belongs; kept as %s. The "
            "messages of its segment that had been acknowledged come back", acks.path, head.number,
            head.incarnation[:8].hex(), self._move_aside(acks.path),
        )

    def _remove_acks(self, number):
        """Remove an acks file that has no msgs file. Keep it in set-aside/ if messages are lost."""
        # If the segment had messages at the last orderly stop, their loss is logged and the acks file set
        # aside.
        path = self.store.path_of("acks", number)
        file = self.files.open(path)
        head = self._bound_head(number, file, head_format.ACKS_MAGIC)
        if head is not None:
            self.files.read_through(file)
            runs = record.load_acks(file.map, head.seed).runs
            self.store.pool.boot.note_settled(self.store.folder, number, None, runs)
        self.files.close(file)
        if self.store.pool.last_end == STOPPED:
            if head is not None and (self.listed is None or number in self.listed.counts):
                LOG.error("%s is gone: its messages are lost; what had become of them is kept as %s",
                          self.store.path_of("msgs", number), self._move_aside(path))
                return
        self.removed.append(path)
        self.store.pool.retire(None, None, None, path, True)


def _head_in(file, magic):
    return head_format.decode(file.read(0, head_format.HEAD_BYTES), magic)


def _joined(damaged):
    """Merge adjacent entries of a sorted list of (start, end, records lost). Returns a new list."""
    joined = []
    for start, end, count in damaged:
        if joined and joined[-1][1] == start:
            start, _, before = joined.pop()
            count += before
        joined.append((start, end, count))
    return joined


def _adds_up(seal, acks_seal):
    """Return whether the counts in two seals are possible: they fit the data's size and each other."""
    # Their checksums are right, but another program may have written them.
    room = seal.end - head_format.HEAD_BYTES
    if seal.records * LEAST_BYTES > room or seal.records * _LEAST_BESIDE + seal.body_bytes > room:
        return False
    return acks_seal is None or (acks_seal.acked <= seal.records and acks_seal.body_bytes <= seal.body_bytes)
