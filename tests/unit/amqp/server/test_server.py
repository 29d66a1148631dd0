"""The door as a whole: taking leave of its clients."""
import gc
import weakref

import gevent
import pytest
from gevent import socket
from gevent.event import Event

from gomq_py.amqp.server import server
from gomq_py.amqp.server.connection import Connection
from gomq_py.amqp.wire.frames import PROTOCOL_HEADER, method_frame
from gomq_py.amqp.wire.methods import (
    ChannelOpen, ChannelOpenOk, ConnectionClose, ConnectionCloseOk, ConnectionOpen, ConnectionOpenOk,
    ConnectionStart, ConnectionStartOk, ConnectionTune, ConnectionTuneOk,
)
from gomq_py.errors import NotFound
from gomq_py.hub import clients as clients_module
from gomq_py.observability.quiet_log import QuietLog
from tests.support.door import Client, poll_until
from tests.support.no_switch import no_switch
from tests.support.waiting import in_time

FORCED = "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'"


@pytest.fixture
def closing(door, monkeypatch):
    """A function that has the server close, which waits then for a client that is in,
    however busy the machine is.
    """
    monkeypatch.setattr(clients_module, "STOP_TIMEOUT_S", in_time(30))
    ends = []

    def begin():
        client = door.client()
        ends.append((client, gevent.spawn(door.hub.take_leave)))
        client.expect(ConnectionClose, 0)

    yield begin
    for client, greenlet in ends:
        client.send_method(ConnectionCloseOk(), 0)
        greenlet.join(timeout=in_time(30))
        assert greenlet.successful() and not door.hub.clients


def asked_in(door, username="guest"):
    """A client that has sent its credentials."""
    client = door.stranger()
    client.send(PROTOCOL_HEADER)
    client.expect(ConnectionStart, 0)
    client.start_ok(username, username)
    return client


def checked_slowly(door):
    """(a client whose password is being checked, an Event that ends the check). Whoever comes next is let in
    at once.
    """
    asked, checked, logins = Event(), Event(), door.broker.logins
    login, login_at_once = logins.login, logins.login_at_once

    def slowly(*credentials):
        asked.set()
        checked.wait()
        return login(*credentials)

    logins.login, logins.login_at_once = slowly, lambda *credentials: None
    late = asked_in(door)
    assert asked.wait(in_time(30))
    logins.login, logins.login_at_once = login, login_at_once
    return late, checked


def ask_for_vhost(client, is_tuned=False):
    if not is_tuned:
        client.expect(ConnectionTune, 0)
    client.send_method(ConnectionTuneOk(channel_max=10, frame_max=4096), 0)
    client.send_method(ConnectionOpen(virtual_host="/"), 0)


def test_close_tells_every_client_and_waits_for_them(door):
    clients = [door.client(), door.client()]
    closing = gevent.spawn(door.hub.take_leave)

    for client in clients:
        client.expect_error(
            ConnectionClose, 320,
            "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'", 0,
        )
        assert not closing.ready()
        client.send_method(ConnectionCloseOk(), 0)
        client.expect_end()

    closing.join(timeout=in_time(30))
    assert closing.successful()
    assert not door.hub.clients


def test_close_does_not_wait_for_ever(door, monkeypatch):
    monkeypatch.setattr(clients_module, "STOP_TIMEOUT_S", 0.02)
    client = door.client()

    door.hub.take_leave()

    client.expect(ConnectionClose, 0)
    client.expect_end()


@pytest.mark.parametrize("takes_leave", [False, True])
def test_client_is_served_without_the_greenlet_that_let_it_in(door, takes_leave):
    """Which would take as much memory as all the rest of it."""
    ours, theirs = socket.socketpair()
    letting_in = gevent.spawn(door.server.handle, theirs, "")
    client = Client(ours)
    client.log_in()
    gone = Event()

    letting_in.get(timeout=in_time(30))(gone.set)
    client.call(ChannelOpen(), ChannelOpenOk, 1)
    assert not gone.is_set() and len(door.hub.clients) == 1
    if takes_leave:
        client.send_method(ConnectionClose(reply_code=200), 0)
        client.expect(ConnectionCloseOk, 0)
        client.expect_end()
    client.close()

    assert gone.wait(in_time(30))
    poll_until(lambda: not door.hub.clients)
    theirs.close()


def test_login_takes_no_greenlet_of_whom_is_known(door, monkeypatch):
    """And he who accepts clients does not wait for one."""
    door.client().close()  # from now on the password is known
    poll_until(lambda: not door.hub.clients)
    ours, theirs = socket.socketpair()
    gone = []
    begun = []
    spawn = gevent.spawn
    monkeypatch.setattr(gevent, "spawn", lambda *arguments: begun.append(arguments) or spawn(*arguments))

    with no_switch():
        when_gone = door.server.handle(theirs, "")
    when_gone(lambda: gone.append(theirs.close()))
    client = Client(ours)
    client.log_in()
    client.call(ConnectionClose(reply_code=200), ConnectionCloseOk, 0)
    client.expect_end()
    client.close()

    poll_until(lambda: gone)
    assert begun == [] and not door.hub.clients and not door.hub.admission.count


def test_refused_client_leaves_no_cycle_of_objects(door):
    """Memory that waits for the collector, at whatever rate strangers come."""
    made = []

    class Noted(Connection):
        __slots__ = ()

        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            made.append(weakref.ref(self))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "Connection", Noted)
        patch.setattr(QuietLog, "warning", lambda *_: None)  # pytest keeps what a line was made of
        wrong = door.stranger()
        wrong.send(PROTOCOL_HEADER)
        wrong.expect(ConnectionStart, 0)
        gc.collect()
        gc.disable()
        try:
            wrong.start_ok("guest", "wrong")
            wrong.expect(ConnectionClose, 0)
            wrong.close()
            poll_until(lambda: not door.hub.admission.count)
            poll_until(lambda: made[0]() is None)
        finally:
            gc.enable()


def test_client_that_goes_while_its_password_is_checked_leaves_nothing(door):
    late, checked = checked_slowly(door)
    late.close()
    checked.set()

    poll_until(lambda: not door.hub.admission.count)
    assert door.hub.clients.churn.connection_created == 0


def test_what_follows_credentials_whose_check_takes_its_time_is_walked_in_order(door):
    login = door.broker.logins.login

    def slowly(*credentials):
        gevent.sleep(0)
        return login(*credentials)

    door.broker.logins.login = slowly
    door.broker.logins.login_at_once = lambda *credentials: None
    client = door.stranger()

    client.send(
        PROTOCOL_HEADER, method_frame(0, ConnectionStartOk(
            client_properties={}, mechanism="PLAIN", response=b"\0guest\0guest", locale="en_US")),
        method_frame(0, ConnectionTuneOk(channel_max=10, frame_max=4096)),
        method_frame(0, ConnectionOpen(virtual_host="/")),
        *(method_frame(number, ChannelOpen()) for number in range(1, 6)))

    client.expect(ConnectionStart, 0)
    client.expect(ConnectionTune, 0)
    client.expect(ConnectionOpenOk, 0)
    for number in range(1, 6):
        client.expect(ChannelOpenOk, number)


def test_nobody_comes_in_after_close(door):
    door.hub.take_leave()

    door.stranger().expect_end()


def test_login_whose_password_is_checked_while_the_server_closes_comes_to_nothing(door, closing):
    """As that of a costly hash, whose thread is not waited for."""
    late, checked = checked_slowly(door)
    closing()
    succeeded = door.hub.clients.churn.logins_succeeded

    checked.set()

    late.expect_end()
    assert door.hub.clients.churn.logins_succeeded == succeeded
    assert len(door.hub.clients) == 1


def test_client_that_asks_for_its_vhost_while_the_server_closes_is_told_so(door, closing):
    late = asked_in(door)
    closing()

    ask_for_vhost(late)

    late.expect_error(ConnectionClose, 320, FORCED, 0)
    late.expect_end()


def test_strangers_are_gone_when_the_server_is_closed(door):
    door.settings.login_timeout = 3600
    silent, greeted, known = door.stranger(), door.stranger(), asked_in(door)
    greeted.send(PROTOCOL_HEADER)
    greeted.expect(ConnectionStart, 0)
    known.expect(ConnectionTune, 0)

    door.hub.take_leave()

    for client in (silent, greeted, known):
        client.expect_end()


@pytest.mark.parametrize("goes", ["the user", "the vhost", "the server"])
def test_client_that_is_logged_in_does_not_come_in_when_what_it_needs_has_gone_since(door, goes):
    door.broker.users.set_user("bob", "bob")
    door.broker.users.set_permission("bob", "/", ".*", ".*", ".*")
    texts = {
        "the user": (530, "NOT_ALLOWED - access to vhost '/' refused for user 'bob'"),
        "the vhost": (530, "NOT_ALLOWED - vhost / not found"),
        "the server": (320, FORCED)}
    client = asked_in(door, "bob")
    client.expect(ConnectionTune, 0)

    if goes == "the user":
        door.broker.users.delete_user("bob")
    elif goes == "the vhost":
        door.broker.delete_vhost("/")
    else:
        door.hub.clients.is_closing = True
    ask_for_vhost(client, is_tuned=True)

    client.expect_error(ConnectionClose, *texts[goes], 0)
    client.expect_end()
    assert not door.hub.clients


def test_errors_of_channels_that_a_client_repeats_fill_no_disk(door, monkeypatch, caplog):
    """The same error of one connection is one line in ten seconds; others have a budget together."""
    monkeypatch.setattr(server, "CHANNEL_ERRORS_MAX", 3)
    errors = server.AMQPServer(door.broker, door.settings, door.hub)
    caplog.clear()

    for _ in range(5):
        errors.log_channel_error("a -> b", 1, NotFound("no queue 'x' in vhost '/'"))
    for number in range(5):
        errors.log_channel_error("a -> b", 1, NotFound(f"no queue '{number}' in vhost '/'"))

    told = [text for text in caplog.messages if "closing the channel with" in text]
    assert len(told) == 3
    assert told[0] == "connection a -> b, channel 1: closing the channel with no queue 'x' in vhost '/'"
