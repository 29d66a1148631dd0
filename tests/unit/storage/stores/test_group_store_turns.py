"""A turn of the queue reads a bounded number of octets of keys, however long these are."""
from functools import partial

from gomq_py.content.properties import Properties
from gomq_py.storage.message import Message
from gomq_py.storage.stores.group_key import GroupKey
from gomq_py.storage.stores.group_store import GroupStore
from tests.support.stores import StoreBench

KEY = "k" * 60_000
# A millisecond's worth, as of short keys.
MOST_OCTETS = 1 << 20


def test_a_turn_passes_over_fewer_messages_of_long_keys(tmp_path):
    bench = StoreBench(
        tmp_path, enabled=True, in_threads=False, segment_bytes=32 << 20,
        make=partial(GroupStore, GroupKey("header", b"k"), 1))
    bench.segment_opened = lambda store: None
    store, message = bench.store, Message()
    properties = Properties(headers={"k": KEY}).encode()
    for number in range(300):
        message = Message()
        message.assign(b"", b"q", properties, b"%d" % number, 1_700_000_000_000, persistent=True)
        store.append(message)
    store.begin_turn()
    assert store.peek(message)
    store.shift()

    store.begin_turn()
    store.peek(message)

    assert store.waiting.count * len(KEY) <= MOST_OCTETS
    bench.close()
