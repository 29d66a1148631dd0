"""The task queue on a RabbitMQ: delays through queues whose messages expire, unique tasks refused."""

import time

import pytest

from gomq_py.client.backoff import Backoff
from gomq_py.dispatcher import Dispatcher, NotSupported
from tests.support.rabbitmq_process import RabbitMQProcess
from tests.support.waiting import TIMEOUT_S, wait_until


@pytest.mark.needs_program("rabbitmq-server")
def test_tasks_run_wait_and_are_tried_again_on_rabbitmq(tmp_path):
    with RabbitMQProcess(tmp_path) as rabbitmq:
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

    assert next(at for what, at in ran if what == "later") - began >= 0.65
