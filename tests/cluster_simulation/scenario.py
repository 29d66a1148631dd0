"""Scenario: two to five nodes under faults that a seed draws, then time to recover, judged all along."""
from gomq_py.cluster.core.records import InSyncRecord, decoded
from tests.cluster_simulation.judge import Judge, electable, may_lead
from tests.cluster_simulation.node import Node
from tests.cluster_simulation.world import World

STORM_S = 25.0
RECOVERY_S = 30.0
# A node that was removed several times streams up to a minute before it is admitted again.
FLAPPED_S = 100.0


class Scenario(World):
    """``run()``, once. ``faults``: names of Faults' methods that happen, or all."""

    def __init__(self, seed, trace=None, storm_s=STORM_S):
        super().__init__(seed, trace)
        random = self.random
        self.lease_ttl_s = random.choice((2.0, 3.0, 5.0))
        self.ack_timeout_s = random.choice((0.6, 1.0, 3.0))
        self.note_s = random.choice((0.5, 2.0, 5.0))
        self.min_isr = random.choice((1, 1, 2))
        self.slow_disk = random.choice((0.0, 0.02, 0.1))
        self.storm_s = storm_s
        self.listening = {}  # address -> Program
        self.judge = Judge(self)
        self._records = self._runs = 0
        self.counts = {}  # name of a fault -> how often it came
        self.nodes = [Node(self, name) for name in "abcde"[:random.choice((2, 3, 3, 3, 3, 5))]]
        self.empties_etcd = random.random() < 0.08
        self.forces = random.random() < 0.08
        self.has_long_boots = random.random() < 0.3
        self.scribbled = set()  # keys that an operator will put back
        self.waits_for_operator = []  # nodes of which one is to be adopted
        self.is_misrouting = random.random() < 0.4  # an address may be another leader's, too

    # what nodes ask

    def new_id(self):
        """32 random hex digits."""
        return f"{self.random.getrandbits(128):032x}"

    def new_run(self):
        """A number that no other run of a program has."""
        self._runs += 1
        return self._runs

    def new_record(self):
        """The next record."""
        self._records += 1
        return self._records

    def flush_s(self):
        """How long a flush takes."""
        if self.random.random() < self.slow_disk:
            return self.random.uniform(0.05, 1.5)
        return self.random.uniform(0.001, 0.02)

    def boot_s(self):
        """How long an elected node reads its folder."""
        if self.has_long_boots and self.random.random() < 0.5:
            return self.random.uniform(0.5, 8.0)
        return self.random.uniform(0.001, 0.05)

    def reached(self, address):
        """The program that answers at an address, or None."""
        if self.is_misrouting and self.random.random() < 0.3 and self.listening:
            return self.random.choice(list(self.listening.values()))
        return self.listening.get(address)

    # the run

    def run_all(self):
        """Run. Returns the texts of the faults that were found."""
        self.random.shuffle(self.nodes)
        for node in self.nodes:
            self.after(self.random.uniform(0, 1), node.boot)
        self.run(3.0)
        self._plan()
        self.run(3.0 + self.storm_s)
        self._heal()
        if not self.run(self.now_s + RECOVERY_S, self._has_recovered) and electable(self) and not (
                self._has_flapped() and self.run(self.now_s + FLAPPED_S, self._has_recovered)):
            self.judge.faults.append(f"it has not recovered: {self._state()}")
        return self.judge.faults

    def _plan(self):
        from tests.cluster_simulation.faults import FAULTS
        random = self.random
        names = sorted(FAULTS)
        chosen = random.sample(names, random.randint(1, len(names)))
        rate_s = random.choice((0.5, 1.0, 2.0, 4.0))
        at_s = random.expovariate(1 / rate_s)
        while at_s < self.storm_s:
            self.after(at_s, self._strike, random.choice(chosen))
            at_s += random.expovariate(1 / rate_s)

    def _strike(self, name):
        from tests.cluster_simulation.faults import FAULTS
        self.counts[name] = self.counts.get(name, 0) + 1
        self.note("-- %s", name)
        FAULTS[name](self)

    def _heal(self):
        self.note("-- heal")
        self.cuts.clear()
        self.loss = self.slow_s = self.slow_disk = 0.0
        self.holds = self.etcd.is_refused = self.is_misrouting = self.has_long_boots = False
        for node in self.nodes:
            node.boot()
        self._confirmed_before = len(self.judge.confirmed)

    def _has_recovered(self):
        leading = [node.program for node in self.nodes if node.program and node.program.are_doors_open]
        return (
            not self.waits_for_operator and len(leading) == 1 and leading[0].in_sync is not None
            and set(leading[0].in_sync.members) == {node.folder.node_id for node in self.nodes}
            and len(self.judge.confirmed) > self._confirmed_before + 5
            and not any(self._leads_without_all(folder) for node in self.nodes for folder in node.backups))

    def _leads_without_all(self, folder):
        record = decoded(self.etcd.kept.get("isr"), InSyncRecord.decode)
        return record is not None and may_lead(record, folder) and not self.judge.has_all(folder)

    def _has_flapped(self):
        return any(
            len(removals) > 2 for node in self.nodes if node.program.in_sync
            for removals in node.program.in_sync._pace._removals.values())

    def _state(self):
        said = [f"{len(self.judge.confirmed) - self._confirmed_before} promised"]
        for node in self.nodes:
            said.append(f"{node}: {node.program.elector._last}")
            if node.program.in_sync:
                said.append(f"members {dict(node.program.in_sync.members)}")
        return "; ".join(said)
