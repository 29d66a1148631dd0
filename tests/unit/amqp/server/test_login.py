"""Coming in: credentials, virtual hosts, and no time or memory for strangers who dawdle."""
import select
import time

import gevent
import pytest
from gevent.event import Event

from gomq_py.amqp.server import login
from gomq_py.amqp.server.connection import Connection
from gomq_py.amqp.server.login import LoginAttempt
from gomq_py.amqp.wire.frames import HEARTBEAT_FRAME, PROTOCOL_HEADER, method_frame
from gomq_py.amqp.wire.methods import (
    ChannelOpen, ChannelOpenOk, ConnectionClose, ConnectionOpen, ConnectionOpenOk, ConnectionStart,
    ConnectionStartOk, ConnectionTune, ConnectionTuneOk, QueueDeclare, QueueDeclareOk,
)
from gomq_py.auth import login_deadline, login_throttle
from gomq_py.auth.errors import LoginRefused
from gomq_py.content.fields import encode_table
from gomq_py.net.listener import serve
from tests.support.door import Client, Door
from tests.support.sockets import socket_pair
from tests.support.waiting import in_time, wait_until

REFUSED = (
    "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. "
    "For details see the broker logfile."
)


def asked_in(door, **credentials):
    """A client that has sent its credentials."""
    client = door.stranger()
    client.send(PROTOCOL_HEADER)
    client.expect(ConnectionStart, 0)
    client.start_ok(**credentials)
    return client


def opening(door, virtual_host, **credentials):
    """A client that has asked for a virtual host."""
    client = asked_in(door, **credentials)
    client.expect(ConnectionTune, 0)
    client.send_method(ConnectionTuneOk(channel_max=10, frame_max=4096), 0)
    client.send_method(ConnectionOpen(virtual_host=virtual_host), 0)
    return client


def test_server_introduces_itself(door):
    said = door.stranger().log_in()

    assert said.start.server_properties["product"] == "RabbitMQ"
    assert (said.tune.channel_max, said.tune.frame_max, said.tune.heartbeat) == (2047, 131072, 60)


def test_client_hears_that_its_vhost_is_open_when_it_is_served(door, monkeypatch):
    """Not before: a client that is woken takes the processor from who serves it."""
    heard = []
    let_in = Connection.let_in

    def let_in_watched(connection, *arguments):
        let_in(connection, *arguments)
        readable, _, _ = select.select([client.socket], [], [], 0)
        heard.append(bool(readable))

    monkeypatch.setattr(Connection, "let_in", let_in_watched)
    client = opening(door, "/")

    client.expect(ConnectionOpenOk, 0)

    assert heard == [False]


def test_what_a_client_is_served_with_is_made_when_it_says_something(door):
    client = opening(door, "/")
    client.expect(ConnectionOpenOk, 0)
    (connection,) = door.hub.clients
    assert connection.lane is None and connection.slow_walk is None

    client.send_method(ChannelOpen(), 1)
    client.expect(ChannelOpenOk, 1)

    assert connection.lane is not None and connection.slow_walk is not None


def test_turns_at_the_end_of_a_login_are_of_its_time(door, monkeypatch):
    scheduler, let_in = door.hub.scheduler, Connection.let_in

    def let_in_after_silence(connection, *arguments):
        scheduler.now_ms = 1
        let_in(connection, *arguments)

    monkeypatch.setattr(Connection, "let_in", let_in_after_silence)
    before_ms = int(time.time() * 1000)

    opening(door, "/").expect(ConnectionOpenOk, 0)

    assert scheduler.now_ms >= before_ms


def test_limits_come_from_the_settings(tmp_path):
    with Door(tmp_path, channel_max=7, frame_max=8192, heartbeat=5) as door:
        tune = asked_in(door).expect(ConnectionTune, 0)

        assert (tune.channel_max, tune.frame_max, tune.heartbeat) == (7, 8192, 5)


@pytest.mark.parametrize("credentials", [{"password": "wrong"}, {"username": "nobody"}, {"password": ""}])
def test_wrong_credentials_are_refused(door, credentials):
    client = asked_in(door, **credentials)

    client.expect_error(ConnectionClose, 403, REFUSED, 0)
    client.expect_end()


def test_wrong_credentials_end_the_connection_of_clients_that_do_not_understand(door):
    asked_in(door, password="wrong", capabilities={}).expect_end()


def test_amqplain_logs_in(door):
    response = encode_table({"LOGIN": "guest", "PASSWORD": "guest"})[4:]

    asked_in(door, mechanism="AMQPLAIN", response=response).expect(ConnectionTune, 0)


def test_costly_hash_is_checked_without_stopping_the_hub(door):
    door.broker.users.set_user("bob", "secret", hashing_algorithm="bcrypt")
    door.broker.users.set_permission("bob", "/", ".*", ".*", ".*")

    door.client(username="bob", password="secret").call(QueueDeclare(), QueueDeclareOk)


def test_user_whose_password_was_guessed_at_comes_in_late(door, monkeypatch):
    """Whichever door the guesses came to."""
    monkeypatch.setattr(login_throttle, "FORGOTTEN_A_SECOND_OF_NAME", 100)
    now_s = [1000]
    door.broker.logins._throttle = login_throttle.LoginThrottle(lambda: now_s[0])
    for _ in range(login_throttle.FAILURES_OF_NAME):
        with pytest.raises(LoginRefused):
            door.broker.logins.login("guest", "guess", "")

    client = asked_in(door)
    client.expect_silence()
    now_s[0] += 1

    client.expect(ConnectionTune, 0)


class NotedTimeout(gevent.Timeout):
    """Remembers all that were started."""

    started = []

    def start(self):
        self.started.append(self)
        super().start()


@pytest.fixture
def timeouts(monkeypatch):
    monkeypatch.setattr(login_deadline, "Timeout", NotedTimeout)
    monkeypatch.setattr(NotedTimeout, "started", [])
    return NotedTimeout.started


def test_wait_for_the_password_to_be_checked_is_no_time_of_the_client(door, timeouts, monkeypatch):
    """It may be a minute long, behind other people's failures, and a right password comes through in the end:
    so the timer has that much more.
    """
    door.settings.login_timeout = 3600
    running, timers = [], []
    start_timer = LoginAttempt._start_timer

    def start_noted_timer(attempt, seconds):
        timers.append(seconds)
        start_timer(attempt, seconds)

    monkeypatch.setattr(LoginAttempt, "_start_timer", start_noted_timer)

    def checked(name, password, address, check=door.broker.logins.login):
        running.extend(timeout.seconds for timeout in timeouts if timeout.pending)
        return check(name, password, address)

    door.broker.logins.login = checked
    door.broker.logins.login_at_once = lambda *credentials: None

    asked_in(door).expect(ConnectionTune, 0)

    assert len(running) == 1 and 3600 < running[0] <= 3600 + login_deadline.PAUSE_S
    assert not any(timeout.pending for timeout in timeouts)
    # one for the time until then, and one for what is left of it
    assert len(timers) == 2 and timers[0] == 3600 and 0 < timers[1] <= 3600


def test_login_whose_password_is_being_checked_ends_when_its_socket_is_shut_down(door):
    """Because others want to come in, or the broker stops. It is not read meanwhile, and would see nothing.
    """
    began = Event()
    door.broker.logins.login_at_once = lambda *credentials: None
    door.broker.logins.login = lambda *credentials: began.set() or Event().wait()
    client = asked_in(door)
    assert began.wait(in_time(30))

    door.hub.admission.close()

    wait_until(lambda: not door.hub.admission.count, sleep=gevent.sleep)
    assert client.frame() is None


def test_client_that_dawdles_after_its_password_was_checked_is_dropped(tmp_path):
    with Door(tmp_path) as door:
        door.settings.login_timeout = 0.05
        dawdler = door.stranger()
        dawdler.send(PROTOCOL_HEADER, method_frame(0, ConnectionStartOk(
            client_properties={}, mechanism="PLAIN", response=b"\0guest\0guest", locale="en_US")))

        while dawdler.socket.recv(4096):
            pass


@pytest.mark.parametrize("taken", [0, 3])
def test_client_whose_socket_is_full_is_waited_for(door, taken):
    """Which is rare: a login's answers fit in every socket's buffer."""
    ours, theirs = socket_pair()
    reluctant = ReluctantSocket(theirs, taken)
    served = gevent.spawn(serve, door.server.handle, reluctant, "")
    client = Client(ours)

    client.log_in()
    client.call(ChannelOpen(), ChannelOpenOk)

    assert reluctant.refusals == 4
    ours.close()
    served.get(timeout=in_time(30))
    theirs.close()


class ReluctantSocket:
    """A socket that takes some octets of what it is first given, and nothing of it the next time, twice."""

    def __init__(self, socket, taken):
        self._socket = socket
        self._taken = [taken, 0] * 2
        self._sent = 0
        self.refusals = 0

    def __getattr__(self, name):
        return getattr(self._socket, name)

    def receive_functions(self):
        return self._socket._sock.recv_into, None

    def send(self, octets):
        if not self._taken:
            return self._socket._sock.send(octets)
        self.refusals += 1
        taken = self._taken.pop(0)
        if not taken:
            raise BlockingIOError
        return self._socket._sock.send(bytes(octets)[:taken])


def test_default_user_comes_in_from_this_machine_only(door):
    with socket_pair()[0] as socket:
        attempt = LoginAttempt(Connection(door.server, socket, ("192.0.2.1", 50_000), None))

        with pytest.raises(login.HandshakeError):
            attempt._check(
                login.Login("PLAIN", "guest", b"guest"),
                login_deadline.LoginDeadline(3600, RuntimeError("too late")))


def test_missing_virtual_host_is_refused(door):
    client = opening(door, "nope")

    client.expect_error(ConnectionClose, 530, "NOT_ALLOWED - vhost nope not found", 0, blamed=ConnectionOpen)
    client.expect_end()


def test_virtual_host_without_permissions_is_refused(door):
    door.broker.users.set_user("bob", "secret")

    client = opening(door, "/", username="bob", password="secret")

    client.expect_error(
        ConnectionClose, 530, "NOT_ALLOWED - access to vhost '/' refused for user 'bob'", 0,
        blamed=ConnectionOpen,
    )


def test_virtual_host_takes_as_many_connections_as_its_limit(door):
    door.broker.parameters.set(door.vhost, "vhost-limits", "limits", {"max-connections": 1})
    first = door.client()

    second = opening(door, "/")

    second.expect_error(
        ConnectionClose, 530,
        "NOT_ALLOWED - access to vhost '/' refused for user 'guest': connection limit (1) is reached", 0)
    first.call(QueueDeclare(), QueueDeclareOk)


def test_broker_has_as_many_connections_as_its_limit(tmp_path):
    with Door(tmp_path, max_connections=1) as door:
        first = door.client()

        second = opening(door, "/")

        second.expect_error(
            ConnectionClose, 530, "NOT_ALLOWED - connection refused: node connection limit (1) is reached", 0,
            blamed=ConnectionOpen)
        second.expect_end()
        first.call(QueueDeclare(), QueueDeclareOk)


def test_address_has_as_many_connections_as_its_limit(tmp_path, caplog):
    with Door(tmp_path, max_connections_per_address=1) as door:
        first = door.client()

        door.stranger().expect_end()

        assert (
            "connection from this machine refused: it has 1 already (max_connections_per_address)"
            in caplog.text
        )
        first.call(QueueDeclare(), QueueDeclareOk)
        first.close()
        wait_until(lambda: not door.hub.admission.count, sleep=gevent.sleep)
        door.client()


def test_stranger_sends_no_more_octets_than_its_limit(tmp_path, caplog):
    with Door(tmp_path, max_octets_before_login=8192) as door:
        client = door.stranger()
        client.send(PROTOCOL_HEADER)
        client.expect(ConnectionStart, 0)

        client.send(HEARTBEAT_FRAME * 1100)

        client.expect_end()
        assert "bytes in handshake state starting (max_octets_before_login)" in caplog.text


def test_what_comes_behind_a_login_counts_for_no_limit_of_strangers(tmp_path):
    with Door(tmp_path, max_octets_before_login=8192) as door:
        client = asked_in(door)
        client.expect(ConnectionTune, 0)

        client.send(
            method_frame(0, ConnectionTuneOk(channel_max=10, frame_max=4096)),
            method_frame(0, ConnectionOpen(virtual_host="/")), HEARTBEAT_FRAME * 1100,
            method_frame(1, ChannelOpen()))

        client.expect(ConnectionOpenOk, 0)
        client.expect(ChannelOpenOk)


def test_user_has_as_many_connections_as_its_limit(door):
    door.broker.users.set_user("bob", "secret", grants=("/",))
    door.broker.user_limits.set("bob", "max-connections", 1)
    first = door.client(username="bob", password="secret")

    second = opening(door, "/", username="bob", password="secret")

    second.expect_error(
        ConnectionClose, 530,
        "NOT_ALLOWED - connection refused for user 'bob': user connection limit (1) is reached", 0,
        blamed=ConnectionOpen)
    door.client()
    first.close()
    wait_until(lambda: len(door.hub.clients) == 1, sleep=gevent.sleep)
    door.client(username="bob", password="secret")


@pytest.mark.parametrize(("settings", "is_let_in"), [({}, False), ({"initial_frame_max": 8192}, True)])
def test_long_tokens_and_properties_need_a_larger_initial_frame_max(tmp_path, settings, is_let_in):
    with Door(tmp_path, **settings) as door:
        client = door.stranger()
        client.send(PROTOCOL_HEADER)
        client.expect(ConnectionStart, 0)
        client.start_ok(capabilities={"filling": "x" * 5000})

        if is_let_in:
            client.expect(ConnectionTune, 0)
        else:
            client.expect_end()


def test_stranger_who_dawdles_is_dropped(tmp_path):
    with Door(tmp_path) as door:
        door.settings.login_timeout = 0.05

        door.stranger().expect_end()


def test_stranger_who_drips_has_no_more_time_than_one_that_stops(tmp_path):
    with Door(tmp_path) as door:
        door.settings.login_timeout = 0.05
        stranger = door.stranger()
        stranger.send(PROTOCOL_HEADER, b"\x01\x00\x00" + (4000).to_bytes(4, "big"))  # of a frame

        def drip():
            try:
                return not stranger.socket.send(b"x")
            except OSError:
                return True

        wait_until(drip, sleep=gevent.sleep)


def test_stranger_who_speaks_something_else_is_told_the_protocol(door):
    client = door.stranger()
    client.send(b"GET / HTTP/1.1\r\n\r\n")

    assert client.socket.recv(100) == PROTOCOL_HEADER
    assert client.socket.recv(100) == b""


def test_methods_may_follow_open_in_one_write(door):
    client = asked_in(door)
    client.expect(ConnectionTune, 0)
    client.send(
        method_frame(0, ConnectionTuneOk(channel_max=10, frame_max=4096)),
        method_frame(0, ConnectionOpen(virtual_host="/")), method_frame(1, ChannelOpen()),
        method_frame(1, QueueDeclare(queue="q")),
    )

    client.expect(ConnectionOpenOk, 0)
    client.expect(ChannelOpenOk)
    client.expect(QueueDeclareOk)


def test_name_given_by_the_client_is_in_the_log(door, caplog):
    client = door.stranger()
    client.send(PROTOCOL_HEADER)
    client.expect(ConnectionStart, 0)
    client.send(method_frame(0, ConnectionStartOk(
        client_properties={"connection_name": "worker 7"}, mechanism="PLAIN", response=b"\0guest\0guest",
        locale="en_US")))
    client.expect(ConnectionTune, 0)
    client.send_method(ConnectionTuneOk(channel_max=10, frame_max=4096), 0)

    with caplog.at_level("INFO", "gomq_py.amqp"):
        client.call(ConnectionOpen(virtual_host="/"), ConnectionOpenOk, 0)

    assert "connection unix -> unix: user 'guest' opened vhost '/' as 'worker 7'" in caplog.messages


def test_what_all_share_counts_a_token_apart_from_the_local_user_of_its_name(door):
    door.client()

    assert door.connection().output.account == (("guest", False), "/")


def test_login_that_runs_out_of_time_while_it_is_checked_is_told_as_a_failure(door, monkeypatch):
    told = []
    ours, theirs = socket_pair()
    logins = door.server.broker.logins
    monkeypatch.setattr(type(logins), "login_at_once", lambda *_: None)
    monkeypatch.setattr(type(logins), "login", lambda *_: Event().wait())
    monkeypatch.setattr(login_deadline, "PAUSE_S", 0.01)
    door.broker.events.subscribe(lambda key, _: told.append(key))
    with ours, theirs:
        attempt = LoginAttempt(Connection(door.server, theirs, ("127.0.0.1", 50000), None))
        asked = login.Login(mechanism="PLAIN", username="guest", password=b"guest")
        limit = login_deadline.LoginDeadline(0.01, login.HandshakeError("no login in time"))
        with pytest.raises(login.HandshakeError), limit:
            attempt._check(asked, limit)

    assert told == ["user.authentication.failure"]
