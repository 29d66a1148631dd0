"""Frames of a message whose body is sent from its file."""
import errno
import os

import pytest

from gomq_py.amqp.server.body_delivery import SLICE_OCTETS, FileDelivery
from gomq_py.storage.disk.files import Files
from tests.support.lanes import framed
from tests.support.sockets import unblocked_pair

BODY = bytes(range(251)) * 40_000
FILES = Files()


@pytest.fixture
def file(tmp_path):
    file = FILES.create(tmp_path / "msgs", len(BODY) + 4096)
    file.map[100:100 + len(BODY)] = BODY
    yield file
    file.close()


@pytest.fixture
def pair():
    ours, theirs = unblocked_pair()
    with ours, theirs:
        yield ours, theirs


def received(source, pair, step):
    """Send all of it, the peer reading ``step`` octets whenever the socket takes no more."""
    ours, theirs = pair
    parts, sent = [], 0
    while source.left or sum(map(len, parts)) < sent:
        count = source.send(ours.send, ours.fileno())
        assert count <= SLICE_OCTETS + 131072
        sent += count
        try:
            parts.append(theirs.recv(step))
        except BlockingIOError:
            assert count
    return b"".join(parts)


@pytest.mark.parametrize("step", [1 << 20, 50_001])
@pytest.mark.parametrize("frame_max", [4096, 131072, len(BODY) + 8])
@pytest.mark.parametrize("count", [1, 4088, 4089, 131064 * 2, len(BODY)])
def test_body_is_cut_into_frames_behind_the_lead(file, pair, count, frame_max, step):
    source = FileDelivery(FILES.reading(file), 100, count, b"lead", 7, frame_max)
    whole = b"lead" + framed(BODY[:count], frame_max)
    assert source.left == len(whole)

    assert received(source, pair, step) == whole

    source.close()


@pytest.mark.parametrize("frame_max", [131072, len(BODY) + 8])
def test_slice_ends_though_the_socket_takes_more(file, pair, monkeypatch, frame_max):
    monkeypatch.setattr(os, "sendfile", lambda target, source, start, count: count)
    source = FileDelivery(FILES.reading(file), 100, len(BODY), b"", 7, frame_max)
    counts = []

    while source.left:
        counts.append(source.send(lambda octets, flags: len(octets), 0))

    assert len(counts) == -(-len(BODY) // SLICE_OCTETS)
    assert all(SLICE_OCTETS <= count < SLICE_OCTETS + 131072 for count in counts[:-1])
    source.close()


def test_file_stays_until_the_message_is_sent_or_given_up(file):
    source = FileDelivery(FILES.reading(file), 100, 5, b"", 7, 4096)
    file.close()
    assert file.is_retained and not file.closed

    source.close()
    source.close()

    assert file.closed and not file.is_retained


def test_file_that_was_cut_short_is_an_error_that_names_it(file, pair):
    source = FileDelivery(FILES.reading(file), file.size, 10, b"", 7, 4096)

    with pytest.raises(OSError, match="in a message") as caught:
        source.send(pair[0].send, pair[0].fileno())

    assert caught.value.filename == file.path
    source.close()


def test_body_is_read_where_the_system_does_not_send_the_file(file, pair, monkeypatch):
    def refuses(*_):
        raise OSError(errno.EINVAL, "not from here")

    monkeypatch.setattr(os, "sendfile", refuses)
    source = FileDelivery(FILES.reading(file), 100, 300_000, b"lead", 7, 131072)

    assert received(source, pair, 1 << 20) == b"lead" + framed(BODY[:300_000], 131072)

    source.close()


def test_disk_that_does_not_read_is_an_error(file, pair, monkeypatch):
    def fails(*_):
        raise OSError(errno.EIO, "a bad sector")

    monkeypatch.setattr(os, "sendfile", fails)
    source = FileDelivery(FILES.reading(file), 100, 300_000, b"lead", 7, 131072)

    with pytest.raises(OSError, match="a bad sector"):
        source.send(pair[0].send, pair[0].fileno())

    source.close()
