"""Judge: what must hold, whatever happens.

- When a message is confirmed, every node that etcd would allow to be elected has it on its disk.
- Every confirmed message is in the folder of each leader that opens its doors afterwards, once; those of one
  connection in the order in which they were published.
"""
import os
import re
import shutil

from gomq_py.cluster import identity
from gomq_py.cluster.core.records import InSyncRecord, decoded
from gomq_py.storage.disk import swap
from gomq_py.storage.disk.data_dir import CLUSTER, NOT_CONTENT, QUEUES
from gomq_py.storage.disk.plain_files import PlainFiles
from tests.support.power_cut import DiskFile, DiskFolder

MARK = re.compile(rb"<(\d+)>")
SEGMENT = "msgs."


class Judge:
    """Of the ``nodes``, with the Etcd. ``promised``: {number: connection that has published it}."""

    def __init__(self, world, etcd, folder):
        self.world = world
        self.nodes = []
        self.promised = {}
        self.opened_count = 0
        self._etcd = etcd
        self._folder = os.path.join(folder, "flushed")
        self._connections = {}  # number -> connection

    def publishes(self, connection):
        """A message is published. Returns its number."""
        self._connections[len(self._connections) + 1] = connection
        return len(self._connections)

    def confirmed(self, numbers):
        """These were."""
        for number in numbers:
            self.promised[number] = self._connections[number]
        for node in self.nodes:
            self._check_flushed(node, numbers)

    def opened(self, process):
        """A leader has opened its doors."""
        self.opened_count += 1
        self.world.say("judge", f"{process} leads, {len(self.promised)} are promised")
        self.check_folder(process, process.machine.disk.root)

    def check_folder(self, who, root):
        """Everything that was promised is there, in order."""
        there = numbers_in(root)
        if len(set(there)) < len(there):
            self.world.find(f"{who} has a message twice")
        lost = self.promised.keys() - there
        if lost:
            self.world.find(f"{who} leads without {len(lost)} of {len(self.promised)} promised messages: "
                            f"{min(lost)}")
        last = {}
        for number in there:
            connection = self._connections[number]
            if number < last.get(connection, 0):
                self.world.find(f"{who} has {number} of {connection} out of order")
            last[connection] = number

    def _check_flushed(self, node, numbers):
        """A node that may be elected has these on its disk."""
        record = decoded(self._etcd.model.kept.get("isr"), InSyncRecord.decode)
        if record is None or self._has_flushed(node.disk, numbers):
            return
        shutil.rmtree(self._folder, ignore_errors=True)
        node.disk.lay_out_flushed(self._folder)
        swap.finish(PlainFiles(), self._folder, NOT_CONTENT)
        found = identity.read(self._folder)
        if found is None or record.members.get(found.node_id.hex(), found.epoch + 1) > found.epoch:
            return
        lost = set(numbers) - set(numbers_in(self._folder))
        if lost:
            self.world.find(
                f"{sorted(lost)} confirmed, which {node.name} may lead without in epoch {record.epoch + 1}")

    @staticmethod
    def _has_flushed(disk, numbers):
        """Whether these are in its folder, in what was flushed."""
        marks = {b"<%d>" % number for number in numbers}
        queues = disk._nodes[disk.root].names.get(QUEUES)
        for folder in queues.names.values() if isinstance(queues, DiskFolder) else ():
            for name, file in folder.names.items() if isinstance(folder, DiskFolder) else ():
                if isinstance(file, DiskFile) and name.startswith(SEGMENT):
                    marks -= {mark for mark in marks if mark in file.octets}
        return not marks and swap.SYNC not in disk._nodes[disk.root].names


def numbers_in(root):
    """The numbers of the messages in a data folder, in the order of its segments."""
    numbers = []
    for folder, _, names in sorted(os.walk(os.path.join(root, QUEUES))):
        for name in sorted(names):
            if name.startswith(SEGMENT):
                with open(os.path.join(folder, name), "rb") as file:
                    numbers += [int(number) for number in MARK.findall(file.read())]
    return numbers


__all__ = ["Judge", "numbers_in", "CLUSTER"]
