"""When a flush that is held up begins, by a clock of the test's."""
from types import SimpleNamespace

import pytest

from gomq_py.storage.flush import flushing
from gomq_py.storage.flush.flushing import GATHER_FROM, GATHER_S, GRACE_S, CommitDelay, NextFlush


class Pauser:
    """A Flusher whose pauses end at once; ``while_pausing(self)`` is called in each."""

    def __init__(self, clock):
        self.clock = clock
        self.pauses = []
        self.is_ended = False
        self.while_pausing = lambda pauser: None

    def pause(self, seconds):
        self.pauses.append(seconds)
        self.is_ended = False
        began_s = self.clock.now_s
        self.while_pausing(self)
        if not self.is_ended:
            self.clock.now_s = began_s + seconds

    def end_pause(self):
        self.is_ended = True


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now_s=1000.0)
    monkeypatch.setattr(flushing, "time", SimpleNamespace(monotonic=lambda: clock.now_s))
    return clock


@pytest.fixture
def bench(clock):
    return SimpleNamespace(clock=clock, commit_delay=CommitDelay(), pauser=Pauser(clock))


def flush(bench, overlaps=True, answered=1):
    """A flush that takes a tenth of the time for which the next one is held up, and then that one's turn."""
    began_s = bench.clock.now_s
    bench.clock.now_s += GATHER_S / 10
    bench.commit_delay.flushed(began_s, overlaps, answered)
    bench.commit_delay.hold_up(bench.pauser)
    return began_s


def ask_after(*seconds):
    """Ask so long after the pause has begun, and not when it is over."""
    def ask(pauser):
        began_s = pauser.clock.now_s
        for late in seconds:
            if not pauser.is_ended:
                pauser.clock.now_s = began_s + late
                pauser.asks()

    return ask


@pytest.mark.parametrize("overlaps, answered, is_held_up", [
    (False, GATHER_FROM - 1, False), (True, 1, True), (False, GATHER_FROM, True),
])
def test_flush_is_held_up_where_it_overlaps_or_the_last_one_answered_many(
    bench, overlaps, answered, is_held_up
):
    flush(bench, overlaps, answered)

    assert bench.pauser.pauses == ([pytest.approx(GATHER_S * 9 / 10)] if is_held_up else [])


def test_flush_that_took_longer_is_followed_at_once(bench):
    bench.commit_delay.flushed(bench.clock.now_s, True, 1)
    bench.clock.now_s += 2 * GATHER_S

    bench.commit_delay.hold_up(bench.pauser)

    assert bench.pauser.pauses == []


def test_nothing_is_held_up_twice_or_without_what_pauses(bench):
    bench.commit_delay.flushed(bench.clock.now_s, True, 1)
    bench.commit_delay.hold_up(None)
    bench.commit_delay.hold_up(bench.pauser)

    assert bench.pauser.pauses == []


def test_where_asks_come_steadily_a_flush_begins_with_the_first_one_after_it_was_due(bench):
    bench.pauser.asks = bench.commit_delay.asked
    flush(bench)
    bench.clock.now_s += GRACE_S / 2
    bench.commit_delay.asked()  # while the flush runs that was due before: asks come steadily
    bench.pauser.while_pausing = ask_after(*[GATHER_S * tenths / 10 for tenths in range(3, 20)])

    began_s = flush(bench)

    assert bench.pauser.pauses[-1] == pytest.approx(GATHER_S * 9 / 10 + GRACE_S)
    assert bench.pauser.is_ended and bench.clock.now_s - began_s == pytest.approx(GATHER_S, abs=GATHER_S / 10)


def test_who_all_wait_for_the_flush_do_not_wait_longer_for_more_asks(bench):
    """They ask when they have their answers, and not while a flush is due or has begun."""
    bench.pauser.asks = bench.commit_delay.asked
    bench.pauser.while_pausing = ask_after(GATHER_S / 5, GATHER_S / 3)

    for _ in range(20):
        flush(bench)
        bench.clock.now_s += 2 * GRACE_S

    assert bench.pauser.pauses == [pytest.approx(GATHER_S * 9 / 10)] * 20


def test_where_no_ask_comes_in_its_time_the_next_flush_begins_when_it_is_due(bench):
    bench.pauser.asks = bench.commit_delay.asked
    flush(bench)
    bench.commit_delay.asked()

    flush(bench)
    bench.clock.now_s += 2 * GRACE_S
    bench.commit_delay.asked()
    flush(bench)

    due = pytest.approx(GATHER_S * 9 / 10)
    assert bench.pauser.pauses == [due, pytest.approx(GATHER_S * 9 / 10 + GRACE_S), due]


def test_ask_before_a_flush_is_due_does_not_begin_it(bench):
    bench.pauser.asks = bench.commit_delay.asked
    bench.pauser.while_pausing = ask_after(0, GATHER_S / 2)

    flush(bench)

    assert not bench.pauser.is_ended


def test_pause_that_is_cut_short_is_nobodys_any_more(bench):
    class Killed(BaseException):
        pass

    def kill(pauser):
        raise Killed

    bench.pauser.while_pausing = kill
    with pytest.raises(Killed):
        flush(bench)
    bench.clock.now_s += GATHER_S

    bench.commit_delay.asked()

    assert not bench.pauser.is_ended


def test_who_joins_a_flush_asks_for_it_until_it_has_begun(bench):
    coming = bench.commit_delay.next_flush
    bench.pauser.asks = coming.join
    bench.pauser.while_pausing = ask_after(GATHER_S / 2, GATHER_S)

    flush(bench)
    bench.commit_delay.begin()

    assert bench.pauser.is_ended and coming.joined == 2 and coming.has_begun
    assert bench.commit_delay.next_flush is not coming and not bench.commit_delay.next_flush.has_begun


def test_flush_that_nobody_gathers_for_counts_who_joins():
    coming = NextFlush()

    coming.join()

    assert coming.joined == 1
