"""A Celery application for test_celery: its tasks run in worker processes,
so that everything goes through the broker.

`make_app` builds it in the test; the worker is `celery -A tests.clients.celery_app` with the same arguments
as JSON in GOMQ_TEST_CELERY.
"""
import json
import os
import time
from types import SimpleNamespace

from celery import Celery
from kombu import Queue

from tests.support.waiting import in_time, wait_until


def make_app(name, broker_url, backend="rpc://", queue_type="classic"):
    """An application whose queues and exchanges begin with `name`, and its tasks as attributes of `jobs`."""
    app = Celery(name, set_as_current=False)
    app.conf.update(
        broker_url=broker_url,
        result_backend=backend,
        task_default_queue=name,
        task_default_queue_type=queue_type,
        task_queues=(
            [Queue(name, max_priority=10), Queue(f"{name}.other")] if queue_type == "classic" else None
        ),
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        broker_connection_retry_on_startup=True,
        broker_heartbeat=10,  # twice this is what a worker and a broker allow each other to stand still
        # Do not wait for seconds between attempts: the tests restart brokers.
        broker_transport_options={"interval_start": 0, "interval_step": 0.1, "interval_max": 0.2},
        control_exchange=f"{name}.control",
        event_exchange=f"{name}.event",
        event_queue_prefix=name,
        result_expires=60,
        result_chord_retry_interval=0.1,
    )
    app.jobs = SimpleNamespace(
        **{task.__name__: app.task(task, shared=False) for task in (add, total, fail, clock)}
    )
    app.jobs.succeed_at = app.task(succeed_at, bind=True, max_retries=5, shared=False)
    app.jobs.hold = app.task(hold, bind=True, acks_late=True, reject_on_worker_lost=True, shared=False)
    return app


def add(x, y):
    """The sum."""
    return x + y


def total(numbers):
    """The sum of many."""
    return sum(numbers)


def fail(text):
    """Raise."""
    raise ValueError(text)


def succeed_at(self, attempt):
    """Ask for retries until `attempt`; returns how often it was retried."""
    if self.request.retries < attempt:
        raise self.retry(countdown=0.05)
    return self.request.retries


def clock():
    """When it ran, in Unix seconds."""
    return time.time()


def hold(self, started, go_on):
    """Say in the file `started` that it runs, wait for the file `go_on`; returns whether the message was
    redelivered. Acked when it is done.
    """
    with open(started, "a", encoding="ascii") as file:
        file.write("started\n")
    wait_until(lambda: os.path.exists(go_on), timeout_s=in_time(100))
    return bool(self.request.delivery_info.get("redelivered"))


if "GOMQ_TEST_CELERY" in os.environ:
    app = make_app(**json.loads(os.environ["GOMQ_TEST_CELERY"]))
