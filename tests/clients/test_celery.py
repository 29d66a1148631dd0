"""Celery: a real worker process on the broker under test, with results over it (rpc://), remote control, events and restarts."""
import json
import os
import subprocess
import sys
import time
import uuid
from datetime import UTC, datetime, timedelta

import celery
import pytest
from celery import chord, group
from kombu import pools

from tests.clients.celery_app import make_app
from tests.support.waiting import wait_until

PATIENCE_S = 20


class Worker:
    """A worker process and the application that talks to it, under a name of their own. `options` are make_app's."""

    def __init__(self, folder, broker_url, **options):
        self.name = f"celery-{uuid.uuid4().hex[:8]}"
        self.host = f"{self.name}@localhost"
        self.folder = folder
        self.options = {"name": self.name, "broker_url": broker_url, **options}
        self.process = None
        self.connect()

    def connect(self):
        """Begin again with an application whose connections are new; kombu keeps pools of them per URL."""
        pools.reset()
        self.app = make_app(**self.options)
        self.jobs = self.app.jobs

    def start(self):
        """Start the process and wait until it answers a ping. Returns itself."""
        command = [
            sys.executable, "-m", "celery", "-A", "tests.clients.celery_app", "worker", "--pool", "threads", "--concurrency", "2", "-E",
            "--loglevel", "INFO", "--without-gossip", "--without-mingle", "--hostname", self.host]
        environment = {**os.environ, "GOMQ_TEST_CELERY": json.dumps(self.options)}
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        wait_until(self.answers, PATIENCE_S, what=f"the worker's answer to a ping; its log:\n{self.log}")
        return self

    def answers(self):
        """Whether it answers a ping, so that it consumes; a worker that left is a failure."""
        assert self.process.poll() is None, self.log
        return self.app.control.ping(timeout=0.5)

    @property
    def log_path(self):
        """Where the worker logs."""
        return self.folder / "worker.log"

    @property
    def log(self):
        """What the worker has logged."""
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def ready_count(self, queue=None):
        """Messages in its queue that no worker holds."""
        with self.app.connection_for_read() as connection:
            return connection.default_channel.queue_declare(queue or self.name, passive=True).message_count

    def kill(self):
        """End it without warning."""
        self.process.kill()
        self.process.wait()

    def close(self):
        """End it and forget its queues."""
        if self.process.poll() is None:
            self.kill()
        self.app.close()


@pytest.fixture(scope="module")
def worker(broker_url, tmp_path_factory):
    """A worker shared by the tests of this module that leave it as they found it."""
    started = Worker(tmp_path_factory.mktemp("worker"), broker_url).start()
    yield started
    started.close()


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


def result_of(result):
    """A task's result, within the limit of time."""
    return result.get(timeout=PATIENCE_S)


def test_task_returns_its_result(worker):
    assert result_of(worker.jobs.add.delay(2, 3)) == 5


def test_task_that_fails_raises_here(worker):
    with pytest.raises(ValueError, match="for a reason"):
        result_of(worker.jobs.fail.delay("for a reason"))


def test_hundred_tasks_in_a_group(worker):
    results = group(worker.jobs.add.s(n, n) for n in range(100))()

    assert result_of(results) == [2 * n for n in range(100)]


def test_chain(worker):
    assert result_of((worker.jobs.add.s(1, 2) | worker.jobs.add.s(3) | worker.jobs.add.s(4))()) == 10


def test_retries(worker):
    assert result_of(worker.jobs.succeed_at.delay(3)) == 3


def test_countdown_and_eta(worker):
    asked = time.time()

    counted = worker.jobs.clock.apply_async(countdown=0.5)
    timed = worker.jobs.clock.apply_async(eta=datetime.now(UTC) + timedelta(seconds=0.5))

    assert result_of(counted) >= asked + 0.5
    assert result_of(timed) >= asked + 0.5


def test_tasks_waiting_for_their_eta_do_not_hold_up_others(worker):
    """Celery raises the prefetch for each of them (a global qos on a running consumer), or the worker would be full at two."""
    waiting = [worker.jobs.clock.apply_async(countdown=60) for _ in range(10)]

    assert result_of(worker.jobs.add.delay(1, 1)) == 2

    assert len(worker.app.control.inspect(timeout=2).scheduled()[worker.host]) == 10
    worker.app.control.revoke([task.id for task in waiting])


def test_task_that_expired_is_not_run(worker):
    result = worker.jobs.add.apply_async((1, 1), expires=datetime.now(UTC) - timedelta(seconds=1))

    with pytest.raises(celery.exceptions.TaskRevokedError):
        result_of(result)


def test_prefetch_leaves_other_tasks_in_the_queue(worker, tmp_path):
    started, go_on = tmp_path / "started", tmp_path / "go on"
    results = [worker.jobs.hold.delay(str(started), str(go_on)) for _ in range(8)]

    wait_until(lambda: started.exists() and started.read_text().count("started") == 2, PATIENCE_S)
    wait_until(lambda: worker.ready_count() == 6)

    go_on.touch()
    assert [result_of(result) for result in results] == [False] * 8


def test_tasks_of_higher_priority_run_first(worker, tmp_path):
    started, go_on = tmp_path / "started", tmp_path / "go on"
    blockers = [worker.jobs.hold.delay(str(started), str(go_on)) for _ in range(2)]
    wait_until(lambda: started.exists() and started.read_text().count("started") == 2, PATIENCE_S)
    late = [worker.jobs.clock.apply_async(priority=1) for _ in range(4)]
    early = [worker.jobs.clock.apply_async(priority=9) for _ in range(4)]
    wait_until(lambda: worker.ready_count() == 8)

    go_on.touch()

    assert max(map(result_of, early)) <= min(map(result_of, late))
    assert [result_of(blocker) for blocker in blockers] == [False, False]


def test_task_in_another_queue(worker):
    assert result_of(worker.jobs.add.apply_async((1, 2), queue=f"{worker.name}.other")) == 3


def test_remote_control(worker):
    inspect = worker.app.control.inspect(timeout=5, limit=1)
    hostname = worker.host

    assert inspect.ping() == {hostname: {"ok": "pong"}}
    assert inspect.stats()[hostname]["broker"]["transport"] == "amqp"
    assert {queue["name"] for queue in inspect.active_queues()[hostname]} == {worker.name, f"{worker.name}.other"}


def test_remote_control_adds_and_removes_queues(worker):
    hostname, queue = worker.host, f"{worker.name}.added"
    worker.app.control.add_consumer(queue, destination=[hostname], reply=True, timeout=5, limit=1)

    assert result_of(worker.jobs.add.apply_async((1, 2), queue=queue)) == 3

    worker.app.control.cancel_consumer(queue, destination=[hostname], reply=True, timeout=5, limit=1)
    worker.jobs.add.apply_async((1, 2), queue=queue)
    wait_until(lambda: worker.ready_count(queue) == 1)


def test_revoked_task_is_not_run(worker, tmp_path):
    started, go_on = tmp_path / "started", tmp_path / "go on"
    blockers = [worker.jobs.hold.delay(str(started), str(go_on)) for _ in range(2)]
    result = worker.jobs.add.delay(1, 1)

    worker.app.control.revoke(result.id, reply=True, timeout=5, limit=1)
    go_on.touch()

    with pytest.raises(celery.exceptions.TaskRevokedError):
        result_of(result)
    assert [result_of(blocker) for blocker in blockers] == [False, False]


def test_events(worker):
    """What flower and `celery events` see."""
    seen, tasks = set(), []
    with worker.app.connection_for_read() as connection:
        receiver = worker.app.events.Receiver(connection, handlers={"*": lambda event: seen.add((event["type"], event.get("uuid")))})
        receiver.on_consume_ready = lambda *_, **__: tasks.append(worker.jobs.add.delay(1, 1))

        for _ in receiver.consume(limit=None, timeout=PATIENCE_S):
            if {("worker-heartbeat", None), ("task-succeeded", tasks[0].id)} <= seen:
                break

    assert {("task-received", tasks[0].id), ("task-started", tasks[0].id)} <= seen


def test_chord_over_a_file_backend(own_worker, broker_url, tmp_path):
    """rpc:// has no chords; with a backend that polls, the callback is a task that retries with a countdown until the header is complete."""
    (tmp_path / "results").mkdir()
    worker = own_worker(broker_url, backend=f"file://{tmp_path}/results")

    result = chord((worker.jobs.add.s(n, n) for n in range(10)), worker.jobs.total.s())()

    assert result_of(result) == 90


def test_quorum_queues_with_native_delayed_delivery(own_worker, broker_url):
    """For quorum queues Celery uses no global qos, and delays tasks in queues of its own: time to live, dead-lettering, topic exchanges."""
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
    """Tasks that were waiting and tasks sent afterwards are run; a task with an ETA that the worker held comes to it again."""
    worker = own_worker(own_broker.amqp_url)
    assert result_of(worker.jobs.add.delay(1, 2)) == 3
    worker.app.control.cancel_consumer(f"{worker.name}.other", reply=True, timeout=5, limit=1)
    worker.jobs.add.apply_async((1, 1), queue=f"{worker.name}.other")
    worker.jobs.clock.apply_async(countdown=3)
    wait_until(lambda: worker.app.control.inspect(timeout=2).scheduled()[worker.host], PATIENCE_S)
    wait_until(lambda: worker.ready_count(f"{worker.name}.other") == 1)

    if how == "stopped":
        own_broker.restart()
    else:
        own_broker.kill()
        own_broker.start()

    worker.connect()
    wait_until(worker.answers, PATIENCE_S, what="the worker back on the broker")
    assert result_of(worker.jobs.add.delay(20, 1)) == 21
    wait_until(lambda: worker.log.count("celery_app.clock") >= 2, PATIENCE_S, what="the task with an ETA, run after the restart")
