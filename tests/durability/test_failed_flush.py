"""A flush fails, the process is killed, and the next boot reads from the system's cache what never reached
the disk: Linux takes the pages for clean, so that flushes succeed without them.

Whatever a boot shows is on the disk when it is over. Each test fails on 7675f4c1.
"""
import errno
import os
from random import Random

import pytest

from gomq_py.broker.queues.stream_queue import StreamQueue
from gomq_py.content.properties import Properties
from gomq_py.hub.scheduler import unix_ms
from gomq_py.storage.message import Message
from gomq_py.storage.stores.stream_cursor import StreamCursor
from tests.durability import flush_pool
from tests.support.kept import STORE, content, kept_kinds, made
from tests.support.node import Node
from tests.support.power_cut import Disk, PowerCutFiles
from tests.support.stores import StoreBench


@pytest.fixture(autouse=True)
def flushes_in_greenlets(monkeypatch):
    flush_pool.use(monkeypatch)


@pytest.fixture
def disk(tmp_path):
    (tmp_path / "data").mkdir()
    disk = Disk(tmp_path / "data", Random(1), write_back=0)
    yield disk
    disk.discard()


def fail(path):
    raise OSError(errno.EIO, "Input/output error", path)


def declare(node, queue, arguments=None):
    node.vhost.declare_queue(queue, durable=True, arguments=arguments)


def prepare(node):
    """What is on the disk before it falls ill."""
    declare(node, "jobs")
    declare(node, "urgent", {"x-max-priority": 3})
    declare(node, "log", {"x-queue-type": "stream"})
    node.vhost.declare_exchange(
        "later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"})
    node.vhost.bindings.bind_queue("jobs", "later", "")
    node.vhost.extras[STORE].put("first", made("first", b"1"))


def publish(node, queue):
    for number in range(3):
        node.publish("", queue, b"%d" % number * 3000, persistent=True)


def delay(node):
    headers, message = {"x-delay": 3_600_000}, Message()
    message.assign(b"later", b"", Properties(headers=headers).encode(), b"x", unix_ms(), persistent=True)
    for destination in node.vhost.route(node.vhost.exchange("later"), "", headers):
        destination.publish(message)
    node.vhost.exchange("later").delayed_store.write_out()


def keep(node):
    node.vhost.extras[STORE].put("second", made("second", b"2"))
    node.vhost.extras[STORE].write_out()


def set_user(node):
    node.broker.users.set_user("ann", password_hash="", tags=("management",))


def read(queue):
    if not isinstance(queue, StreamQueue):
        return queue.ready_count
    cursor, message, found = StreamCursor(queue.store, 0), Message(), []
    while cursor.peek(message):
        found.append(message.get_body())
        cursor.step()
    cursor.close()
    return found


def shown(node):
    """What a broker shows."""
    vhost = node.vhost
    return {
        "queues": {queue.name: read(queue) for queue in vhost.queues.values()},
        "delayed": vhost.exchange("later").delayed_store.count,
        "kept": content(vhost.extras[STORE]),
        "users": [user.name for user in node.broker.users],
    }


@pytest.mark.parametrize("change", [
    lambda node: declare(node, "more"),
    set_user,
    lambda node: publish(node, "jobs"),
    lambda node: publish(node, "urgent"),
    lambda node: publish(node, "log"),
    delay,
    keep,
], ids=["definitions", "users", "messages", "priorities", "stream", "delayed", "kept by key"])
def test_what_a_boot_shows_after_a_failed_flush_is_on_the_disk(disk, tmp_path, change):
    files = PowerCutFiles(disk)
    node = Node(disk.root, files, kept_kinds())
    prepare(node)
    node.committer.wait()
    before = shown(node)
    files.flush_pause = fail
    change(node)
    node.broker.scheduler.finish()
    with pytest.raises(OSError):
        node.committer.wait()
    files.switch_off()
    node.kill(are_answered=False)

    files = PowerCutFiles(disk)
    node = Node(disk.root, files, kept_kinds())
    found = shown(node)
    node.committer.wait()
    files.switch_off()
    node.kill(are_answered=False)
    assert found != before

    node = Node(disk.lay_out_flushed(tmp_path / "cut"), kinds=kept_kinds())
    assert shown(node) == found
    node.stop()


@pytest.mark.parametrize("queue", ["jobs", "urgent", "log"])
def test_what_a_boot_shows_after_one_that_could_not_flush_names_is_on_the_disk(disk, tmp_path, queue):
    """The first boot must not leave seals that let the next one believe names which nobody has flushed. Fails
    on 533b2e0a.
    """
    files = PowerCutFiles(disk)
    node = Node(disk.root, files, kept_kinds())
    prepare(node)
    node.committer.wait()
    publish(node, queue)
    node.vhost.queue(queue).store.write_out()
    files.switch_off()
    node.kill(are_answered=False)

    def fail_in_queues(path):
        if "queues" in path and os.path.isdir(path):
            fail(path)

    with pytest.raises(OSError):
        Node(disk.root, PowerCutFiles(disk, flush_pause=fail_in_queues), kept_kinds())
    files = PowerCutFiles(disk)
    node = Node(disk.root, files, kept_kinds())
    found = shown(node)["queues"]
    assert found[queue]
    files.switch_off()
    node.kill(are_answered=False)

    node = Node(disk.lay_out_flushed(tmp_path / "cut"), kinds=kept_kinds())
    assert shown(node)["queues"] == found
    node.stop()


def test_position_that_is_stored_after_a_failed_flush_is_on_the_disk(disk, tmp_path):
    """The head of the file never reached the disk, nor did most positions, which lie in other pages."""
    readers = [f"reader{number}" for number in range(25)]
    files = PowerCutFiles(disk)
    node = Node(disk.root, files)
    declare(node, "log", {"x-queue-type": "stream"})
    publish(node, "log")
    node.committer.wait()
    files.flush_pause = fail
    store = node.vhost.queue("log").store
    for reader in readers:
        store.put_offset(reader, 1, 1)
    node.committer.mark(store)
    with pytest.raises(OSError):
        node.committer.wait()
    files.switch_off()
    node.kill(are_answered=False)

    files = PowerCutFiles(disk)
    node = Node(disk.root, files)
    store = node.vhost.queue("log").store
    assert {tag for tag, _, _ in store.offsets.items()} == set(readers)
    store.put_offset(readers[-1], 2, 2)
    node.committer.mark(store)
    node.committer.wait()
    files.switch_off()
    node.kill(are_answered=False)

    node = Node(disk.lay_out_flushed(tmp_path / "cut"))
    offsets = node.vhost.queue("log").store.offsets
    assert [offsets.get(reader) for reader in readers] == 24 * [1] + [2]
    node.stop()


def test_ack_that_is_flushed_behind_many_that_were_not_is_found(disk, tmp_path):
    """64 KiB without an entry end an acks file: 9000 acks of single messages, whose flush failed, take more.
    """
    files = PowerCutFiles(disk)
    bench = StoreBench(tmp_path / "data", files, enabled=True, segment_bytes=4 << 20)
    bench.push(bytes(100_000))  # gets a segment of full size
    last = [bench.push(b"x") for _ in range(18_001)][-1]
    bench.committer.wait()
    while (taken := bench.shift()) is not None:
        if taken[0] // 8 % 2 and taken[0] != last:
            bench.store.delete(taken[0])
    files.flush_pause = fail
    bench.store.mark()
    with pytest.raises(OSError):
        bench.committer.wait()
    files.switch_off()
    bench.committer.kill()

    bench.files = files = PowerCutFiles(disk)
    bench.start()
    left = bench.store.ready_count
    assert left < 10_000
    while (taken := bench.shift()) is not None:
        if taken[0] == last:
            bench.store.delete(last)
    bench.store.mark()
    bench.committer.wait()
    files.switch_off()
    bench.committer.kill()

    found = StoreBench(disk.lay_out_flushed(tmp_path / "cut"))
    assert found.store.ready_count == left - 1
    found.close()
