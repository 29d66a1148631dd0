"""A link by itself: in which order it sends, and what its figures say."""
import os

import pytest

from gomq_py.cluster import follower_link
from gomq_py.cluster.follower_link import FollowerLink, LinkError
from gomq_py.cluster.stream import EventStream
from gomq_py.cluster.sync_source import SyncSource
from gomq_py.cluster.wire import events, frames, messages
from gomq_py.storage.disk.files import Files

HELLO = messages.Hello(b"n" * 16, messages.NO_ID, 0, messages.NO_ID, 0, bytes(32), "follower")


@pytest.fixture
def stream(tmp_path):
    stream = EventStream(tmp_path)
    stream.attach()
    yield stream
    stream.close()


@pytest.fixture
def files(stream):
    return Files((stream,))


@pytest.fixture
def link(stream):
    return FollowerLink(
        None, "127.0.0.1:1", HELLO, frames.FrameReader(), stream, stream.end(), stream.epoch,
        lambda link: None)


def sent(link):
    """(position, payload) of the frames that the link sends now."""
    reader, found = frames.FrameReader(), []
    while (octets := link._next()) is not None:
        reader.feed(octets)
        frame = reader.next()
        found.append((frame.position, frame.payload))
    return found


def acknowledge(link, received, flushed):
    link._acknowledged(messages.Ack(received, flushed))


def test_frames_of_a_sync_come_behind_the_events_told_before_and_before_later_ones(link, files, tmp_path):
    files.make_folder(tmp_path / "before")
    link._put(b"\x0bfirst")
    link._put(b"\x0bsecond")
    files.make_folder(tmp_path / "between")
    link._put(b"\x0bthird")
    files.make_folder(tmp_path / "after")
    files.make_folder(tmp_path / "after it, in the same frame")
    link._stream.close_frame()

    assert sent(link) == [
        (1, events.folder_created("before")), (1, b"\x0bfirst"), (1, b"\x0bsecond"),
        (2, events.folder_created("between")), (2, b"\x0bthird"),
        (4, events.folder_created("after") + events.folder_created("after it, in the same frame")),
    ]


def test_sync_waits_for_room(link, monkeypatch):
    monkeypatch.setattr(follower_link, "ROOM_OCTETS", 1000)
    link._put(bytes(2000))
    assert link._queue.octets > 2000

    sent(link)
    link._wait_for_room()

    assert link._queue.octets == 0


def test_sync_does_not_wait_for_a_follower_that_takes_nothing(link, monkeypatch):
    monkeypatch.setattr(follower_link, "ROOM_OCTETS", 1000)
    monkeypatch.setattr(follower_link, "STUCK_S", 0.01)
    link._put(bytes(2000))

    with pytest.raises(LinkError, match="it has taken nothing of its sync for 0.01 s"):
        link._wait_for_room()


class Connection:
    """Gives what is received, piece by piece."""

    def __init__(self, *pieces):
        self._pieces = [*pieces, b""]

    def recv(self, count):
        return self._pieces.pop(0)


def test_flood_of_acks_is_read_with_rests(link, monkeypatch):
    """200 a second at most, whatever comes: the reader sleeps, and the follower's kernel keeps the rest."""
    acks = frames.encode(frames.ACK, messages.Ack(0, 0).encode()) * 100
    rests = []
    monkeypatch.setattr(follower_link, "READING_S", 60)
    monkeypatch.setattr(follower_link.gevent, "sleep", rests.append)
    link._connection = Connection(acks, acks)

    link._read()

    assert sum(rests) == pytest.approx(1.0, rel=0.1)


def test_checksums_that_nobody_waits_for_are_read_with_rests(link, tmp_path, files):
    link._source = SyncSource(tmp_path, files.register, None, None)
    link._reader.feed(frames.encode(frames.HASHES, messages.Hashes(9, (1, 2)).encode()) * 100)

    assert link._take_frames() == pytest.approx(0.05)


def test_lag_is_what_is_not_flushed(link, files, stream, tmp_path):
    file = files.create(tmp_path / "msgs", 1 << 20)
    stream.close_frame()
    sent(link)
    acknowledge(link, 1, 1)
    assert link.figures()[4:8] == (1, 1, 0, 0.0)

    files.write(file, 0, os.urandom(1000))
    stream.close_frame()
    assert link.figures().lag_octets == 1000 + events.WRITTEN_OVERHEAD and link.figures().lag_s > 0
    sent(link)
    acknowledge(link, 2, 1)
    assert link.figures().lag_octets == 1000 + events.WRITTEN_OVERHEAD and link.figures().lag_s > 0

    acknowledge(link, 2, 2)
    assert link.figures()[4:8] == (2, 2, 0, 0.0)


def test_figures_of_many_frames_take_little_room(link, files, stream, tmp_path):
    for number in range(1000):
        files.make_folder(tmp_path / str(number))
        stream.close_frame()
        sent(link)

    assert len(link._steps) < 500
    acknowledge(link, 1000, 1000)
    assert link.figures().lag_octets == 0


def test_link_whose_place_was_dropped_ends(link, files, stream, tmp_path):
    stream.kept_most = 1000
    for number in range(10):
        files.make_folder(tmp_path / str(number))
        stream.close_frame()

    with pytest.raises(LinkError, match="too far behind"):
        link._next()
    with pytest.raises(LinkError, match="too far behind"):
        acknowledge(link, 0, 0)


def test_link_ends_when_a_range_cannot_be_read(link, files, tmp_path, monkeypatch):
    file = files.create(tmp_path / "msgs", 1 << 20)
    files.write(file, 0, bytes(1 << 20))
    monkeypatch.setattr(type(file), "read_into", lambda *_: 0)

    link._stream.close_frame()
    link._next()
    with pytest.raises(LinkError, match="cannot be read"):
        link._next()


def test_position_that_was_not_reached_cannot_be_acknowledged(link):
    with pytest.raises(LinkError, match="position 1"):
        acknowledge(link, 1, 0)
