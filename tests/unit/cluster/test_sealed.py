"""Whether a sealed segment of a leader has lost a message."""
import os
import shutil

import pytest

from gomq_py.cluster.sealed import holds_messages, lost_in
from gomq_py.storage.format.known_damage import known_name
from tests.support.stores import StoreBench

BODY = 1000


def flip(path, at):
    with open(path, "r+b") as file:
        file.seek(at)
        octet = file.read(1)[0]
        file.seek(at)
        file.write(bytes((octet ^ 1,)))


def body_at(path, number):
    """Where the body of a message begins."""
    return path.read_bytes().index(b"%06d" % number)


def segment(bench, number=1):
    return bench.folder / "queue" / f"msgs.{number:010d}"


@pytest.fixture
def bench(tmp_path):
    """A queue of several segments of 64 KiB, the first ones sealed."""
    bench = StoreBench(tmp_path, enabled=True, segment_bytes=65536)
    for number in range(200):
        bench.push((b"%06d" % number).ljust(BODY, b"."))
    bench.committer.wait()
    yield bench
    bench.close()


def test_sound_segment_has_lost_nothing(bench):
    paths = sorted((bench.folder / "queue").glob("msgs.*"))

    assert len(paths) > 2
    assert [lost_in(path) for path in paths] == [""] * len(paths)


@pytest.mark.parametrize("offset", [0, 500, -20, -40])
def test_flipped_bit_of_a_body_or_header_is_found(bench, offset):
    path = segment(bench)
    flip(path, body_at(path, 5) + offset)

    assert "do not check" in lost_in(path)


def test_flipped_bit_of_the_last_record_is_found(bench):
    path = segment(bench)
    last = max(number for number in range(200) if b"%06d" % number in path.read_bytes())
    flip(path, body_at(path, last) - 60)

    assert "do not check" in lost_in(path)


@pytest.mark.parametrize("offset", [0, -40])
def test_damage_of_an_acked_message_does_not_count(bench, offset):
    path = segment(bench)
    for _ in range(5):
        bench.shift()
    at = body_at(path, 5)
    bench.store.delete(bench.shift()[0])
    bench.store.write_out()

    flip(path, at + offset)

    assert lost_in(path) == ""
    flip(path, body_at(path, 6) + offset)
    assert "do not check" in lost_in(path)


def test_damage_that_was_reported_does_not_count(bench):
    """Of a stream, which has no acks."""
    path = segment(bench)
    os.unlink(path.with_name(path.name.replace("msgs", "acks")))
    flip(path, body_at(path, 5))
    found = lost_in(path)
    start, end = (int(word) for word in found.split() if word.isdigit())

    path.with_name(known_name(1, start, end)).touch()

    assert lost_in(path) == ""


def test_damage_that_the_broker_has_set_aside_does_not_count(bench):
    path = segment(bench)
    bench.close()
    flip(path, body_at(path, 0))
    bench.start()
    bench.shift()

    assert bench.damaged and lost_in(path) == ""


def test_segment_without_its_acks_is_checked(bench):
    path = segment(bench)
    bench.shift()
    os.unlink(path.with_name(path.name.replace("msgs", "acks")))
    assert lost_in(path) == ""

    flip(path, body_at(path, 5))

    assert "do not check" in lost_in(path)


@pytest.mark.parametrize("octets, is_lost", [(30_000, True), (128, True), (100, False), (0, False)])
def test_segment_that_was_cut_has_lost_its_end(bench, octets, is_lost):
    """Without its whole head it is no segment: the boot says that."""
    path = shutil.copy(segment(bench), bench.folder / "msgs.0000000001")
    os.truncate(path, octets)

    assert bool(lost_in(path)) == is_lost


def test_segment_that_is_not_sealed_is_not_checked(bench):
    path = max((bench.folder / "queue").glob("msgs.*"))
    at = body_at(path, 199)
    flip(path, at)

    assert lost_in(path) == ""


def test_segment_that_is_recycled_meanwhile_has_lost_nothing(bench, monkeypatch):
    path = segment(bench)
    other = bench.folder / "msgs.other"
    shutil.copy(path, other)
    flip(path, body_at(path, 5))
    listdir = os.listdir

    def replaced(folder):
        os.replace(other, path)
        return listdir(folder)

    monkeypatch.setattr(os, "listdir", replaced)

    assert lost_in(path) == ""


def test_only_msgs_files_hold_messages():
    names = ("queues/q/msgs.0000000001", "queues/q/acks.0000000001", "definitions", "queues/q/damaged.1.2")

    assert [holds_messages(f"/data/{name}") for name in names] == [True, False, False, False]
