"""The collector stays off while very much is made, and spares are let go of, in a process of the broker's."""
import gc
import sys

import pytest

from gomq_py.observability import garbage
from gomq_py.observability.garbage import collect_everything, held_while_making, let_go_of_spares


@pytest.fixture
def frozen(monkeypatch):
    """As after boot."""
    monkeypatch.setattr(garbage, "_is_frozen", False)  # so that it is False again afterwards
    thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)
    garbage.freeze()
    yield
    gc.set_threshold(*thresholds)
    gc.callbacks[:] = callbacks
    assert gc.isenabled()


class Thing:
    def __init__(self):
        self.itself = self


def test_what_is_made_is_frozen(frozen):
    before = gc.get_freeze_count()

    with held_while_making():
        assert not gc.isenabled()
        with held_while_making():
            things = [Thing() for _ in range(5000)]
        assert not gc.isenabled()

    assert gc.isenabled()
    assert gc.get_freeze_count() >= before + len(things)


def test_the_collector_comes_back_after_a_failure(frozen):
    with pytest.raises(ValueError), held_while_making():
        raise ValueError


def test_a_process_that_has_not_settled_is_left_alone():
    gc.unfreeze()
    gc.collect()
    immortal = gc.get_freeze_count()  # a collection of Python 3.12 sets those aside by itself

    with held_while_making():
        assert gc.isenabled()
    collect_everything()

    assert gc.get_freeze_count() == immortal
    gc.freeze()  # as before: tests by the thousand, which a collection would look at for seconds


def test_collecting_everything_frees_frozen_garbage(frozen):
    freed = []
    thing = Thing()
    thing.ended = type("Ended", (), {"__del__": lambda _self: freed.append(True)})()
    gc.freeze()
    del thing
    gc.collect()
    assert not freed

    collect_everything()

    assert freed and gc.get_freeze_count() > 0


def test_a_name_that_the_cache_of_methods_keeps_is_let_go_of(frozen):
    name = "".join(["col", "lect"])  # a string of its own, as C makes one for each call by name
    references = sys.getrefcount(name)
    for _ in range(3):
        getattr(gc, name), getattr(Thing(), name, None)

    let_go_of_spares()

    assert sys.getrefcount(name) == references


def test_spares_of_a_process_that_has_not_settled_are_left_alone(monkeypatch):
    collected = []
    monkeypatch.setattr(gc, "collect", lambda: collected.append(True))

    let_go_of_spares()

    assert not collected


def test_free_lists_are_emptied(frozen, monkeypatch):
    collected = []
    monkeypatch.setattr(gc, "collect", lambda: collected.append(True))  # which does that, if it is a full one

    let_go_of_spares()

    assert collected


@pytest.mark.parametrize("pause_s, is_frozen", [(-1, True), (1000, False)])
def test_what_a_long_full_collection_looked_at_is_not_looked_at_by_the_next(
    frozen, monkeypatch, pause_s, is_frozen
):
    """With 100 000 queues each full collection took half a second, and they came with every quarter more."""
    monkeypatch.setattr(garbage, "PAUSE_S", pause_s)
    before = gc.get_freeze_count()
    things = [Thing() for _ in range(5000)]

    gc.collect(1)
    after_a_short_one = gc.get_freeze_count()
    gc.collect()

    assert after_a_short_one < before + 5000
    assert (gc.get_freeze_count() >= before + len(things)) is is_frozen
