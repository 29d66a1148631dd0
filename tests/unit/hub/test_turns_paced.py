"""Paced turns: the first has its at once, many one after the other, and others get their share."""
from types import SimpleNamespace

import gevent
import pytest

from gomq_py.config.settings import Settings
from gomq_py.hub import turns
from gomq_py.hub.context import LINK_PACE_S, LINK_REST_MOST_S, Hub
from gomq_py.hub.turns import PacedTurns
from tests.support.links import until


@pytest.fixture
def hub():
    hub = Hub(Settings())
    yield hub
    hub.close()
    gevent.sleep(0)


def test_first_has_its_turn_at_once_and_others_one_after_the_other(hub):
    had = []
    for number in range(5):
        hub.link_turns.ask(lambda number=number: had.append(number))

    assert had == [0]
    until(lambda: len(had) == 5)
    assert had == list(range(5))
    until(lambda: hub.link_turns._greenlet is None)
    hub.link_turns.ask(lambda: had.append("at once"))
    assert had[-1] == "at once"


def test_those_that_have_failed_come_behind_those_that_have_not(hub):
    had = []
    hub.link_turns.ask(lambda: None)
    for number, has_failed in enumerate([True, False, True, False]):
        hub.link_turns.ask(lambda number=number: had.append(number), has_failed)

    until(lambda: len(had) == 4)
    assert had == [1, 3, 0, 2]


def test_links_of_one_user_do_not_come_before_those_of_another(hub):
    had = []
    for number in range(100):
        hub.link_turns.ask(lambda number=number: had.append(number), account=("greedy", "/"))

    hub.link_turns.ask(lambda: had.append("calm"), account=("calm", "/"))

    until(lambda: "calm" in had)
    assert had.index("calm") <= 2


def test_whoever_does_not_want_one_any_more_has_none(hub):
    had = []
    granted = [lambda number=number: had.append(number) for number in range(4)]
    for number, each in enumerate(granted):
        hub.link_turns.ask(each, has_failed=number == 3)

    hub.link_turns.forget(granted[1])
    hub.link_turns.forget(granted[3])

    until(lambda: hub.link_turns._greenlet is None)
    assert had == [0, 2]


@pytest.mark.parametrize("took_s, rest_s", [(0.0, 0.0), (0.01, 0.01), (3.0, LINK_REST_MOST_S)])
def test_others_get_as_long_as_a_turn_took_up_to_a_limit(monkeypatch, took_s, rest_s):
    now, slept = [100.0], []

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds + took_s  # what a turn has brought about, before the timer was seen

    # in this module alone: there may be other threads
    monkeypatch.setattr(turns, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(turns, "gevent", SimpleNamespace(sleep=sleep))
    PacedTurns(pace_s=LINK_PACE_S, rest_most_s=LINK_REST_MOST_S)._pause()

    assert sum(slept) == pytest.approx(LINK_PACE_S + rest_s, abs=1e-6) and len(slept) <= 2
