"""Where tasks run, when the machine has no room for them, and at the end."""

import asyncio
import contextlib
import threading
from types import SimpleNamespace

import gevent
import gevent.event
import pytest

from gomq_py.dispatcher import runners
from gomq_py.dispatcher.errors import Retry
from gomq_py.dispatcher.hooks import Hooks
from gomq_py.dispatcher.runners import Invocation, make_runner
from tests.support.waiting import wait_until


def invocation(function, told):
    context = SimpleNamespace(name="task", uuid="")
    return Invocation(
        SimpleNamespace(function=function), context, (), None, lambda _, error: told.append(error),
        Hooks(None),
    )


def test_a_task_whose_process_cannot_be_started_is_tried_again_later_and_the_next_one_runs(monkeypatch):
    class Child:
        has_ended = False
        made = 0

        def __init__(self):
            Child.made += 1
            if Child.made == 1:
                raise BlockingIOError(11, "Resource temporarily unavailable")

        def run(self, function, values):
            function(*values)

        def close(self):
            pass

    monkeypatch.setattr(runners, "Child", Child)
    runner, told = make_runner("processes", 1, "w"), []

    for _ in range(2):
        runner.begin(invocation(lambda: None, told))

    wait_until(lambda: len(told) == 2)
    runner.close()
    assert isinstance(told[0], Retry) and told[0].delay_s == runners.PROCESS_AGAIN_S and told[1] is None


def test_a_task_for_which_there_is_no_thread_runs_nowhere_and_takes_no_place(monkeypatch):
    class NoThread(threading.Thread):
        def start(self):
            raise RuntimeError("can't start new thread")

    runner, told, ran = make_runner("threads", 1, "w"), [], []
    with monkeypatch.context() as patch:
        patch.setattr(runners.threading, "Thread", NoThread)
        with pytest.raises(RuntimeError):
            runner.begin(invocation(lambda: ran.append("refused"), told))

    runner.begin(invocation(lambda: ran.append("taken"), told))

    wait_until(lambda: told)
    runner.close()
    assert ran == ["taken"] and told == [None]


def test_tasks_go_to_the_threads_that_there_are_where_no_more_can_be_had(monkeypatch):
    class NoThread(threading.Thread):
        def start(self):
            raise RuntimeError("can't start new thread")

    runner, told = make_runner("threads", 2, "w"), []
    runner.begin(invocation(lambda: None, told))
    with monkeypatch.context() as patch:
        patch.setattr(runners.threading, "Thread", NoThread)
        runner.begin(invocation(lambda: None, told))

        wait_until(lambda: len(told) == 2)
    runner.close()
    assert told == [None, None]


def test_an_event_loop_may_be_closed_twice():
    runner, told = make_runner("asyncio", 1, "closed twice"), []
    runner.begin(invocation(lambda: None, told))
    wait_until(lambda: told)

    runner.close()
    wait_until(lambda: not [each for each in threading.enumerate() if "closed twice" in each.name])
    runner.close()


@pytest.mark.parametrize("kind", ["threads", "asyncio", "greenlets"])
def test_a_closed_runner_leaves_no_thread(kind):
    before = set(threading.enumerate())
    runner, told = make_runner(kind, 2, f"closed {kind}"), []
    runner.begin(invocation(lambda: None, told))
    wait_until(lambda: told)

    runner.close()

    wait_until(
        lambda: not [each for each in set(threading.enumerate()) - before if f"closed {kind}" in each.name]
    )


def test_an_event_loop_is_closed_with_its_runner():
    runner = make_runner("asyncio", 1, "w")

    runner.close()

    wait_until(runner._loop.is_closed)


OVER = threading.Event()
ENDLESS: list = []  # those that run


async def never_ends():
    """Cancelled, it goes on."""
    ENDLESS.append(1)
    while not OVER.is_set():
        with contextlib.suppress(asyncio.CancelledError, TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 0.02)
    ENDLESS.pop()


def never_ends_in_a_greenlet():
    ENDLESS.append(1)
    while not OVER.is_set():
        with contextlib.suppress(gevent.GreenletExit):
            gevent.event.Event().wait(0.02)
    ENDLESS.pop()


@pytest.mark.parametrize("kind, function", [("asyncio", never_ends), ("greenlets", never_ends_in_a_greenlet)])
def test_a_task_that_does_not_let_itself_be_ended_keeps_no_place(kind, function):
    """Three of them, one after the other, where one has room; and one whose end and timeout come together."""
    OVER.clear()
    runner, told = make_runner(kind, 1, "w"), []
    for _ in range(3):
        endless = invocation(function, told)
        runner.begin(endless)
        wait_until(lambda: endless.began)
        assert endless.claim()
        runner.abandon(endless)
    ended = invocation(lambda: None, told)

    runner.begin(ended)
    wait_until(lambda: told == [None])
    runner.abandon(ended)
    for number in range(2):
        runner.begin(invocation(lambda: None, told))
    wait_until(lambda: told == [None] * 3)

    assert len(ENDLESS) == 3
    OVER.set()
    wait_until(lambda: not ENDLESS)
    runner.close()
