"""The gate: while it is shut, what waits is written to files and delivered to nobody."""
import gevent
import pytest

from gomq_py.hub.gate import Gate
from gomq_py.hub.scheduler import Job, TurnTaker
from tests.support.clocks import patient_scheduler
from tests.support.queues import HandLoop
from tests.support.waiting import in_time


class Noting(TurnTaker):
    def __init__(self, log):
        super().__init__("noting")
        self.log = log

    def write_out(self):
        self.log.append("write out")

    def turn(self):
        self.log.append("turn")
        return 1


class Moving(Job):
    moves_messages = True
    name = "moving"

    def __init__(self, log):
        super().__init__()
        self.log = log

    def step(self):
        self.log.append(self.name)
        return False

    def failed(self, error):
        return False


class Other(Moving):
    moves_messages = False
    name = "other"


@pytest.fixture
def loop():
    return HandLoop()


@pytest.fixture
def scheduler(loop):
    return patient_scheduler(loop)


def test_shut_gate_writes_to_files_and_gives_turns_once_it_is_open(scheduler, loop):
    gate, log = Gate(scheduler), []
    taker = Noting(log)
    gate.shut()

    scheduler.begin(5)
    scheduler.touch(taker)
    scheduler.finish()
    assert log == ["write out"] and not loop.poll()

    gate.open()
    loop.poll()
    assert log == ["write out", "write out", "turn"]


def test_touch_outside_of_a_batch_is_written_out_behind_a_shut_gate(scheduler, loop):
    gate, log = Gate(scheduler), []
    gate.shut()

    scheduler.touch(Noting(log))
    loop.poll()

    assert log == ["write out"] and not loop.poll()


def test_job_that_moves_messages_rests_and_others_go_on(scheduler, loop):
    gate, log = Gate(scheduler), []
    moving = Moving(log)
    scheduler.start(moving)
    gate.shut()
    scheduler.start(Other(log))

    loop.poll()
    assert log == ["other"] and moving.running and not loop.poll()

    gate.open()
    loop.poll()
    assert log == ["other", "moving"] and not moving.running


def test_gate_that_is_shut_within_a_batch_stops_the_turns_that_follow(scheduler, loop):
    gate, log = Gate(scheduler), []

    class Shutting(Noting):
        def turn(self):
            gate.shut()
            return 1

    scheduler.begin(5)
    for taker in (Shutting(log), Noting(log)):
        scheduler.touch(taker)
    scheduler.finish()

    assert "turn" not in log and not loop.poll()


def test_wait_returns_when_the_gate_opens(scheduler):
    gate = Gate(scheduler)
    gate.wait()
    gate.shut()
    waiting = gevent.spawn(gate.wait)
    gevent.idle()
    assert scheduler.is_shut and not waiting.dead

    gate.open()

    waiting.join(in_time(5))
    assert waiting.dead
