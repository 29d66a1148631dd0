"""Schedules under power cuts: none that was confirmed ends, and none of its times is left out."""
import errno
from random import Random

import pytest

from gomq_py.broker.exchanges import schedule
from gomq_py.content.properties import Properties
from gomq_py.hub import timers
from gomq_py.hub.scheduler import unix_ms
from gomq_py.storage.message import Message
from tests.durability.seeds import seeds
from tests.support.node import Node
from tests.support.power_cut import Disk, PowerCutFiles
from tests.support.reading import get
from tests.support.unflushed import Unflushed

# Shorter than a client may have it: the header is checked where it is published.
EVERY_MS = 5
SENT, MORE = 25, 3
NAMES = ("a", "b")


def put(node, name, body=b"x"):
    message = Message()
    message.assign(b"x", b"", Properties(delivery_mode=2, headers={
        "x-schedule": {"name": name, "every": EVERY_MS, "missed": "all"}}).encode(), body, unix_ms())
    message.set_kind(1, schedule.SCHEDULED)
    assert node.vhost.exchange("x").delayed_store.publish(message) == 1


def declare(node):
    node.vhost.declare_exchange(
        "x", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"})
    node.vhost.declare_queue("q", durable=True)
    node.vhost.bindings.bind_queue("q", "x", "")
    node.committer.wait()


def work(files, folder, random, confirmed, cut):
    """Let two schedules send, and replace one of them now and then."""
    node = Node(folder, files)
    declare(node)
    put(node, "a")
    put(node, "b", b"0")
    store, queue = node.vhost.exchange("x").delayed_store, node.vhost.queue("q")
    for number in range(1, SENT):
        some = queue.ready_count
        node.wait(lambda some=some: queue.ready_count > some)
        if random.random() < 0.3:
            put(node, "b", b"%d" % number)
            store.write_out()
        if random.random() < 0.3:
            store.write_out()
            node.committer.wait()
            confirmed["names"] = NAMES
        cut()
    node.stop()


def found_after(folder, promised):
    """Check what a boot after a cut finds, and what is sent then."""
    node = Node(folder)
    try:
        if "x" not in node.vhost.exchanges or "q" not in node.vhost.queues:
            assert not promised
            return
        store, queue = node.vhost.exchange("x").delayed_store, node.vhost.queue("q")
        names = [] if store.schedules is None else store.schedules.names()
        assert set(promised) <= set(names) <= set(NAMES)
        if "a" in names:
            some = queue.ready_count
            node.wait(lambda: queue.ready_count >= some + MORE * len(names))
            node.wait(lambda: store.store.unacked_count == len(names), what="one message of each schedule")
        store.hold_back()
        times, message = [], Message()
        while get(queue, message, True):
            headers = Properties.decode(message.get_properties()).headers
            if headers["x-schedule-name"] == "a":
                times.append(headers["x-schedule-time"])
        there = sorted(set(times))
        assert {later - earlier for earlier, later in zip(there, there[1:])} <= {EVERY_MS}
    finally:
        node.stop()


@pytest.mark.parametrize("seed", seeds(4))
def test_confirmed_schedule_goes_on_after_each_cut_and_leaves_out_no_time(tmp_path, monkeypatch, seed):
    monkeypatch.setattr(schedule, "MOST_MISSED", 1_000_000)  # 5 s of such an interval are the thousand
    random = Random(seed)
    (tmp_path / "data").mkdir()
    confirmed, cuts = {"names": ()}, []

    def cut(*_):
        if random.random() < 0.1:
            cuts.append((disk.cut(tmp_path / f"cut{len(cuts)}"), confirmed["names"]))

    disk = Disk(tmp_path / "data", random)
    work(PowerCutFiles(disk, on_call=cut), tmp_path / "data", random, confirmed, cut)
    disk.discard()

    assert cuts
    for folder, promised in [*cuts, (tmp_path / "data", NAMES)]:
        found_after(folder, promised)


def test_schedule_goes_on_when_its_store_is_open_again_after_a_fault(tmp_path, monkeypatch):
    monkeypatch.setattr(timers, "FIRST_PAUSE_MS", 1)
    node = Node(tmp_path / "data", Unflushed())
    declare(node)
    put(node, "a")
    before, queue = node.vhost.exchange("x").delayed_store, node.vhost.queue("q")
    node.wait(lambda: queue.ready_count)

    before.store.fence(OSError(errno.EIO, "Input/output error"))
    some = queue.ready_count
    node.wait(lambda: queue.ready_count > some)

    after = node.vhost.exchange("x").delayed_store
    assert before.closed and after is not before and after.schedules.names() == ["a"]
    node.stop()


def test_schedule_ends_with_its_exchange(tmp_path):
    node = Node(tmp_path / "data", Unflushed())
    declare(node)
    put(node, "a")
    node.wait(lambda: node.vhost.queue("q").ready_count)

    node.vhost.delete_exchange("x")
    node.committer.wait()
    declare(node)
    assert node.vhost.exchange("x").delayed_store.schedules is None
    node.stop()

    node = Node(tmp_path / "data", Unflushed())
    assert node.vhost.exchange("x").delayed_store.schedules is None
    node.stop()
