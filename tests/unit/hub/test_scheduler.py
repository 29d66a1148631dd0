"""The scheduler: one turn for each that was touched at the end of a batch, the rest after a poll,
sliced work, faults kept apart.
"""
from functools import partial

import gevent
import pytest

from gomq_py.hub.scheduler import BUDGET_OCTETS, FEW_TURNS, Job, Scheduler, SliceClock, TurnTaker
from tests.support.clocks import StepClock, patient_scheduler
from tests.support.jobs import Doing
from tests.support.queues import HandLoop
from tests.support.waiting import wait_until


class Turning(TurnTaker):
    """Notes when it writes out, and its turns."""

    def __init__(self, name, log, octets=100, then=None):
        super().__init__(name)
        self.log = log
        self.octets = octets
        self.then = then

    def write_out(self):
        self.log.append(("write out", self.name))

    def turn(self):
        self.log.append(("turn", self.name))
        if self.then is not None:
            self.then()
        return self.octets


@pytest.fixture
def loop():
    return HandLoop()


@pytest.fixture
def scheduler(loop):
    return patient_scheduler(loop)


def test_a_batch_gives_each_touched_destination_one_turn_in_order(scheduler, loop):
    log = []
    first, second = Turning("first", log), Turning("second", log)

    scheduler.begin(5)
    for each in (first, second, first):
        scheduler.touch(each)
    assert log == []
    scheduler.finish()

    assert log == [("write out", "first"), ("turn", "first"), ("write out", "second"), ("turn", "second")]
    assert scheduler.now_ms == 5 and not loop.poll()


def test_destination_that_waits_for_its_turn_is_flushed_by_every_batch(scheduler, loop):
    """An ack in the batch is on its way to the disk before the client hears of anything that came behind it,
    whenever the turn may be.
    """
    log = []
    waiting = Turning("waiting", log)
    scheduler.begin(5)
    scheduler.touch(Turning("greedy", log, BUDGET_OCTETS))
    scheduler.touch(waiting)
    scheduler.finish()
    assert log[-1] == ("write out", "waiting")
    log.clear()

    scheduler.begin(6)
    scheduler.touch(waiting)  # its queue was acked to
    scheduler.finish()

    assert log == [("write out", "waiting")]
    assert loop.poll() and log[1:] == [("write out", "waiting"), ("turn", "waiting")]


def test_outside_a_batch_the_turn_comes_after_a_poll(scheduler, loop):
    log = []

    scheduler.touch(Turning("a", log))
    assert log == []
    loop.poll()

    assert log == [("write out", "a"), ("turn", "a")] and not loop.poll()


def test_what_asks_for_later_gets_a_turn_after_each_poll(scheduler, loop):
    log = []
    busy = Turning("busy", log, then=lambda: scheduler.later(busy) if len(log) < 6 else None)

    scheduler.begin(5)
    scheduler.touch(busy)
    scheduler.finish()

    assert len(log) == 2
    loop.poll()
    assert len(log) == 4
    loop.poll()
    assert len(log) == 6 and not loop.poll()


def test_the_budget_puts_the_rest_behind_a_poll_but_flushes_all_at_once(scheduler, loop):
    log = []
    greedy, patient = Turning("greedy", log, BUDGET_OCTETS), Turning("patient", log)

    scheduler.begin(5)
    scheduler.touch(greedy)
    scheduler.touch(patient)
    scheduler.finish()

    assert log == [("write out", "greedy"), ("turn", "greedy"), ("write out", "patient")]
    loop.poll()
    assert log[-1] == ("turn", "patient")


def test_many_turns_end_with_their_time_and_go_on_after_a_poll_in_order(loop):
    """500 queues of a fan-out write a little to a socket each, which takes milliseconds."""
    log = []
    scheduler = Scheduler(loop, turns_clock=SliceClock(10, clock=StepClock(1)))
    takers = [Turning(number, log) for number in range(25)]

    scheduler.begin(5)
    for taker in takers:
        scheduler.touch(taker)
    scheduler.finish()

    turns = [name for what, name in log if what == "turn"]
    assert turns == list(range(len(turns))) and 5 < len(turns) < 15
    assert [name for what, name in log if what == "write out"] == list(range(25))
    while loop.poll():
        pass
    assert [name for what, name in log if what == "turn"] == list(range(25))


def test_many_that_are_touched_while_others_wait_have_their_turn_behind_those(loop):
    """As the sinks of a flood: those that had a turn would be given one message at a time."""
    log = []
    scheduler = Scheduler(loop, turns_clock=SliceClock(20, clock=StepClock(1)))
    takers = [Turning(number, log) for number in range(60)]
    scheduler.begin(5)
    for taker in takers:
        scheduler.touch(taker)
    scheduler.finish()
    first = [name for what, name in log if what == "turn"]
    assert 16 < len(first) < 30
    log.clear()

    scheduler.begin(6)
    for taker in takers:
        scheduler.touch(taker)
    scheduler.finish()

    assert {what for what, _ in log} == {"write out"} and sorted({name for _, name in log}) == list(range(60))
    while loop.poll():
        pass
    turns = [name for what, name in log if what == "turn"]
    assert turns == [*range(len(first), 60), *first]


def test_few_that_are_touched_do_not_wait_for_many_that_do(loop):
    log = []
    scheduler = Scheduler(loop, turns_clock=SliceClock(0, clock=StepClock(1)))
    takers = [Turning(number, log) for number in range(60)]
    scheduler.begin(5)
    for taker in takers:
        scheduler.touch(taker)
    scheduler.finish()
    log.clear()

    scheduler.begin(6)
    scheduler.touch(Turning("quiet", log))
    scheduler.finish()

    assert [name for what, name in log if what == "turn"] == ["quiet"]


def test_whoever_got_no_turn_comes_before_those_that_ask_for_another(scheduler, loop):
    """Two of these write as much as all may in one go."""
    log = []
    takers = [Turning(number, log, BUDGET_OCTETS // 2) for number in range(5)]
    for taker in takers:
        taker.then = partial(scheduler.later, taker)
        scheduler.later(taker)

    for _ in range(5):
        loop.poll()

    assert [name for what, name in log if what == "turn"] == [*range(5)] * 2


def test_many_that_are_touched_while_others_write_all_that_they_may_have_their_turns(scheduler, loop):
    log = []
    for number in range(2):
        deep = Turning(f"deep {number}", log, BUDGET_OCTETS // 2)
        deep.then = partial(scheduler.later, deep)
        scheduler.later(deep)
    takers = [Turning(number, log) for number in range(FEW_TURNS + 1)]
    scheduler.begin(5)
    for taker in takers:
        scheduler.touch(taker)
    scheduler.finish()

    for _ in range(2):
        loop.poll()

    assert {name for what, name in log if what == "turn"} == {"deep 0", "deep 1", *range(FEW_TURNS + 1)}


def test_few_turns_have_no_limit_of_time(loop):
    log = []
    scheduler = Scheduler(loop, turns_clock=SliceClock(0, clock=StepClock(1)))

    scheduler.begin(5)
    for number in range(16):
        scheduler.touch(Turning(number, log))
    scheduler.finish()

    assert [name for what, name in log if what == "turn"] == list(range(16)) and not loop.poll()


def test_who_is_touched_by_anothers_turn_gets_its_own_after_a_poll(scheduler, loop):
    log = []
    second = Turning("second", log)
    first = Turning("first", log, then=lambda: scheduler.touch(second))

    scheduler.begin(5)
    scheduler.touch(first)
    scheduler.finish()
    loop.poll()

    assert log == [("write out", "first"), ("turn", "first"), ("write out", "second"), ("turn", "second")]


def test_a_turn_that_fails_is_logged_and_the_others_get_theirs(scheduler, caplog):
    log = []
    failing = Turning("failing", log, then=lambda: 1 // 0)

    scheduler.begin(5)
    scheduler.touch(failing)
    scheduler.touch(Turning("next", log))
    scheduler.finish()

    assert ("turn", "next") in log and "ZeroDivisionError" in caplog.text and "failing" in caplog.text


def test_sliced_work_runs_once_a_poll_until_it_is_done(scheduler, loop):
    left = [3, 2, 1]

    scheduler.start(Doing(lambda: bool(left.pop()) and bool(left)))

    for remaining in (2, 1, 0):
        assert loop.poll() and len(left) == remaining
    assert not loop.poll()


def test_all_jobs_share_the_time_of_one_poll_and_take_turns(loop):
    """However many there are: 3000 jobs of a millisecond each held the loop up for 3 s."""
    scheduler = Scheduler(loop, budget=SliceClock(0.0035, clock=StepClock(0.001)))
    log = []
    for number in range(10):
        scheduler.start(Doing(lambda number=number: log.append(number) or len(log) < 25))

    slices = []
    while loop.poll():
        slices.append(len(log) - sum(slices))

    assert max(slices) == 4
    assert log[:25] == [*range(10), *range(10), *range(5)]


def test_a_job_that_raises_is_counted_and_its_owner_is_told_and_the_others_go_on(scheduler, loop, caplog):
    log, told = [], []

    scheduler.start(Doing(lambda: log.append("first") or len(log) < 6))
    scheduler.start(Doing(lambda: 1 // 0, told.append, "the ill one"))
    scheduler.start(Doing(lambda: log.append("last") or len(log) < 6))
    while loop.poll():
        pass

    assert log == ["first", "last"] * 3 + ["first"]
    assert (
        [type(error) for error in told] == [ZeroDivisionError]
        and dict(scheduler.failed_jobs) == {"the ill one": 1}
    )
    assert (
        "the ill one: a slice of it failed; other work goes on" in caplog.text
        and "ZeroDivisionError" in caplog.text
    )


def test_a_job_whose_owner_says_so_goes_on_after_a_slice_that_raised(scheduler, loop):
    left = [1, 0, 1, 0, 1]

    scheduler.start(Doing(lambda: bool(1 // left.pop()) and bool(left), lambda error: True, "one by one"))
    while loop.poll():
        pass

    assert left == [] and scheduler.failed_jobs["one by one"] == 2


def test_a_job_whose_owner_fails_when_it_is_told_is_given_up_alone(scheduler, loop, caplog):
    log = []

    scheduler.start(Doing(lambda: 1 // 0, lambda error: {}["nothing"], "hopeless"))
    scheduler.start(Doing(lambda: log.append("other") or len(log) < 3))
    while loop.poll():
        pass

    assert log == ["other"] * 3 and not scheduler.is_armed()
    assert "hopeless is given up" in caplog.text and scheduler.failed_jobs["hopeless"] == 1


def test_a_job_that_raises_at_every_poll_does_not_fill_the_log(scheduler, loop, caplog):
    left = list(range(100))

    scheduler.start(Doing(lambda: left.pop() and 1 // 0, lambda error: bool(left), "stubborn"))
    while loop.poll():
        pass

    assert scheduler.failed_jobs["stubborn"] == 99 and len(caplog.messages) == 1


class Counting(Job):
    """Has two slices, then no more."""

    name = "counting"
    steps = 0

    def step(self):
        self.steps += 1
        return self.steps % 2 == 1

    def failed(self, error):
        return False


def test_job_that_runs_is_not_started_twice_and_one_that_is_over_can_be_started_again(scheduler, loop):
    job = Counting()

    for steps in (2, 4):
        scheduler.start(job)
        scheduler.start(job)
        while loop.poll():
            pass
        assert job.steps == steps and not job.running


def test_on_a_real_loop_an_idle_scheduler_has_nothing_to_run():
    log = []
    scheduler = Scheduler()
    scheduler.touch(Turning("a", log))

    wait_until(lambda: log, sleep=gevent.sleep)

    assert not scheduler.is_armed()


def test_batch_that_ends_after_the_end_gives_nobody_a_turn_and_starts_no_timer(scheduler, loop):
    log = []
    scheduler.begin(5)
    scheduler.touch(Turning("walked", log))
    scheduler.close()
    scheduler.later(Turning("later", log))

    scheduler.finish()
    scheduler.touch(Turning("after", log))
    scheduler.start(Doing(lambda: log.append("job")))
    scheduler.finish()

    assert log == [] and not scheduler.is_armed() and not loop.poll()


@pytest.mark.parametrize("waits_for_a_poll", [False, True])
def test_turn_that_brings_about_the_end_is_the_last_one(scheduler, loop, waits_for_a_poll):
    log = []
    takers = Turning("first", log, then=scheduler.close), Turning("second", log)
    for taker in takers:
        scheduler.later(taker) if waits_for_a_poll else scheduler.touch(taker)
    if not waits_for_a_poll:
        scheduler.finish()
    else:
        loop.poll()

    assert log == [("write out", "first"), ("turn", "first")] and not loop.poll()


def test_job_that_brings_about_the_end_has_no_further_slice_and_no_other_has_one(scheduler, loop):
    done = []
    scheduler.start(Doing(lambda: (done.append("first"), scheduler.close(), True)[-1]))
    scheduler.start(Doing(lambda: done.append("second")))

    loop.poll()

    assert done == ["first"] and not loop.poll() and not scheduler.failed_jobs


def test_a_slice_is_over_when_its_time_has_passed_and_stays_so_until_the_next_begins():
    clock = StepClock(0.001)
    slice_clock = SliceClock(0.0035, clock=clock)

    assert [slice_clock.is_over() for _ in range(6)] == [False, False, False, True, True, True]
    slice_clock.begin()
    assert not slice_clock.is_over()


def test_the_clock_is_looked_at_once_in_so_many_items():
    clock = StepClock(0.001)
    slice_clock = SliceClock(0.0025, every=10, clock=clock)

    items = 1
    while not slice_clock.is_over():
        items += 1

    assert items == 30 and clock.looks == 4


def test_a_first_item_that_takes_long_ends_the_slice():
    clock = StepClock(0)
    slice_clock = SliceClock(0.002, clock=clock)
    clock.now += 1

    assert slice_clock.is_over()
