"""Clients of this process: let in without a password and without a port, as nobody else is."""
import gevent
import pytest
from gevent import socket

from gomq_py.amqp.server.login import LOCAL
from gomq_py.amqp.wire.frames import PROTOCOL_HEADER
from gomq_py.amqp.wire.methods import ConnectionClose, ConnectionStart
from gomq_py.auth.permissions import Permission
from gomq_py.auth.users import User
from gomq_py.broker.routing.route import ExchangeState
from gomq_py.client.connection import Connection
from gomq_py.client.errors import ChannelClosed, ConnectionClosed
from gomq_py.client.url import Parameters
from tests.support.door import Client, Door, poll_until
from tests.support.waiting import in_time, wait_until

TIMEOUT_S = in_time(30)


class Operator(User):
    """Somebody who is in no list of users and may do everything."""

    __slots__ = ()

    def permission(self, vhost):
        return Permission(self.name, vhost, ".*", ".*", ".*")


@pytest.fixture
def ann(door):
    door.broker.users.set_user("ann", "secret")
    door.broker.users.set_permission("ann", "/", ".*", ".*", ".*")
    return door.broker.users.get("ann")


def connected(door, user, vhost="/", **options):
    """A client of this process, logged in as the user."""
    parameters = Parameters("this broker", 0, "", "", vhost, False, {"auth_mechanism": "external"})
    return Connection(
        parameters, socket_module=socket, connected=door.server.local.connect(user), timeout_s=TIMEOUT_S,
        heartbeat_s=0, **options)


def why_it_ended(connection):
    """What the broker said when it closed the connection."""
    with pytest.raises(ConnectionClosed) as raised:
        while True:
            connection.drain(TIMEOUT_S)
    return raised.value.reply_code, raised.value.reply_text


def test_it_is_a_client_like_others(door, ann):
    with connected(door, ann, name="Shovel jobs") as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        channel.publish("", "q", b"body")
        channel.consume("q", no_ack=True)

        assert channel.next_delivery(TIMEOUT_S).body == b"body"
        server_side = door.connection()
        assert (server_side.user, server_side.door, server_side.mechanism) == (ann, LOCAL, "EXTERNAL")
        assert server_side.client_properties["connection_name"] == "Shovel jobs"
        assert server_side.name.startswith("local:1 -> ")
    wait_until(lambda: not door.hub.clients.all(), sleep=gevent.sleep)
    wait_until(lambda: door.hub.admission.count == 0, sleep=gevent.sleep)


def test_names_of_connections_are_different(door, ann):
    with connected(door, ann), connected(door, ann):
        assert len({one.name for one in door.hub.clients}) == 2


def test_rights_are_the_users(door, ann):
    door.broker.users.set_permission("ann", "/", "^mine", "^mine", "^mine")
    with connected(door, ann) as connection:
        with pytest.raises(ChannelClosed, match="queue 'other' in vhost '/' refused for user 'ann'"):
            connection.channel().queue_declare("other")


def test_who_is_in_no_list_may_be_let_in(door):
    with connected(door, Operator("gomq-py-ctl", "", "", (), ExchangeState())) as connection:
        connection.channel().queue_declare("q")


def test_a_vhost_that_is_not_the_users_stays_closed(door, ann):
    door.broker.create_vhost("other")

    with pytest.raises(ConnectionClosed, match="530 .*user 'ann' has no permission for vhost 'other'"):
        connected(door, ann, "other")
    with pytest.raises(ConnectionClosed, match="530 .*vhost none not found"):
        connected(door, ann, "none")
    wait_until(lambda: door.hub.admission.count == 0, sleep=gevent.sleep)


def test_a_user_who_was_deleted_is_not_let_in(door, ann):
    door.broker.users.delete_user("ann")
    door.broker.users.set_user("ann", "secret")  # another one, of the same name
    door.broker.users.set_permission("ann", "/", ".*", ".*", ".*")

    with pytest.raises(ConnectionClosed, match="530 .*user 'ann' was deleted"):
        connected(door, ann)


def test_the_connection_ends_when_the_user_is_deleted(door, ann):
    connection = connected(door, ann)

    door.broker.users.delete_user("ann")

    assert why_it_ended(connection) == (320, "CONNECTION_FORCED - user 'ann' was deleted")


def test_the_connection_ends_when_the_permission_for_the_vhost_is_withdrawn(door, ann):
    connection = connected(door, ann)

    door.broker.users.delete_permission("ann", "/")

    assert why_it_ended(connection) == (
        320, "CONNECTION_FORCED - user 'ann' has no permission for vhost '/'")


def test_a_consumer_ends_when_its_user_may_not_read_any_more(door, ann):
    connection = connected(door, ann)
    reading, writing = connection.channel(), connection.channel()
    reading.queue_declare("q")
    reading.consume("q", no_ack=True)

    door.broker.users.set_permission("ann", "/", ".*", ".*", "^$")

    with pytest.raises(ChannelClosed, match="403 .*access to queue 'q' in vhost '/' refused for user 'ann'"):
        while True:
            connection.drain(TIMEOUT_S)
    writing.publish("", "q", b"still")
    poll_until(lambda: door.queue("q").ready_count == 1)
    connection.close()


def test_what_others_lose_or_what_does_not_matter_ends_nothing(door, ann):
    door.broker.users.set_user("bob", "secret")
    door.broker.users.set_permission("bob", "/", ".*", ".*", ".*")
    others = door.client(username="ann", password="secret")
    with connected(door, ann) as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        channel.consume("q", no_ack=True)

        door.broker.users.delete_user("bob")
        door.broker.users.set_permission("ann", "/", "", "", "^q$")
        channel.consume("q", no_ack=True)
    door.broker.users.delete_permission("ann", "/")  # which ends no client that came through a port
    others.expect_silence()


def test_limits_of_vhosts_and_users_count_and_those_of_the_port_do_not(tmp_path):
    with Door(tmp_path, max_connections=1, max_connections_per_address=1, max_pending_logins=1) as door:
        guest = door.broker.users.get("guest")
        first, second = connected(door, guest), connected(door, guest)
        door.client()
        door.vhost.limits = {"max-connections": 3}
        with pytest.raises(ConnectionClosed, match="530 .*connection limit .3. is reached"):
            connected(door, guest)
        first.close()
        second.close()


def test_an_alarm_holds_it_as_everybody(door, ann):
    connection = connected(door, ann)
    channel = connection.channel()
    channel.queue_declare("q")
    door.hub.clients.alarmed("low on disk")
    poll_until(lambda: door.connection().blocked_reason)

    channel.publish("", "q", b"held")
    wait_until(lambda: connection.drain(0.01) or connection.blocked_reason, sleep=gevent.sleep)

    assert connection.blocked_reason == "low on disk"
    assert door.queue("q").ready_count == 0
    door.hub.clients.alarmed(None)
    poll_until(lambda: door.queue("q").ready_count == 1)
    connection.close()


def test_nobody_comes_in_once_the_broker_stops(door, ann):
    door.hub.clients.is_closing = True
    with pytest.raises(ConnectionRefusedError, match="shutdown"):
        door.server.local.connect(ann)
    door.hub.clients.is_closing = False


def test_nobody_comes_in_beyond_the_descriptors(door, ann, monkeypatch):
    monkeypatch.setattr(door.hub.admission, "_most", 0)
    with pytest.raises(OSError, match="as many connections as its descriptors allow"):
        door.server.local.connect(ann)


def test_the_broker_takes_leave_of_it(tmp_path):
    with Door(tmp_path) as door:
        connection = connected(door, door.broker.users.get("guest"))
        answering = gevent.spawn(why_it_ended, connection)

    assert answering.get()[0] == 320


def test_a_client_that_vanishes_is_forgotten(door, ann):
    connection = connected(door, ann)
    connection.channel().queue_declare("mine", exclusive=True)

    connection.abort()

    wait_until(lambda: not door.hub.clients.all() and "mine" not in door.vhost.queues, sleep=gevent.sleep)
    wait_until(lambda: door.hub.admission.count == 0, sleep=gevent.sleep)


def test_one_that_never_logs_in_is_dropped(tmp_path):
    with Door(tmp_path, login_timeout=1) as door:
        ours = door.server.local.connect(door.broker.users.get("guest"))
        ours.settimeout(TIMEOUT_S)

        assert ours.recv(1) == b""
        ours.close()
        wait_until(lambda: door.hub.admission.count == 0, sleep=gevent.sleep)


@pytest.mark.parametrize("mechanism", ["EXTERNAL", "external", "LOCAL"])
def test_a_client_of_a_port_does_not_get_in_without_a_password(door, ann, mechanism):
    """Not with the mechanism that a local client uses, under no name, while local ones are there."""
    with connected(door, ann):
        client = door.stranger()
        client.send(PROTOCOL_HEADER)
        assert b"EXTERNAL" not in client.expect(ConnectionStart, 0).mechanisms
        client.start_ok(mechanism=mechanism, response=b"ann")
        frame = client.frame()
        assert frame is None or frame[2][:4] == ConnectionClose.ID.to_bytes(4, "big")
        assert len(door.hub.clients) == 1


def test_a_local_client_that_gives_a_password_is_asked_for_a_right_one(door, ann):
    client = Client(door.server.local.connect(ann))
    door.clients.append(client)
    client.send(PROTOCOL_HEADER)
    client.expect(ConnectionStart, 0)
    client.start_ok("ann", "wrong")

    assert client.expect(ConnectionClose, 0).reply_code == 403
