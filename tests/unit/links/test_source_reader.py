"""The source end of a transfer over a wire, at the moments that a real pair of brokers meets seldom."""
from types import SimpleNamespace

import pytest

from gomq_py.links.relay import Unfit
from gomq_py.links.source_reader import (
    ALL_OCTETS, FRUITLESS_WALKS, LEAST_OCTETS, MOST_OCTETS, LinkBatch, MemoryBudget, SourceReader,
)
from gomq_py.storage.message import Message

PUBLISH = b"\x01\x00\x01\x00\x00\x00\x00\xce"
MIB = 1 << 20


def nothing(*_):
    """Does nothing."""


@pytest.fixture
def refused():
    """A SourceReader that one message was refused to, which may be sent again."""
    owner = SimpleNamespace(
        may_send=lambda: True, may_take=lambda: True, room=lambda: 9, refused=nothing, requeued=nothing,
        settled=nothing, writer=SimpleNamespace(refused={1}),
        link=SimpleNamespace(poison_detection=SimpleNamespace(is_limit=lambda refusals: False)))
    relay = SimpleNamespace(missing=0, others=[], walk=lambda end, most: 0)
    wire = SimpleNamespace(ahead=b"", receive_into=lambda view: 0, write=nothing)
    buffers = SimpleNamespace(input_view=memoryview(bytearray(1 << 17)), memory_budget=MemoryBudget())
    reader = SourceReader(wire, 1, relay, buffers, owner, 9, True)
    batch = LinkBatch(PUBLISH, 1, 1)
    batch.first_number = 1
    reader.unsettled = 1
    reader.keep([batch], "refused")
    return reader


def test_source_is_not_read_in_the_pause_after_a_refusal_nor_before_what_was_refused(refused):
    assert refused.waits()
    assert not refused.has_refused()

    refused.try_again()

    assert refused.waits()
    assert refused.has_refused()
    again = refused.take(Message())
    assert again.octets == PUBLISH
    assert refused.waits()
    refused.drop(again)
    assert not refused.waits()


def test_large_message_that_is_half_sent_is_finished_before_what_was_refused(refused):
    """Frames of another publish in the middle of its body would end the target's connection."""
    refused.relay.missing = 1000
    refused.try_again()

    assert refused.take(Message()) is None
    assert not refused.waits()
    assert not refused.has_refused()
    refused.relay.missing = 0
    assert refused.take(Message()).octets == PUBLISH


def test_message_that_cannot_be_sent_is_walked_past_though_nothing_more_comes(refused):
    """It is known as such from a session before: it is walked once more, to be rejected at its source."""
    reads, walks = [b"deliver"], []

    def receive_into(view):
        octets = reads.pop() if reads else b""
        view[:len(octets)] = octets
        return len(octets)

    def walk(end, most):
        walks.append(end)
        if len(walks) == 1:
            raise Unfit("too large a header", 0)
        return end

    refused.try_again()
    refused.drop(refused.take(Message()))
    refused.wire.receive_into, refused.relay.walk = receive_into, walk
    refused._owner.unfit = lambda error: True
    refused._owner.reject_next = refused._owner.taken = nothing
    refused.relay.count, refused.relay.written, refused.relay.first_tag = 1, 0, 2
    refused.relay.left_out, refused.relay.offset = True, -1
    refused._buffers.output_view = memoryview(b"")

    batch = refused.take(Message())

    assert walks == [len(b"deliver")] * 2
    assert (batch.first_tag, batch.count, batch.is_sent) == (2, 1, False)


def test_source_that_sends_nothing_but_signs_of_life_lets_others_have_their_turn(refused):
    """It sends them faster than they are read: the socket is never empty."""
    reads = []
    refused.try_again()
    refused.drop(refused.take(Message()))
    refused.wire.receive_into = lambda view: reads.append(len(view)) or 8
    refused.relay.walk = lambda end, most: end
    refused.relay.count, refused.relay.written, refused.relay.first_tag = 0, 0, 2
    refused.relay.left_out, refused.relay.offset = False, -1
    refused._buffers.output_view = memoryview(b"")

    assert refused.take(Message()) is None
    assert len(reads) == FRUITLESS_WALKS


def test_what_the_transfer_raises_ends_the_session(refused):
    heard = []
    refused._owner.fail = lambda end, error: heard.append((end, str(error)))

    assert refused.broken(ValueError("a fault")) is False
    refused.set_aside(None, ValueError("another"), False)
    refused.fail(None, ValueError("a third"))

    assert heard == [("link", "a fault"), ("link", "another"), ("link", "a third")]


# what links may keep

def full_of(count, run=64 * 1024):
    """MemoryBudget of so many links that took runs as long as they might, in turn."""
    budget, kept = MemoryBudget(), [0] * count
    while any(one < budget.limit() for one in kept):
        for number in range(count):
            if kept[number] < budget.limit():
                kept[number] += run
                budget.keep(run)
    return budget, kept


@pytest.mark.parametrize("count", [1, 2, 4])
def test_few_links_have_the_most_that_one_may_have(count):
    _, kept = full_of(count)

    assert set(kept) == {MOST_OCTETS}


@pytest.mark.parametrize("count", [20, 49, 300])
def test_many_links_keep_no_more_together_than_all_may_and_leave_something(count):
    budget, kept = full_of(count)

    assert budget.kept_octets <= ALL_OCTETS
    assert max(kept) - min(kept) <= 64 * 1024
    assert budget.limit() >= min(kept) - 64 * 1024


def test_when_nothing_is_left_each_may_keep_the_least():
    budget = MemoryBudget()
    budget.kept_octets = 2 * ALL_OCTETS

    assert budget.limit() == LEAST_OCTETS


def test_links_of_one_user_leave_those_of_another_more_than_the_least():
    budget = MemoryBudget()
    for _ in range(300):
        kept = 0
        while kept < budget.limit(("greedy", "/")):
            budget.keep(LEAST_OCTETS, ("greedy", "/"))
            kept += LEAST_OCTETS
    assert budget.limit(("greedy", "/")) == LEAST_OCTETS

    assert budget.limit(("calm", "/")) >= MIB and budget.limit(("greedy", "calm")) >= MIB


def test_many_users_keep_no_more_than_half_as_much_again_and_the_least_of_each_link():
    budget = MemoryBudget()
    for user in range(100):
        kept = 0
        while kept < budget.limit((user, "/")):
            budget.keep(LEAST_OCTETS, (user, "/"))
            kept += LEAST_OCTETS

    assert budget.kept_octets <= ALL_OCTETS * 3 // 2 + 100 * LEAST_OCTETS


def test_nothing_is_known_of_who_keeps_nothing():
    budget = MemoryBudget()
    budget.keep(5, ("user", "/"))

    budget.keep(-5, ("user", "/"))

    assert budget.kept_octets == 0 and not budget._of_accounts
