"""Whatever clients do with what they share, the sums are those of what is held, nobody is forgotten who
waits, and nothing is left when all have gone.
"""
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test,
)

from tests.support.virtual_time import VirtualTime
from tests.unit.hub.test_budget import KINDS, LIMIT, MIB, Peer

USERS = [("one", "/"), ("two", "/"), ("one", "other")]
# Long enough for all of those that drip to be given up one after the other.
LONG_S = 600


class Channel:
    """One more holder of the connection of a peer."""

    def __init__(self, peer):
        self.output = peer
        self.is_held_up = False
        self.sent_octets = peer.sent_octets
        self.wanted = 0
        self.resumed = 0
        self.given_up = ""
        self.kind = peer.kind

    resume_held = Peer.resume_held

    def drained(self):
        """Its connection's output."""
        self.output.drained()

    def give_up(self, why):
        self.given_up = why
        self.output.give_up(why)


class Clients(RuleBasedStateMachine):
    """Of a ``made`` kind of budget."""

    made = None

    def __init__(self):
        super().__init__()
        self.time = VirtualTime()
        self.kind = self.made(self.time)
        self.peers = []
        self.holders = []

    @initialize()
    def begin(self):
        for user in USERS:
            self.connect(user)

    @rule(user=st.sampled_from(USERS))
    def connect(self, user):
        peer = Peer(self.kind, user)
        self.peers.append(peer)
        self.holders.append(peer)

    @precondition(lambda self: self.peers)
    @rule(data=st.data())
    def open(self, data):
        self.holders.append(Channel(data.draw(st.sampled_from(self.peers))))

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), octets=st.sampled_from([0, 1, MIB, 10 * MIB, 60 * MIB, LIMIT]))
    def take(self, data, octets):
        holder = data.draw(st.sampled_from(self.holders))
        if not holder.wanted and not holder.given_up:
            self.kind.take(holder, octets)

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def drip(self, data):
        holder = data.draw(st.sampled_from(self.holders))
        if not holder.given_up:
            self.kind.drip(holder)

    @precondition(lambda self: self.peers)
    @rule(data=st.data())
    def leave(self, data):
        """In the middle, with all its channels."""
        self.drop(data.draw(st.sampled_from(self.peers)))

    def drop(self, peer):
        self.peers.remove(peer)
        for holder in [one for one in self.holders if one.output is peer]:
            self.holders.remove(holder)
            holder.wanted = 0
            self.kind.budget.forget(holder)
            self.kind.done(holder)
        peer.drained()

    @rule(octets=st.sampled_from([MIB, LIMIT]))
    def store(self, octets):
        """A message waits for files, and is stored."""
        if hasattr(self.kind.budget, "count_whole"):
            self.kind.budget.count_whole(octets)
            self.time.pass_time(1)
            self.kind.budget.count_whole(-octets)

    @rule(seconds=st.sampled_from([0, 0.25, 1, 10]))
    def pass_time(self, seconds):
        self.time.pass_time(seconds)
        for peer in list(self.peers):
            if peer.given_up:
                self.drop(peer)

    @invariant()
    def sums_are_those_of_what_is_held(self):
        budget = self.kind.budget
        held = budget._holders.values()
        assert budget.held == sum(one.octets for one in held)
        assert nonzero(budget._of_output) == sums((one.output, one.octets) for one in held)
        assert nonzero(budget._of_account) == sums((one.account, one.octets) for one in held)
        rows = {account: set(row) for account, row in budget._rows.items()}
        assert set().union(*rows.values()) == set(budget._waiting) and all(rows.values())
        assert budget._wanted == sum(octets for octets, _ in budget._waiting.values())

    def teardown(self):
        """Those that others wait for get on no more, and are given up; then all leave."""
        for _ in range(LONG_S):
            self.pass_time(1)
        assert not self.kind.budget._waiting
        for peer in list(self.peers):
            self.drop(peer)
        budget = self.kind.budget
        assert (budget.held, budget._holders, budget._of_output, budget._of_account, budget._rows) == (
            0, {}, {}, {}, {})
        assert not getattr(budget, "_turns", None)
        budget.close()


def sums(pairs):
    found = {}
    for key, octets in pairs:
        found[key] = found.get(key, 0) + octets
    return nonzero(found)


def nonzero(found):
    return {key: octets for key, octets in found.items() if octets}


@pytest.mark.parametrize("made", KINDS.values(), ids=lambda made: made.__name__)
def test_whatever_clients_do_the_sums_are_right_and_nothing_is_left(made):
    machine = type(made.__name__, (Clients,), {"made": made})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=30, stateful_step_count=30, deadline=None, derandomize=True))
