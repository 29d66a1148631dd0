"""Who is let in, who is turned away, and who gives way; on real sockets."""
import socket
from functools import partial
from types import SimpleNamespace

import gevent
import pytest

from gomq_py.hub import admission as admission_module
from gomq_py.hub.admission import Admission, network_of
from gomq_py.net.listener import Listener, bind_tcp
from gomq_py.net.socket_options import SocketOptions
from tests.support.waiting import in_time, wait_until


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def settings():
    return SimpleNamespace(max_connections_per_address=0, max_pending_logins=3)


@pytest.fixture
def admission(settings, clock):
    return Admission(settings, clock, descriptors=40)


@pytest.fixture
def gate(admission):
    return admission.gate("")


@pytest.fixture
def pairs():
    """A function that makes (our end, their end) of a connection."""
    made = []

    def pair():
        made.append(socket.socketpair())
        return made[-1]

    yield pair
    for ends in made:
        for end in ends:
            end.close()


@pytest.fixture
def tcp_pair():
    """A function that makes (our end, their end) of a connection over TCP."""
    made = []

    def pair():
        with socket.create_server(("127.0.0.1", 0)) as listening:
            theirs = socket.create_connection(listening.getsockname())
            made.extend([listening.accept()[0], theirs])
        return made[-2:]

    yield pair
    for end in made:
        end.close()


@pytest.fixture
def arrive(gate, pairs):
    """A function: somebody from ``host`` comes. Returns (admitted, their end)."""
    def come(host):
        assert gate.has_room(host)
        ours, theirs = pairs()
        return gate.enter(ours, host), theirs

    return come


def is_over(end):
    """Whether the other end was shut down."""
    end.setblocking(False)
    try:
        return end.recv(1) == b""
    except BlockingIOError:
        return False


def test_connections_are_counted_from_their_coming_to_their_leaving(admission, gate, arrive):
    admitted, _ = arrive("192.0.2.1")
    assert (admission.count, admission.pending_count) == (1, 1)

    gate.logged_in(admitted)
    assert (admission.count, admission.pending_count) == (1, 0)
    gate.leave(admitted)
    gate.leave(admitted)

    assert (admission.count, admission.pending_count) == (0, 0)


def test_descriptors_are_left_for_files(gate, settings, pairs, caplog):
    settings.max_pending_logins = 1000
    guests = [gate.enter(pairs()[0], "192.0.2.1") for _ in range(31)]

    assert all(guests[:30]) and guests[30] is None
    assert "192.0.2.1 refused: there are 30, and the other descriptors are for files" in caplog.text
    gate.leave(guests[0])
    assert gate.enter(pairs()[0], "192.0.2.1") is not None


def test_nobody_gives_way_before_his_time(gate, arrive):
    for _ in range(3):
        arrive("192.0.2.1")

    assert not gate.has_room("192.0.2.1")


def test_oldest_of_the_address_with_the_most_gives_way(admission, arrive, clock, caplog):
    patient, patients_end = arrive("192.0.2.9")
    ends = [arrive("192.0.2.1")[1] for _ in range(2)]
    clock.now += admission_module.PATIENCE_S

    _, last = arrive("192.0.2.7")

    assert [is_over(end) for end in (*ends, patients_end, last)] == [True, False, False, False]
    assert admission.pending_count == 3
    assert (
        (
            "3 connections wait for their login (max_pending_logins), 2 of them from 192.0.2.1: "
            "the oldest give way"
        ) in caplog.text
    )


def test_address_that_was_slow_is_waited_for_no_more(gate, arrive, clock, pairs, caplog):
    """Others take its places at once, and its own are refused instead of waiting before others."""
    for number in range(3):
        arrive(f"2001:db8::{number}")  # a /64 is one address
    clock.now += admission_module.PATIENCE_S
    guests, ends = zip(*[arrive("2001:db8::4") for _ in range(3)])

    assert not gate.has_room("2001:db8::5") and gate.refuses("2001:db8::5")
    assert gate.enter(pairs()[0], "2001:db8::5") is None
    _, calm = arrive("192.0.2.9")

    assert [is_over(end) for end in (*ends, calm)] == [True, False, False, False]
    assert "2001:db8::5 refused: as many as may wait for their login (max_pending_logins)" in caplog.text
    clock.now += admission_module.SLOW_S
    for guest in guests:
        gate.logged_in(guest)
    for _ in range(2):
        arrive("2001:db8::6")
    assert not gate.has_room("192.0.2.9")


def test_address_whose_passwords_wait_to_be_checked_is_not_slow(gate, arrive, clock):
    for _ in range(3):
        arrive("192.0.2.1")[0].end_login = list
    clock.now += admission_module.PATIENCE_S
    for _ in range(3):
        arrive("192.0.2.1")

    assert not gate.has_room("192.0.2.9")


@pytest.mark.parametrize("unread, answer_ms, is_slow", [
    (b"CONNECT", 0, False), (b"", 60_000, False), (b"", 0, True)])
def test_address_is_slow_only_where_the_broker_waits_for_it(
    unread, answer_ms, is_slow, gate, clock, tcp_pair, monkeypatch,
):
    """Octets that the broker has not read, as those of a TLS handshake that waits for its turn, and what the
    broker has said just now keep nobody waiting. On 7675f4c1 the address is slow in each case.
    """
    monkeypatch.setattr(admission_module, "ANSWER_MS", answer_ms, raising=False)
    ends = [tcp_pair() for _ in range(4)]
    for ours, theirs in ends[:3]:
        gate.enter(ours, "192.0.2.1")
        ours.send(b"Start")
        theirs.send(unread)
    clock.now += admission_module.PATIENCE_S

    assert gate.has_room("192.0.2.1")
    gate.enter(ends[3][0], "192.0.2.1")

    assert gate.refuses("192.0.2.1") == is_slow


def test_client_that_drips_is_slow(gate, clock, tcp_pair, monkeypatch):
    """The broker has read each of its octets, and has had nothing to say since it came."""
    monkeypatch.setattr(admission_module, "ANSWER_MS", 20, raising=False)
    ours, theirs = tcp_pair()
    guests = [gate.enter(end, "192.0.2.1") for end in (ours, tcp_pair()[0], tcp_pair()[0])]

    def drips():
        theirs.send(b"A")
        ours.recv(1)
        return admission_module.waits_for_client(ours.fileno())

    wait_until(drips)
    clock.now += admission_module.PATIENCE_S
    theirs.send(b"A")
    ours.recv(1)

    assert all(guests) and gate.has_room("192.0.2.1")
    gate.enter(tcp_pair()[0], "192.0.2.1")
    assert gate.refuses("192.0.2.1")


def test_login_that_waits_for_something_else_is_told_that_its_socket_was_shut_down(admission, arrive, clock):
    told = []
    for number in range(3):
        arrive("192.0.2.1")[0].end_login = partial(told.append, number)
    clock.now += admission_module.PATIENCE_S

    arrive("192.0.2.7")
    assert told == [0]
    admission.close()
    assert told == [0, 1, 2]


def test_who_has_logged_in_never_gives_way(gate, arrive, clock):
    for _ in range(10):
        admitted, end = arrive("192.0.2.1")
        gate.logged_in(admitted)
    clock.now += 100

    assert gate.has_room("192.0.2.1") and not is_over(end)


def test_address_has_as_many_connections_as_its_limit(gate, settings, pairs, caplog):
    settings.max_connections_per_address = 2
    settings.max_pending_logins = 100
    sockets = [pairs()[0] for _ in range(4)]
    hosts = ["192.0.2.1"] * 3 + ["192.0.2.2"]
    for one, host in zip(sockets, hosts):
        gate.enter(one, host)

    found = [gate.identify(one, host) for one, host in zip(sockets, hosts)]

    assert [admitted is not None for admitted in found] == [True, True, False, True]
    assert "192.0.2.1 refused: it has 2 already (max_connections_per_address)" in caplog.text


def test_proxys_connections_are_counted_for_those_it_speaks_for(gate, settings, pairs):
    settings.max_connections_per_address = 1
    sockets = [pairs()[0] for _ in range(3)]

    guests = []
    for number, one in enumerate(sockets[:2]):
        gate.enter(one, "10.0.0.1")
        guests.append(gate.identify(one, f"192.0.2.{number}"))
    gate.enter(sockets[2], "10.0.0.1")

    assert all(guests)
    assert gate.identify(sockets[2], "192.0.2.0") is None
    gate.leave(guests[0])
    assert gate.identify(sockets[2], "192.0.2.0") is not None


def test_socket_that_no_listener_let_in_is_counted_too(admission, gate, pairs):
    admitted = gate.identify(pairs()[0], "")

    assert admission.count == 1
    gate.leave(admitted)
    assert admission.count == 0


def test_strangers_at_one_gate_keep_nobody_out_of_another(admission, gate, settings, pairs):
    settings.other_max_connections_per_address, settings.other_max_pending_logins = 1, 1
    other = admission.gate("other_")
    for _ in range(3):
        gate.identify(pairs()[0], "192.0.2.1")

    assert not gate.has_room("192.0.2.1") and other.has_room("192.0.2.1")
    assert other.identify(pairs()[0], "192.0.2.1") is not None
    assert (admission.count, admission.pending_count, gate.pending_count, other.pending_count) == (4, 4, 3, 1)


def test_gate_says_which_of_its_limits_is_reached(admission, settings, pairs, caplog):
    settings.other_max_connections_per_address = 1
    other = admission.gate("other_")
    assert other.identify(pairs()[0], "192.0.2.1") is not None

    assert other.identify(pairs()[0], "192.0.2.1") is None

    assert "192.0.2.1 refused: it has 1 already (other_max_connections_per_address)" in caplog.text


def test_descriptors_are_everybodys(admission, settings, pairs):
    settings.max_pending_logins = settings.other_max_pending_logins = 1000
    gates = [admission.gate(""), admission.gate("other_")]
    guests = [gates[number % 2].enter(pairs()[0], "192.0.2.1") for number in range(31)]

    assert all(guests[:30]) and guests[30] is None


def test_listener_serves_the_newest_while_the_oldest_dawdle(admission, gate, clock):
    """Three who say nothing stand at the door; whoever comes is served all the same once
    they have had their time.
    """
    clock.__class__.now = 100.0

    def greet(connection, address):
        admitted = gate.identify(connection, address[0])
        if connection.recv(10):
            gate.logged_in(admitted)
            connection.sendall(b"welcome")

    listener = Listener(bind_tcp("127.0.0.1", 0, 16), "amqp", greet, SocketOptions(), gate=gate)
    listener.start()
    dawdlers = [gevent.socket.create_connection(("127.0.0.1", listener.port)) for _ in range(3)]
    wait_until(lambda: admission.pending_count == 3, sleep=gevent.sleep)

    client = gevent.socket.create_connection(("127.0.0.1", listener.port), timeout=in_time(30))
    client.sendall(b"hello")
    clock.now += admission_module.PATIENCE_S

    assert client.recv(10) == b"welcome"
    assert dawdlers[0].recv(1) == b""
    wait_until(lambda: admission.count == 2, sleep=gevent.sleep)
    for one in (client, *dawdlers):
        one.close()
    wait_until(lambda: admission.count == 0, sleep=gevent.sleep)
    listener.close()


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("no address", "no address"),
    ],
)
def test_ipv6_counts_by_what_one_customer_has(address, network):
    assert network_of(address) == network
