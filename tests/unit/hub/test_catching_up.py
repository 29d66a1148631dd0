"""Publishers that consumers cannot follow: who is held, for how long, and in which order they go on."""
from types import SimpleNamespace

import pytest

from gomq_py.hub.catching_up import LOOK_MS, LOOKS, CatchingUp
from tests.support.queues import HandTimers


class Publisher:
    """The stream of one: ``held`` says whether it is."""

    def __init__(self):
        self.held = False

    def hold(self, waits_for):
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
def catching_up(clock):
    return CatchingUp(clock.timers)


def waiting(catching_up, *queues):
    publisher = Publisher()
    catching_up.wait(publisher, queues)
    return publisher


def test_a_publisher_is_held_until_the_consumers_have_caught_up(clock, catching_up):
    queue = Queue()
    publisher = waiting(catching_up, queue)

    clock.look(3)
    assert publisher.held and len(catching_up) == 1

    queue.outrun = False
    clock.look()
    assert not publisher.held and len(catching_up) == 0


def test_a_publisher_is_never_stopped(clock, catching_up):
    publisher = waiting(catching_up, Queue())

    clock.look(LOOKS - 1)
    assert publisher.held

    clock.look()
    assert not publisher.held


def test_one_queue_that_is_not_outrun_is_enough_to_go_on(clock, catching_up):
    """Consumers of a fan-out that can follow do not wait for those that cannot."""
    publisher = waiting(catching_up, Queue(), Queue(outrun=False))

    clock.look()

    assert not publisher.held


def test_publishers_of_one_queue_go_on_one_after_the_other(clock, catching_up):
    """A read brings as much as consumers take in some milliseconds: several at once are too much again."""
    queue, other = Queue(), Queue()
    first, second, third, beside = (
        waiting(catching_up, each) for each in (queue, queue, queue, other))
    queue.outrun = other.outrun = False

    held = []
    for _ in range(3):
        clock.look()
        held.append([publisher.held for publisher in (first, second, third, beside)])

    assert held == [[False, True, True, False], [False, False, True, False], [False] * 4]


def test_there_is_a_timer_only_while_somebody_waits(clock, catching_up):
    waiting(catching_up, Queue())
    waiting(catching_up, Queue())
    assert len(clock.timers.pending) == 1

    clock.look(LOOKS)

    assert not clock.timers.pending


def test_a_publisher_may_wait_again_at_once(clock, catching_up):
    """What it had sent meanwhile is walked when it is let on, and may be too much again."""
    queue = Queue()
    publisher = Publisher()
    publisher.release = lambda: (Publisher.release(publisher), catching_up.wait(publisher, [queue]))
    catching_up.wait(publisher, [queue])

    clock.look(LOOKS)

    assert publisher.held and len(catching_up) == 1 and len(clock.timers.pending) == 1


def test_a_look_that_raises_lets_all_go_on(catching_up, clock):
    class Broken(Queue):
        def is_outrun(self):
            raise RuntimeError("no count")

    publishers = [waiting(catching_up, queue) for queue in (Queue(), Broken(), Queue())]

    with pytest.raises(RuntimeError):
        clock.look()
    assert not any(publisher.held for publisher in publishers) and len(catching_up) == 0

    assert waiting(catching_up, Queue()).held
    clock.look(LOOKS)
    assert len(catching_up) == 0
