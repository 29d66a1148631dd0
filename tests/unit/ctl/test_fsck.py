"""fsck: sound folders are sound however they were left, and one flipped octet is found where it is."""
import os

import pytest

from gomq_py.ctl.fsck import check_folder
from gomq_py.ctl.offline import FolderError
from tests.support.node import Node


def fill(node, count=50):
    queue, _ = node.vhost.declare_queue("q", durable=True)
    node.vhost.declare_queue("levels", durable=True, arguments={"x-max-priority": 3})
    for number in range(count):
        node.publish("", "q", b"%d" % number * 20, persistent=True)
        node.publish("", "levels", b"%d" % number, persistent=True, priority=number % 4)
    for _ in range(7):
        node.take("q")
    queue.write_out()
    node.committer.wait()


@pytest.fixture
def folder(tmp_path):
    """A data folder after an orderly stop, with two queues in it."""
    node = Node(tmp_path / "data")
    fill(node)
    node.stop()
    return tmp_path / "data"


def files(folder, kind):
    return sorted(path for path in folder.glob(f"queues/*/**/{kind}.*"))


def flip(path, at):
    with open(path, "r+b") as file:
        file.seek(at)
        octet = file.read(1)[0]
        file.seek(at)
        file.write(bytes((octet ^ 0x40,)))


def test_a_stopped_brokers_folder_is_sound(folder):
    findings = check_folder(folder)

    assert findings.damage == []
    assert (findings.counts["queues"], findings.counts["records"], findings.counts["acked"]) == (2, 100, 7)


def test_a_killed_brokers_folder_is_sound(tmp_path):
    node = Node(tmp_path / "data")
    fill(node)
    node.publish("", "q", b"not flushed", persistent=True)
    node.kill()

    assert check_folder(tmp_path / "data").damage == []


@pytest.mark.parametrize("at, text", [
    (266, "record(s) do not check"), (20, "head"), (70, "seal"), (8, "head")
])
def test_a_flipped_octet_in_a_segment_is_found(folder, at, text):
    path = max(files(folder, "msgs"), key=os.path.getsize)
    flip(path, at)

    damage = check_folder(folder).damage

    assert damage and all(found == str(path) for found, _ in damage) and text in damage[0][1]


@pytest.mark.parametrize("name", ["definitions", "users"])
def test_a_flipped_octet_in_a_log_is_found(folder, name):
    node = Node(folder)  # a second run, whose records say that the first one's were on disk
    node.vhost.declare_queue("another", durable=True)
    node.broker.users.set_user("another", password="x")
    node.stop()
    flip(folder / name, 60)

    assert [path for path, _ in check_folder(folder).damage] == [str(folder / name)]


def test_missing_acks_are_found(folder):
    path = files(folder, "acks")[0]
    path.unlink()

    assert "acks file is missing" in check_folder(folder).damage[0][1]


@pytest.fixture
def streams(tmp_path):
    """A data folder with a stream in it, whose consumers have positions."""
    node = Node(tmp_path / "data")
    stream, _ = node.vhost.declare_queue("s", durable=True, arguments={"x-queue-type": "stream"})
    for number in range(30):
        node.publish("", "s", b"%d" % number * 20, persistent=True)
    stream.store.offsets.put("reader", 5, 1_600_000_000_000)
    stream.write_out()
    node.committer.wait()
    node.stop()
    return tmp_path / "data"


def test_a_stream_is_sound_without_acks_and_damage_to_it_is_found(streams):
    sound = check_folder(streams)
    flip(files(streams, "msgs")[0], 290)

    assert (sound.damage, sound.notes, sound.counts["records"]) == ([], [], 30)
    assert "record(s) do not check" in check_folder(streams).damage[0][1]


@pytest.mark.parametrize("in_order", [True, False])
def test_positions_of_a_streams_consumers_are_checked(streams, in_order):
    """Damage after an orderly stop; otherwise they may not have been flushed."""
    path = next(streams.glob("queues/*/consumer_offsets"))
    content = path.read_bytes()
    if not in_order:
        (streams / ".last-run").unlink()

    for at, text in ((330, "positions of 1 consumer(s) cannot be read"), (3, "is no stream's positions")):
        flip(path, at)
        findings = check_folder(streams)
        assert [damaged for damaged, _ in findings.damage] == in_order * [str(path)]
        assert text in findings.notes[0][1]
        path.write_bytes(content)


def test_a_stream_is_known_by_its_positions_when_the_definitions_are_gone(streams):
    (streams / "definitions").unlink()

    assert [path for path, _ in check_folder(streams).damage] == [str(streams / "definitions")]


def test_what_somebody_left_among_the_queues_is_noted(folder):
    (folder / "queues" / "README").write_text("hello")

    assert check_folder(folder).damage == [] and "is no queue's folder" in check_folder(folder).notes[0][1]


def test_a_folder_in_use_is_left_alone(folder):
    node = Node(folder)

    with pytest.raises(FolderError, match="in use by PID"):
        check_folder(folder)
    node.stop()


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.mkdir()])
def test_anything_else_is_refused(tmp_path, make):
    make(tmp_path / "other")

    with pytest.raises(FolderError):
        check_folder(tmp_path / "other")


def test_nothing_is_written(folder):
    def state():
        return {
            path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()
        }

    before = state()
    check_folder(folder)

    assert state() == before
