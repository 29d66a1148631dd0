"""Verbs of moves: rights that are withdrawn while messages move."""
import pytest

from gomq_py.broker.transfer.moves import Move
from gomq_py.broker.verbs import moves, queues
from gomq_py.broker.verbs.access import Access
from gomq_py.broker.verbs.caller import Caller
from gomq_py.errors import NoPermission
from tests.support.node import Node


@pytest.fixture
def node(tmp_path):
    node = Node(tmp_path / "data")
    node.broker.users.set_user("bob", "x", grants=("/",))
    for name in ("from", "to"):
        node.vhost.declare_queue(name, durable=True)
    for number in range(4):
        node.publish("", "from", b"%d" % number, persistent=True)
    yield node
    node.stop()


def caller_of(node):
    return Caller(Access(node.broker.users.get("bob"), "/"), node.vhost, None, "", 0)


def withdraw(node, write=".*", read=".*"):
    node.broker.users.set_permission("bob", "/", ".*", write, read)


def moved(node, route, change):
    """The Result of a move of all, where ``change()`` comes behind the second message."""
    seen, ended = [], []

    def counted(message):
        if len(seen) == 2:
            change()
        seen.append(message.get_body())
        return route(message)

    Move(
        node.vhost.queues["from"], counted, node.broker.durability, node.broker.scheduler,
        lambda *end: ended.append(end)).start()
    node.wait(lambda: ended)
    return ended[0][0]


@pytest.mark.parametrize("change, reason", [
    (lambda node: withdraw(node, write="^$"), "no permission any more to write to the destination"),
    (lambda node: withdraw(node, read="^$"), "no permission any more to read queue 'from'"),
    (lambda node: node.broker.users.delete_user("bob"), "no permission any more to read queue 'from'"),
])
def test_move_ends_with_the_rights_of_whoever_asked_for_it(node, change, reason):
    caller = caller_of(node)
    _, route = moves.to_another_queue(caller, "from", caller, node.vhost.queues["to"])

    result = moved(node, route, lambda: change(node))

    assert (result.done, result.stayed) == (2, {reason: 2})
    assert (node.vhost.queues["from"].ready_count, node.vhost.queues["to"].ready_count) == (2, 2)


def test_replay_ends_with_the_right_to_read(node):
    _, route = moves.to_where_they_died(caller_of(node), "from")

    result = moved(node, route, lambda: withdraw(node, read="^$"))

    assert result.stayed == {"no origin recorded": 2, "no permission any more to read queue 'from'": 2}


def test_purge_of_so_many_messages_ends_with_the_right_to_read(node, monkeypatch):
    monkeypatch.setattr(queues, "PURGE_SLICE", 1)
    monkeypatch.setattr(queues, "give_way", lambda: withdraw(node, read="^$"))

    with pytest.raises(NoPermission):
        queues.purge_some(caller_of(node), "from", 3)

    assert node.vhost.queues["from"].ready_count == 3
