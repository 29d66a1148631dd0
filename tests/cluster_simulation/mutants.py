"""Mutants: faults of the core, or of what its users must do, that the simulation has to find when they are
switched on. ``MUTANTS[name](world)`` before the Scenario runs.
"""
from gomq_py.cluster.core import elector as electors
from gomq_py.cluster.core.elector import Elector
from gomq_py.cluster.core.in_sync import InSync
from gomq_py.cluster.core.records import IN_SYNC, LEADER, InSyncRecord, decoded
from gomq_py.cluster.core.transactions import MOD
from tests.cluster_simulation.folder import Folder
from tests.cluster_simulation.link import Follower
from tests.cluster_simulation.program import Program

MUTANTS = {}


def mutant(function):
    """Register a function of ``patch(owner, name, value)`` under its own name."""
    MUTANTS[function.__name__] = function
    return function


@mutant
def election_ignores_isr(patch):
    """Whoever has a copy is elected."""
    _without_reason(patch, "is not in sync")


@mutant
def election_ignores_epochs(patch):
    """An older folder that was put back leads."""
    _without_reason(patch, "but was in sync in epoch")


@mutant
def election_ignores_positions(patch):
    """An older folder of the same epoch that was put back leads."""
    _without_reason(patch, "but had come to")


@mutant
def positions_not_written(patch):
    """``isr`` does not say how far its members are."""
    patch(InSync, "_noted", lambda self, members, progress: dict(self._positions))


@mutant
def failed_flush_forgotten(patch):
    """A node whose flush has failed leads after a restart, with what is not on its disk."""
    _without_reason(patch, "may not be on its disk")


def _without_reason(patch, words):
    def why_not(self, view):
        why = original(self, view)
        return "" if self.cluster and words in why else why

    original = Elector._why_not
    patch(Elector, "_why_not", why_not)


@mutant
def election_does_not_compare_isr(patch):
    """``isr`` may have changed since it was read."""
    def election(self, view, nobody):
        compares, *others = original(self, view, nobody)
        return tuple(one for one in compares if (one.key, one.target) != (IN_SYNC, MOD)), *others

    original = Elector._election
    patch(Elector, "_election", election)


@mutant
def isr_written_unguarded(patch):
    """A former leader changes ``isr``. (Comparing either key finds it out, since an election writes both.)"""
    _without_compares(patch, LEADER, IN_SYNC)


@mutant
def isr_written_without_comparing_itself(patch):
    """A change without an answer may be made after a later one."""
    _without_compares(patch, IN_SYNC)


def _without_compares(patch, *keys):
    def step(self, *arguments):
        transaction = original(self, *arguments)
        return transaction and transaction._replace(
            compares=tuple(one for one in transaction.compares if one.key not in keys))

    original = InSync.step
    patch(InSync, "step", step)


@mutant
def promise_before_the_removal_is_answered(patch):
    """Who is to be removed is not waited for."""
    def count(self):
        original(self)
        if self._is_under_way:
            self.required = frozenset(self._pending[-1].keys() - {self._node})

    original = InSync._update_required
    patch(InSync, "_update_required", count)


@mutant
def pending_not_counted(patch):
    """A change without an answer is taken for one that was not made."""
    def unanswered(self):
        self.not_done()
        self._joining.clear()
        self._update_required()

    patch(InSync, "unanswered", unanswered)


@mutant
def admitted_before_it_has_what_was_promised(patch):
    """Who streams is admitted."""
    def wanted(self, progress, promised):
        return original(self, progress, 0)

    original = InSync._wanted
    patch(InSync, "_wanted", wanted)


@mutant
def admitted_before_it_is_required(patch):
    """Who is to be admitted is required when the change is answered."""
    def count(self):
        original(self)
        self.required = frozenset(self._known.keys() - {self._node})

    original = InSync._update_required
    patch(InSync, "_update_required", count)


@mutant
def sync_in_place(patch):
    """A sync overwrites the folder while it comes."""
    def stage(self, operations):
        if not self._staging:
            self.folder.operations = []
        self._staging += operations
        self.folder.operations = list(self._staging)
        self.folder.flushed = len(self._staging) // 2

    patch(Follower, "_stage", stage)


@mutant
def acknowledged_before_the_swap(patch):
    """What a sync has brought counts before it is in the folder."""
    def begin(self, link, attempt):
        yield from original(self, link, attempt)
        self._may_acknowledge = True

    def acknowledges(self):
        return self.folder.flushed if self._staging is None else len(self._staging)

    original = Follower._begin
    patch(Follower, "_begin", begin)
    patch(Follower, "_acknowledges", acknowledges)


@mutant
def acknowledged_when_received(patch):
    """What was received counts before it is flushed."""
    patch(Follower, "_acknowledges", lambda self: len(self.folder.operations))


@mutant
def lower_epoch_taken(patch):
    """A follower takes the state of a former leader."""
    def log_in(self, follower, hello):
        return original(self, follower, hello._replace(epoch=0))

    def swap(self, operations, cluster, epoch):
        swapped(self, operations, cluster, max(epoch, self.epoch))

    original, swapped = Program.log_in, Folder.swap
    patch(Program, "log_in", log_in)
    patch(Follower, "takes", lambda self, link: not link.is_ended)
    patch(Folder, "swap", swap)


@mutant
def barrier_missing(patch):
    """A follower does not flush where its leader has."""
    patch(Follower, "_apply", lambda self, operation: self.folder.operations.append(operation))


@mutant
def leads_without_a_flush(patch):
    """What was received is not flushed by who leads."""
    def flush_all(self):
        yield 0.001

    patch(Program, "_flush_all", flush_all)


@mutant
def leader_not_raised_in_isr(patch):
    """Doors open before ``isr`` says that the leader's folder is of its epoch."""
    def wanted(self, progress, promised):
        members = original(self, progress, promised)
        members[self._node] = min(members[self._node], self._known.get(self._node, 0))
        return members

    original = InSync._wanted
    patch(InSync, "_wanted", wanted)
    patch(InSync, "is_open", True)
    patch(InSync, "may_promise", property(lambda self: self.has_enough and not self.is_deposed))


@mutant
def followers_not_raised_in_isr(patch):
    """Members stay with the epoch that they were admitted in."""
    def wanted(self, progress, promised):
        members = original(self, progress, promised)
        return {
            node: epoch if node == self._node else self._known.get(node, epoch)
            for node, epoch in members.items()}

    original = InSync._wanted
    patch(InSync, "_wanted", wanted)
    patch(InSync, "may_promise", property(
        lambda self: self.has_enough and self.is_open and not self.is_deposed))


@mutant
def leader_of_an_earlier_process_taken(patch):
    """A node leads by the election that an earlier process of it has won."""
    def mine(self, view, kept, leader):
        self.lease = kept.lease
        return original(self, view, kept, leader)

    def lead(self, leads):
        self.lease.answered(self.clock_s(), True)
        yield from led(self, leads)

    original, led = Elector._named_leader, Program._lead
    patch(Elector, "_named_leader", mine)
    patch(Program, "_lead", lead)


@mutant
def again_though_another_has_led(patch):
    """A leader that has lost its lease goes on, whoever was elected since."""
    def still(self, leads, view):
        record = decoded(view.in_sync, InSyncRecord.decode)
        if view.leader is None and record is not None and record.epoch > leads.epoch:
            return electors.Again(*self._election(view, electors.Compare(LEADER, "create", 0)))
        return original(self, leads, view)

    original = Elector._as_leader
    patch(Elector, "_as_leader", still)
