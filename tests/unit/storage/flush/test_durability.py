"""Durability: whom promises and housekeeping wait for, in which order,
and what becomes of them when somebody refuses.
"""
import ast

import pytest

from gomq_py.storage.flush.durability import Durability, NotAcknowledged
from tests.support.acknowledger import HandAcknowledger
from tests.unit.source_tree import module_name, sources


class HandDisk:
    """A group commit whose syncs the test ends."""

    def __init__(self):
        self.waiting = []
        self.position = self.told = 0
        self.tells_before_it_answers = False

    def after_sync(self, callback, hurry=True, concerns=None):
        self.waiting.append(callback)

    def describe(self):
        return "idle"

    def finish(self, error=None):
        waiting, self.waiting = self.waiting, []
        for callback in waiting:
            callback(error)


@pytest.fixture
def disk():
    return HandDisk()


@pytest.fixture
def durability(disk):
    return Durability(disk)


@pytest.fixture
def other(durability):
    """An acknowledger that promises wait for."""
    acknowledger = HandAcknowledger()
    durability.add(acknowledger)
    return acknowledger


def test_without_acknowledgers_the_disk_gets_the_callback_itself(durability, disk):
    def callback(error):
        pass

    durability.when_safe(callback)

    assert disk.waiting == [callback]


def test_promise_waits_for_the_disk_and_then_for_everybody_else(durability, disk, other):
    another = HandAcknowledger()
    durability.add(another)
    told = []
    durability.when_safe(told.append)

    assert not other.waiting and not another.waiting  # logs are told of when the disk has them
    disk.finish()
    other.finish()
    assert told == []
    another.finish()

    assert told == [None]


def test_acknowledger_is_asked_for_what_the_disk_has_answered_about(durability, disk, other):
    durability.when_safe(lambda error: None)
    disk.position = 7

    disk.finish()

    assert other.positions == [7]


def test_acknowledger_is_asked_for_what_was_told_before_the_promise(durability, disk, other):
    """Acks need no flush: they are told of while one runs that began without them."""
    disk.position, disk.told = 5, 7
    durability.when_safe(lambda error: None)
    disk.told = 9

    disk.finish()

    assert other.positions == [7]


def test_housekeeping_waits_for_the_disk_alone(durability, disk, other):
    told = []
    durability.when_on_disk(told.append)

    disk.finish()

    assert told == [None] and not other.waiting


def test_promises_are_kept_in_the_order_in_which_they_were_asked_for(durability, disk, other):
    told = []
    for name in "abc":
        durability.when_safe(lambda error, name=name: told.append(name))
    disk.finish()
    first, second, third = other.waiting

    second(None)
    assert told == []
    first(None)
    assert told == ["a", "b"]
    third(None)

    assert told == ["a", "b", "c"]


def test_disk_that_refuses_is_enough(durability, disk, other):
    told, error = [], OSError("no space left")
    durability.when_safe(told.append)

    disk.finish(error)

    assert told == [error] and not other.waiting


def test_acknowledger_that_refuses_is_enough_and_is_named(durability, disk, other):
    durability.add(HandAcknowledger())
    told = []
    durability.when_safe(told.append)
    disk.finish()

    other.finish(OSError("gone"))

    assert isinstance(told[0], NotAcknowledged) and str(told[0]) == "the other place does not keep it: gone"


def test_acknowledger_that_cannot_be_asked_refuses(durability, disk, other, monkeypatch, caplog):
    def fail(callback):
        raise RuntimeError("a fault")

    monkeypatch.setattr(other, "when_safe", fail)
    told = []
    durability.when_safe(told.append)

    disk.finish()

    assert isinstance(told[0], NotAcknowledged)
    assert "cannot be asked" in caplog.text


def test_promise_waits_no_more_for_an_acknowledger_that_is_removed(durability, disk, other):
    told = []
    durability.when_safe(told.append)
    disk.finish()

    durability.remove(other)
    assert told == [None]
    other.finish(OSError("too late"))
    durability.when_safe(told.append)
    disk.finish()

    assert told == [None, None]


def test_promise_of_before_an_acknowledger_came_waits_for_the_disk_alone(durability, disk):
    told = []
    durability.when_safe(told.append)
    durability.add(HandAcknowledger())

    disk.finish()

    assert told == [None]


def test_promises_that_need_others_are_refused_at_the_end_and_the_disk_is_waited_for_all_the_same(
    durability, disk, other
):
    told = []
    durability.when_safe(lambda error: told.append(type(error)))
    disk.finish()
    durability.when_safe(lambda error: told.append(type(error)))

    durability.close()
    assert told == [NotAcknowledged]
    disk.finish()

    assert told == [NotAcknowledged, NotAcknowledged]


def test_promise_after_the_end_is_kept_where_the_disk_alone_was_asked(durability, disk, other):
    told = []
    durability.remove(other)
    durability.close()

    durability.when_safe(told.append)
    disk.finish()

    assert told == [None]


def test_promise_after_the_end_asks_no_acknowledger(durability, disk, other):
    told = []
    durability.close()

    durability.when_safe(lambda error: told.append(str(error)))
    durability.when_on_disk(lambda error: told.append(error), hurry=False)
    disk.finish()

    assert told == ["the broker stops, and not everybody who keeps a copy has said that it is safe", None]


def test_callback_that_asks_for_more_or_fails_keeps_nobody_waiting(durability, disk, other, caplog):
    told = []

    def ask_and_fail(error):
        durability.when_safe(lambda error: told.append("asked later"))
        disk.finish()
        other.finish()
        raise RuntimeError("a fault")

    durability.when_safe(ask_and_fail)
    durability.when_safe(lambda error: told.append("second"))
    disk.finish()

    other.finish()

    assert told == ["second", "asked later"]
    assert "a callback about something that is safe failed" in caplog.text


def test_wait_returns_when_it_is_safe_and_raises_what_refuses_it(durability, disk, other, monkeypatch):
    monkeypatch.setattr(disk, "after_sync", lambda callback, hurry=True, concerns=None: callback(None))
    monkeypatch.setattr(other, "when_safe", lambda position, callback: callback(None))
    durability.wait()

    monkeypatch.setattr(other, "when_safe", lambda position, callback: callback(OSError("gone")))
    with pytest.raises(NotAcknowledged):
        durability.wait()


def test_state_names_how_many_are_waited_for(durability, other):
    durability.when_safe(lambda error: None)

    assert durability.describe() == "idle; 1 acknowledgers, 1 promises to keep"


def test_only_storage_and_housekeeping_wait_for_the_disk_without_durability():
    """Whoever promises something asks Durability: it alone knows of acknowledgers."""
    asking = set()
    for path in sources():
        name = module_name(path)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr == "after_sync":
                asking.add(name)

    assert not {name for name in asking if not name.startswith("gomq_py.storage.")}
