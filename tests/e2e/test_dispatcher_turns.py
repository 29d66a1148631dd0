"""A thread that publishes serves the connection while it waits for its confirm: nothing else may wait
for it.
"""

import threading
import time
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from gomq_py.client.connection import Connection
from gomq_py.dispatcher import (
    BadTask,
    Server,
    ServerConfig,
    ServiceDisconnected,
    Task,
    TaskConfig,
    WorkerConfig,
)
from tests.support.narrow import NarrowWay
from tests.support.task_queue import server_of
from tests.support.waiting import TIMEOUT_S, in_time, wait_until


@pytest.fixture
def server(shared_broker, queue):
    with server_of(shared_broker, queue) as made:
        yield made


def in_a_thread(function, *args):
    """What it returns or raises in a thread of its own: where a test before has left a hub to this one, its
    publish gives way to greenlets and serves nothing.
    """
    done = Future()

    def run():
        try:
            done.set_result(function(*args))
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, name="publishes", daemon=True).start()
    return done.result(TIMEOUT_S)


def publishing(server, monkeypatch):
    """The names of the threads that send, as they do."""
    names, send = [], server._publisher._send

    def noted(message):
        names.append(threading.current_thread().name)
        send(message)

    monkeypatch.setattr(server._publisher, "_send", noted)
    return names


def bodies(broker, queue):
    """Of all messages that are there."""
    with Connection(broker.amqp_url) as connection:
        channel = connection.channel()
        return [each.body for each in iter(lambda: channel.get(queue, no_ack=True), None)]


def test_a_thread_that_waits_sends_by_itself(server, monkeypatch):
    names = publishing(server, monkeypatch)

    # the link's thread may be at something, as the end of connecting
    wait_until(lambda: in_a_thread(server.publish, Task("a")) and "link" not in names[-1])

    assert names[-1] == "publishes"


def test_what_others_post_is_done_while_a_thread_waits_for_its_confirm(shared_broker, queue):
    """The broker's answers are stopped: the post comes through although the publish does not end."""
    with NarrowWay(shared_broker.port) as way, Server(ServerConfig(way.amqp_url, queue + ".x")) as server:
        way.stop()
        task = Task("a", routing_key=queue)
        thread = threading.Thread(
            target=pytest.raises, args=[ServiceDisconnected, server.publish, task, 30.0], daemon=True
        )
        thread.start()
        wait_until(lambda: server._publisher.unconfirmed_count)

        done = server.link.call(lambda: "done", timeout_s=TIMEOUT_S)

        assert done == "done" and server._publisher.unconfirmed_count == 1
        server.abort()
        thread.join(TIMEOUT_S)


def test_a_timer_that_begins_meanwhile_is_on_time(server, queue):
    """A task with a timeout comes while its sender serves: the link's thread was going to sleep for longer
    (up to its sign of life, after 15 s).
    """
    failed = []
    worker = server.new_worker(
        WorkerConfig(queue, "w"), {"hold": TaskConfig(threading.Event().wait, timeout_s=0.05)}
    )
    worker.hooks.failed_task.append(lambda context, error: failed.append(context.uuid))
    worker.start()

    sent = [in_a_thread(server.publish, Task("hold")) for _ in range(3)]

    wait_until(lambda: sorted(failed) == sorted(sent), in_time(10))


def test_a_publish_ends_in_time_although_the_socket_is_full(shared_broker, queue):
    """Nothing is read at the other end: sooner or later there is no room to write."""
    with NarrowWay(shared_broker.port) as way, Server(ServerConfig(way.amqp_url, queue + ".x")) as server:
        way.stop()
        longest_s, big, deadline = 0.0, "x" * 16000, time.monotonic() + TIMEOUT_S
        while server.link.connection.has_sent_all() and time.monotonic() < deadline:
            for timeout_s in (0.001, 0.0):
                began = time.monotonic()
                with pytest.raises(ServiceDisconnected):
                    in_a_thread(server.publish, Task("a", [big], routing_key=queue), timeout_s)
                longest_s = max(longest_s, time.monotonic() - began)

        assert not server.link.connection.has_sent_all() and longest_s < TIMEOUT_S / 3
        server.abort()


class Interrupted(BaseException):
    """As Ctrl-C: raised between any two steps."""


@pytest.mark.parametrize("place, losses", [("before the frames leave", 1), ("while it waits", 0)])
def test_an_interrupted_publish_leaves_a_connection_that_works(
    server, shared_broker, queue, monkeypatch, place, losses
):
    """Something may be half written: the connection is made anew, and the message comes again. Where the
    link's thread is at something else, the publish is that thread's and ends well: then another one.
    """
    wait_until(lambda: in_a_thread(server.publish, Task("before")) and server.link._turn.take())
    server.link._turn.give_back()
    attempts = []

    def is_interrupted():
        attempts.append(f"interrupted {len(attempts)}.")
        try:
            in_a_thread(server.publish, Task(attempts[-1]))
        except Interrupted:
            return True

    def interrupt(*_):
        monkeypatch.undo()
        raise Interrupted

    if losses:
        monkeypatch.setattr(server.link.connection, "uncork_ready", interrupt)
    else:
        waits_for = SimpleNamespace(poll=interrupt, close=server.link._turn._caller_waits_for.close)
        monkeypatch.setattr(server.link._turn, "_caller_waits_for", waits_for)
    wait_until(is_interrupted)
    in_a_thread(server.publish, Task("after"))

    wait_until(lambda: not server._publisher.unconfirmed_count)
    names = b"".join(bodies(shared_broker, queue))
    assert server.link.losses == losses and attempts[-1].encode() in names and b"after" in names


def test_what_cannot_be_sent_is_told_at_once(server):
    """There is no answer to wait for: the next octets may be a sign of life, after 15 s."""
    wait_until(lambda: in_a_thread(server.publish, Task("a")) and server.link._turn.take())
    server.link._turn.give_back()
    began = time.monotonic()

    for _ in range(3):  # of which one is served by its thread
        with pytest.raises(BadTask, match="a short string holds at most 255 bytes"):
            in_a_thread(server.publish, Task("a", routing_key="k" * 256))

    assert time.monotonic() - began < 10
