"""What the broker may ask of any store: of messages in order of arrival, by priority, and of a stream,
which has nothing to take.
"""
import os

import pytest

from gomq_py.storage.disk.files import Files
from gomq_py.storage.errors import StoreClosed, StoreError
from gomq_py.storage.flush.group_commit import GroupCommit
from gomq_py.storage.message import Message
from gomq_py.storage.segments.pool import SegmentPool
from gomq_py.storage.stores.priority_store import open_priority_store
from gomq_py.storage.stores.recovery import open_store
from gomq_py.storage.stores.stream_recovery import open_stream_store

OPENINGS = {
    "fifo": open_store,
    "priority": lambda *arguments: open_priority_store(*arguments, 5),
    "stream": open_stream_store,
}


class Stores:
    """Opens stores of each kind in one folder."""

    def __init__(self, folder):
        self.folder = folder
        self.files = Files()
        self.committer = GroupCommit(self.files, enabled=False)
        self.pool = SegmentPool(folder / "pool", self.files, self.committer)

    def open(self, kind):
        return OPENINGS[kind](self.folder / kind, self.files, self.pool, self.committer, os.urandom(16))[0]


@pytest.fixture
def stores(tmp_path):
    opened = Stores(tmp_path)
    yield opened
    opened.committer.stop()


def message(body):
    made = Message()
    made.assign(b"", b"q", b"\0\0", body, 1700000000000, persistent=True)
    return made


@pytest.mark.parametrize("kind", OPENINGS)
def test_every_store_takes_messages_in_and_forgets_them(stores, kind):
    store = stores.open(kind)

    for body in (b"one", b"three"):
        store.append(message(body))
    store.write_out()
    store.mark()

    assert (store.ready_count, store.ready_bytes, store.unacked_count, store.unacked_bytes) == (2, 8, 0, 0)
    assert [level.folder.startswith(store.folder) for level in store.browsed()] == [True]
    assert store.purge() == 2
    assert (store.ready_count, store.ready_bytes) == (0, 0)
    store.close()


@pytest.mark.parametrize("kind", OPENINGS)
def test_every_store_refuses_messages_once_it_is_closed(stores, kind):
    store = stores.open(kind)
    store.append(message(b"one"))
    store.close()

    with pytest.raises(StoreClosed):
        store.append(message(b"two"))


@pytest.mark.parametrize("kind", OPENINGS)
def test_nothing_is_shown_and_nothing_can_be_shifted_where_nothing_waits(stores, kind):
    store = stores.open(kind)

    assert not store.peek(message(b""))
    assert not store.is_waiting()
    assert not store.shows_recovered()
    with pytest.raises(StoreError, match="shift without peek"):
        store.shift()
    store.close()


def test_a_stream_has_messages_but_none_to_take(stores):
    stream = stores.open("stream")
    stream.append(kept := message(b"one"))
    location = kept.describe()["location"]

    assert not stream.peek(kept)
    assert not stream.read(location, kept)
    assert not stream.pick(location)
    assert stream.oldest_ready_ms() == 0
    assert stream.failed_deliveries((1, 2)) == [0, 0, 0]
    for verb in (stream.delete, stream.requeue, stream.unpick):
        with pytest.raises(StoreError, match="no message was"):
            verb(location)
    assert stream.ready_count == 1
    stream.close()
