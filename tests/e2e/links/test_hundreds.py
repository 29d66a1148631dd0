"""Hundreds of links to peers that hang, and one that has nothing to do with them."""
import threading
from functools import partial

import gevent
import pytest

from gomq_py.config.settings import Settings
from gomq_py.links import link as links_link
from gomq_py.links import wire
from gomq_py.links.source_reader import LEAST_OCTETS, MemoryBudget, buffers_of
from gomq_py.links.ends import SourceEnd, TargetEnd
from gomq_py.links.local import Connector
from gomq_py.net.connecting import THREADS_MOST, Lookups
from tests.support.federated import start_gomq
from tests.support.hanging import hanging_peers
from tests.support.links import connect, ended, fill, numbers, take_all, until
from tests.support.ports import reserve
from tests.support.shovels import arrived, publish, put, wait_for
from tests.support.waiting import in_time, wait_until

COUNT = 300
MIB = 1024 * 1024
# As it is told where connecting to such a peer is over.
TOLD = {
    "TCP": "no TCP connection to", "TLS": "TLS: that end does not answer the handshake",
    "start": "connection.start was awaited", "tune": "connection.tune was awaited",
}


@pytest.fixture
def hanging():
    with hanging_peers() as uris:
        yield uris


@pytest.fixture
def here(tmp_path):
    """A broker of the test's own."""
    peer = start_gomq(tmp_path / "data", "here", port=reserve())
    yield peer
    peer.hang_up()
    if peer.process.is_running:
        peer.process.kill()


def test_a_shovel_behind_three_hundred_to_peers_that_hang_starts_and_so_does_the_brokers_end(here, hanging):
    """Half of them hang at their source, half at their destination; first all at once, when they are set, and
    again when the broker boots.
    """
    for number in range(COUNT):
        uri = list(hanging.values())[number % len(hanging)]
        ends = (uri, "amqp://") if number // len(hanging) % 2 else ("amqp://", uri)
        put(here, "/", {
            "src-uri": ends[0], "src-queue": "a", "dest-uri": ends[1], "dest-queue": "b",
            "reconnect-delay": 1}, name=f"hangs-{number}")

    put(here, "/", {"src-uri": "amqp://", "src-queue": "c", "dest-uri": here.uri("/"), "dest-queue": "d"})

    wait_for(here, "/", state="running")
    publish(here, "/", range(10), queue="c")
    assert arrived(here, "/", 10, queue="d") == list(range(10))
    here.hang_up()
    assert here.process.stop() == 0
    here.process.start()
    here.http_url = f"http://127.0.0.1:{here.process.ports['http']}"
    wait_for(here, "/", state="running")
    publish(here, "/", range(10), queue="c")
    assert arrived(here, "/", 10, queue="d") == list(range(10))
    assert len(here.call("GET", "shovels")) == COUNT + 1


@pytest.mark.parametrize("step", TOLD)
def test_the_step_at_which_an_end_hangs_is_told(here, hanging, step):
    uri = f"{hanging[step]}?connection_timeout=200"
    put(here, "/", {"src-uri": "amqp://", "src-queue": "a", "dest-uri": uri, "reconnect-delay": 0.1})

    def is_told():
        error = here.call("GET", "shovels", "/", "s")["error"]
        return error.startswith("destination: ") and TOLD[step] in error
    wait_until(is_told, what=lambda: here.call("GET", "shovels", "/", "s"))


def test_links_to_peers_that_take_nothing_share_what_they_keep(
        hub, make_link, pair, queues, name, taking_nothing, monkeypatch):
    """Without budget, twelve would keep 512 KiB each, and more than one read."""
    monkeypatch.setattr(links_link, "DRAIN_S", 0.1)
    monkeypatch.setattr(wire, "PARTING_S", 0.1)
    budget = buffers_of(hub).memory_budget = MemoryBudget(2 * MIB, MIB // 2)
    one, two = pair
    _, source, target = queues
    other = f"{name}-other"
    for channel in (source, target):
        channel.queue_declare(other, durable=True)
    body = b"%d " + bytes(16 * 1024)
    fill(source, name, 12 * 64, body=body)  # as many as they prefetch
    links = [
        make_link(
            SourceEnd(one.amqp_url, name, prefetch=64), TargetEnd(taking_nothing.url, "", name),
            connect=partial(connect, heartbeat_s=0))
        for _ in range(12)]
    most = 0

    def has_each(octets):
        nonlocal most
        most = max(most, budget.kept_octets)
        return all(link.status.unconfirmed * len(body) >= octets for link in links)
    for link in links:
        link.start()
    until(lambda: has_each(LEAST_OCTETS), what=lambda: [link.status for link in links])
    healthy = make_link(SourceEnd(one.amqp_url, other), TargetEnd(two.amqp_url, "", other))
    healthy.start()
    fill(source, other, 300, body=body)

    until(lambda: has_each(LEAST_OCTETS) and healthy.status.moved == 300, what=lambda: healthy.status)
    assert MIB < most <= 3 * MIB
    for link in [healthy, *links]:
        ended(link)
    assert budget.kept_octets == 0


def test_a_link_behind_three_hundred_whose_names_do_not_resolve_starts(make_link, pair, queues, name):
    """And so does a password's check, which is done in a thread. Times are a twentieth of real ones."""
    one, two = pair
    _, source, target = queues
    let_go, is_full = threading.Event(), threading.Event()

    def getaddrinfo(host, port, *rest):
        if host.startswith("silent"):
            is_full.wait(in_time(60))
            let_go.wait(0.5)
            raise OSError("no such name")
        return [(2, 1, 6, "", ("127.0.0.1", port))]

    lookups = Lookups(getaddrinfo, slow_s=0.1)
    connector = Connector(Settings.checked(links_amqp_hosts_allowed="127.0.0.0/8"), None, lookups)
    hanging = [
        make_link(
            SourceEnd(f"amqp://guest:guest@silent-{number}.example:1/%2f", name),
            TargetEnd(two.amqp_url, "", name), connect=connector.connect)
        for number in range(COUNT)]
    for link in hanging:
        link.start()
    until(lambda: len(lookups._running) >= THREADS_MOST - THREADS_MOST // 4)  # what one user may have
    is_full.set()
    link = make_link(
        SourceEnd(f"amqp://guest:guest@one.example:{one.port}/%2f", name),
        TargetEnd(f"amqp://guest:guest@two.example:{two.port}/%2f", "", name), connect=connector.connect)
    link.start()
    fill(source, name, 10)

    try:
        until(lambda: link.status.moved == 10)
        with gevent.Timeout(in_time(30)):
            assert gevent.get_hub().threadpool.apply(str, (1,)) == "1"
        assert {each.status.state for each in hanging} == {"starting"}
    finally:
        let_go.set()
    assert numbers(take_all(target, name, 10)) == list(range(10))
