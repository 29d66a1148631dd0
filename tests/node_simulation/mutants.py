"""Mutants: faults of the nodes' runtime, or of what it relies on, that the simulation must find.

``MUTANTS[name]()`` puts one into this process, for good.
"""
from gomq_py.cluster.applier import Applier
from gomq_py.cluster.elected import ElectedMembership
from gomq_py.cluster.identity import IdentityFile
from gomq_py.cluster.leader import Leader
from gomq_py.cluster.leadership import Leadership
from gomq_py.cluster.replica import Replica
from gomq_py.cluster.staging import Staging
from gomq_py.hub.gate import Gate

MUTANTS = {}


def mutant(function):
    """Register a function under its name."""
    MUTANTS[function.__name__] = function
    return function


@mutant
def acknowledged_when_received():
    """What a follower has received counts before it is flushed."""
    Leader._counted = lambda leader, link: link.acked.received


@mutant
def flushed_when_applied():
    """A follower says that what it has applied is flushed, and is in no hurry to flush it."""
    def work(applier, batch, is_due):
        done, is_flushed = original(applier, batch, is_due)
        if applier.staging is None:
            applier.flushed = applier._applied
        return done, is_flushed

    original = Applier._work
    Applier._work = work
    Replica.hurry = lambda replica: None  # else it flushes what a promise waits for before it says so


@mutant
def promises_do_not_wait():
    """The local disk is enough."""
    ElectedMembership.guard = lambda membership, durability: None


@mutant
def sync_swapped_before_its_flush():
    """A sync takes the folder's place while some of it is in memory only."""
    Staging._flush_everything = lambda staging: None


@mutant
def deposed_leader_keeps_its_promises():
    """A leader that leads no more answers what waits, as if it were safe."""
    def end(leadership):
        leadership._has_ended = True
        leadership.promises.require(())
        leadership.promises.hold(False)
        leadership.stop()

    Leadership.end = end


@mutant
def identity_not_written_when_elected():
    """The epoch of an elected node is in its memory only."""
    def take(file, cluster_id, epoch, unflushed=""):
        file.identity = file.identity._replace(
            cluster_id=cluster_id, epoch=epoch, position=0, unflushed=unflushed)

    IdentityFile.take = take


@mutant
def barrier_missing():
    """A follower does not flush where its leader has."""
    Replica._begin = lambda replica: None


@mutant
def gate_not_shut():
    """A fenced leader delivers."""
    Gate.shut = lambda gate: None


@mutant
def clock_not_looked_at():
    """A leader is fenced when it looks at its followers next."""
    Leadership._look_at_clock = lambda leadership: None
