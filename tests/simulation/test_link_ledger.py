"""The ledger of links finds what it is for: each promise is broken once by hand."""
from types import SimpleNamespace

import pytest

from tests.simulation.book import Book, Held
from tests.simulation.clock import CLOCK
from tests.simulation.link_ledger import HEARD_S, HEARTBEAT_S, MOST_LATE, ON_CONFIRM, LinkLedger
from tests.simulation.world import World


class Sides:
    """A link of which what the test says is published and comes. ``mode``: its ack-mode."""

    def __init__(self, mode=ON_CONFIRM, kind="shovel"):
        self.world = World(1)
        self.book = Book(self.world)
        self.is_ill = False
        machine = SimpleNamespace(is_ill=lambda: self.is_ill)
        self.ledger = LinkLedger(self.world, "l0", self.book, kind, mode, [machine])
        self.ledger.late = MOST_LATE
        self.ledger.link = SimpleNamespace(is_running=lambda: True, state=lambda: "error")
        self.channel = object()

    @property
    def hand(self):
        """Of a consumer that comes now."""
        return self.ledger.consumer_connects()

    def publish(self):
        """A message that is accepted."""
        self.ledger.publishes()
        message = self.book.publish(self.channel, [self.ledger.source])
        self.book.accept(message)
        return message

    def take(self, message, hand, redelivered=False):
        """It comes, and is acked."""
        hand.ack([hand.take(message, Held(0, None, None), redelivered)])()

    def found(self):
        """What was found, without times."""
        return [finding.split(": ", 1)[1] for finding in self.world.findings]


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """A clock of the test's own."""
    monkeypatch.setattr(CLOCK, "now_s", 100.0)
    return CLOCK


@pytest.mark.parametrize("mode", [ON_CONFIRM, "on-publish", "no-ack"])
def test_message_that_does_not_come_is_lost(mode):
    sides = Sides(mode)
    sides.publish()

    sides.ledger.check_complete()

    assert sides.found() == ["l0-to: accepted and lost, or never delivered: [0] of 1"]


@pytest.mark.parametrize("mode, found", [
    (ON_CONFIRM, ["l0-to: accepted and lost, or never delivered: [0] of 1"]), ("on-publish", []),
    ("no-ack", [])])
def test_only_who_waits_for_confirms_loses_nothing_with_a_kill(mode, found):
    sides = Sides(mode)
    sides.publish()
    sides.ledger.process_ended()

    sides.ledger.check_complete()

    assert sides.found() == found


def test_what_is_published_after_a_kill_is_not_lost_in_any_mode(clock):
    sides = Sides("no-ack")
    sides.ledger.process_ended()
    clock.now_s += 2 * HEARD_S
    sides.publish()

    sides.ledger.check_complete()

    assert sides.found() == ["l0-to: accepted and lost, or never delivered: [0] of 1"]


def test_nobody_hears_of_a_loss_of_power_at_once(clock):
    """A link that settles what it has sent sends until its peer answers with a reset."""
    sides = Sides("on-publish")
    sides.ledger.power_was_cut()
    sides.ledger.process_ended()
    clock.now_s += HEARTBEAT_S
    sides.publish()
    clock.now_s += 2 * HEARTBEAT_S
    sides.publish()

    sides.ledger.check_complete()

    assert sides.found() == ["l0-to: accepted and lost, or never delivered: [1] of 1"]


def test_message_comes_twice_only_where_something_happened(clock):
    sides = Sides()
    hand, first = sides.hand, sides.publish()
    sides.take(first, hand)
    sides.ledger.process_ended()
    clock.now_s += 2 * HEARD_S
    second = sides.publish()
    sides.take(second, hand)

    sides.take(first, hand)
    sides.take(second, hand, redelivered=True)
    assert not sides.found()
    sides.take(second, hand)

    assert sides.found() == ["l0-to: 1 came twice"]


def test_order_is_kept_over_kills_but_not_by_a_disk_that_refuses(clock):
    sides = Sides()
    hand, messages = sides.hand, [sides.publish() for _ in range(4)]
    sides.is_ill = True
    sides.ledger.disk_is_full(True)
    sides.is_ill = False
    sides.ledger.disk_is_full(False)
    for message in messages[1::-1]:
        sides.take(message, hand)
    clock.now_s += 2 * HEARD_S
    later = [sides.publish() for _ in range(2)]
    sides.ledger.process_ended()
    for message in later[::-1]:
        sides.take(message, hand)

    assert sides.found() == ["l0-to: 4 came after 5"]


def test_what_a_disk_refuses_is_excused_while_it_is_ill(clock):
    sides = Sides("on-publish")
    sides.is_ill = True
    sides.publish()
    sides.is_ill = False
    clock.now_s += 2 * HEARD_S
    sides.publish()

    sides.ledger.check_complete()

    assert sides.found() == ["l0-to: accepted and lost, or never delivered: [1] of 1"]


def test_deleted_link_brings_nothing_that_is_published_later(clock):
    sides = Sides()
    hand, before = sides.hand, sides.publish()
    clock.now_s += 1
    sides.ledger.has_gone()
    clock.now_s += 1
    after = sides.publish()
    sides.take(before, hand)
    assert not sides.found()

    sides.take(after, hand)
    assert sides.found() == ["l0-to: 1 came, and was published when there was no link any more"]

    sides.ledger.is_to_come()
    sides.take(sides.publish(), hand)
    assert len(sides.found()) == 1


def test_message_of_another_link_is_found():
    sides, others = Sides(), Sides()

    sides.take(others.publish(), sides.hand)

    assert sides.found() == ["l0-to: 0 came, and was published to ['l0']"]


def test_exchange_upstream_keeps_its_link():
    sides = Sides(kind="exchange")
    message = sides.publish()

    sides.ledger.comes_back(message)

    assert sides.found() == ["l0-to: 0 came back, and the link was up before"]


def test_link_that_does_not_run_in_the_calm_is_found():
    sides = Sides()
    sides.ledger.link.is_running = bool

    assert not sides.ledger.is_complete()
    sides.ledger.check_complete()

    assert sides.found() == ["l0-to: the link does not run: error"]


@pytest.mark.parametrize("reconnects, found", [
    (0, []), (2, ["l0-to: the link was idle, and connected 2 times anew"])])
def test_idle_link_that_connects_anew_in_the_calm_is_found(reconnects, found):
    sides = Sides()

    sides.ledger.stays_up(reconnects)

    assert [finding.split(": ", 1)[1] for finding in sides.world.findings] == found
