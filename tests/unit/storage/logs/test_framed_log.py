"""storage.logs.framed_log: what was appended comes back; damage costs the damaged record and is reported."""
import errno
import os

import pytest

from gomq_py.storage.disk.files import ROOM_AHEAD, Files
from gomq_py.storage.disk.replication import Replicator
from gomq_py.storage.logs.framed_log import HEAD_SIZE, FramedLog, LogError, encode_record
from tests.support.unflushed import Unflushed

PAYLOADS = [b"declare queue jobs", b"", b"bind " + b"k" * 60, b"RL delete", b"last"]


class FullDisk(Files):
    """No write succeeds."""

    def _write_once(self, file, at, octets):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def files():
    return Unflushed()


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "definitions")


def written(files, path, payloads=PAYLOADS, synced=False):
    """A closed log of these payloads; the positions where records begin, and the end."""
    log = FramedLog(files, path)
    positions = []
    for payload in payloads:
        positions.append(max(log.file.size, HEAD_SIZE))
        log.append(payload)
        if synced:
            files.sync(log.file)
    positions.append(log.file.size)
    log.close()
    return positions


def replayed(files, path):
    log = FramedLog(files, path)
    payloads = list(log.replay())
    log.close()
    return payloads, log.damage


def test_what_was_appended_is_replayed_in_order(files, path):
    written(files, path)

    assert replayed(files, path) == (PAYLOADS, [])


def test_appending_goes_on_after_a_replay(files, path):
    written(files, path)
    log = FramedLog(files, path)
    list(log.replay())
    log.append(b"more")

    assert replayed(files, path) == (PAYLOADS + [b"more"], [])
    assert log.record_count == len(PAYLOADS) + 1


def test_several_records_in_one_write(files, path):
    log = FramedLog(files, path)
    log.append_all(PAYLOADS)

    assert replayed(files, path) == (PAYLOADS, [])


def test_append_before_replay_is_refused(files, path):
    written(files, path)

    with pytest.raises(AssertionError, match="before replay"):
        FramedLog(files, path).append(b"x")


def test_append_to_a_full_disk_leaves_the_log_as_it_was(files, path):
    written(files, path)
    log = FramedLog(FullDisk(), path)
    list(log.replay())

    with pytest.raises(OSError):
        log.append(b"no room")

    assert replayed(files, path) == (PAYLOADS, [])


def test_cut_at_every_octet_keeps_the_whole_records_and_the_log_goes_on(files, path):
    positions = written(files, path)
    content = open(path, "rb").read()

    for size in range(len(content)):
        open(path, "wb").write(content[:size])
        whole = [payload for payload, end in zip(PAYLOADS, positions[1:]) if end <= size]
        log = FramedLog(files, path)
        assert list(log.replay()) == whole, size
        assert not any(damage.promised for damage in log.damage)
        log.append(b"after")
        log.close()
        assert replayed(files, path) == (whole + [b"after"], []), size


def test_a_tail_of_zeros_is_cut_off(files, path):
    written(files, path)
    with open(path, "ab") as file:
        file.write(bytes(5000))

    payloads, damage = replayed(files, path)

    assert payloads == PAYLOADS and [found.promised for found in damage] == [False]
    assert replayed(files, path) == (PAYLOADS, [])


def test_every_flipped_octet_costs_at_most_its_record(files, path):
    positions = written(files, path)
    content = open(path, "rb").read()

    for at in range(len(content)):
        open(path, "wb").write(content[:at] + bytes((content[at] ^ 0x55,)) + content[at + 1:])
        kept = [
            payload
            for payload, start, end in zip(PAYLOADS, positions, positions[1:]) if not start <= at < end
        ]
        payloads, damage = replayed(files, path)
        assert payloads == kept, at
        assert len(damage) == 1 and damage[0].start <= at < damage[0].end, at


def test_damage_to_what_was_on_disk_is_promised_damage_and_the_log_is_set_aside(files, path):
    positions = written(files, path, synced=True)
    content = bytearray(open(path, "rb").read())
    content[positions[2] + 40] ^= 1
    open(path, "wb").write(content)

    payloads, damage = replayed(files, path)

    assert payloads == PAYLOADS[:2] + PAYLOADS[3:]
    assert damage[0].promised
    assert open(path + ".damaged", "rb").read() == content


def test_a_flip_behind_what_was_known_to_be_on_disk_is_no_end_of_a_crash(files, path):
    """Each octet of the last record: all of it is there and does not check,
    which no append that was cut off leaves.
    """
    positions = written(files, path)
    content = open(path, "rb").read()

    for at in range(positions[-2], positions[-1]):
        damaged = content[:at] + bytes((content[at] ^ 0x55,)) + content[at + 1:]
        open(path, "wb").write(damaged)
        payloads, damage = replayed(files, path)
        assert payloads == PAYLOADS[:-1] and [found.promised for found in damage] == [True], at
        assert open(path + ".damaged", "rb").read() == damaged, at
        os.unlink(path + ".damaged")


def test_an_append_that_did_not_come_to_its_end_is_the_end_of_a_crash(files, path):
    """Its sectors were written in any order, whole or up to where the file ended then;
    the others read as zeros.
    """
    positions = written(files, path, (b"first", bytes(range(1, 256)) * 6))
    content = open(path, "rb").read()
    start, end = positions[-2:]
    torn = [content[:at] + bytes(end - at) for at in range(start, end, 3)]
    torn += [content[:at] + bytes(512) + content[at + 512:] for at in range(512, end - 512, 512)]
    torn += [content[:start] + bytes(512 - start) + content[512:]]

    for octets in torn:
        open(path, "wb").write(octets)
        payloads, damage = replayed(files, path)
        assert payloads == [b"first"] and [found.promised for found in damage] == [False]
        assert not os.path.exists(path + ".damaged")


def test_a_record_of_another_log_in_a_payload_does_not_pose_as_ours(files, path):
    quoted = encode_record(12345, 7, 0, b"forged")
    positions = written(files, path, [b"first", quoted, b"third"])
    content = bytearray(open(path, "rb").read())
    content[positions[1]] ^= 0xFF
    open(path, "wb").write(content)

    payloads, damage = replayed(files, path)

    assert payloads == [b"first", b"third"]
    assert (damage[0].start, damage[0].end) == (positions[1], positions[2])


def test_an_older_record_of_this_log_in_a_payload_does_not_pose_as_a_later_one(files, path):
    log = FramedLog(files, path)
    log.append(b"first")
    quoted = log.file.read(HEAD_SIZE, log.file.size)
    start = log.file.size
    log.append(quoted)
    log.append(b"third")
    content = bytearray(open(path, "rb").read())
    content[start] ^= 0xFF
    open(path, "wb").write(content)

    assert replayed(files, path)[0] == [b"first", b"third"]


def test_an_unknown_version_is_refused_and_the_log_left_alone(files, path):
    import struct

    from gomq_py import octets
    record = bytearray(encode_record(1, 0, 0, b"from the future"))
    record[2] = 9
    struct.pack_into("<I", record, 32, octets.crc32c(0, record, 0, 32))
    open(path, "wb").write(record)

    with pytest.raises(LogError, match="version 9"):
        list(FramedLog(files, path).replay())

    assert open(path, "rb").read() == record


def test_a_payload_above_the_limit_is_refused(files, path):
    log = FramedLog(files, path)

    with pytest.raises(ValueError):
        log.append(bytes((1 << 24) + 1))

    assert log.file.size == 0


def test_rewrite_replaces_everything_and_appending_goes_on(files, path):
    written(files, path)
    log = FramedLog(files, path)
    list(log.replay())

    log.rewrite([b"compact"])
    log.append(b"more")

    assert replayed(files, path) == ([b"compact", b"more"], [])
    assert log.record_count == 2


def test_rewrite_to_nothing_leaves_a_log_that_can_be_appended_to(files, path):
    written(files, path)
    log = FramedLog(files, path)
    list(log.replay())

    log.rewrite([])
    log.append(b"again")

    assert replayed(files, path) == ([b"again"], [])


def test_the_name_of_a_new_log_is_on_disk_before_anything_is_appended(tmp_path, path):
    flushed = []

    class Folders(Files):
        def sync_folder(self, path):
            flushed.append(path)

    FramedLog(Folders(), path)

    assert flushed == [str(tmp_path)]


class Committer:
    """Counts marks; a test flushes with ``files.sync_log``."""

    def __init__(self, enabled=True):
        self.enabled = enabled
        self.marked = []

    def mark_file(self, file):
        self.marked.append(file)


class FullAhead(Unflushed):
    """A disk with ``left`` octets of room, all of which the file under test may have;
    or one that cannot reserve.
    """

    def __init__(self, left=0, can_reserve=True):
        super().__init__()
        self.left = left
        self.can_reserve = can_reserve
        self.calls = []

    def _reserve(self, fd, start, count):
        self.calls.append("reserve")
        if self.can_reserve and start + count > self.left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.can_reserve

    def _write_once(self, file, at, octets):
        self.calls.append("write")
        return super()._write_once(file, at, octets)


def test_what_is_appended_is_in_the_file_when_the_thread_that_flushes_has_written_it(path):
    files, committer = FullAhead(left=1 << 30), Committer()
    log = FramedLog(files, path, committer=committer)
    files.calls.clear()

    for payload in PAYLOADS:
        log.append(payload)
    assert files.calls == [] and os.path.getsize(path) == 0
    assert committer.marked == [log.file] * len(PAYLOADS)
    files.sync_log(log.file)

    assert files.calls == ["write"] and log.file.synced_size == os.path.getsize(path) == log.file.end
    assert replayed(files, path) == (PAYLOADS, [])


@pytest.mark.parametrize(
    "enabled, can_reserve", [(True, False), (False, True)], ids=["no-reserving", "no-sync"]
)
def test_log_is_written_at_once_where_room_cannot_be_reserved_and_where_nothing_is_flushed(
    path, enabled, can_reserve
):
    files = FullAhead(1 << 30, can_reserve)
    log = FramedLog(files, path, committer=Committer(enabled))

    log.append_all(PAYLOADS)

    assert replayed(files, path) == (PAYLOADS, [])


def test_full_disk_refuses_what_was_not_reserved_and_takes_it_when_there_is_room_again(path):
    files = FullAhead()
    log = FramedLog(files, path, committer=Committer())
    with pytest.raises(OSError, match=r"No space left on device: .*definitions"):
        log.append(b"refused")
    with pytest.raises(OSError, match="No space left on device"):
        log.make_room(b"refused")

    files.left = 4 * HEAD_SIZE
    log.append(b"last")  # less room than is taken ahead, but enough
    with pytest.raises(OSError):
        log.append(bytes(200))
    files.sync_log(log.file)
    files.left = 1 << 30
    log.append(b"after")
    files.sync_log(log.file)

    assert replayed(files, path) == ([b"last", b"after"], [])


def test_room_is_reserved_again_by_the_thread_that_flushes(path):
    files = FullAhead(left=1 << 30)
    log = FramedLog(files, path, committer=Committer())
    files.calls.clear()

    for _ in range(100):
        log.append(bytes(100_000))
        files.sync_log(log.file)
        assert log.file.room - log.file.end >= ROOM_AHEAD // 2

    assert files.calls.count("reserve") < 30 and files.calls.count("write") == 100


def test_more_than_is_reserved_ahead_is_taken_if_there_is_room(path):
    files = FullAhead(left=1 << 30)
    log = FramedLog(files, path, committer=Committer())

    log.append(bytes(3 * ROOM_AHEAD))
    files.sync_log(log.file)

    assert replayed(files, path) == ([bytes(3 * ROOM_AHEAD)], [])


def test_what_could_not_be_written_is_written_later_and_in_order(path):
    class Failing(Unflushed):
        failing = False

        def _write_once(self, file, at, octets):
            if self.failing:
                raise OSError(errno.EIO, "Input/output error")
            return super()._write_once(file, at, octets)

    files = Failing()
    log = FramedLog(files, path, committer=Committer())
    log.append(b"one")
    files.sync_log(log.file)
    log.append(b"two")
    files.failing = True
    with pytest.raises(OSError, match="Input/output error"):
        files.sync_log(log.file)
    assert replayed(Unflushed(), path) == ([b"one"], [])
    files.failing = False
    log.append(b"three")
    files.sync_log(log.file)

    assert replayed(files, path) == ([b"one", b"two", b"three"], [])


def test_log_whose_torn_end_cannot_be_cut_off_takes_no_more(path):
    class Failing(Unflushed):
        def _write_once(self, file, at, octets):
            raise OSError(errno.EIO, "Input/output error")

        def _cut(self, fd, size):
            raise OSError(errno.EIO, "Input/output error")

    files = Failing()
    log = FramedLog(files, path, committer=Committer())
    log.append(b"one")
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output error"):
            files.sync_log(log.file)

    with pytest.raises(OSError, match="log is closed since: Input/output error"):
        log.append(b"two")


def test_reserved_room_changes_nothing_that_a_reader_sees(path):
    log = FramedLog(Files(), path, committer=Committer())

    assert os.path.getsize(path) == 0
    assert log.file.room is None or os.stat(path).st_blocks * 512 >= log.file.room == ROOM_AHEAD


def test_listeners_hear_of_what_was_accepted_when_it_is_written(path):
    class Ends(Replicator):
        def __init__(self):
            self.told = []

        def created(self, file_id, path, size):
            pass

        def appended(self, file_id, file, start, end):
            self.told.append(file.read(start, end))

    ends = Ends()
    files = Unflushed((ends,))
    log = FramedLog(files, path, committer=Committer())
    log.append(b"one")
    files.tell_written(log.file)
    assert ends.told == []
    files.sync_log(log.file)
    log.append(b"two")
    files.tell_written(log.file)
    files.sync_log(log.file)
    files.tell_written(log.file)

    assert b"".join(ends.told) == open(path, "rb").read() and len(ends.told) == 2
    log.append(b"three")
    log.abandon()
    files.tell_written(log.file)
    assert len(ends.told) == 2
