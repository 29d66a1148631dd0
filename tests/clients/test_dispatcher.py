"""The task queue on a RabbitMQ: delays through queues whose messages expire, unique tasks refused."""

import subprocess
import sys
import time

import pytest

from gomq_py.client.backoff import Backoff
from gomq_py.dispatcher import Dispatcher, NotSupported
from tests.support.command import ROOT
from tests.support.rabbitmq_process import RabbitMQProcess
from tests.support.waiting import TIMEOUT_S, in_time, wait_until

UNIQUE_APP = """
from gomq_py.dispatcher import Dispatcher
app = Dispatcher(unique_s=60)
"""


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
        (tmp_path / "unique_jobs.py").write_text(UNIQUE_APP)
        command = subprocess.run(
            [sys.executable, "-m", "gomq_py.dispatcher", "unique_jobs:app", "--url", rabbitmq.amqp_url],
            cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=in_time(60),
        )

    said = "unique tasks need a broker with deduplication, which gomq-py has and this broker has not"
    assert (command.returncode, command.stderr.splitlines()[-1]) == (1, f"gomq-py-worker: {said}")
    assert "Traceback" not in command.stderr
    assert next(at for what, at in ran if what == "later") - began >= 0.65
