"""Celery with a worker for each test: other options, and workers and brokers that end.

Apart from the tests of one worker that all share: a new application takes the pools of connections
away from those before it.
"""
import time

import pytest
from celery import chord

from tests.clients.celery_worker import PATIENCE_S, Worker, result_of
from tests.support.waiting import wait_until


@pytest.fixture
def own_worker(tmp_path):
    """Starts workers for this test alone: `own_worker(url, **options)`."""
    workers = []

    def start(url, **options):
        workers.append(Worker(tmp_path, url, **options).start())
        return workers[-1]
    yield start
    for each in workers:
        each.close()


def test_chord_over_a_file_backend(own_worker, broker_url, tmp_path):
    """rpc:// has no chords; with a backend that polls, the callback is a task that retries with a countdown
    until the header is complete.
    """
    (tmp_path / "results").mkdir()
    worker = own_worker(broker_url, backend=f"file://{tmp_path}/results")

    result = chord((worker.jobs.add.s(n, n) for n in range(10)), worker.jobs.total.s())()

    assert result_of(result) == 90


def test_quorum_queues_with_native_delayed_delivery(own_worker, broker_url):
    """For quorum queues Celery uses no global qos, and delays tasks in queues of its own: time to live,
    dead-lettering, topic exchanges.
    """
    worker = own_worker(broker_url, queue_type="quorum")
    asked = time.time()

    delayed = worker.jobs.clock.apply_async(countdown=1)

    assert result_of(worker.jobs.add.delay(1, 2)) == 3
    assert result_of(delayed) >= asked + 1


def test_task_of_a_killed_worker_goes_to_the_next(own_worker, broker_url, tmp_path):
    started, go_on = tmp_path / "started", tmp_path / "go on"
    worker = own_worker(broker_url)
    result = worker.jobs.hold.delay(str(started), str(go_on))
    wait_until(started.exists, PATIENCE_S)

    worker.kill()
    wait_until(lambda: worker.ready_count() == 1)
    go_on.touch()
    worker.start()

    assert result_of(result) is True


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_broker_restarted_under_the_worker(own_broker, own_worker, how):
    """Tasks that were waiting and tasks sent afterwards are run;
    a task with an ETA that the worker held comes to it again.
    """
    worker = own_worker(own_broker.amqp_url)
    assert result_of(worker.jobs.add.delay(1, 2)) == 3
    worker.cancel_consumer(f"{worker.name}.other")
    worker.jobs.add.apply_async((1, 1), queue=f"{worker.name}.other")
    held = worker.jobs.clock.apply_async(countdown=3600)
    wait_until(worker.scheduled, PATIENCE_S)
    wait_until(lambda: worker.ready_count(f"{worker.name}.other") == 1)

    if how == "stopped":
        own_broker.restart()
    else:
        own_broker.kill()
        own_broker.start()

    worker.connect()
    wait_until(worker.answers, PATIENCE_S, what="the worker back on the broker")
    assert result_of(worker.jobs.add.delay(20, 1)) == 21
    wait_until(
        lambda: worker.log.count(f"celery_app.clock[{held.id}] received") >= 2, PATIENCE_S,
        what="the task with an ETA with the worker again",
    )
