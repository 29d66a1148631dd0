"""Every budget that clients share is dripped on: holders that get on by an octet every ten seconds keep
nobody waiting, whatever the budget is for. A new kind of budget needs an entry in KINDS, and whatever else a
hub or its links have in common one in SHARED, a row in docs/limits.md, and tests that
docs/contributing/limits.md names.
"""
import importlib
import pkgutil
import re

import pytest

import gomq_py.hub
import gomq_py.links
from gomq_py.config.settings import Settings
from gomq_py.hub.budget import AT_ONCE, LOOK_S, WINDOW_S, BodyBudget, Budget, LargeOutput
from gomq_py.hub.context import Hub
from gomq_py.links.source_reader import LinkBuffers
from tests.support.virtual_time import VirtualTime
from tests.unit.source_tree import ROOT

MIB = 1 << 20
LIMIT = 256 * MIB
# As many connections as it takes to fill all there is, and to wait for more.
DRIPPING = 40
# When those who were quick at first are known to be slow.
PATIENCE_S = 2 * WINDOW_S + LOOK_S


class Peer:
    """A holder, with the output of its connection."""

    def __init__(self, kind, account):
        self.kind = kind
        self.account = account
        self.output = self
        self.is_held_up = False
        self.sent_octets = 0
        self.waiters = []
        self.wanted = 0  # octets that it could not have yet
        self.resumed = 0
        self.given_up = ""

    def call_when_drained(self, callback):
        self.waiters.append(callback)

    def resume_held(self):
        self.resumed += 1
        if self.wanted:
            self.kind.take(self, self.wanted)

    def give_up(self, why):
        self.given_up = why
        self.drained()

    def drained(self):
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            waiter()


class Bodies:
    """Bodies grow read by read, and wait in the middle."""

    def __init__(self, time):
        self.budget = BodyBudget(LIMIT, time, time.clock)
        self.most = 2 * LIMIT

    def take(self, peer, octets):
        """Have so many octets; what is not had is ``wanted``."""
        peer.wanted = octets
        while peer.wanted:
            count = min(peer.wanted, MIB // 8)
            peer.wanted -= count
            if not self.budget.grow(peer, count):
                break

    def drip(self, peer):
        if not peer.wanted:
            self.budget.grow(peer, 1)

    def done(self, peer):
        self.budget.release(peer)


class Output:
    """Large messages are had as a whole, and go as the client reads."""

    def __init__(self, time):
        self.budget = LargeOutput(LIMIT, time, time.clock)
        self.most = LIMIT

    def take(self, peer, octets):
        peer.wanted = octets
        if self.budget.admit(peer, octets):
            peer.wanted = 0
            self.budget.written(peer, octets)

    def drip(self, peer):
        peer.sent_octets += 1

    def done(self, peer):
        peer.drained()


KINDS = {BodyBudget: Bodies, LargeOutput: Output}
# What a hub and its links have, and which rows of "What all clients share" in docs/limits.md say who may have
# how much of it.
SHARED = {
    "bodies": ["bodies that have not arrived whole"],
    "large_output": ["large messages that clients have not read"],
    "scheduler": ["the loop's time, for deliveries and jobs"],
    "endings": ["the loop's time, for channels of connections that end"],
    "slow_turns": ["the loop's time, for unusual frames, handshakes and ends of connections"],
    "backpressure": ["publishers that are faster than their consumers"],
    "admission": [
        "places for connections before their login", "connections, and the descriptors of the process"],
    "lingering": ["sockets after the close"],
    "memory_budget": ["messages that links keep until they are confirmed"],
    "link_turns": ["turns of links to connect"],
    "net.connecting": ["threads for names that links look up"],
    "auth.hash_pool": ["threads for costly password hashes"],
    "http.clients": ["places at a management port"],
    "http.turns": ["turns of requests at a management port"],
    "http.live": ["streams of events and of the log"],
}
# Nothing of these is kept from others: lists of those that there are, buffers between two turns of the loop,
# and those that bodies lend, which count among the bodies.
UNSHARED = {
    "buffers", "body_buffers", "clients", "coalescer", "gate", "heartbeats", "is_closed", "timers", "input",
    "output", "input_view", "output_view",
}


@pytest.fixture(params=KINDS.values(), ids=lambda kind: kind.__name__)
def kind(request, time):
    kind = request.param(time)
    yield kind
    kind.budget.close()


@pytest.fixture
def time():
    return VirtualTime()


def dripping(kind, time, account, octets=10 * MIB, for_s=60):
    """Connections of one user that take all there is, and then drip."""
    peers = [Peer(kind, account) for _ in range(DRIPPING)]
    for peer in peers:
        kind.take(peer, octets)
    drip(kind, time, peers, for_s)
    return peers


def drip(kind, time, peers, seconds):
    for _ in range(seconds // 10):
        for peer in peers:
            if not peer.given_up:
                kind.drip(peer)
        time.pass_time(10)


def served_in_time(kind, time, account, octets):
    """Whether somebody gets what it wants, in the patience there is with others."""
    peer = Peer(kind, account)
    kind.take(peer, octets)
    for _ in range(int(PATIENCE_S / LOOK_S)):
        if not peer.wanted:
            break
        time.pass_time(LOOK_S)
    return not peer.wanted


def test_every_kind_of_budget_is_dripped_on():
    for package in (gomq_py.hub, gomq_py.links):
        for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
            importlib.import_module(module.name)

    assert set(Budget.__subclasses__()) == set(KINDS)


def shared(name):
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    return page.partition("\n## What all clients share\n")[2].partition("\n## ")[0]


def test_whatever_all_clients_share_has_a_row_and_tests_that_drip_on_it():
    rows, tests_of = (
        dict(re.findall(r"^\| ([^|]+) \|.*? ([^|]+) \|$", shared(page), re.MULTILINE))
        for page in ("limits.md", "contributing/limits.md"))
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    hub = Hub(Settings())
    have = {name for name in (*vars(hub), *vars(LinkBuffers())) if not name.startswith("_")}
    hub.close()

    assert have - UNSHARED == {name for name in SHARED if "." not in name}
    assert set(rows) - {"shared", "---"} == {title for titles in SHARED.values() for title in titles}
    for title in set(rows) - {"shared", "---"}:
        names = re.findall(r"`(test_\w+)`", tests_of[title])
        assert names, title
        assert [name for name in names if f"def {name}(" not in sources] == [], title


@pytest.mark.parametrize("victim", [("guest", "/"), ("other", "/"), ("guest", "other")])
def test_clients_that_drip_keep_nobody_waiting(kind, time, victim):
    dripping(kind, time, ("guest", "/"))

    for octets in (MIB, 10 * MIB, 60 * MIB):
        assert served_in_time(kind, time, victim, octets)
    assert kind.budget.held <= kind.most


def test_clients_that_have_just_begun_to_drip_keep_nobody_waiting(kind, time):
    dripping(kind, time, ("guest", "/"), for_s=0)

    assert served_in_time(kind, time, ("guest", "/"), 60 * MIB)


def test_another_user_is_served_at_once_though_nobody_is_known_to_be_slow(kind, time):
    dripping(kind, time, ("guest", "/"), octets=40 * MIB, for_s=0)
    calm = Peer(kind, ("other", "/"))

    kind.take(calm, 10 * MIB)

    assert not calm.wanted and kind.budget.held <= kind.most


def test_slow_clients_are_left_alone_while_nobody_waits(kind, time):
    peers = [Peer(kind, ("guest", "/")) for _ in range(10)]
    for peer in peers:
        kind.take(peer, 10 * MIB)

    drip(kind, time, peers, 3600)

    assert not any(peer.given_up or peer.resumed for peer in peers) and not time.calls


def test_slow_client_within_its_share_is_left_alone_while_others_wait(kind, time):
    device = Peer(kind, ("device", "/"))
    kind.take(device, MIB)
    for _ in range(20):
        dripping(kind, time, ("guest", "/"), for_s=10)
        kind.drip(device)

    assert not device.given_up


def test_client_of_a_slow_link_gets_ten_megabytes_through_while_others_are_at_the_edge(kind, time):
    """At 50 KB a second, far below the least speed: it is within its share, which others leave it."""
    honest, drippers, at_the_edge = Peer(kind, ("honest", "/")), [], 0
    for second in range(200):
        drippers = [peer for peer in drippers if not peer.given_up]
        drippers += [Peer(kind, ("guest", "/")) for _ in range(DRIPPING - len(drippers))]
        for peer in drippers:
            if peer in kind.budget._holders:
                kind.drip(peer)
            else:
                kind.take(peer, 10 * MIB)
        at_the_edge += bool(kind.budget._waiting)
        if isinstance(kind, Bodies):
            kind.take(honest, 50_000)
        elif not second:
            kind.take(honest, 10 * MIB)
        honest.sent_octets += 50_000
        time.pass_time(1)
        assert not honest.wanted and not honest.given_up

    assert at_the_edge > 100


def test_only_as_many_give_way_as_others_need(kind, time):
    peers = [Peer(kind, ("guest", "/")) for _ in range(kind.budget.limit // (40 * MIB))]
    for peer in peers:
        kind.take(peer, 40 * MIB)
    drip(kind, time, peers, 100)

    assert served_in_time(kind, time, ("guest", "/"), 40 * MIB)
    assert len([peer for peer in peers if peer.given_up]) == 1


def test_message_larger_than_what_is_left_of_the_shares_passes_though_nobody_gives_way(kind, time):
    slow = [Peer(kind, (f"user {number}", "/")) for number in range(50)]
    for octets in (2 * MIB, MIB, MIB):
        for peer in slow:
            kind.take(peer, octets)
    drip(kind, time, slow, 60)

    for _ in range(3):
        calm = Peer(kind, ("calm", "/"))
        kind.take(calm, LIMIT // 2)
        time.pass_time(PATIENCE_S)
        assert not calm.wanted
        kind.done(calm)
    assert not any(peer.given_up for peer in slow)


def test_thousands_that_wait_are_looked_at_and_go_on_some_at_a_time(kind, time):
    looks = 0

    class Counted(Peer):
        @property
        def output(self):
            nonlocal looks
            looks += 1
            return self

        @output.setter
        def output(self, _):
            pass

    holders = [Peer(kind, ("guest", "/")) for _ in range(DRIPPING)]
    for peer in holders:
        kind.take(peer, 16 * MIB)
    waiters = [Counted(kind, (f"user {number % 7}", "/")) for number in range(2000)]
    for peer in waiters:
        kind.take(peer, MIB // 16)
        peer.wanted = 0
    looks, waiting = 0, [peer for peer in waiters if peer in kind.budget._waiting]
    assert len(waiting) > 300

    for peer in holders:
        kind.budget.forget(peer)
        kind.done(peer)
        assert sum(peer.resumed for peer in waiters) <= 2 * AT_ONCE
    time.pass_time(60)

    assert all(peer.resumed for peer in waiting)
    assert looks < 30 * len(waiting)


def test_one_that_cannot_be_given_up_keeps_nobody_waiting(kind, time, caplog):
    class Broken(Peer):
        def give_up(self, why):
            raise OSError("no")

    broken = Broken(kind, ("guest", "/"))
    kind.take(broken, 60 * MIB)
    dripping(kind, time, ("guest", "/"))

    assert served_in_time(kind, time, ("guest", "/"), 60 * MIB)
    assert "cannot be given up" in caplog.text


def test_what_is_held_comes_to_nothing_when_all_is_done(kind, time):
    peers = dripping(kind, time, ("guest", "/"))

    for _ in range(2):
        for peer in peers:
            peer.wanted = 0
            kind.budget.forget(peer)
            kind.done(peer)

    budget = kind.budget
    assert (budget.held, budget._holders, budget._of_output, budget._of_account) == (0, {}, {}, {})
