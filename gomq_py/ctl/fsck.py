"""Checks the files in the data folder of a stopped broker, byte by byte. Never writes.

A crash leaves traces that are no damage: an incomplete record at a file's end, a record that was never
flushed, a file without its head. Damage is data that fails its check although it was flushed, or is in a
sealed (finished) segment. A file that is lost or in a wrong place is damage, too.
"""
import contextlib
import mmap
import os
import re

from gomq_py.ctl.offline import Definitions, FolderError, held_folder
from gomq_py.storage.disk.data_dir import (
    DEFINITIONS, QUEUES, STOPPED, USERS, DataDir, last_end_of, listed_in, logs_left_in, lost_logs,
)
from gomq_py.storage.format import head as head_format
from gomq_py.storage.format import record
from gomq_py.storage.format.known_damage import is_known, known_ranges
from gomq_py.storage.format.log import LogError, LogScan
from gomq_py.storage.format.record import RecordScanner
from gomq_py.storage.stores import stream_offsets

LOGS = (DEFINITIONS, USERS)
_SEGMENT = re.compile(r"(msgs|acks)\.(\d{10})")
_LEVEL = re.compile(r"level\.\d{3}")


class Findings:
    """Results of checks. ``damage``, ``notes``: [(path, text)]. ``counts``: {"queues": number, ...}."""

    def __init__(self, ended_in_order=False, listed=()):
        # True after an orderly stop; otherwise acks of deleted segments may be left
        self.ended_in_order = ended_in_order
        # Segment lists of the last run, {folder: storage.disk.segment_list.Listed}; checked folders are
        # removed.
        self.listed = dict(listed)
        self.damage, self.notes = [], []
        self.counts = dict.fromkeys(("queues", "segments", "records", "acked", "octets", "log_records"), 0)

    def damaged(self, path, text):
        self.damage.append((path, text))

    def noted(self, path, text):
        self.notes.append((path, text))


def check_folder(root, progress=lambda what, done, total: None):
    """Return Findings about a data folder. ``progress``: an output.Progress. Raises FolderError if the folder
    is no data folder, or a broker uses it.
    """
    with held_folder(root):
        last_end = last_end_of(root)
        findings = Findings(last_end == STOPPED, listed_in(root))
        findings.damage += lost_logs(root, last_end)
        lost = {path for path, _ in findings.damage}
        left = logs_left_in(root, last_end)
        for name in LOGS:
            path = os.path.join(root, name)
            if path not in lost:
                _check_log(path, findings, left.get(name))
        findings.notes += [
            (path, "kept for you: delete it when you have what you want from it")
            for path in DataDir(root).kept_paths()
        ]
        owned = _Owned(root, bool(lost))
        queues = os.path.join(root, QUEUES)
        names = sorted(os.listdir(queues)) if os.path.isdir(queues) else []
        for done, name in enumerate(names):
            progress("checking", done, len(names))
            folder = os.path.join(queues, name)
            if not os.path.isdir(folder):
                findings.noted(folder, "is no queue's folder")
                continue
            findings.counts["queues"] += 1
            owned.check(folder, name, findings)
            _check_queue(folder, findings, owned.is_stream(folder, name))
        for folder, entry in findings.listed.items():
            if entry.counts:
                count = sum(entry.counts.values())
                findings.damaged(folder, f"is gone since the last run stopped, with {count} message(s)")
        return findings


class _Owned:
    """The folders below queues/ that belong to a queue, if the definitions can be read."""

    def __init__(self, root, are_lost):
        self._streams = self._folders = None
        if not are_lost:
            with contextlib.suppress(FolderError):
                definitions = Definitions(root)
                self._streams = definitions.stream_folders()
                self._folders, self._deleted = definitions.folders()

    def is_stream(self, folder, name):
        """Return True if the folder at path ``folder``, called ``name``, belongs to a stream."""
        if os.path.exists(os.path.join(folder, stream_offsets.NAME)):
            return True
        if self._streams is not None and name in self._folders:
            return name in self._streams
        return not any(inner.startswith(("acks.", "level.")) for inner in os.listdir(folder))

    def check(self, folder, name, findings):
        """Report a folder whose queue is not in the definitions. Does nothing if these cannot be read."""
        if self._folders is None or name in self._folders:
            return
        if name.partition(".")[2] in self._deleted:
            findings.noted(folder, "its queue was deleted: the next boot removes it")
        elif any(inner.startswith("msgs.") for _, _, names in os.walk(folder) for inner in names):
            findings.damaged(
                folder, "the definitions name no queue for it: the next boot moves it to set-aside, from "
                "where gomq-py-ctl recover gives its messages to a queue")


def _check_log(path, findings, left):
    try:
        with open(path, "rb") as file:
            scan = LogScan(path, file.read(), left)
        findings.counts["log_records"] += sum(1 for _ in scan)
    except OSError as error:
        findings.damaged(path, error.strerror)
        return
    except LogError as error:
        findings.damaged(path, error.reason)
        return
    for damage in scan.damage:
        text = f"bytes {damage.start} to {damage.end}: {damage.reason}"
        if damage.promised:
            findings.damaged(path, text)
        else:
            findings.noted(path, f"{text} (the end of a crash)")


def _check_queue(folder, findings, is_stream=False):
    found = {}
    incarnation = _incarnation_of(folder)
    listed = findings.listed.pop(os.path.abspath(folder), None)
    if is_stream:
        left = None if listed is None else listed.positions
        _check_offsets(os.path.join(folder, stream_offsets.NAME), incarnation, left, findings)
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        match = _SEGMENT.fullmatch(name)
        if match:
            found.setdefault(int(match[2]), {})[match[1]] = path
        elif _LEVEL.fullmatch(name) and os.path.isdir(path):
            _check_queue(path, findings)
        elif is_stream and (name == stream_offsets.NAME or name.startswith("known.")):
            pass  # reported already
        elif name.startswith("damaged."):
            findings.noted(path, "kept by an earlier run: delete it when you have what you want from it")
        else:
            findings.noted(path, "is none of a queue's files")
    for number, count in () if listed is None else listed.counts.items():
        if number not in found:
            path = os.path.join(folder, f"msgs.{number:010d}")
            findings.damaged(path, f"is gone since the last run stopped, with {count} message(s)")
    for number, pair in sorted(found.items()):
        try:
            is_wanted = listed is None or number in listed.counts
            _check_segment(number, pair, incarnation, findings, is_stream, is_wanted)
        except OSError as error:
            findings.damaged(error.filename or folder, error.strerror or str(error))


def _incarnation_of(folder):
    """Return the part of a queue's incarnation (its id, in hex) that is in its folder's name, or ""."""
    if _LEVEL.fullmatch(os.path.basename(folder)):
        folder = os.path.dirname(folder)
    return os.path.basename(folder).partition(".")[2].partition(".")[0]  # in set-aside/ a number follows


def _check_offsets(path, incarnation, left, findings):
    """Check a stream's file of consumer positions. ``left``: its checksum at an orderly stop, or None."""
    # A torn position is no damage: it was not flushed, and its consumer begins anew.
    is_there, content = os.path.exists(path), b""
    if is_there:
        with open(path, "rb") as file:
            content = file.read()
    if left not in (None, stream_offsets.checksum(content)):
        what = "is not what the last run left" if content else "is gone or empty since the last run stopped"
        findings.damaged(path, f"{what}: consumers of the stream get messages again")
    count = stream_offsets.unreadable(content) if is_there else 0
    if count is None:
        findings.noted(path, "is no stream's positions: made in a run that ended before it was written")
    elif is_there and incarnation not in ("", stream_offsets.stream_of(content)):
        findings.damaged(path, "is not where it belongs: it holds positions of another stream")
    elif count:
        findings.noted(path, f"the positions of {count} consumer(s) cannot be read: they begin anew")


def _check_segment(number, pair, incarnation, findings, is_stream, is_wanted):
    if "msgs" not in pair:
        if findings.ended_in_order and is_wanted:
            findings.damaged(pair["acks"], "its segment is missing: the messages in it are lost")
        else:
            findings.noted(pair["acks"], "acks without their segment: all of it was acked")
        return
    findings.counts["segments"] += 1
    path = pair["msgs"]
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < head_format.HEAD_BYTES:
            findings.damaged(path, f"{size} bytes are shorter than a head")
            return
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        head = _head_of(content, pair, number, incarnation, findings)
        if head is not None:
            _check_records(content, head, pair, findings, is_stream)
    finally:
        content.close()


def _head_of(content, pair, number, incarnation, findings):
    """Return the head of a segment from its msgs file, or else from the copy in its acks file. Report damage.
    None if neither file has a head, or if the head belongs to another segment.
    """
    path = pair["msgs"]
    head = head_format.decode(bytes(content[:head_format.HEAD_BYTES]), head_format.MSGS_MAGIC)
    if head is None and "acks" in pair:
        with open(pair["acks"], "rb") as file:
            twin = head_format.decode(file.read(head_format.HEAD_BYTES), head_format.ACKS_MAGIC)
        if twin is not None:
            findings.damaged(path, "the head does not check; its twin in the acks file does")
            head = twin.twin(head_format.MSGS_MAGIC)
    if head is None:
        if any(content[:head_format.HEAD_BYTES]):
            findings.damaged(path, "the head does not check")
        else:
            findings.noted(path, "no head: made in a run that ended before it was written")
        return None
    if head.number != number or (incarnation and head.incarnation[:8].hex() != incarnation):
        count = count_left(content, head, path)
        what = f"it holds segment {head.number} of queue {head.incarnation[:8].hex()}"
        if count:
            findings.damaged(
                path,
                f"is not where it belongs: {what}, with {count} message(s); the next boot moves it to "
                "set-aside")
        else:
            findings.noted(path, f"is empty: {what}, recycled")
        return None
    if head.capacity > len(content):
        findings.damaged(path, f"{len(content)} bytes, but the head says {head.capacity}")
    return head


def count_left(content, head, path):
    """Return the number of messages in the msgs file at ``path`` that its acks file does not acknowledge."""
    runs = record.Acks().runs
    twin = head.twin(head_format.ACKS_MAGIC)
    acks_path = os.path.join(os.path.dirname(path), os.path.basename(path).replace("msgs.", "acks.", 1))
    if os.path.exists(acks_path):
        with open(acks_path, "rb") as file:
            acks = file.read()
        if head_format.decode(acks, head_format.ACKS_MAGIC) == twin:
            runs = record.load_acks(acks, twin.seed).runs
    scanner = RecordScanner(content, head_format.HEAD_BYTES, len(content), head.seed, head.begun_ms)
    scanner.tally(runs)
    return scanner.count - scanner.acked


def _check_records(content, head, pair, findings, is_stream):
    path = pair["msgs"]
    start = bytes(content[:head_format.HEAD_BYTES])
    seal = head_format.decode_seal(head.seed, start)
    if seal is None and any(start[head_format.SEAL_AT:head_format.SYNCED_AT]):
        findings.damaged(path, "the seal does not check")
    synced = head_format.decode_mark(head.seed, head_format.SYNCED_SALT, start, head_format.SYNCED_AT)
    acks = record.Acks() if is_stream else _acks_of(head, pair, findings)
    end = min(seal.end if seal is not None else head.capacity, len(content))
    scanner = RecordScanner(content, head_format.HEAD_BYTES, end, head.seed, head.begun_ms)
    scanner.tally(acks.runs)
    findings.counts["records"] += scanner.count
    findings.counts["acked"] += scanner.acked
    findings.counts["octets"] += scanner.at
    gone = list(zip(acks.runs[::2], acks.runs[1::2]))
    known = known_ranges(os.listdir(os.path.dirname(path))) if is_stream and scanner.damaged else ()
    for first, behind, lost in scanner.damaged:
        if any(begin <= first and behind <= stop for begin, stop in gone):
            continue  # skipped and acked by an earlier run
        text = f"bytes {first} to {behind}: {lost} record(s) do not check"
        if is_known(known, head.number, first, behind):
            findings.noted(path, f"{text} (told by an earlier run; readers step over it)")
        elif seal is not None or first < synced:
            findings.damaged(path, text)
        else:
            findings.noted(path, f"{text} (not flushed: the end of a crash)")
    if (
        seal is not None and scanner.at < seal.end
        and not any(begin <= scanner.at and seal.end <= stop for begin, stop in gone)
    ):
        findings.damaged(
            path, f"bytes {scanner.at} to {seal.end}: no record is there, the seal says there are")
    elif seal is None and scanner.at < synced:
        findings.damaged(
            path, f"bytes {scanner.at} to {synced}: no record is there, but they had been flushed")


def _acks_of(head, pair, findings):
    """Return the record.Acks of a segment's acks file, without acks if the file is missing. Report damage."""
    path = pair.get("acks")
    if path is None:
        findings.damaged(pair["msgs"], "its acks file is missing: everything in it counts as not acked")
        return record.Acks()
    with open(path, "rb") as file:
        content = file.read()
    twin = head.twin(head_format.ACKS_MAGIC)
    found = head_format.decode(content, head_format.ACKS_MAGIC)
    if found is None or found.seed != twin.seed:
        is_damage = findings.ended_in_order or any(content[:head_format.HEAD_BYTES])
        add = findings.damaged if is_damage else findings.noted
        add(path, "the head does not belong to its segment")
    start = content[:head_format.HEAD_BYTES]
    seal = head_format.decode_acks_seal(twin.seed, start)
    seal_end = head_format.ACKS_SEAL_AT + head_format.ACKS_SEAL_BYTES
    if seal is None and any(start[head_format.ACKS_SEAL_AT:seal_end]):
        findings.damaged(path, "the seal does not check")
    acks = record.load_acks(content, twin.seed)
    if seal is not None and acks.entries - acks.holes < seal.entries:
        findings.damaged(path, f"{acks.entries - acks.holes} entries check, the seal says {seal.entries}")
    elif acks.holes:
        findings.noted(path, f"{acks.holes} entries are missing (not flushed: their messages come back)")
    return acks
