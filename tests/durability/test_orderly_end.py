"""An orderly end in the midst of a move between two queues:
the message is in one of them at the next start, not in both.
"""
import threading

import gevent
import pytest

from gomq_py.content.properties import Properties
from gomq_py.hub.scheduler import unix_ms
from gomq_py.storage.message import Message
from tests.support.node import Node
from tests.support.unflushed import Unflushed
from tests.support.waiting import in_time


class HeldFiles(Unflushed):
    """Files whose flushes hang while they are held."""

    def __init__(self):
        super().__init__()
        self.go_on = threading.Event()
        self.go_on.set()

    def sync(self, file):
        self.go_on.wait(in_time(20))
        super().sync(file)


def delay(node):
    """Publish a message that is due at once."""
    headers = {"x-delay": 1}
    message = Message()
    message.assign(b"later", b"", Properties(headers=headers).encode(), b"x", unix_ms(), persistent=True)
    for destination in node.vhost.route(node.vhost.exchange("later"), "", headers):
        destination.publish(message)


def let_die(node):
    """Publish a message that dies at once."""
    node.publish("", "mortal", persistent=True)


@pytest.mark.parametrize("send", [delay, let_die])
def test_message_on_its_way_arrives_once(tmp_path, send):
    files = HeldFiles()
    node = Node(tmp_path, files)
    node.vhost.declare_queue("q", durable=True)
    node.vhost.declare_queue("mortal", durable=True, arguments={
        "x-message-ttl": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"})
    node.vhost.declare_exchange(
        "later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"}
    )
    node.vhost.bindings.bind_queue("q", "later", "")
    node.committer.wait()
    files.go_on.clear()

    send(node)
    node.wait(lambda: node.vhost.queue("q").ready_count == 1)
    gevent.spawn(files.go_on.set)  # runs when the end waits for the disk
    node.stop()

    again = Node(tmp_path)
    again.wait(
        lambda: not again.vhost.exchange("later").delayed_store.count and not again.vhost.queue(
            "mortal"
        ).unacked_count
    )
    assert again.vhost.queue("q").ready_count == 1
    assert again.vhost.queue("mortal").ready_count == 0
    again.stop()


def test_message_that_dies_while_the_broker_ends_stays_where_it_is(tmp_path):
    node = Node(tmp_path)
    node.vhost.declare_queue("q", durable=True)
    node.vhost.declare_queue("mortal", durable=True, arguments={
        "x-max-length": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"})
    node.broker.dead_letters.close()

    for _ in range(2):
        node.publish("", "mortal", persistent=True)
    node.stop()

    again = Node(tmp_path)
    again.wait(lambda: again.vhost.queue("q").ready_count == 1)
    assert again.vhost.queue("mortal").ready_count == 1
    again.stop()
