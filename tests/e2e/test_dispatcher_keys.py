"""Tasks with keys: those of one key run in order, one or a few at a time."""
import threading
import uuid

import pytest

from gomq_py.dispatcher import BadTask, Dispatcher
from tests.support.waiting import wait_until


@pytest.fixture
def app(shared_broker):
    app = Dispatcher(shared_broker.amqp_url, queue=f"q{uuid.uuid4().hex[:8]}", keyed=True)
    yield app
    app.close(0)


class Runs:
    """What runs now and what has run, as (key, number); each waits until ``go_on`` is called for it."""

    def __init__(self):
        self.lock = threading.Lock()
        self.running, self.done = [], []
        self.most = 0
        self.gates = {}

    def run(self, key, number):
        with self.lock:
            self.running.append((key, number))
            gate = self.gates.setdefault((key, number), threading.Event())
            self.most = max(self.most, sum(each == key for each, _ in self.running))
        gate.wait()
        with self.lock:
            self.running.remove((key, number))
            self.done.append((key, number))

    def go_on(self, *one):
        with self.lock:
            gate = self.gates.setdefault(one, threading.Event())
        gate.set()


def test_tasks_of_one_key_run_one_after_the_other(app):
    runs = Runs()

    @app.task
    def work(key: str, number: int):
        runs.run(key, number)

    for number in range(3):
        work.send(("a", number), key="a")
    work.send(("b", 0), key="b")
    app.workers(concurrency=8)

    wait_until(lambda: sorted(runs.running) == [("a", 0), ("b", 0)])
    for number in range(3):
        runs.go_on("a", number)
    runs.go_on("b", 0)
    wait_until(lambda: len(runs.done) == 4)
    assert [one for one in runs.done if one[0] == "a"] == [("a", 0), ("a", 1), ("a", 2)]
    assert runs.most == 1


def test_a_keys_concurrency_is_what_runs_at_once(app):
    runs = Runs()

    @app.task(key_concurrency=2)
    def work(key: str, number: int):
        runs.run(key, number)

    for number in range(6):
        work.send(("a", number), key="a")
    app.workers(concurrency=8)

    wait_until(lambda: len(runs.running) == 2)
    for number in range(6):
        runs.go_on("a", number)
    wait_until(lambda: len(runs.done) == 6)
    assert runs.most == 2


@pytest.mark.parametrize("key", ["", 1.5, True, b"a", ["a"]])
def test_a_key_is_a_text_or_an_integer(app, key):
    @app.task
    def work():
        pass

    with pytest.raises(BadTask, match="a key is a text or an integer"):
        work.task(key=key)


def test_keys_need_a_queue_that_knows_them():
    app = Dispatcher("amqp://127.0.0.1:1")

    @app.task
    def work():
        pass

    with pytest.raises(BadTask, match="keyed=True"):
        work.task(key="a")
    with pytest.raises(ValueError, match="not both"):
        Dispatcher(keyed=True, priorities=5)
    with pytest.raises(ValueError, match="key_concurrency"):
        app.task(work.function, name="other", key_concurrency=0)
