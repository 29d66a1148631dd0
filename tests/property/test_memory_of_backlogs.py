"""Memory does not grow with a backlog: no Python object for a message that waits, and for one whose turn
depends on more than its place a few octets.

Counted is what the interpreter allocates, arrays included;
what is mapped from files is the system's to keep or to drop.
"""
import gc
import tracemalloc

import pytest

from tests.support.node import Node
from tests.unit.source_tree import ROOT

WARM, MORE = 3000, 30_000
MOST_OCTETS_EACH = 24
# What other tests' threads keep meanwhile, in the same process, is not the broker's: clients, and readers of
# brokers' logs. What compiled modules keep has the line here or in Node that called them.
OURS = [tracemalloc.Filter(True, str(ROOT / path)) for path in (
    "gomq_py/*", "tests/support/node.py", "tests/property/*")]


def fifo(node):
    node.vhost.declare_queue("q", durable=True)
    return lambda: node.publish("", "q", b"0123456789abcdef", persistent=True)


def transient(node):
    node.vhost.declare_queue("q")
    return lambda: node.publish("", "q", b"0123456789abcdef")


def priority(node):
    node.vhost.declare_queue("q", durable=True, arguments={"x-max-priority": 3})
    return lambda: node.publish("", "q", b"0123456789abcdef", persistent=True, priority=2)


def expiring(node):
    node.vhost.declare_queue("q", durable=True, arguments={"x-message-ttl": 3_600_000})
    return lambda: node.publish("", "q", b"0123456789abcdef", persistent=True, expires_in_ms=3_000_000)


def delayed(node):
    node.vhost.declare_exchange("later", "x-delayed-message", True, arguments={"x-delayed-type": "direct"})
    node.vhost.declare_queue("q", durable=True)
    node.vhost.bindings.bind_queue("q", "later", "k")
    from gomq_py.content.properties import Properties
    headers = {"x-delay": 3_600_000}
    properties = Properties(headers=headers).encode()
    (park,) = node.vhost.route(node.vhost.exchange("later"), "k", headers)

    def publish():
        from gomq_py.storage.message import Message
        message = Message()
        message.assign(b"later", b"k", properties, b"0123456789abcdef", 1_800_000_000_000, persistent=True)
        park.publish(message)
    return publish


@pytest.mark.parametrize(
    "kind, most",
    [
        (fifo, 0.5), (transient, 0.5), (priority, MOST_OCTETS_EACH), (expiring, MOST_OCTETS_EACH),
        (delayed, MOST_OCTETS_EACH),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_waiting_message_costs_no_object_and_few_octets(tmp_path, kind, most):
    node = Node(tmp_path / "data", segment_size=1 << 22)
    publish = kind(node)
    for _ in range(WARM):
        publish()
    gc.collect()
    objects = len(gc.get_objects())
    tracemalloc.start(1)

    for _ in range(MORE):
        publish()

    gc.collect()
    kept = tracemalloc.take_snapshot().filter_traces(OURS).statistics("lineno")
    tracemalloc.stop()
    each = sum(line.size for line in kept) / MORE
    assert len(gc.get_objects()) - objects < MORE / 100
    assert each <= most, f"{each:.2f} octets for a waiting message: {kept[:3]}"
    node.stop()
