"""Messages on their way from one place to another, when the disk has no room where they go: they stay where
they are, and go on when it has. And what makes room.
"""
import errno
import os

import gevent
import pika
import pytest

from gomq_py.broker.transfer import engine
from gomq_py.content.properties import Properties
from gomq_py.errors import OutOfResources
from gomq_py.storage.message import Message
from tests.support.ill_disk import IllDisk
from tests.support.node import Node
from tests.support.reading import get
from tests.support.unflushed import Unflushed
from tests.support.waiting import in_time, wait_until
from tests.support.watched_files import WatchedFiles

GROWING = frozenset({"create", "create_unnamed", "allocate", "extend", "make_folder", "make", "make_unnamed"})
LETTERED = {"x-dead-letter-exchange": "amq.fanout"}
BODY = bytes(20_000)  # a few fill a segment


class FillingFiles(WatchedFiles, Unflushed):
    """Files of a disk that is ``full`` when the test says so; ``refused`` counts what it had no room for."""

    full = False
    refused = 0

    def about_to(self, call, subject):
        if self.full and call in GROWING:
            self.refused += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def files(monkeypatch):
    monkeypatch.setattr(engine, "TRY_AGAIN_MS", 5)
    return FillingFiles()


@pytest.fixture
def node(tmp_path, files):
    node = Node(tmp_path / "data", files, segment_size=65536)
    yield node
    files.full = False
    node.stop()


def declare(node, name, bound_to=None, **arguments):
    queue, _ = node.vhost.declare_queue(name, durable=True, arguments=arguments)
    if bound_to:
        node.vhost.bindings.bind_queue(name, bound_to, "")
    return queue


def reject_all(queue):
    message = Message()
    while get(queue, message):
        queue.reject(message.describe()["location"], False)


def numbers(node, name):
    found = []
    while (taken := node.take(name)) is not None:
        found.append(int(taken[0][:3]))
    return found


def publish(node, exchange, key, count, first=0, **headers):
    properties = Properties(headers=headers or None, delivery_mode=2).encode()
    for number in range(first, first + count):
        now = Message()
        now.assign(
            exchange.encode(), key.encode(), properties, b"%03d" % number + BODY,
            node.broker.scheduler.now_ms, persistent=True,
        )
        for destination in node.vhost.route(node.vhost.exchange(exchange), key, headers):
            assert destination.publish(now)


def let_try_again(node, files, times=3):
    """Until what found no room has been tried again a few times."""
    until = files.refused + times
    node.wait(lambda: files.refused >= until, what="another try")


def test_dead_letters_wait_in_their_queue_for_room_and_keep_their_order(node, files):
    queue = declare(node, "q", **LETTERED)
    dead = declare(node, "dead", "amq.fanout")
    publish(node, "", "q", 20)
    files.full = True

    reject_all(queue)
    let_try_again(node, files)
    assert dead.ready_count < 20
    assert queue.unacked_count + dead.ready_count == 20
    files.full = False
    publish(node, "", "q", 5, first=20)
    reject_all(queue)

    node.wait(lambda: dead.ready_count == 25 and queue.unacked_count == 0)
    assert numbers(node, "dead") == list(range(25))


def test_letter_comes_once_to_a_queue_that_has_room_while_another_has_none(node, files):
    queue = declare(node, "q", **LETTERED)
    first, second = declare(node, "first", "amq.fanout"), declare(node, "second", "amq.fanout")
    publish(node, "", "q", 1)
    publish(node, "", "first", 1, first=100)  # it has a segment
    files.full = True

    reject_all(queue)
    let_try_again(node, files)
    assert (queue.unacked_count, first.ready_count, second.ready_count) == (1, 2, 0)
    files.full = False

    node.wait(lambda: second.ready_count == 1 and queue.unacked_count == 0)
    assert (numbers(node, "first"), numbers(node, "second")) == ([100, 0], [0])


def test_letter_does_not_wait_for_a_queue_that_was_deleted_meanwhile(node, files):
    queue = declare(node, "q", **LETTERED)
    declare(node, "dead", "amq.fanout")
    publish(node, "", "q", 1)
    files.full = True
    reject_all(queue)
    let_try_again(node, files)

    files.full = False
    node.vhost.delete_queue("dead")

    node.wait(lambda: queue.unacked_count == 0)


def test_letters_that_begin_to_wait_while_others_are_tried_again_disturb_nothing(node, files, monkeypatch):
    monkeypatch.setattr(engine, "SLICE", 1)
    monkeypatch.setattr(engine, "TRY_AGAIN_MS", 1)
    to_dead, to_shut = (
        {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": name} for name in ("dead", "shut")
    )
    queue, late = declare(node, "q", **to_dead), declare(node, "late", **to_shut)
    dead, shut = declare(node, "dead"), declare(node, "shut")
    publish(node, "", "q", 100)
    publish(node, "", "late", 1)
    shut.fail(OSError(errno.EIO, os.strerror(errno.EIO)))
    files.full = True
    reject_all(queue)
    let_try_again(node, files)
    before = dead.ready_count

    files.full = False
    wait_until(lambda: dead.ready_count > before, sleep=lambda _: gevent.sleep(0))
    reject_all(late)
    assert dead.ready_count < 100

    node.wait(lambda: dead.ready_count == 100 and queue.unacked_count == 0)
    assert numbers(node, "dead") == list(range(100))
    node.vhost.restart_queue(shut)
    node.wait(lambda: node.vhost.queue("shut").ready_count == 1)


def test_letters_of_a_deleted_queue_wait_for_room(node, files):
    queue = declare(node, "q", **LETTERED)
    dead = declare(node, "dead", "amq.fanout")
    publish(node, "", "q", 3)
    files.full = True
    reject_all(queue)
    let_try_again(node, files)

    node.vhost.delete_queue("q")
    let_try_again(node, files)
    files.full = False

    node.wait(lambda: dead.ready_count == 3)
    assert numbers(node, "dead") == [0, 1, 2]


def test_letter_that_a_limit_refuses_does_not_wait(node, files):
    queue = declare(node, "q", **LETTERED)
    declare(node, "dead", "amq.fanout", **{"x-max-length": 0, "x-overflow": "reject-publish"})
    publish(node, "", "q", 1)

    reject_all(queue)

    node.wait(lambda: queue.unacked_count == 0)


def test_letters_that_wait_for_room_stay_in_their_queue_over_an_orderly_end(tmp_path, files):
    node = Node(tmp_path / "data", files, segment_size=65536)
    queue = declare(node, "q", **LETTERED)
    declare(node, "dead", "amq.fanout")
    publish(node, "", "q", 3)
    files.full = True
    reject_all(queue)
    let_try_again(node, files)

    node.stop()
    files.full = False
    node = Node(tmp_path / "data", files, segment_size=65536)

    assert numbers(node, "q") == [0, 1, 2]
    assert numbers(node, "dead") == []
    node.stop()


def test_delayed_messages_wait_for_room_and_keep_their_order(node, files):
    node.vhost.declare_exchange(
        "later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"}
    )
    queue = declare(node, "q", "later")
    publish(node, "later", "", 10, **{"x-delay": 20})
    files.full = True

    let_try_again(node, files)
    assert queue.ready_count + node.vhost.exchange("later").delayed_store.count == 10
    assert queue.ready_count < 10
    files.full = False

    node.wait(
        lambda: queue.ready_count == 10 and node.vhost.exchange(
            "later"
        ).delayed_store.store.unacked_count == 0
    )
    assert numbers(node, "q") == list(range(10))


def test_delayed_message_comes_once_to_a_queue_that_has_room_while_another_has_none(node, files):
    node.vhost.declare_exchange(
        "later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"}
    )
    first, second = declare(node, "first", "later"), declare(node, "second", "later")
    publish(node, "", "first", 1, first=100)
    publish(node, "later", "", 1, **{"x-delay": 20})
    files.full = True

    let_try_again(node, files)
    assert (first.ready_count, second.ready_count) == (2, 0)
    files.full = False

    node.wait(lambda: second.ready_count == 1)
    assert (numbers(node, "first"), numbers(node, "second")) == ([100, 0], [0])


def test_delayed_exchange_without_room_refuses_a_message_and_takes_the_next_when_there_is(node, files):
    node.vhost.declare_exchange(
        "later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"}
    )
    queue = declare(node, "q", "later")
    files.full = True
    park = node.vhost.exchange("later").delayed_store
    properties = Properties(headers={"x-delay": 20}, delivery_mode=2).encode()
    message = Message()
    message.assign(b"later", b"", properties, b"000", node.broker.scheduler.now_ms, persistent=True)
    assert park.publish(message) == 0
    files.full = False

    assert park.publish(message) == 1

    node.wait(lambda: queue.ready_count == 1)


def test_letter_to_a_queue_that_is_closed_waits_until_that_is_open_again(node):
    queue = declare(node, "q", **LETTERED)
    dead = declare(node, "dead", "amq.fanout")
    publish(node, "", "q", 1)
    dead.close()

    reject_all(queue)
    for _ in range(5):
        gevent.sleep(0)
    assert queue.unacked_count == 1
    node.vhost.restart_queue(dead)

    node.wait(lambda: queue.unacked_count == 0)
    assert numbers(node, "dead") == [0]


def test_stream_that_is_purged_on_a_full_disk_makes_room_and_says_what_stays(node, files):
    stream = declare(node, "s", **{"x-queue-type": "stream"})
    publish(node, "", "s", 10)
    newest = stream.segments()[-1]
    files.full = True

    with pytest.raises(
        OutOfResources,
        match="cannot purge all of stream 's' in vhost '/', try again when there is room: .*No space left",
    ):
        stream.purge()
    assert (stream.ready_count, stream.describe()["first_offset"]) == (
        newest["count"], newest["first_offset"]
    )
    files.full = False

    assert stream.purge() == newest["count"]
    assert (stream.ready_count, stream.describe()["next_offset"]) == (0, 10)


def test_what_was_confirmed_outlives_a_disk_that_is_full_when_it_dies_or_is_due(tmp_path):
    """A real broker, a client, and one message on each way."""
    with IllDisk(tmp_path) as broker:
        channel = pika.BlockingConnection(pika.URLParameters(broker.amqp_url)).channel()
        channel.confirm_delivery()
        for name, arguments in (("q", {**LETTERED}), ("dead", None), ("due", None)):
            channel.queue_declare(name, durable=True, arguments=arguments)
        channel.queue_bind("dead", "amq.fanout")
        channel.exchange_declare(
            "later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"}
        )
        channel.queue_bind("due", "later")
        channel.basic_publish("", "q", b"dies", pika.BasicProperties(delivery_mode=2))

        def waits_where_there_is_no_room():
            """Unless this machine stood still, and it was due before the disk was full."""
            channel.basic_publish(
                "later", "", b"is due", pika.BasicProperties(delivery_mode=2, headers={"x-delay": 300})
            )
            broker.fall_ill("full")
            if channel.basic_get("due", auto_ack=True)[2] is None:
                return True
            broker.recover("full")
            return False

        wait_until(waits_where_there_is_no_room)
        channel.basic_reject(channel.basic_get("q")[0].delivery_tag, requeue=False)
        broker.wait_for_log("keeps messages that are due", in_time(10))
        broker.wait_for_log("dead letters of queue 'q' in vhost '/' wait", in_time(10))
        broker.recover("full")

        for name, body in (("dead", b"dies"), ("due", b"is due")):
            wait_until(
                lambda: channel.queue_declare(name, passive=True).method.message_count == 1, in_time(10), name
            )
            assert channel.basic_get(name, auto_ack=True)[2] == body
