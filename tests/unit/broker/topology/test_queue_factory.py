"""Queue factory: what becomes of files whose queue or store is deleted while a thread recovers them
(restarts as such: tests/management/test_queue_states.py).
"""
import glob
import os
import threading

import gevent
import pytest

from gomq_py.broker.topology import queue_factory
from gomq_py.errors import NotFound
from gomq_py.storage.stores.recovery import open_store
from tests.support.faulty_files import FaultyFiles
from tests.support.mirror import Mirror
from tests.support.node import Node
from tests.support.unflushed import Unflushed
from tests.support.waiting import in_time


class HeldOpening:
    """open_store(), which in a thread waits at its end until ``go_on`` is set."""

    def __init__(self):
        self.ends, self.go_on = threading.Event(), threading.Event()
        self._hub = threading.get_native_id()

    def __call__(self, *arguments):
        opened = open_store(*arguments)
        if threading.get_native_id() != self._hub:
            self.ends.set()
            assert self.go_on.wait(in_time(20))
        return opened


class World:
    """A node whose files a mirror repeats, if it has replicators."""

    def __init__(self, folder, has_replicators):
        (folder / "data").mkdir()
        self.queues = folder / "data" / "queues"
        self.mirror = Mirror(folder / "data", folder / "copy")
        self.has_replicators = has_replicators
        self.node = Node(folder / "data", Unflushed((self.mirror,) if has_replicators else ()))

    def fail(self, store):
        """Close a store by a fault. Its acks files are gone, so that its recovery makes others."""
        self.node.committer.wait()
        store.fence(OSError(5, "the disk failed"))
        for path in glob.glob(os.path.join(store.folder, "acks.*")):
            self.node.files.unlink(path)

    def settle(self):
        """Wait until all that was asked for is on disk, and no folder is being removed."""
        self.node.committer.wait()
        self.node.wait(lambda: self.node.committer.background.is_idle)

    def left(self):
        """All that is left of queues: in their folder, the register, the open files; and what differs."""
        register, inside = self.node.files.register, str(self.queues) + os.sep
        known = [*register.paths.values(), *register.folders] if self.has_replicators else []
        return (
            os.listdir(self.queues),
            [path for path in [*known, *open_paths()] if path.startswith(inside)],
            self.mirror.differences() if self.has_replicators else [],
        )


def open_paths():
    """The paths of all files that this process has open or mapped."""
    for name in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{name}"
        if os.path.lexists(path):
            yield os.readlink(path)
    with open("/proc/self/maps") as maps:
        for line in maps:
            yield line.split(maxsplit=5)[-1]


@pytest.fixture(params=[True, False], ids=["with replicators", "without"])
def world(tmp_path, request):
    world = World(tmp_path, request.param)
    yield world
    world.node.stop()


@pytest.fixture
def opening(monkeypatch):
    opening = HeldOpening()
    monkeypatch.setattr(queue_factory, "open_store", opening)
    yield opening
    opening.go_on.set()


def closed_queue(world, name="q"):
    """A queue with a message, closed by a fault."""
    queue, _ = world.node.vhost.declare_queue(name, durable=True)
    world.node.publish("", name, persistent=True)
    world.fail(queue.store)
    return queue


@pytest.mark.parametrize("arguments", [
    {}, {"x-max-priority": 3}, {"x-queue-type": "quorum"}, {"x-queue-type": "stream"},
    {"x-message-group": "routing-key"},
])
def test_new_queue_of_any_type_needs_nothing_of_the_disk(tmp_path, arguments):
    """A disk that fails or is full refuses the first message, or the record of the queue, not the queue."""
    files = FaultyFiles(how="dead")
    node = Node(tmp_path, files)
    files.fail_at = before = len(files.calls)

    queue = node.broker._factory.create("/", "q", True, False, None, arguments)

    assert (len(files.calls), os.listdir(tmp_path / "queues")) == (before, [])
    files.fail_at = None
    queue.delete()
    node.stop()


def test_queue_that_is_deleted_while_a_thread_recovers_it_leaves_nothing(world, opening):
    queue = closed_queue(world)
    restart = gevent.spawn(world.node.vhost.restart_queue, queue)
    world.node.wait(opening.ends.is_set)

    world.node.vhost.delete_queue("q")
    world.settle()
    opening.go_on.set()
    with pytest.raises(NotFound):
        restart.get(timeout=in_time(20))
    world.settle()

    assert world.left() == ([], [], [])


def test_store_of_a_vhost_that_is_removed_while_a_thread_recovers_it_leaves_nothing(world, opening):
    stores, answers = world.node.vhost.stores, []
    store = stores.make("own")
    world.fail(store)
    stores.reopen("own", lambda *answer: answers.append(answer))
    world.node.wait(opening.ends.is_set)

    stores.remove_one()
    world.node.committer.wait()
    opening.go_on.set()
    world.settle()

    assert (answers, world.left()) == ([], ([], [], []))


def test_queue_that_is_deleted_while_it_waits_for_another_ones_recovery_leaves_nothing(world, opening):
    """Its removal begins at once, and no recovery may begin beside it."""
    node, go_on = world.node, threading.Event()
    queues = [closed_queue(world, name) for name in ("first", "second")]
    node.committer.background.long.add(go_on.wait, in_time(20))  # the removal is slow
    restarts = [gevent.spawn(node.vhost.restart_queue, queue) for queue in queues]
    node.wait(opening.ends.is_set)

    opening.ends.clear()
    node.vhost.delete_queue("second")
    node.committer.wait()
    opening.go_on.set()
    restarts[0].get(timeout=in_time(20))
    opening.go_on.clear()
    node.wait(lambda: restarts[1].dead or opening.ends.is_set())
    go_on.set()
    world.settle()
    opening.go_on.set()
    with pytest.raises(NotFound):
        restarts[1].get(timeout=in_time(20))
    node.vhost.delete_queue("first")
    world.settle()

    assert world.left() == ([], [], [])
