"""Binding, accepting and letting go, on real sockets."""
import errno
import os
import sys
from types import SimpleNamespace

import gevent
import gevent.socket
import pytest
from gevent import socket
from gevent.event import Event

from gomq_py.config.kinds import Keepalive
from gomq_py.hub.loop_socket import LoopSocket
from gomq_py.net import listener
from gomq_py.net.listener import (
    TLS_SEGMENT_OCTETS, UNSENT_OCTETS, BindError, Listener, bind_tcp, bind_unix, format_address,
)
from gomq_py.net.proxy_protocol import Proxies
from gomq_py.net.socket_options import SocketOptions
from tests.support.waiting import in_time, wait_until

BACKLOG = 16


@pytest.fixture
def listen():
    """A function from a handler to a started listener on a free port; all are closed at the end."""
    started = []

    def start(handle, options=SocketOptions(), bound=None, **more):
        started.append(Listener(bound or bind_tcp("127.0.0.1", 0, BACKLOG), "amqp", handle, options, **more))
        started[-1].start()
        return started[-1]

    yield start
    for one in started:
        one.close()


def echo(connection, _address):
    while octets := connection.recv(100):
        connection.sendall(octets)


def ask(port, octets=b"hello", host="127.0.0.1"):
    with socket.create_connection((host, port), timeout=in_time(30)) as client:
        client.sendall(octets)
        return client.recv(100)


def test_each_connection_is_served_and_closed(listen):
    listening = listen(echo)

    assert ask(listening.port) == b"hello"
    assert ask(listening.port, b"again") == b"again"


def test_slow_connection_does_not_hold_up_the_next(listen):
    listening = listen(echo)

    with socket.create_connection(("127.0.0.1", listening.port)):
        assert ask(listening.port) == b"hello"


def test_port_zero_takes_a_free_port_and_names_it(listen):
    listening = listen(echo)

    assert listening.port > 0
    assert listening.address == f"127.0.0.1:{listening.port}"


def test_port_in_use_is_named_with_what_to_do(listen):
    port = listen(echo).port

    with pytest.raises(
        BindError,
        match=f"^port {port} on 127.0.0.1 is in use: stop what listens there .* or choose another port$",
    ):
        bind_tcp("127.0.0.1", port, BACKLOG)


def test_address_of_another_machine_is_refused_by_name():
    with pytest.raises(BindError, match="192.0.2.1 is not an address of this machine"):
        bind_tcp("192.0.2.1", 0, BACKLOG)


def test_name_that_does_not_resolve_is_refused():
    with pytest.raises(BindError, match="cannot listen on no-such-host.invalid"):
        bind_tcp("no-such-host.invalid", 0, BACKLOG)


@pytest.mark.parametrize(
    ("host", "family"), [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6), ("::", socket.AF_INET6)]
)
def test_address_is_listened_on_without_asking_for_it(monkeypatch, host, family):
    monkeypatch.setattr(listener.socket, "getaddrinfo", None)

    with bind_tcp(host, 0, BACKLOG) as bound:
        assert bound.family == family and bound.getsockname()[0] == host


def test_names_are_listened_on(listen):
    assert ask(listen(echo, bound=bind_tcp("localhost", 0, BACKLOG)).port, host="localhost") == b"hello"


def test_port_is_free_again_after_close(listen):
    first = listen(echo)
    port = first.port
    ask(port)

    first.close()

    second = listen(echo, bound=bind_tcp("127.0.0.1", port, BACKLOG))
    assert ask(second.port) == b"hello"


def test_connections_outlive_their_listener(listen):
    listening = listen(echo)
    with socket.create_connection(("127.0.0.1", listening.port), timeout=in_time(30)) as client:
        client.sendall(b"1")
        assert client.recv(10) == b"1"

        listening.close()
        client.sendall(b"2")

        assert client.recv(10) == b"2"


def test_two_listeners_share_a_port_only_when_asked_to():
    first = bind_tcp("127.0.0.1", 0, BACKLOG, reuse_port=True)
    second = bind_tcp("127.0.0.1", first.getsockname()[1], BACKLOG, reuse_port=True)

    assert first.getsockname() == second.getsockname()
    first.close()
    second.close()


def test_any_ipv6_address_takes_ipv4_too_and_shows_it_as_ipv4(listen):
    peers = []
    try:
        bound = bind_tcp("::", 0, BACKLOG)
    except BindError:
        pytest.skip("no IPv6 here")
    listening = listen(
        lambda connection, address: (peers.append(format_address(address)), echo(connection, address)),
        bound=bound,
    )

    assert ask(listening.port) == b"hello"
    assert peers[0].startswith("127.0.0.1:")


def test_accepted_sockets_have_the_options(listen):
    seen = {}

    def look(connection, _address):
        seen["nodelay"] = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        seen["keepalive"] = connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        seen["idle_s"] = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
        seen["interval_s"] = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
        seen["probes"] = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT)
        connection.sendall(b"done")

    listening = listen(look, SocketOptions(nodelay=True, keepalive=Keepalive(7, 8, 9)))

    assert ask(listening.port) == b"done"
    assert seen == {"nodelay": 1, "keepalive": 1, "idle_s": 7, "interval_s": 8, "probes": 9}


@pytest.mark.parametrize("at_once", [False, True])
def test_whoever_came_before_anybody_was_accepted_has_the_options(listen, at_once):
    """As the client does whose coming had a service manager start the broker."""
    seen = []

    def look(connection, _address):
        seen.append((
            connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY),
            connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)))
        connection.sendall(b"done")

    bound = bind_tcp("127.0.0.1", 0, BACKLOG)
    early = [socket.create_connection(bound.getsockname(), timeout=in_time(30)) for _ in range(3)]
    options = SocketOptions(nodelay=True, keepalive=Keepalive(7, 8, 9))
    listening = listen(look, options, bound, at_once=at_once)

    for client in early:
        assert client.recv(100) == b"done"
        client.close()
    assert ask(listening.port) == b"done"
    assert seen == [(1, 7)] * 4


@pytest.mark.parametrize("keepalive", [Keepalive(7, 8, 9), None])
@pytest.mark.parametrize("is_inherited", [False, True])
def test_options_that_change_are_those_of_the_next_socket(listen, keepalive, is_inherited, monkeypatch):
    """What it has of its listener, where the system has that, was set before."""
    seen = []

    def look(connection, _address):
        seen.append((
            connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY),
            connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
            connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
            connection.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) >= 50_000))
        connection.sendall(b"done")

    if not is_inherited:
        monkeypatch.setattr(SocketOptions, "apply_to_listener", lambda *_: 0)
    options = SocketOptions(nodelay=keepalive is not None, keepalive=keepalive)
    listening = listen(look, options)
    assert ask(listening.port) == b"done"
    options.update(False, None, 50_000, 0)
    assert ask(listening.port) == b"done"
    options.update(True, Keepalive(17, 8, 9), 0, 0)
    assert ask(listening.port) == b"done"

    first = (0, 0) if keepalive is None else (1, 1, 7)
    assert seen[0][:len(first)] == first
    assert seen[1][:2] == (0, 0) and seen[1][3]
    assert seen[2][:3] == (1, 1, 17)


@pytest.mark.parametrize("at_once", [False, True])
def test_a_door_that_does_not_switch_takes_no_greenlet(listen, at_once):
    greenlets, serving = [], []

    def handle(connection, _address):
        greenlets.append(gevent.getcurrent())
        connection.sendall(b"done")
        return lambda *gone: serving.append(gone)

    listening = listen(handle, at_once=at_once)

    for _ in range(2):
        assert ask(listening.port) == b"done"
    wait_until(lambda: len(serving) == 2, sleep=gevent.sleep)
    assert (greenlets[0] is greenlets[1]) == at_once
    for gone, *arguments in serving:
        gone(*arguments)


@pytest.mark.parametrize(("trusted", "kind"), [((), LoopSocket), (("127.0.0.1",), gevent.socket.socket)])
def test_a_door_that_does_not_switch_has_sockets_of_the_loop_unless_a_proxy_speaks_first(
        listen, trusted, kind):
    kinds = []

    def handle(connection, _address):
        kinds.append(type(connection))
        connection.sendall(b"done")

    proxies = Proxies(bool(trusted), trusted, in_time(30))
    listening = listen(handle, at_once=True, proxies=proxies)

    assert ask(listening.port, b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n") == b"done"
    assert kinds == [kind]


def test_who_was_accepted_before_proxies_were_believed_announces_nobody(listen):
    """It waited for room to log in, and has a socket that nobody waits for."""
    proxies, room, asked = Proxies(), Event(), Event()
    gate = SimpleNamespace(
        has_room=lambda host: asked.set() or room.is_set(), refuses=lambda host: False,
        enter=lambda _connection, host: host, leave=lambda _admitted: None)

    def handle(connection, address):
        connection.sendall(address[0].encode())

    listening = listen(handle, at_once=True, proxies=proxies, gate=gate)
    with socket.create_connection(("127.0.0.1", listening.port), timeout=in_time(30)) as client:
        assert asked.wait(in_time(30))
        proxies.update(True, (), in_time(30))
        room.set()

        assert client.recv(100) == b"127.0.0.1"


def test_a_fault_of_a_door_that_does_not_switch_keeps_nobody_else_out(listen, caplog):
    def handle(connection, _address):
        if not caplog.messages:
            raise RuntimeError("a fault")
        connection.sendall(b"done")

    listening = listen(handle, at_once=True)

    with socket.create_connection(("127.0.0.1", listening.port), timeout=in_time(30)) as client:
        assert client.recv(100) == b""
    assert ask(listening.port) == b"done"
    assert "ended by a fault of the broker" in caplog.text


@pytest.mark.skipif(not hasattr(socket, "TCP_NOTSENT_LOWAT"), reason="the system has no such option")
@pytest.mark.parametrize("is_inherited", [False, True])
def test_the_system_keeps_little_for_a_peer_that_does_not_read(listen, is_inherited):
    seen = []

    def look(connection, _address):
        seen.append(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT))
        connection.sendall(b"done")

    bound = None
    if is_inherited:  # bound by somebody else
        bound = socket.socket()
        bound.bind(("127.0.0.1", 0))
        bound.listen(BACKLOG)
    listening = listen(look, bound=bound, inherited=is_inherited)

    assert ask(listening.port) == b"done"
    assert seen == [UNSENT_OCTETS]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere segments are as ever")
def test_segments_over_tls_are_no_longer_than_a_record_in_both_directions(listen):
    seen = []

    def look(connection, _address):
        seen.append(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG))
        connection.sendall(b"done")

    listening = listen(look, handshake=lambda connection: connection)

    with socket.create_connection(("127.0.0.1", listening.port), timeout=in_time(30)) as client:
        assert client.recv(100) == b"done"
        seen.append(client.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG))
    assert 0 < min(seen) and max(seen) <= TLS_SEGMENT_OCTETS


def test_a_socket_whose_segments_are_what_they_are_serves_all_the_same(listen):
    class Handed(socket.socket):
        def setsockopt(self, level, name, *value):
            if name == socket.TCP_MAXSEG:
                raise OSError(errno.EOPNOTSUPP, "not of MPTCP")
            super().setsockopt(level, name, *value)

    bound = Handed()
    bound.bind(("127.0.0.1", 0))
    bound.listen(BACKLOG)

    assert ask(listen(echo, handshake=lambda connection: connection, bound=bound).port) == b"hello"


def test_unix_socket_serves_and_its_file_goes_with_it(listen, tmp_path):
    path = str(tmp_path / "amqp.sock")
    listening = listen(echo, SocketOptions(keepalive=Keepalive(1, 1, 1)), bound=bind_unix(path, BACKLOG))
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        client.sendall(b"hello")
        assert client.recv(10) == b"hello"
    assert (listening.address, listening.port) == (path, 0)

    listening.close()

    assert not os.path.exists(path)


def test_unix_socket_of_a_killed_broker_is_replaced(tmp_path):
    path = str(tmp_path / "amqp.sock")
    bind_unix(path, BACKLOG).close()  # leaves its file, as a killed process does

    bind_unix(path, BACKLOG).close()


def test_unix_socket_of_a_living_broker_is_left_alone(tmp_path):
    path = str(tmp_path / "amqp.sock")
    held = bind_unix(path, BACKLOG)

    with pytest.raises(BindError, match="another process listens there"):
        bind_unix(path, BACKLOG)

    held.close()


def test_file_that_is_no_socket_is_not_replaced(tmp_path):
    path = tmp_path / "amqp.sock"
    path.write_text("precious")

    with pytest.raises(BindError, match="Address already in use"):
        bind_unix(str(path), BACKLOG)

    assert path.read_text() == "precious"


def test_fault_in_a_handler_is_logged_and_harms_nobody_else(listen, caplog):
    def fail_once(connection, address):
        if connection.recv(100) == b"bad":
            raise KeyError("boom")
        connection.sendall(b"fine")

    listening = listen(fail_once)

    assert ask(listening.port, b"bad") == b""
    assert ask(listening.port, b"good") == b"fine"
    assert "ended by a fault of the broker" in caplog.text
    assert "boom" in caplog.text


class ScriptedSocket:
    """Raises what it is told to, then gives one connection, then waits."""

    family = socket.AF_INET

    def __init__(self, *errors):
        self.errors = list(errors)
        self.accepted, self.closed = Event(), Event()

    def accept(self):
        if self.errors:
            raise OSError(self.errors.pop(0), "scripted")
        if self.accepted.is_set():
            self.closed.wait()
        self.accepted.set()
        ours, self.peer = socket.socketpair()
        return ours, ("192.0.2.7", 1)

    def getsockname(self):
        return ("127.0.0.1", 5672)

    def setsockopt(self, *_):
        raise OSError(errno.ENOPROTOOPT, "scripted")

    def settimeout(self, _seconds):
        pass

    def close(self):
        self.closed.set()


@pytest.mark.parametrize("errors", [
    (errno.ECONNABORTED,), (errno.EMFILE, errno.ENFILE), (errno.ENOMEM, errno.EPROTO)
])
def test_accepting_goes_on_after_passing_errors(listen, errors, monkeypatch):
    monkeypatch.setattr(listener, "EXHAUSTED_PAUSE_S", 0.001)
    served = Event()
    scripted = ScriptedSocket(*errors)

    listen(lambda connection, address: served.set(), SocketOptions(nodelay=False), bound=scripted)

    assert served.wait(in_time(30))
    assert scripted.errors == []


@pytest.mark.parametrize("errors", [
    (errno.ECONNABORTED,), (errno.EMFILE, errno.ENFILE), (errno.ENOMEM, errno.EPROTO)
])
def test_accepting_in_the_loop_goes_on_after_passing_errors(listen, errors, monkeypatch):
    """The door's clients before that are accepted in the loop, and so are those after it."""
    monkeypatch.setattr(listener, "EXHAUSTED_PAUSE_S", 0.001)
    hub, greenlets, left, accept = gevent.get_hub(), [], [], Listener._accept_plain

    def scripted(self):
        if left:
            raise OSError(left.pop(0), "scripted")
        return accept(self)

    def handle(connection, _address):
        greenlets.append(gevent.getcurrent())
        connection.sendall(b"done")

    monkeypatch.setattr(Listener, "_accept_plain", scripted)
    listening = listen(handle, at_once=True)
    assert ask(listening.port) == b"done"
    left.extend(errors)
    assert ask(listening.port) == b"done"
    assert not left
    # the greenlet waits again when it has found nobody else
    wait_until(lambda: ask(listening.port) == b"done" and greenlets[-1] is hub, sleep=gevent.sleep)


def test_who_finds_no_room_is_let_in_before_those_behind(listen):
    """Of a door whose clients are accepted in the loop: nobody behind is accepted meanwhile."""
    has_room, served, asked = [True], [], Event()
    gate = SimpleNamespace(
        has_room=lambda host: asked.set() or has_room[0], refuses=lambda host: False,
        enter=lambda _connection, host: host,
        pending_count=1, leave=lambda _admitted: None)

    def handle(connection, address):
        served.append(address[1])
        connection.sendall(b"done")

    listening = listen(handle, at_once=True, gate=gate)
    assert ask(listening.port) == b"done"
    has_room[0] = False
    asked.clear()
    clients = [
        socket.create_connection(("127.0.0.1", listening.port), timeout=in_time(30)) for _ in range(3)]
    assert asked.wait(in_time(30))
    for _ in range(3):
        gevent.sleep(0)
    assert len(served) == 1
    has_room[0] = True

    for client in clients:
        assert client.recv(100) == b"done"
    assert served[1:] == [client.getsockname()[1] for client in clients]
    for client in clients:
        client.close()


def test_who_waits_for_room_is_closed_with_the_listener(listen):
    asked = Event()
    gate = SimpleNamespace(has_room=lambda host: asked.set() or False, refuses=lambda host: False)
    listening = listen(lambda *_: None, at_once=True, gate=gate)
    gevent.sleep(0)

    with socket.create_connection(("127.0.0.1", listening.port), timeout=in_time(30)) as client:
        assert asked.wait(in_time(30))
        listening.close()

        assert client.recv(100) == b""


def test_flood_of_connects_that_are_accepted_in_the_loop_leaves_others_their_turn(listen):
    accepted, turns = [], []
    bound = bind_tcp("127.0.0.1", 0, 128)
    port = bound.getsockname()[1]
    clients = [socket.create_connection(("127.0.0.1", port), timeout=in_time(30)) for _ in range(100)]

    def watch():
        while len(accepted) < 100:
            turns.append(len(accepted))
            gevent.sleep(0)

    watcher = gevent.spawn(watch)
    listen(lambda connection, address: accepted.append(1), bound=bound, at_once=True)
    with gevent.Timeout(in_time(30)):
        watcher.join()
    for client in clients:
        client.close()

    assert max(later - earlier for earlier, later in zip(turns, turns[1:])) <= listener.ACCEPTS_PER_TURN


def test_flood_of_connects_leaves_others_their_turn(listen):
    """While connections wait to be accepted, accept() itself never yields."""
    accepted, turns = [], []

    class Flood(ScriptedSocket):
        def accept(self):
            accepted.append(1)
            if len(accepted) > 1000:
                self.closed.wait()
            ours, _ = socket.socketpair()
            return ours, ("192.0.2.7", 1)

    def watch():
        while len(accepted) < 1000:
            turns.append(len(accepted))
            gevent.sleep(0)

    watcher = gevent.spawn(watch)
    listen(lambda connection, address: None, SocketOptions(nodelay=False), bound=Flood())
    wait_until(lambda: len(accepted) > 1000, sleep=gevent.sleep)
    watcher.join()

    assert max(later - earlier for earlier, later in zip(turns, turns[1:])) <= listener.ACCEPTS_PER_TURN


# unix sockets

def test_unix_peer_is_shown_by_its_process_and_its_number(listen, tmp_path):
    path = tmp_path / "amqp.sock"
    peers = []
    listen(
        lambda connection, address: (peers.append(format_address(address)), echo(connection, address)),
        bound=bind_unix(str(path), BACKLOG),
    )

    for _ in range(2):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"1")
            assert client.recv(10) == b"1"

    assert peers == [f"unix:{os.getpid()}:1", f"unix:{os.getpid()}:2"]


@pytest.mark.parametrize("mode", [0o600, 0o660, 0o777])
def test_unix_socket_has_the_permissions_it_was_given_whatever_the_umask(tmp_path, mode):
    path = tmp_path / "amqp.sock"
    before = os.umask(0o077)
    try:
        bound = bind_unix(str(path), BACKLOG, mode)
    finally:
        os.umask(before)

    assert path.stat().st_mode & 0o777 == mode
    bound.close()


def test_unix_socket_of_another_broker_is_left_alone_at_close(listen, tmp_path):
    """Somebody removed ours and a second broker took the name."""
    path = tmp_path / "amqp.sock"
    first = listen(echo, bound=bind_unix(str(path), BACKLOG))
    path.unlink()
    second = bind_unix(str(path), BACKLOG)

    first.close()

    assert path.exists()
    second.close()


def test_socket_that_was_handed_over_keeps_its_path(tmp_path):
    path = tmp_path / "amqp.sock"
    handed_over = Listener(bind_unix(str(path), BACKLOG), "amqp", echo, SocketOptions(), inherited=True)

    handed_over.close()

    assert path.exists()


def adoptable():
    """(socket of a client, descriptor of the other end), connected."""
    client, other = gevent.socket.socketpair()
    client.settimeout(in_time(30))
    return client, other.detach()


@pytest.mark.parametrize("at_once, kind", [(True, LoopSocket), (False, gevent.socket.socket)])
def test_adopted_client_is_served_with_the_address_that_it_is_given(listen, at_once, kind):
    """Also where this address may announce others: its node has said all."""
    seen = []

    def handle(connection, address):
        seen.append((type(connection), address))
        connection.sendall(b"done")

    listening = listen(handle, at_once=at_once, proxies=Proxies(True, ("192.0.2.7",), in_time(30)))
    client, descriptor = adoptable()
    listening.adopt(socket.AF_UNIX, descriptor, ("192.0.2.7", 5))

    assert client.recv(100) == b"done" and client.recv(1) == b""
    assert seen == [(kind, ("192.0.2.7", 5))]
    client.close()


def test_adopted_client_counts_as_an_accepted_one(listen):
    entered, left = [], []
    gate = SimpleNamespace(
        has_room=lambda host: bool(entered), refuses=lambda host: host == "192.0.2.8",
        enter=lambda _connection, host: entered.append(host) or host, leave=left.append)
    listening = listen(lambda connection, _address: connection.sendall(b"done"), gate=gate)
    assert not listening.has_room_for(("192.0.2.7", 5))
    assert listening.has_room_for(("192.0.2.8", 5)), "to be refused at once"
    client, descriptor = adoptable()

    listening.adopt(socket.AF_UNIX, descriptor, ("192.0.2.7", 5))

    assert client.recv(100) == b"done"
    wait_until(lambda: left == entered == ["192.0.2.7"], sleep=gevent.sleep)
    client.close()


def test_closed_listener_closes_whom_it_is_to_adopt(listen):
    listening = listen(echo)
    listening.close()
    client, descriptor = adoptable()

    assert listening.has_room_for(("192.0.2.7", 5))
    listening.adopt(socket.AF_UNIX, descriptor, ("192.0.2.7", 5))

    assert client.recv(1) == b""
    client.close()
