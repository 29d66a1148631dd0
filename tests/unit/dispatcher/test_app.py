"""What an app keeps of its process."""

import os
import threading
from types import SimpleNamespace

import pytest

from gomq_py.dispatcher import app as module
from gomq_py.dispatcher.app import Dispatcher
from gomq_py.dispatcher.delays import QueueDelays
from gomq_py.dispatcher.errors import NotSupported, Retry
from gomq_py.dispatcher.server import ServerConfig
from tests.support.waiting import TIMEOUT_S


class Connected:
    """A server that connects to nobody."""

    made: list = []

    def __init__(self, *_):
        self.link = SimpleNamespace(has_ended=False)
        Connected.made.append(self)


def test_threads_that_come_together_after_a_fork_share_one_server(monkeypatch):
    """Both find that the process is another before either has changed anything; whatever the second looks at
    after that, it sees when the first is done.
    """
    monkeypatch.setattr(module, "Server", Connected)
    monkeypatch.setattr(Connected, "made", [])
    app = Dispatcher()
    app.server.link.has_ended = True  # the parent's
    together, first_is_done = threading.Barrier(2), threading.Event()
    looks: dict = {"first": 0, "second": 0}
    servers = {}

    def getpid():
        name = threading.current_thread().name
        looks[name] += 1
        if looks[name] == 1:
            together.wait(TIMEOUT_S)
        elif name == "second":
            first_is_done.wait(TIMEOUT_S)
        return -1

    def send(name):
        servers[name] = app.server
        if name == "first":
            first_is_done.set()

    threads = [threading.Thread(target=send, args=[name], name=name) for name in looks]
    monkeypatch.setattr(os, "getpid", getpid)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)

    assert servers["first"] is servers["second"] and len(Connected.made) == 2


def test_a_forked_process_leaves_the_parents_server_alone(monkeypatch):
    """It has none to close, and what it opens is its own."""
    monkeypatch.setattr(module, "Server", Connected)
    app = Dispatcher()
    parents = app.server

    monkeypatch.setattr(os, "getpid", lambda: -1)

    assert app.close() is True
    assert app.server is not parents


async def coroutine(): ...


def generator():
    yield


@pytest.mark.parametrize("name", ["delay_s", "expires_s"])
def test_negative_seconds_are_refused_by_name(name):
    task = Dispatcher().task(name="t")(lambda: None).task(**{name: -1})

    with pytest.raises(ValueError, match=f"{name} is -1, and not a number of seconds from 0"):
        task.encode()


def test_negative_seconds_of_a_decorator_and_of_a_retry_are_refused_by_name():
    with pytest.raises(ValueError, match="task 't': expires_s is -1, and not a number of seconds from 0"):
        Dispatcher().task(name="t", expires_s=-1)(lambda: None)
    with pytest.raises(ValueError, match="delay_s is -1, and not a number of seconds from 0"):
        Retry(delay_s=-1)


def test_time_in_the_past_is_no_delay():
    task = Dispatcher().task(name="t")(lambda: None).task(eta=1)

    assert task.encode() and task.delay_s == 0


@pytest.mark.parametrize("name", ["reconnection_interval_s", "reconnection_most_s", "publish_timeout_s"])
def test_negative_seconds_of_a_server_are_refused_by_name(name):
    with pytest.raises(ValueError, match=f"{name} is -1, and not a number of seconds from 0"):
        ServerConfig(**{name: -1}).check()


@pytest.mark.parametrize(
    "function, options, text",
    [
        (coroutine, {"run_in": "threads"}, "task 'coroutine' is a coroutine function: it runs in asyncio"),
        (generator, {}, "task 'generator' is a generator: a call of it runs nothing"),
    ],
)
def test_a_function_that_would_not_run_is_no_task(function, options, text):
    with pytest.raises(ValueError, match=text):
        Dispatcher().task(function, **options)


def test_keys_are_refused_where_the_broker_would_ignore_them():
    with pytest.raises(NotSupported, match="keys need a broker with message groups"):
        Dispatcher(keyed=True).arguments("tasks", QueueDelays("x"))


def test_the_queue_of_a_task_with_a_rate_has_one_active_consumer():
    app = Dispatcher(queue="jobs", delivery_limit=None)
    app.task(rate="1/s", name="call")(lambda: None)

    assert app.arguments("jobs.call", QueueDelays("x")) == {"x-single-active-consumer": True}
    assert app.arguments("jobs", QueueDelays("x")) == {}
