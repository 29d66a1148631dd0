"""Where tasks run, when the machine has no room for them, and at the end."""

import asyncio
import contextlib
import subprocess
import sys
import threading
from types import SimpleNamespace

import gevent
import gevent.event
import pytest

from gomq_py.dispatcher import runners
from gomq_py.dispatcher.errors import Retry
from gomq_py.dispatcher.runners import Hooks, Invocation, make_runner
from tests.support import task_functions
from tests.support.command import ROOT
from tests.support.waiting import TIMEOUT_S, in_time, wait_until


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


class Strange(BaseException):
    """No Exception, and nothing that ends a program."""


async def raise_strange():
    raise Strange("no")


async def drop_itself():
    raise GeneratorExit


async def leave_by_another():
    """What it starts ends the loop's turn, and the task goes on."""

    async def leave():
        raise SystemExit("enough")

    leaving = asyncio.get_running_loop().create_task(leave())
    await asyncio.wait([leaving])
    assert isinstance(leaving.exception(), SystemExit)


@pytest.mark.parametrize(
    "function, error",
    [(raise_strange, "Strange: no"), (drop_itself, "GeneratorExit: "), (leave_by_another, None)],
)
def test_an_event_loop_outlives_what_its_tasks_raise(function, error, caplog):
    runner, told = make_runner("asyncio", 1, "w"), []

    runner.begin(invocation(function, told))
    wait_until(lambda: told)
    runner.begin(invocation(lambda: None, told))
    wait_until(lambda: len(told) == 2)

    runner.close()
    assert [each and str(each) for each in told] == [error, None]
    assert ("wanted to end the program" in caplog.text) is (error is None)


@pytest.mark.parametrize("kind", ["threads", "greenlets", "processes"])
def test_a_coroutine_that_nobody_awaits_is_an_error_of_its_task(kind):
    runner, told = make_runner(kind, 1, "w"), []

    runner.begin(invocation(task_functions.coroutine, told))

    wait_until(lambda: told)
    runner.close()
    assert "the function returned a coroutine, which runs in asyncio only" in str(told[0])


def test_a_process_that_a_task_forks_answers_for_nothing():
    """The answer of the task after it is that task's own."""
    runner, told = make_runner("processes", 1, "w"), []

    runner.begin(invocation(task_functions.fork_and_come_back, told))
    runner.begin(invocation(task_functions.refuse, told))

    wait_until(lambda: len(told) == 2)
    runner.close()
    assert told[0] is None and str(told[1]) == "it ran"


FORKING = """
import os, sys
from types import SimpleNamespace
from gomq_py.dispatcher.runners import Hooks, Invocation, make_runner
import threading

told, codes, over = [], [], threading.Event()

def fork():
    for leave in (lambda: None, lambda: sys.exit(7), lambda: 1 / 0):
        child = os.fork()
        if not child:
            print("child")
            return leave()
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

def finish(_, error):
    told.append(error)
    over.set()

runner = make_runner("threads", 1, "w")
config = SimpleNamespace(function=fork)
runner.begin(Invocation(config, SimpleNamespace(name="t", uuid=""), (), None, finish, Hooks(None)))
over.wait(60)
print(codes, told)
"""


def test_a_process_that_a_task_forks_in_a_thread_ends_with_the_task():
    """With the task's exit code. It would be a second worker, and the parent would wait for it."""
    finished = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING], cwd=ROOT, capture_output=True, text=True,
        timeout=in_time(90),
    )

    assert finished.stdout == "child\nchild\nchild\n[0, 7, 1] [None]\n", finished.stderr
    assert "ZeroDivisionError" in finished.stderr


class FakeChild:
    """A process that calls the function here, until it is killed."""

    has_ended = False

    def __init__(self):
        self.killed = threading.Event()

    def run(self, function, values):
        function(self)

    def kill(self):
        self.killed.set()

    def close(self):
        pass


def test_the_process_of_a_task_that_ended_as_it_was_abandoned_gets_no_other_task(monkeypatch):
    """It is about to be killed."""
    monkeypatch.setattr(runners, "Child", FakeChild)
    runner, told, children = make_runner("processes", 1, "w"), [], []
    late = invocation(lambda child: late.claim(), told)
    runner.begin(late)
    runner.begin(invocation(children.append, told))

    wait_until(lambda: told)

    runner.abandon(late)
    runner.close()
    assert told == [None] and not children[0].killed.is_set() and children[0] is not late.holder


def test_what_still_runs_in_a_process_when_its_runner_is_closed_is_ended(monkeypatch):
    monkeypatch.setattr(runners, "Child", FakeChild)
    runner, told, begun, ended = make_runner("processes", 1, "w"), [], [], []

    def freeze(child):
        begun.append(child)
        child.killed.wait(TIMEOUT_S)
        ended.append(child.killed.is_set())

    runner.begin(invocation(freeze, told))
    wait_until(lambda: begun)

    runner.close()

    wait_until(lambda: ended)
    assert (ended, told) == ([True], [])
