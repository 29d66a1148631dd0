"""Damaged records: handles failed checksums. A damaged record is lost alone: its queue stays open.

For segments.recovered, which reads segments of earlier runs, for stores.recovery, which scans unsealed
segments, and for stores.stream_store, whose readers meet damage.
"""
import os

from gomq_py.observability.log import logger
from gomq_py.storage.disk.data_dir import is_known, known_name, known_ranges
from gomq_py.storage.errors import StoreError
from gomq_py.storage.format.record import RecordScanner

LOG = logger("storage")

# Most copies kept, and places logged, per queue: a dying disk must fill neither itself nor the log.
KEPT_COPIES = 100

UNKNOWN = -1


class DamageNotes:
    """Remembers the damage found in one broker. ``lost``: messages by folder; ``places``: damaged places by
    folder; ``known``: bytes of streams that an earlier run reported; ``kept_paths``: paths of copies.

    A thread that reopens a queue writes here, too: each folder has one writer at a time.
    """

    def __init__(self):
        self.lost = {}
        self.places = {}
        self.known = {}
        self.kept_paths = set()

    @property
    def records(self):
        """Count of messages damaged, or lost with their files."""
        return sum(list(self.lost.values()))


def count_lost(segment, behind):
    """Return (records, bytes of bodies) that are missing: the unacked ones by the segment's seal and acks,
    less those found. All sound records not yet taken lie from ``behind`` on.
    """
    recovered = segment.recovered
    scanner = RecordScanner(segment.msgs.map, behind, segment.end, segment.seed, recovered.next_ordinal)
    scanner.tally(recovered.runs())
    left, left_bytes = scanner.count - scanner.acked, scanner.body_bytes - scanner.acked_bytes
    return (
        max(0, segment.count - segment.taken - left),
        max(0, segment.body_bytes - segment.taken_bytes - left_bytes)
    )


def set_aside(store, segment, start, end, lost_count):
    """Ack the bytes [start, end), so that they are never read again.

    If the bytes were flushed once, copy them beside the segment and tell the log and the listener. Otherwise
    a crash left them, and nothing was promised. ``lost_count``: UNKNOWN if no sound record tells the count; 0
    if all were settled, so that nothing is lost.
    """
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
            "damaged: %s octets %d to %d; no message is lost: those there had been settled", path, start, end
        )
        return
    LOG.error(
        "damaged: %s octets %d to %d, %s message(s) lost; the disk returned something else than was written",
        path, start, end, "an unknown number of" if lost_count == UNKNOWN else lost_count,
    )
    if store.listener is not None:
        store.listener.record_damaged(store, path, start, end, 1 if lost_count == UNKNOWN else lost_count)


def note_gone(store, count):
    """Count messages that were lost with missing files; the caller logs the loss."""
    lost = store.pool.damage.lost
    lost[store.folder] = lost.get(store.folder, 0) + count


def _is_known(store, segment, start, end):
    """Whether an earlier run has reported this damage. A stream has no acks that hide damage from readers, so
    each run would report it again.

    If not, makes an empty file that marks the damage as known.
    """
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
    """Forget known damage in the segments before ``first_number``, because these segments are gone."""
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
    """Copy damaged bytes beside the segments as ``damaged.NAME``, if there is room and not too many copies
    exist.
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
        LOG.warning("no copy of the damaged octets: %s", error)
