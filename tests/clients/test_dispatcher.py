"""The task queue on a RabbitMQ: delays through queues whose messages expire, unique tasks refused, rates and
remote control as on ours.
"""

import subprocess
import sys
import time

import pytest

from gomq_py.client.backoff import Backoff
from gomq_py.client.connection import Connection
from gomq_py.dispatcher import Dispatcher, DispatcherError, NotSupported
from gomq_py.dispatcher.dead import Outcome, retry_dead
from tests.support.command import ROOT
from tests.support.rabbitmq_process import RabbitMQProcess
from tests.support.waiting import TIMEOUT_S, in_time, wait_until

UNIQUE_APP = """
from gomq_py.dispatcher import Dispatcher
app = Dispatcher(unique_s=60)
"""


pytestmark = pytest.mark.needs_program("rabbitmq-server")


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory):
    with RabbitMQProcess(tmp_path_factory.mktemp("rabbitmq")) as rabbitmq:
        yield rabbitmq


def test_tasks_run_wait_and_are_tried_again_on_rabbitmq(rabbitmq, tmp_path):
    app, ran = Dispatcher(rabbitmq.amqp_url, priorities=5), []

    @app.task
    def note(what: str):
        ran.append((what, time.time()))

    @app.task(retries=1, backoff=Backoff(0.1, 0.1))
    def fail():
        ran.append(("failed", time.time()))
        raise ValueError("no")

    app.workers()
    began = time.time()
    note.send(("later",), delay_s=0.7)
    note.delay("now")
    fail.delay()
    wait_until(lambda: sorted(what for what, _ in ran) == ["failed", "failed", "later", "now"])
    app.close(TIMEOUT_S)
    with pytest.raises(NotSupported, match="unique tasks need a broker with deduplication"):
        assert Dispatcher(rabbitmq.amqp_url, unique_s=60).server
    (tmp_path / "unique_jobs.py").write_text(UNIQUE_APP)
    command = subprocess.run(
        [sys.executable, "-m", "gomq_py.dispatcher", "unique_jobs:app", "--url", rabbitmq.amqp_url],
        cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=in_time(60),
    )

    said = "unique tasks need a broker with deduplication, which gomq-py has and this broker has not"
    assert (command.returncode, command.stderr.splitlines()[-1]) == (1, f"gomq-py-worker: {said}")
    assert "Traceback" not in command.stderr
    assert next(at for what, at in ran if what == "later") - began >= 0.65


def test_tasks_are_revoked_expire_keep_their_rate_and_are_inspected_on_rabbitmq(rabbitmq):
    app, ran = Dispatcher(rabbitmq.amqp_url, queue="rated", exchange="rated.x"), []

    @app.task(rate="2/h")
    def call(number: int):
        ran.append(number)

    app.revoke(call.delay(0))
    call.send([1], expires_s=0)
    for number in (2, 3):
        call.delay(number)
    [rated] = [each for each in app.workers() if each.config.queue == "rated.call"]
    wait_until(lambda: (rated.done_count, rated.running_count) == (1, 1))
    [process] = app.inspect(TIMEOUT_S)["processes"]
    app.close(TIMEOUT_S)

    [worker] = [each for each in process["workers"] if each["queue"] == "rated.call"]
    assert (ran, worker["revoked"], worker["expired"], worker["taken"]) == ([2], 1, 1, 1)
    with Connection(rabbitmq.amqp_url) as connection, connection.channel() as channel:
        left = wait_until(lambda: channel.get("rated.call"))
        assert bytes(left.body).endswith(b'"args":[{"type":"int","value":3}]}')


def test_a_full_queue_of_rabbitmq_leaves_the_other_dead_tasks_where_they_are(rabbitmq):
    """Its transactions acknowledge even if a full queue refuses their message."""
    with Connection(rabbitmq.amqp_url) as connection, connection.channel() as channel:
        channel.queue_declare("full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
        channel.queue_declare("full.dead")
        for _ in range(3):
            channel.publish("", "full.dead", b'{"name": "a"}')
        wait_until(lambda: channel.queue_declare("full.dead", passive=True).message_count == 3)
        outcome = Outcome()

        with pytest.raises(DispatcherError, match="partial tx completion"):
            retry_dead(connection, "full", outcome)

        assert outcome.moved.total() == 1
        assert channel.queue_declare("full", passive=True).message_count == 1
        wait_until(lambda: channel.queue_declare("full.dead", passive=True).message_count == 2)


def test_a_worker_has_read_all_revocations_of_rabbitmq_before_it_begins(rabbitmq):
    """RabbitMQ declares a stream with a count of no messages."""
    app = Dispatcher(rabbitmq.amqp_url, queue="revoked", exchange="revoked.x")
    app.task(name="note")(lambda: None)
    app.revoke(*map(str, range(5000)))

    app.workers()
    known = len(app.server.revoked)
    app.close(TIMEOUT_S)

    assert known == 5000
