"""Dead tasks run again: ``gomq-py-worker retry-dead``, whose process may be killed at any time."""

import json
import re
import signal
import subprocess
import sys

import pytest

from gomq_py.client.backoff import Backoff
from gomq_py.client.connection import Connection
from gomq_py.content.properties import Properties
from gomq_py.dispatcher import TaskConfig, WorkerConfig, current_task
from tests.support.task_queue import cleared, server_of
from tests.support.waiting import TIMEOUT_S, in_time, wait_until

QUEUE, DEAD = "q", "q.dead"


@pytest.fixture
def broker(module_broker):
    broker = cleared(module_broker, QUEUE)
    with Connection(broker.amqp_url) as connection, connection.channel() as channel:
        for queue in (QUEUE, DEAD):
            channel.queue_declare(queue, durable=True)
    return broker


def command(broker, *arguments):
    return [
        sys.executable, "-m", "gomq_py.dispatcher", "retry-dead", "--url", broker.amqp_url, QUEUE, *arguments]


def retried(broker, *arguments):
    """(exit code, standard output, standard error) of retry-dead."""
    done = subprocess.run(command(broker, *arguments), capture_output=True, text=True, timeout=in_time(60))
    return done.returncode, done.stdout, done.stderr


def fill(broker, *names, **headers):
    """Dead tasks of these names, whose arguments are 0, 1, 2..."""
    with Connection(broker.amqp_url) as connection, connection.channel() as channel:
        channel.confirm_select()
        for number, name in enumerate(names):
            body = json.dumps({"uuid": str(number), "name": name, "args": [{"type": "int", "value": number}]})
            channel.publish("", DEAD, body, Properties(delivery_mode=2, priority=2, headers={
                "tenant": 7, "x-task-attempt": 3, "x-task-unknown": 2, "x-task-reason": "no route to host",
                "x-task-error": "OSError", "x-task-queue": QUEUE, "x-task-worker": "w", **headers}))
        channel.wait_for_confirms()


def taken(broker, queue):
    """The messages of a queue, which leave it."""
    found = []
    with Connection(broker.amqp_url) as connection, connection.channel() as channel:
        while (message := channel.get(queue, no_ack=True)) is not None:
            found.append(message)
    return found


def uuids(broker, queue):
    return [json.loads(each.body)["uuid"] for each in taken(broker, queue)]


def ready(broker, queue):
    with Connection(broker.amqp_url) as connection, connection.channel() as channel:
        return channel.queue_declare(queue, passive=True).message_count


def test_a_dead_task_runs_again_with_all_its_attempts(broker):
    attempts = []
    with server_of(broker, QUEUE) as server:
        def fail(number):
            attempts.append(current_task().attempt)
            raise OSError("no route to host")

        config = TaskConfig(fail, retries=1, backoff=Backoff(0.01, 0.01), dead_letter=True)
        server.new_worker(WorkerConfig(QUEUE, "w"), {"fail": config}).start()
        fill(broker, "fail")

        code, told, _ = retried(broker)
        wait_until(lambda: len(attempts) == 2 and ready(broker, DEAD) == 1)

    assert (code, told) == (0, "     1  fail  OSError\n1 tasks of q.dead run again in q\n")
    assert attempts == [1, 2]


def test_a_task_goes_back_as_it_was_sent(broker):
    fill(broker, "a")

    retried(broker)

    [message] = taken(broker, QUEUE)
    assert json.loads(message.body) == {"uuid": "0", "name": "a", "args": [{"type": "int", "value": 0}]}
    assert (message.properties.headers, message.properties.priority, message.properties.delivery_mode) == (
        {"tenant": 7}, 2, 2)


def test_a_dry_run_moves_nothing(broker):
    fill(broker, "a", "b", "a")

    code, told, _ = retried(broker, "--dry-run")

    assert (code, told) == (
        0, "     2  a  OSError\n     1  b  OSError\n3 tasks of q.dead would run again in q\n")
    assert (uuids(broker, DEAD), uuids(broker, QUEUE)) == (["0", "1", "2"], [])


def test_only_tasks_of_a_name_and_at_most_so_many(broker):
    fill(broker, "a", "b", "a", "a")

    _, told, _ = retried(broker, "--task", "a", "--limit", "2")

    assert told.splitlines()[1:] == ["2 tasks of q.dead run again in q", "1 tasks of other names stay"]
    assert (uuids(broker, QUEUE), uuids(broker, DEAD)) == (["0", "2"], ["1", "3"])


def test_what_the_broker_dead_lettered_goes_back_without_its_deaths(broker):
    fill(broker, "a", **{
        "x-task-error": None, "x-death": [{"queue": QUEUE, "reason": "delivery_limit", "count": 1}],
        "x-first-death-queue": QUEUE})

    _, told, _ = retried(broker)

    assert "     1  a  delivery_limit\n" in told
    assert taken(broker, QUEUE)[0].properties.headers == {"tenant": 7}


def test_an_expired_task_stays(broker):
    fill(broker, "a", **{"x-task-expires": 1})

    _, told, _ = retried(broker)

    assert told == "0 tasks of q.dead run again in q\n1 tasks have expired, and stay\n"
    assert uuids(broker, DEAD) == ["0"]


@pytest.mark.parametrize("missing", [QUEUE, DEAD])
def test_a_queue_that_is_not_there_is_told(broker, missing):
    fill(broker, "a")
    with Connection(broker.amqp_url) as connection, connection.channel() as channel:
        channel.queue_delete(missing)

    code, _, told = retried(broker)

    assert (code, "Traceback" in told) == (1, False)
    assert f"404 NOT_FOUND - no queue '{missing}' in vhost '/'" in told


def test_a_full_queue_ends_it_and_the_task_stays_dead(broker):
    with Connection(broker.amqp_url) as connection, connection.channel() as channel:
        channel.queue_delete(QUEUE)
        channel.queue_declare(
            QUEUE, durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    fill(broker, "a", "a", "a")

    code, told, error = retried(broker)

    assert (code, told) == (1, "     1  a  OSError\n1 tasks of q.dead run again in q\n")
    assert "406 PRECONDITION_FAILED - partial tx completion" in error
    assert (uuids(broker, QUEUE), uuids(broker, DEAD)) == (["0"], ["1", "2"])


def test_a_kill_at_any_time_leaves_each_task_in_one_of_the_queues(broker):
    """Killed with SIGKILL after it has moved some, thrice."""
    count, kills = 200, 0
    fill(broker, *["a"] * count)

    with Connection(broker.amqp_url) as connection, connection.channel() as channel:
        def counted(queue):
            return channel.queue_declare(queue, passive=True).message_count

        while (left := counted(DEAD)) and kills < 3:
            with subprocess.Popen(command(broker), stdout=subprocess.DEVNULL) as child:
                wait_until(lambda: counted(DEAD) < left - 10 or child.poll() is not None)
                child.send_signal(signal.SIGKILL)
                kills += 1
                child.wait(TIMEOUT_S)
            wait_until(lambda: counted(DEAD) + counted(QUEUE) == count)
    retried(broker)

    assert kills > 1
    assert sorted(map(int, uuids(broker, QUEUE))) == list(range(count))
    assert uuids(broker, DEAD) == []


def test_the_command_names_its_subcommands():
    done = subprocess.run(
        [sys.executable, "-m", "gomq_py.dispatcher", "--help"], capture_output=True, text=True,
        timeout=in_time(60))

    assert re.search(r"Further\s+commands.*retry-dead", done.stdout, re.DOTALL)
