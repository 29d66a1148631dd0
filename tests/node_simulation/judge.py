"""Judge: what must hold, whatever happens.

- Every node that etcd would allow to be elected has on its disk all messages that were confirmed, and that no
  consumer has acknowledged: looked at when one is confirmed, when `isr` changes, and when a node boots.
- A leader that opens its doors has all of them, each once; those of one connection are in the order in which
  they were published.
- A leader delivers nothing past the deadline of its lease, nor while another one does.
- No node boots, or leads, with damage in its folder.
"""
import contextlib
import os
import re
import shutil

from gomq_py.cluster import identity
from gomq_py.cluster.core.records import InSyncRecord, decoded
from gomq_py.ctl import fsck
from gomq_py.storage.disk import swap
from gomq_py.storage.disk.data_dir import NOT_CONTENT, QUEUES, SCHEMA
from gomq_py.storage.disk.plain_files import PlainFiles
from gomq_py.storage.format import head, record
from tests.node_simulation.clients import MARK
from tests.support.power_cut import DiskFile, DiskFolder

MSGS, ACKS = "msgs.", "acks."
# What fsck takes for damage, and a boot for a segment that was never flushed: a follower's file has its name
# on the disk, and not its whole size; a recycled file has its new name, and not its new head.
UNFLUSHED = re.compile(
    r"\d+ bytes(, but the head says \d+| are shorter than a head)|"
    "the head does not belong to its segment")


class Judge:
    """Of the ``nodes``, with the Etcd. ``promised``: {number: connection that has published it}, without what
    a consumer has acknowledged.
    """

    def __init__(self, world, etcd, folder):
        self.world = world
        self.nodes = []
        self.promised = {}
        self.opened_count = 0
        self.leases_end_in_time = True  # and no earlier
        self._etcd = etcd
        self._folder = os.path.join(folder, "flushed")
        self._connections = {}  # number -> connection
        self._acked = set()
        self.confirmed_count = 0
        self._revision = None  # of `isr`
        self._seen = {}  # DiskFile -> (octets, numbers in them)
        etcd.model.watch(self._etcd_has_changed)

    def publishes(self, connection):
        """A message is published. Returns its number."""
        self._connections[len(self._connections) + 1] = connection
        return len(self._connections)

    def confirmed(self, numbers):
        """These were."""
        for number in numbers:
            if number not in self._acked:
                self.promised[number] = self._connections[number]
        self.confirmed_count += len(numbers)
        for node in self.nodes:
            self._check_flushed(node, self.promised.keys() & numbers)

    def acked(self, numbers):
        """These may be gone from now on, and may come back."""
        for number in numbers:
            self.promised.pop(number, None)
        self._acked.update(numbers)

    def opened(self, process):
        """A leader has opened its doors."""
        self.opened_count += 1
        self.world.say("judge", f"{process} leads, {len(self.promised)} are promised")
        self.check_folder(process, process.machine.disk.root)
        if process.node.broker.damage_count():
            self.world.find(f"{process} leads with damage in its folder")

    def turned(self, process, began_s):
        """A turn of a process is over that has begun at this time."""
        if process.delivers:
            left_s = process.leadership.lease_left_s
            if left_s < 0 and began_s >= self.world.now_s + left_s:
                self.world.find(f"{process} delivers {-left_s:.3f} s after the deadline of its lease")
            for other in [one for node in self.nodes for one in node.processes[-1:] if one is not process]:
                if self.leases_end_in_time and other.delivers and other.leadership.lease_left_s > 0:
                    self.world.find(f"{process} delivers, and so does {other}")

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

    def boots(self, node):
        """A process of it is about to begin, after a kill or a loss of power."""
        shutil.rmtree(self._folder, ignore_errors=True)
        shutil.copytree(node.disk.root, self._folder)
        self._check_copy(node, self.promised, f"boots and would lead, {len(self.promised)} are promised,")
        if os.path.exists(os.path.join(self._folder, SCHEMA)):
            for _, text in fsck.check_folder(self._folder).damage:
                if not UNFLUSHED.fullmatch(text):
                    self.world.find(f"{node.name} boots with damage in its folder: {text}")

    def _etcd_has_changed(self):
        """Whoever is in `isr` now has all that was promised."""
        in_sync = self._etcd.model.kept.get("isr")
        revision = in_sync and in_sync.mod_revision
        if revision != self._revision:
            self._revision = revision
            for node in self.nodes:
                self._check_flushed(node, self.promised)

    def _check_flushed(self, node, numbers):
        """If it may be elected, it has these on its disk."""
        if self._etcd.model.kept.get("isr") and not self._has_flushed(node.disk, numbers):
            shutil.rmtree(self._folder, ignore_errors=True)
            node.disk.lay_out_flushed(self._folder)
            self._check_copy(node, numbers, "may lead")

    def _check_copy(self, node, numbers, what):
        swap.finish(PlainFiles(), self._folder, NOT_CONTENT)
        record = decoded(self._etcd.model.kept.get("isr"), InSyncRecord.decode)
        found = identity.read(self._folder)
        if record and found and record.members.get(found.node_id.hex(), found.epoch + 1) <= found.epoch:
            lost = sorted(set(numbers) - set(numbers_in(self._folder)))
            if lost:
                self.world.find(f"{node.name} {what} without {lost[:9]} in epoch {record.epoch + 1}")

    def _has_flushed(self, disk, numbers):
        """Whether these are in its folder, in what was flushed, and no sync is under way."""
        names = disk._nodes[disk.root].names
        queues, there = names.get(QUEUES), set()
        for folder in queues.names.values() if isinstance(queues, DiskFolder) else ():
            for name, file in folder.names.items() if isinstance(folder, DiskFolder) else ():
                if isinstance(file, DiskFile) and name.startswith(MSGS):
                    there |= self._numbers_of(file)
        return there.issuperset(numbers) and swap.SYNC not in names

    def _numbers_of(self, file):
        octets, numbers = self._seen.get(file, (None, None))
        if octets is not file.octets:
            octets, numbers = file.octets, set(numbers_of(file.octets, b""))
            self._seen[file] = octets, numbers
        return numbers


def numbers_in(root):
    """The numbers of the messages in a data folder that are not acknowledged there, in their order."""
    numbers = []
    for folder, _, names in sorted(os.walk(os.path.join(root, QUEUES))):
        for name in sorted(names):
            if name.startswith(MSGS):
                msgs, acks = (
                    _octets(os.path.join(folder, kind + name.removeprefix(MSGS))) for kind in (MSGS, ACKS))
                numbers += numbers_of(msgs, acks)
    return numbers


def numbers_of(msgs, acks):
    """The same of one segment, of the content of its two files."""
    proper = head.decode(msgs[:head.HEAD_BYTES], head.MSGS_MAGIC)
    twin = head.decode(acks[:head.HEAD_BYTES], head.ACKS_MAGIC)
    if proper is None and twin is not None:
        proper = twin.twin(head.MSGS_MAGIC)
    if proper is None:
        return []
    twin, numbers = proper.twin(head.ACKS_MAGIC), []
    runs = record.load_acks(acks, twin.seed).runs if acks.startswith(twin.encode()) else []
    scanner = record.RecordScanner(msgs, head.HEAD_BYTES, len(msgs), proper.seed)
    while scanner.next():
        if not record.is_among(scanner.position, runs):
            found = MARK.search(msgs, scanner.position, scanner.position + scanner.size)
            numbers.append(int(found[1]))
    return numbers


def _octets(path):
    with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
        return file.read()
    return b""
