"""Tasks with a rate: one worker at a time keeps the pace for all, and other tasks do not wait."""

import pytest

from gomq_py.client.connection import Connection
from gomq_py.dispatcher import Dispatcher
from tests.support.task_queue import workers
from tests.support.waiting import TIMEOUT_S, wait_until

APP = """
import os
from gomq_py.dispatcher import Dispatcher
queue = os.environ["TASKS_QUEUE"]
app = Dispatcher(os.environ["TASKS_URL"], queue=queue, exchange=f"{queue}.x")

@app.task(rate="2/h")
def call(number: int):
    write(f"call {number} {os.getpid()}")

@app.task
def other(number: int):
    write(f"other {number}")

def write(text):
    with open("notes", "a") as file:
        file.write(text + "\\n")
"""


@pytest.fixture
def app(app):
    """The sender of the tasks."""
    app.task(rate="2/h", name="call")(lambda number: None)
    app.task(name="other")(lambda number: None)
    return app


@pytest.fixture
def start(shared_broker, queue, tmp_path):
    """A function that starts a worker process."""
    with workers(tmp_path, APP, shared_broker.amqp_url, queue) as start:
        yield lambda: start("jobs:app")


def test_a_task_over_its_rate_waits_others_run_and_another_worker_takes_over(app, start, queue, tmp_path):
    def notes(kind):
        return [line for line in (tmp_path / "notes").read_text().splitlines() if line.startswith(kind)]

    first, second = start(), start()
    with Connection(app.url) as connection, connection.channel() as channel:
        wait_until(lambda: len(app.inspect(20)["processes"]) == 2)
        for number in range(3):
            app.tasks["call"].delay(number)
        for number in range(20):
            app.tasks["other"].delay(number)

        wait_until(lambda: len(notes("other")) == 20)
        [line] = wait_until(lambda: notes("call"))
        active = first if line.endswith(f" {first.pid}") else second
        standby = second if active is first else first
        active.kill()
        wait_until(lambda: len(notes("call")) == 2)
        counts = channel.queue_declare(f"{queue}.call", passive=True)

    assert notes("call") == [f"call 0 {active.pid}", f"call 1 {standby.pid}"]
    assert (counts.consumer_count, counts.message_count) == (1, 0)  # the last one waits in the worker


def test_a_task_with_a_rate_has_its_queue_for_itself():
    app = Dispatcher(queue="jobs")
    app.task(name="plain", queue="others")(lambda: None)
    app.task(name="rated", rate="10/s")(lambda: None)

    assert app.queues == ["jobs", "jobs.rated", "others"]
    for options in (
        {"rate": "1/s", "queue": "jobs"}, {"rate": "1/s", "queue": "others"}, {"queue": "jobs.rated"},
    ):
        with pytest.raises(ValueError, match="a task with a rate has its queue for itself"):
            app.task(name="shares", **options)(lambda: None)


def test_stopping_gives_back_what_waits_for_its_time(shared_broker, queue):
    ran = []
    app = Dispatcher(shared_broker.amqp_url, queue=queue, exchange=f"{queue}.x")

    @app.task(rate="1/h")
    def call(number: int):
        ran.append(number)

    workers = {worker.config.queue: worker for worker in app.workers()}
    for number in range(3):
        call.delay(number)
    wait_until(lambda: ran and workers[f"{queue}.call"].running_count == 2)
    finished = app.close(TIMEOUT_S)

    with Connection(shared_broker.amqp_url) as connection, connection.channel() as channel:
        assert (finished, ran) == (True, [0])
        assert channel.queue_declare(f"{queue}.call", passive=True).message_count == 2


def test_the_key_is_an_argument_of_the_task(shared_broker, queue):
    app = Dispatcher(shared_broker.amqp_url, queue=queue, exchange=f"{queue}.x", keyed=True)

    @app.task(key="customer", with_uuid=True)
    def bill(identifier: str, number: int, customer: str | None = "acme"):
        pass

    keys = [
        bill.task([1]).headers, bill.task([1, "zeta"]).headers, bill.task([1], {"customer": None}).headers,
        bill.task([1, "zeta"], key="other").headers]

    assert keys == [{"x-task-key": "acme"}, {"x-task-key": "zeta"}, {}, {"x-task-key": "other"}]
    with pytest.raises(ValueError, match="has no parameter 'client'"):
        app.task(key="client")(lambda number: None)
    with pytest.raises(ValueError, match="needs Dispatcher\\(keyed=True\\)"):
        Dispatcher().task(key="number")(lambda number: None)


def test_a_task_that_waits_for_its_time_does_not_die_of_restarts(shared_broker, queue):
    """Each worker takes some, begins one of them, and stops."""
    ran = []

    def run(count):
        already = len(ran)
        app = Dispatcher(
            shared_broker.amqp_url, queue=queue, exchange=f"{queue}.x", delivery_limit=2, concurrency=10)
        call = app.task(rate="1/h", name="call")(ran.append)
        for number in range(count):
            call.delay(number)
        [worker] = [each for each in app.workers() if each.config.interval_s]
        wait_until(lambda: len(ran) > already and worker.running_count)
        app.close()

    for count in (6, 0, 0, 0):
        run(count)

    with Connection(shared_broker.amqp_url) as connection, connection.channel() as channel:
        assert channel.queue_declare(f"{queue}.call.dead", passive=True).message_count == 0
    assert ran == [0, 1, 2, 3]
