"""A store with groups keeps no file open for messages that only wait, and reads them again: in this run, in
the next one, and after a crash.
"""
from functools import partial

import pytest

from gomq_py.storage.message import Message
from gomq_py.storage.segments.pool import FIRST_SEGMENT_BYTES
from gomq_py.storage.stores.group_key import GroupKey
from gomq_py.storage.stores.group_store import GroupStore
from tests.support.stores import INCARNATION, StoreBench
from tests.support.waiting import wait_until

# Some ten fill a segment.
BODY = bytes(FIRST_SEGMENT_BYTES // 10)
STUCK = 100


@pytest.fixture(params=[True, False], ids=["threads", "no threads"])
def bench(tmp_path, request):
    made = StoreBench(
        tmp_path, enabled=True, in_threads=request.param, segment_bytes=FIRST_SEGMENT_BYTES,
        make=partial(GroupStore, GroupKey("routing-key"), 1))
    made.segment_opened = lambda store: None
    yield made
    made.close()


def append(store, group, number):
    message = Message()
    message.assign(b"", group, b"\0\0", b"%d" % number + BODY, 1_700_000_000_000 + number, persistent=True)
    store.append(message)


def take(bench):
    """(number, location) of the next message, which is taken; None without one."""
    store, message = bench.store, Message()

    def shown():
        store.begin_turn()
        return store.peek(message) or not store.is_waiting()
    wait_until(shown, sleep=lambda _: bench.finish_aside())
    if not store.peek(message):
        return None
    store.shift()
    return int(message.get_body().rstrip(b"\0")), message.describe()["location"]


def open_count(store):
    return sum(segment.is_open for segment in store._segments.values())


def stuck(bench):
    """A group whose first message is out, its messages over many segments, and one of another group."""
    for number in range(STUCK):
        append(bench.store, b"stuck", number)
    append(bench.store, b"free", 1000)
    bench.store.open_aside()
    bench.store.write_out()
    first = take(bench)
    assert first[0] == 0
    free = take(bench)
    assert free[0] == 1000
    bench.store.delete(free[1])
    bench.store.mark()
    bench.finish_aside()
    return first[1]


def drain(bench, location, start):
    """Delete the message at ``location``, and take and delete the others, which must come in order."""
    for number in range(start, STUCK):
        bench.store.delete(location)
        taken, location = take(bench)
        assert taken == number
        bench.store.write_out()
    bench.store.delete(location)


def test_segments_of_waiting_messages_are_closed_and_opened_again(bench):
    location = stuck(bench)
    assert len(bench.store._segments) > 8
    assert open_count(bench.store) <= 3  # the first, the last, and one that is about to be closed

    drain(bench, location, 1)

    assert bench.store.ready_count == bench.store.unacked_count == 0


@pytest.mark.parametrize("how", ["reopen", "crash"])
def test_a_later_run_goes_on_in_order(bench, how):
    stuck(bench)
    getattr(bench, how)()
    bench.store.open_aside()

    number, location = take(bench)

    assert number == 0
    assert take(bench) is None
    drain(bench, location, 1)
    assert bench.store.ready_count == bench.store.unacked_count == 0


def test_a_purge_drops_waiting_messages_of_closed_segments(bench):
    location = stuck(bench)

    assert bench.store.purge() == STUCK - 1

    bench.store.delete(location)
    append(bench.store, b"stuck", 5)
    assert take(bench)[0] == 5


def test_other_files_name_it_as_any_store(bench):
    assert bench.store.key == int.from_bytes(INCARNATION[:8], "little")
