"""Publishers that consumers cannot follow: who is held, for how long, and in which order they go on."""
from types import SimpleNamespace

import pytest

from gomq_py.hub.backpressure import Backpressure, Turn
from tests.support.queues import HandTimers

LOOK_MS = 2
LOOKS = Backpressure.most_looks


class Publisher:
    """The stream of one: ``held`` says whether it is."""

    def __init__(self):
        self.held = False

    def pause_reading(self, waits_for):
        assert waits_for == "consumers of its queues to catch up" and not self.held
        self.held = True
        return SimpleNamespace(release=self.release)

    def release(self):
        self.held = False


class Queue:
    """One of which the test says whether it is outrun."""

    def __init__(self, outrun=True):
        self.outrun = outrun

    def is_outrun(self):
        return self.outrun


class Clock:
    """Looks that the test makes."""

    def __init__(self):
        self.now_ms = 1_700_000_000_000
        self.timers = HandTimers(self)

    def look(self, count=1):
        for _ in range(count):
            self.now_ms += LOOK_MS
            self.timers.fire()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def backpressure(clock):
    return Backpressure(clock.timers)


def waiting(backpressure, *queues):
    publisher = Publisher()
    backpressure.pause_reading(publisher, queues)
    return publisher


def test_a_publisher_is_held_until_the_consumers_have_caught_up(clock, backpressure):
    queue = Queue()
    publisher = waiting(backpressure, queue)

    clock.look(3)
    assert publisher.held and len(backpressure) == 1

    queue.outrun = False
    clock.look()
    assert not publisher.held and len(backpressure) == 0


def test_a_publisher_is_never_stopped(clock, backpressure):
    publisher = waiting(backpressure, Queue())

    clock.look(LOOKS - 1)
    assert publisher.held

    clock.look()
    assert not publisher.held


def test_one_queue_that_is_not_outrun_is_enough_to_go_on(clock, backpressure):
    """Consumers of a fan-out that can follow do not wait for those that cannot."""
    publisher = waiting(backpressure, Queue(), Queue(outrun=False))

    clock.look()

    assert not publisher.held


def test_publishers_of_one_queue_go_on_one_after_the_other(clock, backpressure):
    """A read brings as much as consumers take in some milliseconds: several at once are too much again."""
    queue, other = Queue(), Queue()
    first, second, third, beside = (
        waiting(backpressure, each) for each in (queue, queue, queue, other))
    queue.outrun = other.outrun = False

    held = []
    for _ in range(3):
        clock.look()
        held.append([publisher.held for publisher in (first, second, third, beside)])

    assert held == [[False, True, True, False], [False, False, True, False], [False] * 4]


def test_there_is_a_timer_only_while_somebody_waits(clock, backpressure):
    waiting(backpressure, Queue())
    waiting(backpressure, Queue())
    assert len(clock.timers.pending) == 1

    clock.look(LOOKS)

    assert not clock.timers.pending


def test_a_publisher_may_wait_again_at_once(clock, backpressure):
    """What it had sent meanwhile is walked when it is let on, and may be too much again."""
    queue = Queue()
    publisher = Publisher()
    publisher.release = lambda: (Publisher.release(publisher), backpressure.pause_reading(publisher, [queue]))
    backpressure.pause_reading(publisher, [queue])

    clock.look(LOOKS)

    assert publisher.held and len(backpressure) == 1 and len(clock.timers.pending) == 1


def test_a_look_that_raises_lets_all_go_on(backpressure, clock):
    class Broken(Queue):
        def is_outrun(self):
            raise RuntimeError("no count")

    publishers = [waiting(backpressure, queue) for queue in (Queue(), Broken(), Queue())]

    with pytest.raises(RuntimeError):
        clock.look()
    assert not any(publisher.held for publisher in publishers) and len(backpressure) == 0

    assert waiting(backpressure, Queue()).held
    clock.look(LOOKS)
    assert len(backpressure) == 0


def test_turn_comes_once_when_all_is_sent_or_its_time_is_over():
    came, output, timers = [], Told(), Told()
    Turn(output, timers, 20)(came.append)
    assert timers.after == 20

    drained = output.callback
    drained()
    assert came == [None] and timers.stopped
    timers.callback()
    assert came == [None]


def test_turn_whose_time_is_over_leaves_nothing_with_an_output_that_nobody_reads():
    came, output, timers = [], Told(), Told()

    Turn(output, timers, 20)(came.append)
    timers.callback()

    assert came == [None] and output.callback is None


def test_joined_turn_comes_once_when_all_is_sent_to_one_of_two_clients():
    came, outputs, timers = [], [Told(), Told()], Told()
    turn, other = (Turn(output, timers, 20) for output in outputs)
    turn.join(other)
    turn(came.append)

    outputs[1].callback()

    assert came == [None] and timers.stopped and [output.callback for output in outputs] == [None, None]


class Told:
    """An output, timers, and their timer."""

    stopped = False

    def start(self, after_ms, callback):
        self.after, self.callback = after_ms, callback
        return self

    def call_when_drained(self, callback):
        self.callback = callback

    def not_when_drained(self, callback):
        if self.callback == callback:
            self.callback = None

    def stop(self):
        self.stopped = True
