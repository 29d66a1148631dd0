"""The pace of a worker, by a clock that the test sets."""

from types import SimpleNamespace

import pytest

from gomq_py.dispatcher.pace import Pace, interval_of


class Link:
    """A clock, and what is planned by it."""

    def __init__(self):
        self.now_s, self.planned = 100.0, []

    def call_later(self, seconds, function):
        self.planned.append((self.now_s + seconds, function))

    def pass_until(self, now_s):
        """Call what is due until then, at its time."""
        while self.planned and self.planned[0][0] <= now_s:
            self.now_s, function = self.planned.pop(0)
            function()
        self.now_s = now_s


class Began:
    """A runner that notes when each task began."""

    def __init__(self, link):
        self.link, self.times = link, []

    def begin(self, invocation):
        if isinstance(invocation, SimpleNamespace):
            raise RuntimeError("no thread")
        self.times.append((invocation, self.link.now_s))


@pytest.fixture
def link():
    return Link()


@pytest.fixture
def began(link):
    return Began(link)


@pytest.fixture
def told():
    return []


@pytest.fixture
def pace(link, told):
    return Pace(
        0.5, link, lambda invocation: told.append("forgotten"),
        lambda delivery, error: told.append((delivery, str(error))), clock=lambda: link.now_s)


def test_tasks_begin_in_order_and_apart(pace, link, began):
    for task in "abc":
        pace.begin(began, task)

    link.pass_until(102)
    pace.begin(began, "d")

    assert began.times == [("a", 100), ("b", 100.5), ("c", 101), ("d", 102)]


def test_one_timer_is_planned_however_many_wait(pace, link, began):
    for task in range(1000):
        pace.begin(began, task)

    assert len(link.planned) == 1


def test_a_late_timer_delays_only_the_task_that_it_is_for(pace, link, began):
    for task in "abcd":
        pace.begin(began, task)
    (_, late), link.planned[:] = link.planned[0], []

    link.now_s = 100.7
    late()
    link.pass_until(102)

    assert began.times == [("a", 100), ("b", 100.7), ("c", 101), ("d", 101.5)]


def test_a_long_pause_is_not_made_up_for(pace, link, began):
    pace.begin(began, "a")
    link.pass_until(200)

    for task in "bcde":
        pace.begin(began, task)
    link.pass_until(201)

    assert began.times == [("a", 100), ("b", 200), ("c", 200.5), ("d", 201)]


def test_what_waits_is_taken_back_and_does_not_begin(pace, link, began):
    for task in "abc":
        pace.begin(began, task)

    assert pace.take_back() == ["b", "c"]
    link.pass_until(105)
    assert began.times == [("a", 100)]


def test_a_task_that_cannot_begin_later_is_refused_and_the_next_one_begins(pace, link, began, told):
    pace.begin(began, "a")
    pace.begin(began, SimpleNamespace(delivery="the message"))
    pace.begin(began, "c")

    link.pass_until(101)

    assert told == ["forgotten", ("the message", "no thread")]
    assert began.times == [("a", 100), ("c", 101)]


def test_without_a_rate_tasks_begin_at_once_and_an_error_is_raised(link, began, told):
    pace = Pace(0, link, lambda invocation: told.append("forgotten"), None, clock=lambda: link.now_s)

    pace.begin(began, "a")
    pace.begin(began, "b")
    with pytest.raises(RuntimeError, match="no thread"):
        pace.begin(began, SimpleNamespace())

    assert (began.times, told) == ([("a", 100), ("b", 100)], ["forgotten"])


@pytest.mark.parametrize("rate, interval_s", [("10/s", 0.1), ("100/m", 0.6), ("5/h", 720), ("0.5/s", 2)])
def test_rates(rate, interval_s):
    assert interval_of(rate) == pytest.approx(interval_s)


@pytest.mark.parametrize("rate", ["10", "10/d", "/s", "0/s", "-1/s", "nan/s", "inf/s", "ten/s", 10, ""])
def test_what_is_no_rate_is_refused(rate):
    with pytest.raises(ValueError, match="a rate is a count for a second, minute or hour"):
        interval_of(rate)
