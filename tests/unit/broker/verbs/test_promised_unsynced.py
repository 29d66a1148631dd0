"""The queues that answers of one read have to wait for."""
from gomq_py.broker.verbs.promised import Unsynced


def test_nothing_was_added():
    assert Unsynced().take() == () and Unsynced().last is None


def test_queues_are_taken_once():
    unsynced, queues = Unsynced(), ("a", "b")
    unsynced.add(queues)

    assert unsynced.last is queues
    assert unsynced.take() == (queues,)
    assert unsynced.take() == () and unsynced.last is None


def test_queues_of_several_routes_are_each_there_once():
    unsynced, one, other, third = Unsynced(), ("a",), ("b",), ("c",)
    for queues in (one, other, one, other, third):
        unsynced.add(queues)

    taken = unsynced.take()

    assert set(taken) == {one, other, third} and taken[0] is third
    assert unsynced.take() == ()
