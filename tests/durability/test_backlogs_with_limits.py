"""What limits do to a backlog of an earlier run, whose files threads open while the queue goes on: none of it
is taken for the end of the queue.
"""
import pytest

from gomq_py.storage.message import Message
from tests.support.node import Node
from tests.support.reading import get

COUNT = 24
BODY = bytes(29_000)  # two to a segment


@pytest.fixture
def left_over(tmp_path):
    """A node that has a backlog of an earlier run in the queue q."""
    nodes = []

    def start(arguments=None, **options):
        node = Node(tmp_path / "data", segment_size=65536)
        node.vhost.declare_queue("dead", durable=True)
        node.vhost.declare_queue("q", durable=True, arguments=arguments)
        for number in range(COUNT):
            node.publish("", "q", b"%08d" % number + BODY, persistent=True, **options)
        node.committer.wait()
        node.stop()
        nodes.append(Node(tmp_path / "data", segment_size=65536))
        return nodes[0], nodes[0].vhost.queue("q")

    yield start
    for node in nodes:
        node.stop()


def set_policy(node, definition):
    node.broker.parameters.set(node.vhost, "policy", "p", {"pattern": "^q$", "definition": definition})


def numbers_of(node, name):
    found, message = [], Message()
    while get(node.vhost.queue(name), message, True):
        found.append(int(message.get_body()[:8]))
    return found


def test_what_is_too_old_dies_in_order_to_the_last(left_over):
    node, queue = left_over({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    assert queue.ready_count == COUNT

    set_policy(node, {"message-ttl": 0})
    node.wait(lambda: queue.ready_count == 0 and node.vhost.queue("dead").ready_count == COUNT)

    assert numbers_of(node, "dead") == list(range(COUNT))


def test_what_is_too_much_goes_from_the_head(left_over):
    node, queue = left_over()

    set_policy(node, {"max-length": 3})
    node.wait(lambda: queue.ready_count <= 3)

    assert numbers_of(node, "q") == list(range(COUNT - 3, COUNT))


def test_some_are_purged_as_many_as_were_asked_for(left_over):
    node, queue = left_over()

    left = 15
    while left:
        left -= queue.purge_some(left)
        node.wait(lambda: not queue.is_opening())

    assert numbers_of(node, "q") == list(range(15, COUNT))


def test_expiry_of_messages_is_not_forgotten_while_their_files_are_being_opened(left_over):
    node, queue = left_over(expires_in_ms=600_000)

    node.wait(lambda: queue.store.read_segment.is_open)  # the first turn has looked at the head

    assert queue.limits is not None
    assert numbers_of(node, "q") == list(range(COUNT))
