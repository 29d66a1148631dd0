"""What all clients share, row by row of docs/limits.md: a greedy client holds as much of it as it can, for as
long as it can, and an honest one of another user, virtual host or address is served meanwhile.

Each function of DRIPS makes the greedy client, lets the honest one come, and answers how long that waited, in
the unit of its bound: seconds, looks, polls of the loop, or turns of others.
"""
import itertools
import re
from types import SimpleNamespace

import gevent
import pytest

from gomq_py.auth.hash_pool import HashPool
from gomq_py.config.settings import Settings
from gomq_py.hub import admission, backpressure, turns as turns_module
from gomq_py.hub.admission import Admission
from gomq_py.hub.context import Hub
from gomq_py.hub.endings import Endings
from gomq_py.hub.lingering_close import Lingering
from gomq_py.hub.scheduler import BUDGET_OCTETS, Scheduler, SliceClock
from gomq_py.http import clients as http_clients, live
from gomq_py.http.errors import Unavailable
from gomq_py.hub.timers import HubTimers
from gomq_py.hub.turns import PacedTurns
from gomq_py.links.source_reader import LEAST_OCTETS, MemoryBudget
from gomq_py.net.connecting import Lookups
from tests.support.clocks import StepClock
from tests.support.jobs import Doing
from tests.support.queues import HandLoop
from tests.support.sockets import socket_pair
from tests.support.virtual_time import VirtualTime
from tests.support.waiting import in_time, wait_until
from tests.unit.hub.test_budget import LOOK_S, MIB, PATIENCE_S, Bodies, Output, Peer, dripping
from tests.unit.hub.test_backpressure import Clock, Queue, waiting
from tests.unit.hub.test_scheduler import Turning
from tests.unit.net.test_connecting import NameServer
from tests.unit.source_tree import ROOT

GREEDY, HONEST = ("greedy", "/"), ("honest", "/")
FLOOD = 300
NEVER = float("inf")


def memory(kind):
    time = VirtualTime()
    budget = kind(time)
    dripping(budget, time, GREEDY)
    honest, began_s = Peer(budget, HONEST), time.now_s
    budget.take(honest, 60 * MIB)
    while honest.wanted and time.now_s < began_s + PATIENCE_S:
        time.pass_time(LOOK_S)
    budget.budget.close()
    return NEVER if honest.wanted else time.now_s - began_s


def links_memory():
    shares = MemoryBudget()
    for _ in range(FLOOD):
        kept = 0
        while kept < shares.limit(GREEDY):
            shares.keep(LEAST_OCTETS, GREEDY)
            kept += LEAST_OCTETS
    return 0 if shares.limit(HONEST) >= MIB else NEVER


def slow_time(monkeypatch):
    """Polls: each has time for one of those that are busy all the time."""
    monkeypatch.setattr(turns_module, "WALK_S", 0)
    loop, served = HandLoop(), []
    turns = turns_module.SlowTurns(Scheduler(loop=loop))
    turns._loop = SimpleNamespace(iteration=0)

    def busy():
        turns.call(busy)

    for _ in range(FLOOD):
        busy()
    turns.call(lambda: served.append(turns._loop.iteration))
    while not served and turns._loop.iteration < 3 * FLOOD:
        turns._loop.iteration += 1
        loop.poll()
    return served[0] if served else NEVER


def ended_time():
    """Polls until another job has had its turn beside a connection that ends with very many channels."""
    loop, polls = HandLoop(), []
    scheduler = Scheduler(loop=loop)
    endings = Endings(scheduler, lambda: SliceClock(seconds=2.5, clock=StepClock(1)))
    endings.give_back(itertools.repeat(lambda: None, 30 * FLOOD), lambda: None)
    scheduler.start(Doing(lambda: polls.append(1)))
    count = 0
    while not polls:
        count += 1
        assert loop.poll() and endings.are_waiting()
    endings.close()
    return count


def delivery_time():
    """Turns of queues that always have more to deliver, before that of one that has a message."""
    log = []
    scheduler = Scheduler(HandLoop(), turns_clock=SliceClock(0, clock=StepClock(1)))
    for number in range(FLOOD):
        taker = Turning(number, log, BUDGET_OCTETS)
        taker.then = lambda taker=taker: scheduler.later(taker)
        scheduler.later(taker)
    log.clear()
    scheduler.begin(6)
    scheduler.touch(Turning("honest", log))
    scheduler.finish()
    return [name for what, name in log if what == "turn"].index("honest")


def reads():
    """Looks until a publisher of the queue that is flooded is read again."""
    clock = Clock()
    catching, flooded = backpressure.Backpressure(clock.timers), Queue()
    greedy = [waiting(catching, flooded) for _ in range(FLOOD)]
    honest, looks = waiting(catching, flooded), 0
    while honest.held and looks < 10 * backpressure.Backpressure.most_looks:
        clock.look()
        looks += 1
        for each in greedy:
            if not each.held:
                catching.pause_reading(each, [flooded])
    return looks


def logins(monkeypatch):
    """Seconds, where connections come by the thousand from one address, as in the kernel's row of a listener,
    and each of them says nothing.
    """
    time = VirtualTime()
    settings = SimpleNamespace(max_connections_per_address=0, max_pending_logins=FLOOD)
    gate = Admission(settings, time.clock, descriptors=10 * FLOOD).gate("")
    monkeypatch.setattr(admission, "shut_down", lambda _: None)
    numbers = itertools.count()

    def come(host):
        while not gate.has_room(host) and not gate.refuses(host):  # as a listener
            time.pass_time(0.02)
        entered = gate.enter(SimpleNamespace(fileno=lambda number=next(numbers): number), host)
        time.pass_time(0.0001)
        return entered

    for _ in range(FLOOD):
        come("192.0.2.1")
    began_s = time.now_s
    for _ in range(10 * FLOOD):  # those who came before it
        come("192.0.2.1")
    return time.now_s - began_s if come("192.0.2.9") else NEVER


def connections():
    settings = SimpleNamespace(max_connections_per_address=3, max_pending_logins=FLOOD)
    gate = Admission(settings, descriptors=FLOOD).gate("")
    sockets = [SimpleNamespace(fileno=lambda number=number: number) for number in range(10)]
    for one in sockets[:9]:
        admitted = gate.enter(one, "192.0.2.1")
        if gate.identify(one, "192.0.2.1") is None:
            gate.leave(admitted)
    return 0 if gate.enter(sockets[9], "192.0.2.9") and gate.identify(sockets[9], "192.0.2.9") else NEVER


def lingering():
    sockets, ending = [socket_pair() for _ in range(3)], Lingering(HubTimers(), most=2)
    greedy = [gevent.spawn(ending.end, ours) for ours, _ in sockets[:2]]
    wait_until(lambda: len(ending) == 2, sleep=gevent.sleep)
    ending.end(sockets[2][0])  # returns at once: nobody waits for its peer
    ending.close()
    gevent.joinall(greedy, timeout=in_time(30))
    return 0


def hashes():
    """Turns."""
    costly, done = HashPool(1), []
    greedy = [gevent.spawn(costly.run, "greedy", done.append, "greedy") for _ in range(30)]
    honest = gevent.spawn(costly.run, "honest", done.append, "honest")
    gevent.joinall([*greedy, honest], timeout=in_time(30))
    return done.index("honest")


def names():
    """0: while none of the names of the greedy user resolves."""
    server = NameServer()
    lookups = Lookups(server, slow_s=in_time(60))
    greedy = [
        gevent.spawn(lookups.find, f"silent-{number}", 1, in_time(60), GREEDY) for number in range(FLOOD)]
    wait_until(lambda: len(server.asked) == 16, sleep=gevent.sleep)
    try:
        with gevent.Timeout(in_time(30)):
            lookups.find("one.example", 1, in_time(60), HONEST)
        return 0 if not server.let_go.is_set() else NEVER
    finally:
        server.let_go.set()
        gevent.killall(greedy)


def connects():
    """Turns."""
    hub, had = Hub(Settings()), []
    try:
        for _ in range(FLOOD):
            hub.link_turns.ask(lambda: had.append("greedy"), account=GREEDY)
        hub.link_turns.ask(lambda: had.append("honest"), account=HONEST)
        wait_until(lambda: "honest" in had, in_time(30), sleep=gevent.sleep)
    finally:
        hub.close()
        gevent.sleep(0)
    return had.index("honest")


def port_places():
    time = VirtualTime()
    settings = SimpleNamespace(http_max_connections=256, http_max_connections_per_address=128)
    there = http_clients.Clients(settings, lambda: None, time.clock)
    entered = [there.enter(None, "192.0.2.1") for _ in range(FLOOD)]
    there.close()
    return 0 if len(list(filter(None, entered))) == 128 and there.has_room() and there.enter(
        None, "192.0.2.9") else NEVER


def requests():
    """Turns of clients that ask again and again."""
    turns, had = PacedTurns(), []

    def ask():
        while True:
            turns.wait()
            had.append("greedy")

    greedy = [gevent.spawn(ask) for _ in range(128)]
    wait_until(lambda: had, sleep=gevent.sleep)
    before = len(had)
    with gevent.Timeout(in_time(30)):
        turns.wait()
    gevent.killall(greedy)
    return len(had) - before


def streams():
    followers = live.Followers(SimpleNamespace(http_max_connections=256))
    with pytest.raises(Unavailable):
        for _ in range(FLOOD):
            followers.enter(gevent.event.Event(), SimpleNamespace(identity=GREEDY, name="greedy"))
    followers.enter(gevent.event.Event(), SimpleNamespace(identity=HONEST, name="honest"))
    return 0


# Title of the row: (who holds it, the most that the honest one may wait).
DRIPS = {
    "bodies that have not arrived whole": (lambda: memory(Bodies), PATIENCE_S),
    "large messages that clients have not read": (lambda: memory(Output), PATIENCE_S),
    "messages that links keep until they are confirmed": (links_memory, 0),
    "the loop's time, for unusual frames, handshakes and ends of connections": (slow_time, FLOOD + 1),
    "the loop's time, for channels of connections that end": (ended_time, 1),
    "the loop's time, for deliveries and jobs": (delivery_time, 0),
    "publishers that are faster than their consumers": (reads, backpressure.Backpressure.most_looks),
    "places for connections before their login": (logins, admission.PATIENCE_S + 1),
    "connections, and the descriptors of the process": (connections, 0),
    "sockets after the close": (lingering, 0),
    "threads for costly password hashes": (hashes, 2),
    "threads for names that links look up": (names, 0),
    "turns of links to connect": (connects, 2),
    "places at a management port": (port_places, 0),
    "turns of requests at a management port": (requests, 128),
    "streams of events and of the log": (streams, 0),
}


@pytest.mark.parametrize("title", DRIPS)
def test_greedy_client_keeps_an_honest_one_from_nothing(title, monkeypatch):
    hold, most = DRIPS[title]

    waited = hold(monkeypatch) if hold in (slow_time, logins) else hold()

    assert waited <= most


def test_each_row_of_what_all_clients_share_is_dripped_on():
    page = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
    section = page.partition("\n## What all clients share\n")[2].partition("\n## ")[0]

    assert set(re.findall(r"^\| ([^|]+) \|", section, re.MULTILINE)) - {"shared"} == set(DRIPS)
