"""An orderly stop flushes what is not on the disk yet, and nothing else, and a power cut right behind it
takes nothing away. At 6805b4a2 it flushed the files of each open segment, so that on a slow disk the stop of
a broker with many queues came to ``stop_timeout``.
"""
import os
from random import Random

import pytest

from tests.durability import flush_pool
from tests.support.node import Node
from tests.support.power_cut import Disk, PowerCutFiles

QUEUES = [f"q{number}" for number in range(6)]


@pytest.fixture(autouse=True)
def flushes_in_greenlets(monkeypatch):
    flush_pool.use(monkeypatch)


class Stopping:
    """A broker on a modelled disk, with queues of a kind. ``flushed``: the names of segments' files that were
    flushed.
    """

    def __init__(self, folder, arguments):
        (folder / "data").mkdir()
        self.folder, self.flushed = folder, []
        self.disk = Disk(folder / "data", Random(1), write_back=0)
        self.start(self.disk)
        for name in QUEUES:
            self.node.vhost.declare_queue(name, durable=True, arguments=arguments)

    def start(self, disk):
        self.node = Node(disk.root, PowerCutFiles(disk, flush_pause=self.note))

    def note(self, path):
        name = os.path.basename(path)
        if name.startswith(("msgs.", "acks.")):
            self.flushed.append(name)

    def publish(self, persistent=True):
        for name in QUEUES:
            for number in range(4):
                self.node.publish("", name, b"%d" % number, persistent=persistent, priority=number)

    def settle(self):
        """Nothing is left to flush."""
        self.node.committer.wait()
        self.node.wait(lambda: self.node.committer.is_idle)

    def stop(self):
        """Stop in order. Returns what that flushed."""
        self.flushed.clear()
        self.node.stop()
        return sorted(self.flushed)

    def boot_after_a_cut(self):
        """Boot with nothing but what was flushed. Returns how many messages are in each queue."""
        self.disk.lay_out_flushed(self.folder / "cut")
        self.disk.discard()
        again = Node(self.folder / "cut")
        found = [again.vhost.queue(name).ready_count for name in QUEUES]
        again.stop()
        return found


@pytest.mark.parametrize("arguments, acked", [
    ({}, 0), ({}, 2), ({"x-max-priority": 3}, 2), ({"x-queue-type": "quorum"}, 2),
    ({"x-queue-type": "stream"}, 0),
], ids=["untouched", "some acked", "priority", "quorum", "stream"])
def test_queues_whose_messages_are_on_the_disk_are_not_flushed_again(tmp_path, caplog, arguments, acked):
    stopping = Stopping(tmp_path, arguments)
    stopping.publish()
    for name in QUEUES * acked:
        stopping.node.take(name)
    stopping.settle()

    assert stopping.stop() == []

    assert stopping.boot_after_a_cut() == [4 - acked] * len(QUEUES)
    assert "damaged" not in caplog.text and "come back" not in caplog.text


def test_queues_of_an_earlier_run_are_not_flushed_again(tmp_path):
    stopping = Stopping(tmp_path, {})
    stopping.publish()
    stopping.settle()
    stopping.stop()
    stopping.start(stopping.disk)
    for name in QUEUES:
        stopping.node.take(name)
    stopping.settle()

    assert stopping.stop() == []

    assert stopping.boot_after_a_cut() == [3] * len(QUEUES)


def test_transient_messages_behind_those_are_flushed(tmp_path):
    """They outlive an orderly stop, too."""
    stopping = Stopping(tmp_path, {})
    stopping.publish()
    stopping.settle()
    stopping.publish(persistent=False)

    assert stopping.stop() == ["msgs.0000000001"] * len(QUEUES)

    assert stopping.boot_after_a_cut() == [8] * len(QUEUES)


def test_acks_and_messages_that_wait_for_a_flush_get_it(tmp_path):
    stopping = Stopping(tmp_path, {})
    stopping.publish()
    for name in QUEUES:
        stopping.node.take(name)

    assert stopping.stop() == sorted(["msgs.0000000001", "acks.0000000001"] * len(QUEUES))

    assert stopping.boot_after_a_cut() == [3] * len(QUEUES)
