"""Celery: a real worker process on the broker under test, with results over it (rpc://),
remote control and events.
"""
import time
from datetime import UTC, datetime, timedelta

import celery
import pytest
from celery import group

from tests.clients.celery_worker import PATIENCE_S, Worker, result_of
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def worker(broker_url, tmp_path_factory):
    """A worker shared by the tests of this module that leave it as they found it."""
    started = Worker(tmp_path_factory.mktemp("worker"), broker_url).start()
    yield started
    started.close()


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
    """Celery raises the prefetch for each of them (a global qos on a running consumer),
    or the worker would be full at two.
    """
    waiting = [worker.jobs.clock.apply_async(countdown=3600) for _ in range(10)]

    assert result_of(worker.jobs.add.delay(1, 1)) == 2

    assert len(worker.scheduled()) == 10
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
    """By one of its two threads, while the other is held:
    two at once may look at their clocks in either order.
    """
    started = tmp_path / "started"
    ends = [tmp_path / "first may end", tmp_path / "second may end"]
    blockers = [worker.jobs.hold.delay(str(started), str(end)) for end in ends]
    wait_until(lambda: started.exists() and started.read_text().count("started") == 2, PATIENCE_S)
    late = [worker.jobs.clock.apply_async(priority=1) for _ in range(4)]
    early = [worker.jobs.clock.apply_async(priority=9) for _ in range(4)]
    wait_until(lambda: worker.ready_count() == 8)

    ends[0].touch()

    assert max(map(result_of, early)) <= min(map(result_of, late))
    ends[1].touch()
    assert [result_of(blocker) for blocker in blockers] == [False, False]


def test_task_in_another_queue(worker):
    assert result_of(worker.jobs.add.apply_async((1, 2), queue=f"{worker.name}.other")) == 3


def test_remote_control(worker):
    inspect = worker.app.control.inspect(timeout=PATIENCE_S, limit=1)
    hostname = worker.host

    assert inspect.ping() == {hostname: {"ok": "pong"}}
    assert inspect.stats()[hostname]["broker"]["transport"] == "amqp"
    assert {queue["name"] for queue in inspect.active_queues()[hostname]} == {
        worker.name, f"{worker.name}.other"
    }


def test_remote_control_adds_and_removes_queues(worker):
    hostname, queue = worker.host, f"{worker.name}.added"
    worker.app.control.add_consumer(queue, destination=[hostname], reply=True, timeout=PATIENCE_S, limit=1)

    assert result_of(worker.jobs.add.apply_async((1, 2), queue=queue)) == 3

    worker.cancel_consumer(queue)
    worker.jobs.add.apply_async((1, 2), queue=queue)
    wait_until(lambda: worker.ready_count(queue) == 1)


def test_revoked_task_is_not_run(worker, tmp_path):
    started, go_on = tmp_path / "started", tmp_path / "go on"
    blockers = [worker.jobs.hold.delay(str(started), str(go_on)) for _ in range(2)]
    result = worker.jobs.add.delay(1, 1)

    worker.app.control.revoke(result.id, reply=True, timeout=PATIENCE_S, limit=1)
    go_on.touch()

    with pytest.raises(celery.exceptions.TaskRevokedError):
        result_of(result)
    assert [result_of(blocker) for blocker in blockers] == [False, False]


def test_events(worker):
    """What flower and `celery events` see."""
    seen, tasks = set(), []
    with worker.app.connection_for_read() as connection:
        receiver = worker.app.events.Receiver(
            connection, handlers={"*": lambda event: seen.add((event["type"], event.get("uuid")))}
        )
        receiver.on_consume_ready = lambda *_, **__: tasks.append(worker.jobs.add.delay(1, 1))

        for _ in receiver.consume(limit=None, timeout=PATIENCE_S):
            if {("worker-heartbeat", None), ("task-succeeded", tasks[0].id)} <= seen:
                break

    assert {("task-received", tasks[0].id), ("task-started", tasks[0].id)} <= seen
