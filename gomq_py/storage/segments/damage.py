"""Damaged records: reports and hides records with wrong checksums. Only such records are lost; the queue
stays open.

Used by segments.recovered (segments of earlier runs), stores.recovery (its scans) and stores.stream_store.
"""
import os

from gomq_py.observability.log import logger
from gomq_py.storage.errors import StoreError
from gomq_py.storage.format.known_damage import is_known, known_name, known_ranges
from gomq_py.storage.format.record import RecordScanner

LOG = logger("storage")

# Most copies kept, and places logged, per queue: a dying disk must fill neither itself nor the log.
KEPT_COPIES = 100

UNKNOWN = -1


class DamageNotes:
    """Collects the damage found in all stores of a broker.

        lost          {folder: number of lost messages}
        places        {folder: number of damaged places}
        known         {stream's folder: [(segment number, start, end)] of damage that was reported before}
        kept_paths    set of the paths of copies (keep_copy)

    A thread that reopens a queue writes here, too; each folder has one writer at a time.
    """

    def __init__(self):
        self.lost = {}
        self.places = {}
        self.known = {}
        self.kept_paths = set()

    @property
    def records(self):
        """Number of messages damaged, or lost with their files, in all folders."""
        return sum(list(self.lost.values()))


def count_lost(segment, behind):
    """Count the messages that a segment has lost by damage before they were taken. Returns (records, bytes of
    bodies). ``behind``: position at which the damage ends.
    """
    recovered = segment.recovered
    scanner = RecordScanner(
        segment.msgs.map, behind, segment.end, segment.seed, segment.begun_ms, recovered.next_ordinal)
    scanner.tally(recovered.runs())
    left, left_bytes = scanner.count - scanner.acked, scanner.body_bytes - scanner.acked_bytes
    return (
        max(0, segment.count - segment.taken - left),
        max(0, segment.body_bytes - segment.taken_bytes - left_bytes)
    )


def set_aside(store, segment, start, end, lost_count):
    """Mark the damaged bytes [start, end) as acked, so that they are never read again. If they had been
    flushed, also count, copy and log the damage, and report it to the store's listener. ``lost_count``:
    messages lost; 0 if all of them were acked; UNKNOWN if no valid record follows the damage.
    """
    # Bytes that were flushed once are also copied beside the segment, and reported to the log and the
    # listener. Others are what a crash leaves: nothing was promised.
    path = segment.path()
    _ack(store, segment, start, end)
    if start >= segment.synced or (segment.acks is None and _is_known(store, segment, start, end)):
        return
    notes = store.pool.damage
    notes.lost[store.folder] = notes.lost.get(store.folder, 0) + (1 if lost_count == UNKNOWN else lost_count)
    said = notes.places[store.folder] = notes.places.get(store.folder, 0) + 1
    if said > KEPT_COPIES:
        if said == KEPT_COPIES + 1:
            LOG.error(
                "damaged: more than %d places in %s; the others are neither said nor kept. Look after the "
                "disk", KEPT_COPIES, store.folder,
            )
        return
    keep_copy(store, f"{segment.number:010d}.{start}", segment.msgs.read(start, end))
    if lost_count == 0:
        LOG.warning(
            "damaged: %s bytes %d to %d; no message is lost: those there had been settled", path, start, end
        )
        return
    LOG.error(
        "damaged: %s bytes %d to %d, %s message(s) lost; the disk returned something else than was written",
        path, start, end, "an unknown number of" if lost_count == UNKNOWN else lost_count,
    )
    if store.listener is not None:
        store.listener.record_damaged(store, path, start, end, 1 if lost_count == UNKNOWN else lost_count)


def note_gone(store, count):
    """Add ``count`` messages, whose files are missing, to the store's lost messages. The caller logs this."""
    lost = store.pool.damage.lost
    lost[store.folder] = lost.get(store.folder, 0) + count


def _is_known(store, segment, start, end):
    """Return whether damage of a stream was reported before. If not, record on disk that it is now."""
    # Readers of a stream meet its damage in each run, because a stream has no acks to hide it.
    known = store.pool.damage.known.get(store.folder)
    if known is None:
        known = store.pool.damage.known[store.folder] = known_ranges(os.listdir(store.folder))
    if is_known(known, segment.number, start, end):
        return True
    if len(known) < KEPT_COPIES:
        known.append((segment.number, start, end))
        try:
            store.files.close(
                store.files.open_log(os.path.join(store.folder, known_name(segment.number, start, end)))
            )
        except OSError as error:
            LOG.warning("damage of %s will be said again by the next run: %s", segment.path(), error)
    return False


def forget_known(store, names, first_number):
    """Delete the known_name() files among ``names`` whose segment has a number below ``first_number``."""
    for number, start, end in known_ranges(names):
        if number < first_number:
            store.files.unlink(os.path.join(store.folder, known_name(number, start, end)))


def _ack(store, segment, start, end):
    if segment.acks is not None:
        try:
            segment.put_run(start, end)
            store.announce_acks(segment)
        except StoreError as error:
            LOG.warning("damage stays unmarked: %s", error)


def keep_copy(store, name, content):
    """Copy damaged bytes to ``damaged.NAME`` beside the segments, unless the disk is full, the file exists,
    or the folder has KEPT_COPIES copies.
    """
    path = os.path.join(store.folder, f"damaged.{name}")
    try:
        if (
            os.path.exists(path)
            or sum(name.startswith("damaged.") for name in os.listdir(store.folder)) >= KEPT_COPIES
        ):
            return
        file = store.files.open_log(path)
        try:
            store.files.append(file, content)
        finally:
            store.files.close(file)
        store.pool.damage.kept_paths.add(path)
    except OSError as error:
        LOG.warning("no copy of the damaged bytes: %s", error)
