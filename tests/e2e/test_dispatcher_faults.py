"""The task queue when something breaks: the broker, a worker, the network, a queue. No task is lost;
none runs twice without a cause.
"""

import subprocess
import sys
import threading
from collections import Counter

import pytest

from gomq_py.client.backoff import Backoff
from gomq_py.client.connection import Connection
from gomq_py.dispatcher import (
    Dispatcher,
    InitQueue,
    NotDelivered,
    Retry,
    Server,
    ServerConfig,
    ServiceDisconnected,
    Task,
    TaskConfig,
    WorkerConfig,
)
from tests.support.command import ROOT
from tests.support.narrow import NarrowWay
from tests.support.ports import reserve
from tests.support.task_queue import cleared
from tests.support.waiting import TIMEOUT_S, wait_until


@pytest.fixture
def broker(module_broker):
    return cleared(module_broker, "q", "dead", "limited")


SOON = Backoff(0.01, 0.01)


def config(url, **options):
    return ServerConfig(
        url,
        default_routing_key="q",
        init_queues=[InitQueue("q", ["q"])],
        **{
            "reconnection_interval_s": 0.02,
            "reconnection_most_s": 0.1,
            "reconnection_retries": None,
            **options,
        }
    )


def ready(url, queue="q"):
    with Connection(url) as connection:
        return connection.channel().queue_declare(queue, passive=True).message_count


def test_every_task_runs_although_the_broker_is_killed_meanwhile(broker_process):
    """Published while it is killed twice: what was confirmed runs, the rest was published again or failed."""
    broker = broker_process(port=reserve()).start()
    ran = Counter()
    with Server(config(broker.amqp_url)) as server, Server(config(broker.amqp_url)) as publishing:
        worker = server.new_worker(
            WorkerConfig("q", "w"), {"note": TaskConfig(lambda number: ran.update([number]))}
        )
        worker.start()
        confirmed = []

        def publish():
            for number in range(600):
                publishing.publish(Task("note", [number]), TIMEOUT_S)
                confirmed.append(number)

        thread = threading.Thread(target=publish)
        thread.start()
        for count in (100, 300):
            wait_until(lambda: len(confirmed) > count)
            broker.kill()
            broker.start()
        thread.join(TIMEOUT_S)

        wait_until(lambda: len(ran) == 600 and not worker.running_count)

    assert len(confirmed) == 600
    assert server.link.losses >= 1


def test_nothing_runs_twice_while_nothing_breaks(broker_process):
    broker = broker_process().start()
    ran = Counter()
    with Server(config(broker.amqp_url)) as server:
        for name in ("one", "two", "three"):
            server.new_worker(
                WorkerConfig("q", name, prefetch=20),
                {"note": TaskConfig(lambda number: ran.update([number]))},
            ).start()
        for future in [server.submit(Task("note", [number])) for number in range(2000)]:
            future.result(TIMEOUT_S)
        wait_until(lambda: sum(ran.values()) >= 2000)
        server.get_worker("two").close()

    assert (set(ran.values()), ready(broker.amqp_url)) == ({1}, 0)


KILLED = """
import os, sys, threading
from gomq_py.dispatcher import Server, ServerConfig, TaskConfig, WorkerConfig
server = Server(ServerConfig(sys.argv[1]))
def hold(number):
    os.write(1, b"begun\\n")
    threading.Event().wait()
server.new_worker(WorkerConfig("q", "killed", ["q"]), {"note": TaskConfig(hold)}).start()
threading.Event().wait()
"""


def test_tasks_of_a_killed_worker_run_in_another(broker):
    with Server(config(broker.amqp_url)) as server:
        for number in range(5):
            server.publish(Task("note", [number]))
        child = subprocess.Popen(
            [sys.executable, "-c", KILLED, broker.amqp_url], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        with child:
            begun = [child.stdout.readline() for _ in range(3)]
            child.kill()
        ran = []
        server.new_worker(WorkerConfig("q", "next"), {"note": TaskConfig(ran.append)}).start()
        wait_until(lambda: len(ran) >= 5)

    assert begun == ["begun\n"] * 3
    assert sorted(ran) == [0, 1, 2, 3, 4]


def test_used_up_retries_are_told_and_publishing_says_so(broker_process):
    broker = broker_process(port=reserve()).start()
    told = []
    server = Server(config(broker.amqp_url, reconnection_retries=2, on_connection_broken=told.append))
    begun, release = threading.Event(), threading.Event()

    def freeze():
        begun.set()
        release.wait()

    worker = server.new_worker(WorkerConfig("q", "w"), {"freeze": TaskConfig(freeze, timeout_s=1.0)})
    worker.start()
    server.publish(Task("freeze"))
    begun.wait(TIMEOUT_S)
    broker.kill()

    assert server.connection_broken.wait(TIMEOUT_S)
    wait_until(lambda: told)
    with pytest.raises(ServiceDisconnected, match="Service is disconnected"):
        server.publish(Task("note"))
    # what is frozen is let go when its time is over, as ever
    assert (worker.is_consuming, server.close(TIMEOUT_S)) == (False, True)
    release.set()


def test_a_publish_that_nobody_confirms_in_time_is_told_and_not_sent_later(broker):
    with NarrowWay(broker.port) as way, Server(config(way.amqp_url)) as server:
        way.stop()

        with pytest.raises(ServiceDisconnected, match="was not confirmed within 0.1 s"):
            server.publish(Task("note"), timeout_s=0.1)
        way.cut()
        way.go_on()

        server.publish(Task("note", ["second"]), TIMEOUT_S)
        server.close()
    with Connection(broker.amqp_url) as connection:
        bodies = [connection.channel().get("q", no_ack=True).body]
        assert b"second" in bodies[0] or b"second" in connection.channel().get("q", no_ack=True).body


def test_tasks_run_over_a_slow_network_once_each(broker):
    """200 octets at a time, each 1 ms: connecting takes many of them, a task some."""
    ran = Counter()
    with NarrowWay(broker.port, piece=200, rest_s=0.001) as way, Server(config(way.amqp_url)) as server:
        server.new_worker(
            WorkerConfig("q", "w"), {"note": TaskConfig(lambda number, _: ran.update([number]))}
        ).start()
        for future in [server.submit(Task("note", [number, "x" * 300])) for number in range(100)]:
            future.result(TIMEOUT_S)
        wait_until(lambda: len(ran) == 100)

    assert set(ran.values()) == {1}


def test_a_cut_connection_is_made_anew_and_what_ran_meanwhile_runs_again(broker):
    go, ran = threading.Event(), []

    def hold():
        ran.append(1)
        go.wait(TIMEOUT_S)

    with NarrowWay(broker.port) as way, Server(config(way.amqp_url)) as server:
        worker = server.new_worker(WorkerConfig("q", "w"), {"hold": TaskConfig(hold)})
        worker.start()
        server.publish(Task("hold"))
        wait_until(lambda: len(ran) == 1)
        way.cut()
        wait_until(lambda: len(ran) == 2)
        go.set()

        wait_until(lambda: not worker.running_count)
        assert server.link.losses == 1
    assert ready(broker.amqp_url) == 0


def test_a_silent_broker_is_left_after_two_heartbeats(broker):
    with NarrowWay(broker.port) as way, Server(config(way.amqp_url, heartbeat_s=1)) as server:
        way.stop()

        wait_until(lambda: server.link.losses == 1)
        way.cut()
        way.go_on()

        assert server.publish(Task("note"), TIMEOUT_S)


def test_a_deleted_queue_is_declared_again_and_consumed(broker):
    ran = []
    with Server(config(broker.amqp_url)) as server:
        server.new_worker(WorkerConfig("q", "w", ["q"]), {"note": TaskConfig(lambda: ran.append(1))}).start()
        with Connection(broker.amqp_url) as connection:
            connection.channel().queue_delete("q")

            wait_until(lambda: connection.channel().queue_declare("q", durable=True).consumer_count == 1)
        server.publish(Task("note"))
        wait_until(lambda: ran)


@pytest.mark.parametrize("exchange, delay_s", [("dispatcher", 0.0), ("dispatcher.delayed", 0.001)])
def test_a_deleted_exchange_is_declared_again(broker, exchange, delay_s):
    """The publish that meets it fails; the next one is routed, with all bindings, and so are retries."""
    ran = []

    def fail_once():
        ran.append(1)
        if len(ran) == 1:
            raise Retry(delay_s=0.0)

    with Server(config(broker.amqp_url)) as server:
        server.new_worker(WorkerConfig("q", "w", ["other"]), {"note": TaskConfig(fail_once)}).start()
        with Connection(broker.amqp_url) as connection:
            connection.channel().exchange_delete(exchange)

        with pytest.raises(NotDelivered, match=f"NOT_FOUND - no exchange '{exchange}'"):
            server.publish(Task("note", delay_s=delay_s))
        server.publish(Task("note", delay_s=delay_s, routing_key="other"))
        wait_until(lambda: len(ran) == 2)
        assert server.link.losses == 0


def test_tasks_with_a_time_and_unique_ones_outlive_a_restart(broker_process):
    """The broker keeps the time. What it remembers of unique tasks goes: the same is taken once more."""
    broker = broker_process(port=reserve()).start()
    app = Dispatcher(
        broker.amqp_url, unique_s=60, reconnection_interval_s=0.02, reconnection_retries=None
    )
    ran = []

    @app.task(unique=True)
    def note(what: str):
        ran.append(what)

    note.send(("later",), delay_s=1.0, unique="later")
    note.send(("never",), delay_s=3600)
    note.delay("unique")
    broker.kill()
    broker.start()
    app.workers()
    note.delay("unique")

    wait_until(lambda: len(ran) == 3)
    assert app.close(TIMEOUT_S)
    assert sorted(ran) == ["later", "unique", "unique"]


def test_a_dead_letter_that_the_broker_refuses_is_not_lost(broker, caplog):
    """The queue of dead letters is full: the message stays unacknowledged until there is room."""
    with Server(config(broker.amqp_url)) as server, Connection(broker.amqp_url) as connection:
        channel = connection.channel()
        full = {"x-max-length": 1, "x-overflow": "reject-publish"}
        server.new_worker(WorkerConfig("q", "w", dead_letters="dead", dead_letter_arguments=full), {}).start()
        channel.publish("", "dead", b"first")
        channel.publish("dispatcher", "q", b"no task")
        wait_until(lambda: "could not put off or give up a message" in caplog.text)
        assert channel.get("dead", no_ack=True).body == b"first"

        letter = wait_until(lambda: channel.get("dead", no_ack=True))

    assert letter.body == b"no task"


def test_a_worker_that_is_lost_too_often_with_a_task_gives_it_up(broker):
    """The broker counts: a delivery limit on the queue, as Dispatcher declares it."""
    app = Dispatcher(
        broker.amqp_url,
        queue="limited",
        delivery_limit=2,
        reconnection_interval_s=0.01,
        reconnection_retries=None,
    )
    begun = []

    @app.task
    def crash():
        begun.append(1)
        app.server.link.post(app.server.link.connection.abort)  # as if the worker had died

    app.workers()
    # not the app's: its publish would be cut off, and come again
    with Connection(broker.amqp_url) as connection:
        connection.channel().publish("", "limited", Task("crash").encode())

        wait_until(lambda: ready(broker.amqp_url, "limited.dead") == 1)
    assert len(begun) == 3
    app.close()
