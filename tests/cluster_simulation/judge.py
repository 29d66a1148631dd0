"""Judge: what must hold, whatever happens.

- Every record that was promised is in the folder of each leader that opens its doors afterwards, once, and
  those of one leader in their order.
- When a record is promised, every node that could be elected has it on its disk, and each leader of a later
  epoch has it, too.
- One run of one node promises in an epoch.
"""
from gomq_py.cluster.core.records import LEADER, InSyncRecord, LeaderRecord, decoded


class Judge:
    """``world.judge``. ``faults``: texts, one for each finding."""

    def __init__(self, world):
        self.world = world
        self.faults = []
        self.confirmed = {}  # record -> (run that has promised it, its epoch), in the order of promises
        self.opened_count = 0
        self._leaders = []  # (epoch, program)
        self._runs = {}  # epoch -> run that promises in it
        self._forced = 0  # last epoch whose leaders a forced one has not heard of

    def has_all(self, folder, epoch=float("inf")):
        """Whether a folder has everything that was promised in an epoch and before, or at all."""
        there = set(folder.records())
        return all(record in there for record, (_, of) in self.confirmed.items() if of <= epoch)

    def forced(self, folder):
        """An operator has a node lead: what it lacks is lost, and what former leaders promise from now on."""
        there = set(folder.records())
        self.confirmed = {record: by for record, by in self.confirmed.items() if record in there}
        record = decoded(self.world.etcd.kept["isr"], InSyncRecord.decode)
        self._forced = record.epoch

    def has_other_state(self, node):
        """The folder of a node is another one than before: it starts, or has swapped a sync in."""
        if node in electable(self.world):
            self._check_all(node, node.folder.records(), "may lead")

    def opened(self, program):
        """The program opens its doors."""
        self.opened_count += 1
        epoch = program.leads.epoch
        records = program.folder.records()
        self.world.note("%s opens its doors in epoch %d with %d", program.node, epoch, len(records))
        self._leaders.append((epoch, program))
        # a leader whose clock hides that it leads no more cannot have what its successor has promised
        leads = leader_of(self.world) == (program.node.folder.node_id, epoch)
        self._check_all(program.node, records, f"leads in epoch {epoch}", float("inf") if leads else epoch)
        last = {}
        for record in records:
            run, _ = self.confirmed.get(record, (None, 0))
            if run is not None and record < last.get(run, 0):
                self._found("%s has records out of order in epoch %d", program.node, epoch)
            last[run] = record

    def promised(self, program, records):
        """The program has promised records."""
        epoch = program.leads.epoch
        if epoch <= self._forced:
            return
        if self._runs.setdefault(epoch, program.run) != program.run:
            self._found("two promise in epoch %d, the second is %s", epoch, program.node)
        for record in records:
            self.confirmed[record] = program.run, epoch
        self.world.note("%s promises %s", program.node, records)
        first = records[0]
        for node in electable(self.world):
            if first not in node.folder.records(only_flushed=True):
                self._found("%s promises %d in epoch %d, which %s may lead without",
                            program.node, first, epoch, node)
        for later, other in self._leaders:
            if later > epoch and other.is_alive and first not in other.folder.records():
                self._found("%s promises %d in epoch %d, which %s leads without in %d",
                            program.node, first, epoch, other.node, later)

    def _check_all(self, node, records, what, epoch=float("inf")):
        there = set(records)
        if len(there) < len(records):
            self._found("%s %s with a record that is there twice", node, what)
        lost = [record for record, (_, of) in self.confirmed.items() if of <= epoch and record not in there]
        if lost:
            self._found("%s %s without %d of %d promised records, such as %d",
                        node, what, len(lost), len(self.confirmed), lost[0])

    def _found(self, text, *arguments):
        self.world.note("FAULT " + text, *arguments)
        self.faults.append(f"{self.world.now_s:.3f} s: {text % arguments}")


def leader_of(world):
    """(node id, epoch) of the leader that etcd names; None if there is none."""
    record = decoded(world.etcd.kept.get(LEADER), LeaderRecord.decode)
    return None if record is None else (record.node, record.epoch)


def electable(world):
    """The nodes that etcd allows to be elected, by what it has now, if nobody leads."""
    record = decoded(world.etcd.kept.get("isr"), InSyncRecord.decode)
    if record is None:
        return []
    return [node for node in world.nodes if may_lead(record, node.folder)]


def may_lead(record, folder):
    """Whether the ``isr`` allows that a node with this folder is elected."""
    node = folder.node_id
    return node in record.members and record.place(node) <= (folder.epoch, folder.position) and (
        not folder.is_torn or len(record.members) == 1)
