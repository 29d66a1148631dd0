"""Queues paused, resumed, purged in part and opened again:
over HTTP, over restarts, and with a store that failed.
"""
import threading

import gevent
import pika
import pytest

from gomq_py.broker.topology import queue_factory
from gomq_py.errors import NotFound, PreconditionFailed
from gomq_py.storage.errors import StoreError
from gomq_py.storage.message import Message
from tests.support.hub_calls import HubCalls
from tests.support.node import Node
from tests.support.waiting import in_time

PERSISTENT = {"persistent": True}


def fill(channel, name, count=5, **options):
    channel.queue_declare(name, durable=True, **options)
    channel.confirm_delivery()
    for number in range(count):
        channel.basic_publish("", name, b"%d" % number)


def test_purge_with_a_count_drops_the_oldest(api, channel, name):
    fill(channel, name)

    assert api.delete(f"queues/%2F/{name}/contents?count=3").status_code == 204

    assert [channel.basic_get(name, auto_ack=True)[2] for _ in range(3)] == [b"3", b"4", None]


def test_purge_with_a_count_takes_the_highest_priority_first(api, channel, name):
    fill(channel, name, 0, arguments={"x-max-priority": 2})
    for priority in (0, 1, 2):
        channel.basic_publish("", name, b"%d" % priority, pika.BasicProperties(priority=priority))

    api.delete(f"queues/%2F/{name}/contents?count=1")

    assert channel.basic_get(name, auto_ack=True)[2] == b"1"


@pytest.mark.parametrize(("count", "status", "left"), [
    ("100", 204, 0), ("0", 204, 5), ("x", 400, 5), ("-1", 400, 5), ("", 204, 0)
])
def test_purge_counts_at_its_bounds(api, channel, name, count, status, left):
    fill(channel, f"{name}.{count}")

    assert api.delete(f"queues/%2F/{name}.{count}/contents?count={count}").status_code == status

    assert channel.queue_declare(f"{name}.{count}", passive=True).method.message_count == left


def test_queue_that_is_open_is_not_restarted(api, channel, name):
    fill(channel, name, 0)

    answer = api.put(f"queues/%2F/{name}/restart")

    assert (answer.status_code, answer.json()["reason"]) == (
        400, f"queue '{name}' in vhost '/' is not closed"
    )
    assert api.put("queues/%2F/no.such.queue/restart").status_code == 404


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_pause_outlives_a_restart_and_so_does_resuming(tmp_path, end):
    node = Node(tmp_path / "data")
    for name in ("paused", "resumed", "plain"):
        node.vhost.declare_queue(name, durable=True)
        node.publish("", name, b"x", **PERSISTENT)
    for name in ("paused", "resumed"):
        node.vhost.pause_queue(node.vhost.queue(name), True)
    node.vhost.pause_queue(node.vhost.queue("resumed"), False)
    for queue in node.vhost.queues.values():
        queue.write_out()
    getattr(node, end)()

    again = Node(tmp_path / "data")
    assert [bool(again.vhost.queue(name).paused) for name in ("paused", "resumed", "plain")] == [
        True, False, False
    ]
    assert again.take("paused") is None
    again.vhost.pause_queue(again.vhost.queue("paused"), False)
    assert again.take("paused")[0] == b"x"
    again.stop()


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 3}, {"x-max-length": 10}])
def test_closed_queue_opens_again_with_its_messages_and_bindings(tmp_path, arguments):
    node = Node(tmp_path / "data")
    queue, _ = node.vhost.declare_queue("q", durable=True, arguments=arguments)
    node.vhost.declare_exchange("x", "topic", durable=True)
    node.vhost.bindings.bind_queue("q", "x", "a.*")
    for body in (b"1", b"2", b"3"):
        node.publish("x", "a.b", body, **PERSISTENT)
    message = Message()
    queue.get(message, False)
    held = message.describe()["location"]
    queue.ack(held)
    queue.get(message, False)
    held = message.describe()["location"]
    queue.write_out()
    queue.store.fence(OSError(5, "the disk failed"))
    assert queue.closed and node.publish("x", "a.b", b"refused") == [0]

    node.vhost.restart_queue(queue)

    again = node.vhost.queue("q")
    assert again is not queue and not again.closed
    assert (again.ready_count, again.unacked_count) == (2, 0)
    queue.ack(held)  # by a channel that still holds it from before
    queue.requeue(held)
    assert node.publish("x", "a.b", b"4", **PERSISTENT) == [1]
    assert node.vhost.bindings.to(queue) == []
    assert [node.take("q")[0] for _ in range(3)] == [b"2", b"3", b"4"]
    with pytest.raises(PreconditionFailed):
        node.vhost.restart_queue(again)
    node.stop()

    last = Node(tmp_path / "data")
    assert [binding.routing_key for binding in last.vhost.bindings.to(last.vhost.queue("q"))] == ["a.*"]
    assert last.vhost.queue("q").ready_count == 0
    last.stop()


def test_queue_that_cannot_be_opened_stays_closed_and_says_so(tmp_path, monkeypatch):
    node = Node(tmp_path / "data")
    queue, _ = node.vhost.declare_queue("q", durable=True)
    node.publish("", "q", b"1", **PERSISTENT)
    queue.write_out()
    queue.store.fence(OSError(5, "the disk failed"))

    def fail(folder, *_):
        raise StoreError(folder, 0, "still broken")

    with monkeypatch.context() as patch:
        patch.setattr(queue_factory, "open_store", fail)
        with pytest.raises(PreconditionFailed):
            node.vhost.restart_queue(queue)
    assert node.vhost.queues["q"].closed

    node.vhost.restart_queue(node.vhost.queues["q"])
    assert node.take("q")[0] == b"1"
    node.stop()


class SlowRecovery(HubCalls):
    """A disk that takes its time to give back what is in a file, until ``go_on`` is set."""

    def __init__(self):
        super().__init__()
        self.go_on = threading.Event()
        self.reading = threading.Event()

    def about_to(self, call, subject):
        super().about_to(call, subject)
        if call == "read_through" and self.elsewhere.get(call):
            self.reading.set()
            assert self.go_on.wait(in_time(20))


def closed_queue(node, arguments=None):
    queue, _ = node.vhost.declare_queue("q", durable=True, arguments=arguments)
    node.publish("", "q", b"1", **PERSISTENT)
    node.committer.wait()
    queue.store.fence(OSError(5, "the disk failed"))
    return queue


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 3}, {"x-queue-type": "stream"}])
def test_queue_is_opened_again_in_a_thread_while_others_are_served(tmp_path, arguments):
    files = SlowRecovery()
    node = Node(tmp_path / "data", files)
    queue = closed_queue(node, arguments)
    node.vhost.declare_queue("other", durable=True)
    node.publish("", "other", b"x")
    node.committer.wait()
    files.begin()

    restart = gevent.spawn(node.vhost.restart_queue, queue)
    node.wait(files.reading.is_set)

    node.publish("", "other", b"y")
    assert [node.take("other")[0] for _ in "xy"] == [b"x", b"y"]
    assert node.publish("", "q", b"2") == [0]
    with pytest.raises(NotFound, match="is closed"):
        node.vhost.queue("q")
    with pytest.raises(PreconditionFailed, match="already"):
        node.vhost.restart_queue(queue)
    assert not files.in_hub.keys() & {
        "open", "read_through", "sync", "sync_folder", "allocate", "unlink", "rename"
    }
    files.go_on.set()
    restart.get(timeout=in_time(20))
    assert node.vhost.queue("q").ready_count == 1
    assert node.publish("", "q", b"2", **PERSISTENT) == [1]
    node.stop()

    last = Node(tmp_path / "data")
    assert last.vhost.queue("q").ready_count == 2
    last.stop()


def test_queue_that_is_deleted_while_it_is_opened_again_is_gone(tmp_path):
    files = SlowRecovery()
    node = Node(tmp_path / "data", files)
    queue = closed_queue(node)
    node.committer.after_sync(lambda error: None)
    files.begin()
    restart = gevent.spawn(node.vhost.restart_queue, queue)
    node.wait(files.reading.is_set)

    node.vhost.delete_queue("q")
    again, _ = node.vhost.declare_queue("q", durable=True)
    node.committer.wait()
    files.go_on.set()
    with pytest.raises((NotFound, PreconditionFailed)):
        restart.get(timeout=in_time(20))

    assert node.vhost.queue("q") is again
    folder = tmp_path / "data" / "queues"
    node.wait(lambda: not any(folder.iterdir()))
    assert node.publish("", "q", b"2", **PERSISTENT) == [1]
    node.stop()
