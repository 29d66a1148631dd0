"""Connections: frames that belong to no channel, errors that end everything, heartbeats, slow readers,
and the order at the end.
"""
import gevent
import pytest
from gevent import socket

from gomq_py.amqp.server import connection as connection_module
from gomq_py.amqp.wire.frames import HEARTBEAT_FRAME, PROTOCOL_HEADER, frame, method_frame
from gomq_py.amqp.wire.methods import (
    BasicAck, BasicConsume, BasicConsumeOk, BasicDeliver, BasicGet, BasicGetOk, ChannelClose, ChannelCloseOk,
    ChannelOpen, ChannelOpenOk, ConfirmSelect, ConfirmSelectOk, ConnectionBlocked, ConnectionClose,
    ConnectionCloseOk, ConnectionOpen, ConnectionStart, ConnectionStartOk, ConnectionTuneOk,
    ConnectionUnblocked, ConnectionUpdateSecret, ConnectionUpdateSecretOk, ExchangeDeclare, ExchangeDeclareOk,
    ExchangeDelete, ExchangeDeleteOk, QueueBind, QueueBindOk, QueueDeclare, QueueDeclareOk, QueueDelete,
    QueueDeleteOk, TxCommit, TxCommitOk, TxSelect, TxSelectOk, decode_method,
)
from gomq_py.hub.heartbeats import Heartbeats
from gomq_py.hub.scheduler import SliceClock
from tests.support.door import poll_the_loop, publish_frames
from tests.support.waiting import in_time, wait_until

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8


def gone(door):
    wait_until(lambda: not door.hub.clients, sleep=gevent.sleep)


def no_stream(monkeypatch):
    monkeypatch.setattr(connection_module.Connection, "open_stream", fails)


def no_login(monkeypatch):
    monkeypatch.setattr(connection_module.LoginAttempt, "begin", fails)


def no_reading(monkeypatch):
    def begin(login):
        login.connection.stream.begin(login, login, b"", login.connection.over)
        fails()

    monkeypatch.setattr(connection_module.LoginAttempt, "begin", begin)


def fails(*_):
    raise OSError(9, "Bad file descriptor")


@pytest.mark.parametrize("fault", [no_stream, no_login, no_reading])
def test_a_fault_at_the_beginning_gives_everything_back_once_and_is_raised(door, monkeypatch, fault):
    ours, theirs = socket.socketpair()
    given_back = []
    fault(monkeypatch)
    monkeypatch.setattr(type(door.server.gate), "leave", lambda gate, admitted: given_back.append(admitted))
    with ours, theirs:
        connection = connection_module.Connection(door.server, theirs, ("127.0.0.1", 50000), "admitted")
        with pytest.raises(OSError, match="Bad file"):
            connection.begin()
        poll_the_loop()

    assert given_back == ["admitted"]


# framing

@pytest.mark.parametrize(("octets", "code", "text"), [
    (frame(9, 0, b"abc"), 501, 'FRAME_ERROR - type 9, all octets = <<"abc">>: unknown_frame'),
    (frame(9, 1, b"\0\1"), 501, "FRAME_ERROR - type 9, all octets = <<0,1>>: unknown_frame"),
    (frame(0, 1, b"x" * 20), 501, f'FRAME_ERROR - type 0, first 16 octets = <<"{"x" * 16}">>: unknown_frame'),
    (frame(HEARTBEAT, 0, b"x"), 501, 'FRAME_ERROR - type 8, all octets = <<"x">>: unknown_frame'),
    (frame(HEARTBEAT, 1, b""), 505, "UNEXPECTED_FRAME - type 8, all octets = <<>>"),
    (frame(METHOD, 1, b"\0\1\2"), 501, "FRAME_ERROR - type 1, all octets = <<0,1,2>>: unknown_frame"),
    (frame(METHOD, 0, b""), 501, "FRAME_ERROR - type 1, all octets = <<>>: unknown_frame"),
    (frame(HEADER, 0, b""), 501, "FRAME_ERROR - type 2, all octets = <<>>: unknown_frame"),
    (
        frame(HEADER, 0, b"\0\x3c" + bytes(12)), 505,
        "UNEXPECTED_FRAME - type 2, all octets = <<0,60,0,0,0,0,0,0,0,0,0,0,0,0>>",
    ),
    (frame(HEADER, 1, b"\0\x3c"), 501, "FRAME_ERROR - type 2, all octets = <<0,60>>: unknown_frame"),
    (frame(BODY, 0, b"x"), 505, 'UNEXPECTED_FRAME - type 3, all octets = <<"x">>'),
    (
        frame(HEADER, 7, bytes(14)), 505,
        "UNEXPECTED_FRAME - expected method frame, got non method frame instead",
    ),
])
def test_frame_that_is_none_or_out_of_place_closes_the_connection(client, octets, code, text):
    client.send(octets)

    client.expect_error(ConnectionClose, code, text, 0)


@pytest.mark.parametrize("head", [b"\x01\0\1" + (131073).to_bytes(4, "big"), b"\x01\0\0\xff\xff\xff\xff"])
def test_head_of_a_frame_that_is_too_large_is_enough_to_close_the_connection(client, head):
    client.send(head)

    assert client.expect(ConnectionClose, 0).reply_code == 501
    client.expect_end()


def test_wrong_frame_end_closes_the_connection_and_what_follows_is_not_read(client, door):
    client.send(frame(METHOD, 1, bytes(4))[:-1] + b"\0", method_frame(1, QueueDeclare(queue="q")))

    assert client.expect(ConnectionClose, 0).reply_code == 501
    assert "q" not in door.vhost.queues


def test_client_with_many_channels_is_told_of_a_frame_that_is_none(door):
    """They end in slices, and the socket is not closed before that."""
    client = door.client(channels=range(1, 100))

    client.send(frame(METHOD, 1, bytes(4))[:-1] + b"\0")

    assert client.expect(ConnectionClose, 0).reply_code == 501
    client.expect_end()
    gone(door)


def test_frame_max_is_the_negotiated_one(door):
    client = door.client(frame_max=4096)

    client.send(b"\x03\0\1" + (4097).to_bytes(4, "big"))

    assert client.expect(ConnectionClose, 0).reply_code == 501


# methods

@pytest.mark.parametrize("method", [
    QueueDeclare(queue="q"), ChannelOpen(), ConnectionOpen(virtual_host="/"), ConnectionTuneOk(),
    ConnectionStartOk(), ConnectionCloseOk(),
    ConnectionBlocked(),
])
def test_method_that_is_not_for_channel_0_closes_the_connection(client, method):
    client.send_method(method, 0)

    client.expect_error(
        ConnectionClose, 504, "CHANNEL_ERROR - unexpected method in connection state running", 0,
        blamed=type(method),
    )


@pytest.mark.parametrize("method", [ConnectionClose(), ConnectionOpen()])
def test_connection_method_on_a_channel_closes_the_connection(client, method):
    client.send_method(method)

    client.expect_error(
        ConnectionClose, 503, "COMMAND_INVALID - unimplemented method", 0, blamed=type(method)
    )


@pytest.mark.parametrize("channel", [0, 1, 5])
def test_unknown_method_closes_the_connection(client, channel):
    client.send(frame(METHOD, channel, b"\0\x63\0\x0a"))

    close = client.expect(ConnectionClose, 0)
    assert (close.reply_code, close.class_id, close.method_id) == (540, 99, 10)


@pytest.mark.parametrize("method", [QueueDeclare(), ChannelClose(), ChannelCloseOk()])
def test_method_on_a_channel_that_is_not_open_closes_the_connection(client, method):
    client.send_method(method, 5)

    client.expect_error(
        ConnectionClose, 504, "CHANNEL_ERROR - expected 'channel.open'", 0, blamed=type(method)
    )


def test_channels_are_limited_to_the_negotiated_number(door):
    client = door.client(channels=(1, 2), channel_max=2)

    client.send_method(ChannelOpen(), 3)

    client.expect_error(
        ConnectionClose, 530,
        "NOT_ALLOWED - number of channels opened (2) has reached the negotiated channel_max (2)", 0)


def test_channel_numbers_above_the_negotiated_maximum_are_taken_as_in_rabbitmq(door):
    client = door.client(channel_max=2)

    client.call(ChannelOpen(), ChannelOpenOk, 65535)


def test_user_has_as_many_channels_over_all_connections_as_its_limit(door):
    door.broker.user_limits.set("guest", "max-channels", 3)
    first, second = door.client(channels=(1, 2)), door.client()

    second.send_method(ChannelOpen(), 2)

    second.expect_error(
        ConnectionClose, 530,
        "NOT_ALLOWED - number of channels opened for user 'guest' has reached the maximum "
        "allowed user limit of (3)",
        0)
    first.call(ChannelOpen(), ChannelOpenOk, 3)


def test_secret_of_a_user_with_a_password_is_answered(client):
    client.call(ConnectionUpdateSecret(new_secret=b"x", reason="y"), ConnectionUpdateSecretOk, 0)


def test_fault_of_a_handler_closes_the_connection_and_not_the_server(door, monkeypatch):
    client = door.client()
    monkeypatch.setattr(door.vhost, "declare_queue", None)

    client.send_method(QueueDeclare(queue="q"))

    client.expect_error(ConnectionClose, 541, "INTERNAL_ERROR - Unexpected error, please report", 0)
    monkeypatch.undo()
    door.client().call(QueueDeclare(queue="q"), QueueDeclareOk)


# ends

def test_close_is_answered_and_the_socket_closed(client, door):
    client.call(ConnectionClose(reply_code=200), ConnectionCloseOk, 0)

    client.expect_end()
    gone(door)


def test_frames_behind_close_are_not_read(client, door):
    client.send(method_frame(0, ConnectionClose()), method_frame(1, QueueDeclare(queue="q")))
    client.expect(ConnectionCloseOk, 0)

    assert "q" not in door.vhost.queues


def test_client_that_still_writes_when_its_close_is_answered_is_not_reset(client, door):
    client.call(ConnectionClose(reply_code=200), ConnectionCloseOk, 0)
    client.expect_end()
    gone(door)

    for _ in range(3):
        client.send(HEARTBEAT_FRAME)
        client.expect_end()

    assert len(door.hub.lingering) == 1 and door.hub.admission.count == 1
    client.close()
    wait_until(lambda: not door.hub.lingering and not door.hub.admission.count, sleep=gevent.sleep)


def test_client_that_still_writes_when_the_broker_has_closed_is_not_reset(client, door):
    door.connection().force_close("enough")
    client.expect(ConnectionClose, 0)

    client.send(method_frame(0, ConnectionCloseOk()), HEARTBEAT_FRAME)
    client.expect_end()
    client.send(HEARTBEAT_FRAME)
    client.expect_end()

    assert len(door.hub.lingering) == 1


def test_client_whose_login_is_refused_is_not_reset_before_it_has_read_why(door):
    client = door.stranger()
    client.send(PROTOCOL_HEADER)
    client.expect(ConnectionStart, 0)
    client.start_ok(password="wrong")
    client.send(HEARTBEAT_FRAME)

    assert client.expect(ConnectionClose, 0).reply_code == 403
    client.expect_end()
    client.send(HEARTBEAT_FRAME)
    client.expect_end()


def test_server_that_closes_waits_for_no_client_that_it_has_taken_leave_of(client, door):
    client.call(ConnectionClose(reply_code=200), ConnectionCloseOk, 0)
    client.expect_end()
    wait_until(lambda: door.hub.lingering, sleep=gevent.sleep)

    door.hub.take_leave()

    gevent.joinall(door.greenlets, timeout=in_time(30))
    assert not door.hub.lingering and all(one.ready() for one in door.greenlets)


def test_answers_before_close_are_sent(client):
    client.send(method_frame(1, QueueDeclare(queue="q")), method_frame(0, ConnectionClose()))

    client.expect(QueueDeclareOk)
    client.expect(ConnectionCloseOk, 0)


PERSISTENT = b"\x10\x00\x02"


def finished(door):
    """The disk has what it was asked for; how many waited for it."""
    return door.committer.finish()


def call_durably(door, client, method, answer, channel=1):
    """Send a method that is answered when the disk has what it does, and return its answer."""
    client.send_method(method, channel)
    client.expect_silence()
    finished(door)
    return client.expect(answer, channel)


@pytest.mark.parametrize(("method", "answer"), [
    (QueueDelete(queue="q"), QueueDeleteOk),
    (QueueDeclare(queue="another", durable=True), QueueDeclareOk),
    (QueueBind(queue="q", exchange="amq.direct"), QueueBindOk),
    (ExchangeDelete(exchange="x"), ExchangeDeleteOk),
])
@pytest.mark.parametrize("ends_channel", [False, True])
def test_close_is_answered_behind_answers_that_wait_for_the_disk(
    slow_disk_door, method, answer, ends_channel,
):
    client = slow_disk_door.client()
    call_durably(slow_disk_door, client, QueueDeclare(queue="q", durable=True), QueueDeclareOk)
    exchange = ExchangeDeclare(exchange="x", type="fanout", durable=True)
    call_durably(slow_disk_door, client, exchange, ExchangeDeclareOk)

    before = method_frame(1, ChannelClose()) if ends_channel else b""
    client.send(method_frame(1, method), before, method_frame(0, ConnectionClose()))

    client.expect_silence()
    finished(slow_disk_door)
    client.expect(answer)
    if ends_channel:
        client.expect(ChannelCloseOk)
    client.expect(ConnectionCloseOk, 0)
    client.expect_end()
    gone(slow_disk_door)


def test_close_is_answered_behind_confirms_and_commits_of_all_channels(slow_disk_door):
    client = slow_disk_door.client(channels=(1, 2, 3, 4))
    call_durably(slow_disk_door, client, QueueDeclare(queue="q", durable=True), QueueDeclareOk)
    client.call(ConfirmSelect(), ConfirmSelectOk)
    client.call(TxSelect(), TxSelectOk, 2)
    client.call(ConfirmSelect(), ConfirmSelectOk, 3)

    client.send(
        publish_frames("q", properties=PERSISTENT, channel=3), method_frame(3, ChannelClose()),
        publish_frames("q", properties=PERSISTENT, channel=2), method_frame(2, TxCommit()),
        publish_frames("q", properties=PERSISTENT) * 3, method_frame(0, ConnectionClose()))

    client.expect_silence()
    finished(slow_disk_door)
    heard = {}
    while True:
        kind, channel, payload = client.frame()
        assert kind == METHOD
        if channel == 0:
            break
        heard.setdefault(channel, []).append(type(decode_method(payload)))
    assert heard == {1: [BasicAck], 2: [TxCommitOk], 3: [BasicAck, ChannelCloseOk]}
    assert isinstance(decode_method(payload), ConnectionCloseOk)
    client.expect_end()


def test_publishes_in_the_same_read_are_confirmed_before_the_close(client):
    client.call(ConfirmSelect(), ConfirmSelectOk)

    client.send(publish_frames("nowhere") * 3, method_frame(0, ConnectionClose()))

    assert client.expect(BasicAck).delivery_tag == 3
    client.expect(ConnectionCloseOk, 0)


def test_close_of_a_connection_that_is_told_that_the_disk_refused_is_not_agreed_to(slow_disk_door):
    client = slow_disk_door.client(channels=(1, 2))
    client.send_method(QueueDeclare(queue="q", durable=True))
    client.send(method_frame(2, QueueDeclare(queue="p", durable=True)), method_frame(0, ConnectionClose()))
    client.expect_silence()

    slow_disk_door.committer.finish(OSError("no space left"))

    client.expect_error(
        ConnectionClose, 541, "INTERNAL_ERROR - the disk refused a change: no space left", 0)
    client.send_method(ConnectionCloseOk(), 0)
    client.expect_end()
    gone(slow_disk_door)


def test_client_that_goes_while_its_close_waits_for_the_disk_is_forgotten(slow_disk_door):
    client = slow_disk_door.client()
    client.send_method(QueueDeclare(queue="q", durable=True))
    client.send_method(ConnectionClose(), 0)
    client.expect_silence()

    client.close()

    gone(slow_disk_door)
    assert finished(slow_disk_door)


def test_client_that_is_silent_while_its_close_waits_for_the_disk_is_given_up(slow_disk_door):
    client = slow_disk_door.client(heartbeat=1)
    client.send_method(QueueDeclare(queue="q", durable=True))
    client.send_method(ConnectionClose(), 0)

    while (frame_ := client.frame()) is not None:
        assert frame_[0] == HEARTBEAT

    gone(slow_disk_door)
    assert finished(slow_disk_door)


@pytest.mark.parametrize("in_one_read", [True, False])
@pytest.mark.parametrize("channels", [1, 99])
def test_what_comes_behind_a_close_that_waits_for_the_disk_is_dropped(slow_disk_door, channels, in_one_read):
    client = slow_disk_door.client(channels=range(1, channels + 1))
    call_durably(slow_disk_door, client, QueueDeclare(queue="q", durable=True), QueueDeclareOk)
    client.send_method(QueueDeclare(queue="another", durable=True))
    client.expect_silence()
    close, more = method_frame(0, ConnectionClose()), b"".join((
        publish_frames("q", bytes(200_000)) * 3, method_frame(channels + 1, ChannelOpen()),
        method_frame(1, QueueDelete(queue="q")), method_frame(0, ConnectionClose()),
        frame(HEARTBEAT, 0, b""), method_frame(0, ConnectionCloseOk()), publish_frames("q", b"x")))

    if in_one_read:
        client.send(close + more)
    else:
        client.send(close)
        client.expect_silence()
        client.send(more)

    client.expect_silence()
    finished(slow_disk_door)
    client.expect(QueueDeclareOk)
    client.expect(ConnectionCloseOk, 0)
    client.expect_end()
    gone(slow_disk_door)
    assert slow_disk_door.queue("q").ready_count == 0


def test_connection_whose_close_waits_for_the_disk_can_be_closed_by_the_broker(slow_disk_door):
    client = slow_disk_door.client()
    client.send_method(QueueDeclare(queue="q", durable=True))
    client.send_method(ConnectionClose(), 0)
    client.expect_silence()

    slow_disk_door.connection().force_close("enough")

    assert client.expect(ConnectionClose, 0).reply_code == 320
    finished(slow_disk_door)
    client.expect(QueueDeclareOk)
    client.expect(ConnectionCloseOk, 0)
    client.expect_end()
    gone(slow_disk_door)


def test_everything_but_close_is_dropped_behind_a_connection_error(client, door):
    client.send(
        frame(HEARTBEAT, 1, b""), method_frame(1, QueueDeclare(queue="q")), publish_frames("q"),
        method_frame(5, ChannelOpen()), HEARTBEAT_FRAME)
    client.expect(ConnectionClose, 0)
    client.expect_silence()

    client.send_method(ConnectionCloseOk(), 0)

    client.expect_end()
    assert "q" not in door.vhost.queues


def test_client_may_close_while_the_server_does(client):
    client.send(frame(HEARTBEAT, 1, b""), method_frame(0, ConnectionClose()))

    client.expect(ConnectionClose, 0)
    client.expect(ConnectionCloseOk, 0)
    client.expect_end()


def test_client_that_does_not_agree_to_a_close_is_dropped(client, monkeypatch):
    monkeypatch.setattr(connection_module, "CLOSE_TIMEOUT_S", 0.02)

    client.send(frame(HEARTBEAT, 1, b""))

    client.expect(ConnectionClose, 0)
    client.expect_end()


def test_error_gives_everything_back_at_once(client, door):
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    client.call(QueueDeclare(queue="mine", exclusive=True), QueueDeclareOk)
    client.call(BasicConsume(queue="q"), BasicConsumeOk)

    client.send(frame(HEARTBEAT, 1, b""))
    client.expect(ConnectionClose, 0)

    assert door.queue("q").consumer_count == 0
    assert "mine" not in door.vhost.queues


def test_lost_client_is_forgotten(client, door):
    client.close()

    gone(door)


def test_connection_is_named_for_its_ends_and_by_its_client(door):
    client = door.stranger()
    client.log_in()

    assert door.connection().name == "unix -> unix"
    assert door.connection().client_properties["product"] == "test"


# heartbeats

def test_silent_server_sends_heartbeats(door):
    client = door.client(heartbeat=1)

    kinds = [client.frame()[0], client.frame()[0]]

    assert kinds == [HEARTBEAT, HEARTBEAT]


def test_silent_client_is_dropped(door):
    client = door.client(heartbeat=60)
    connection = door.connection()

    for _ in range(connection_module.SILENT_CHECKS + 1):
        connection.check_heartbeat()

    while client.frame() is not None:
        pass
    gone(door)
    assert "missed heartbeats" in connection.why


def test_client_that_sends_anything_is_not_dropped(door):
    client = door.client(heartbeat=60)
    connection = door.connection()

    for _ in range(2 * connection_module.SILENT_CHECKS):
        client.call(QueueDeclare(), QueueDeclareOk)
        connection.check_heartbeat()

    assert door.connection() is connection


def test_no_heartbeat_is_sent_where_something_else_was(door):
    client = door.client(heartbeat=60)
    connection = door.connection()
    connection.check_heartbeat()

    client.call(QueueDeclare(), QueueDeclareOk)
    connection.check_heartbeat()

    client.expect_silence()


def test_heartbeat_leaves_by_half_an_interval_behind_the_last_octet_whenever_that_left(door):
    """Clients that read with a timeout of one interval, as Java's on Netty, close the connection otherwise.
    The test moves the clock by eighths of a second; answers leave at several times between two checks.
    """
    now = [1000.0]
    door.hub.heartbeats.close()
    heartbeats = door.hub.heartbeats = Heartbeats(door.hub.timers, lambda: now[0])
    client = door.client(heartbeat=2)

    def silence(until_s):
        """Seconds until a heartbeat leaves; all of them if none does."""
        sent, began = door.connection().output.sent_octets, now[0]
        while now[0] < began + until_s:
            now[0] += 0.125
            heartbeats.run_due()
            if door.connection().output.sent_octets > sent:
                assert client.frame()[0] == HEARTBEAT
                break
        client.send(HEARTBEAT_FRAME)
        return now[0] - began

    silences = [silence(4)]
    for after_s in (0.125, 0.25, 0.375, 0.5, 0.75, 0.875):
        silences.append(silence(4))
        assert silence(after_s) == after_s
        client.call(QueueDeclare(), QueueDeclareOk)
        silences.append(silence(4))

    assert silences[1::2] == [1.0] * 6
    assert min(silences) > 0.25 and max(silences) == 1.0


# slow readers

def test_client_that_never_reads_its_answers_is_not_read_from_and_then_dropped(door):
    door.settings.unread_timeout = 0.1
    client = door.client()
    connection = door.connection()
    connection.output.limit = 10_000
    many = method_frame(1, QueueDeclare(queue="q", passive=True)) * 1000
    other = door.client()
    other.call(QueueDeclare(queue="q"), QueueDeclareOk)

    client.socket.setblocking(False)
    try:
        while connection in door.hub.clients:
            client.socket.send(many)
            gevent.sleep(0)
    except OSError:
        pass

    wait_until(lambda: connection not in door.hub.clients, sleep=gevent.sleep)
    assert "has not read its answers" in connection.why
    assert connection.output.pending_octets() == 0
    other.call(QueueDelete(queue="q"), QueueDeleteOk)


def test_client_that_reads_its_answers_late_gets_them_all(door):
    client = door.client()
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    connection = door.connection()
    connection.output.limit = 10_000
    sender = gevent.spawn(client.send, method_frame(1, QueueDeclare(queue="q", passive=True)) * 50_000)
    wait_until(lambda: connection.stream.paused, sleep=gevent.sleep)

    for _ in range(50_000):
        client.expect(QueueDeclareOk)

    sender.join()
    client.call(ChannelOpen(), ChannelOpenOk, channel=2)


# peers that do not wait

def test_consumer_with_many_messages_at_hand_has_plenty_to_do_unless_somebody_waits_for_confirms(door):
    client = door.client(channels=(1, 2))
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    client.call(BasicConsume(queue="q"), BasicConsumeOk)
    connection = door.connection()
    for _ in range(connection_module.PLENTY - 1):
        client.publish("q")
        client.expect_message(BasicDeliver)
    assert not connection.has_plenty()

    client.publish("q")
    client.expect_message(BasicDeliver)
    assert connection.has_plenty()

    client.call(ConfirmSelect(), ConfirmSelectOk, channel=2)
    assert not connection.has_plenty()
    client.call(ChannelClose(reply_code=200), ChannelCloseOk, channel=2)
    client.send_method(BasicAck(delivery_tag=1))
    wait_until(lambda: not connection.has_plenty(), sleep=gevent.sleep)


# alarms

def test_alarm_is_told_to_publishers_that_understand(door):
    client, other, silent = door.client(), door.client(capabilities={}), door.client()

    door.broker.alarms.set("a test", "disk")
    for publisher in (client, other):
        publisher.publish("q")
        publisher.publish("q")

    assert client.expect(ConnectionBlocked, 0).reason == "low on disk"
    assert sorted(connection.flow for connection in door.hub.clients) == ["blocked", "blocked", "blocking"]
    other.expect_silence()
    door.broker.alarms.clear("a test")
    client.expect(ConnectionUnblocked, 0)
    other.expect_silence()
    silent.expect_silence()
    assert {connection.flow for connection in door.hub.clients} == {"running"}


def test_connections_are_told_of_an_alarm_in_slices_and_of_what_is_true_then(door, monkeypatch):
    """5000 connections that were told at once held everybody up. Here a slice tells one."""
    monkeypatch.setattr("gomq_py.hub.clients.SliceClock", lambda clock: SliceClock(0))
    for _ in range(5):
        door.client()
    connections = list(door.hub.clients)

    def told():
        return [connection.blocked_reason for connection in connections].count("low on disk")

    door.broker.alarms.set("a test", "disk")
    at_once = told()
    wait_until(lambda: told() == 5, sleep=gevent.sleep)
    door.broker.alarms.clear("a test")
    left = told()
    door.broker.alarms.set("a test", "disk")
    door.broker.alarms.clear("a test")
    wait_until(lambda: told() == 0, sleep=gevent.sleep)

    assert (at_once, left) == (1, 4)


def test_connection_that_an_alarm_holds_is_read_again_when_it_is_closed(door):
    client = door.client()
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    connection = door.connection()
    door.broker.alarms.set("a test", "disk")
    client.publish("q")
    client.expect(ConnectionBlocked, 0)
    assert connection.stream.waits_for == ["an alarm to end (low on disk)"]

    connection.force_close("enough")

    client.expect(ConnectionClose, 0)
    client.send_method(ConnectionCloseOk(), 0)
    gone(door)
    door.broker.alarms.clear("a test")


def test_what_a_client_held_that_vanished_during_an_alarm_comes_back_before_its_end(door, monkeypatch):
    """It wanted no heartbeats, and nobody reads its socket, which was reset."""
    monkeypatch.setattr("gomq_py.connections.connection.ALARM_LOOK_S", 0.01)
    client, other = door.client(), door.client()
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    client.publish("q", b"held")
    client.call(BasicGet(queue="q"), BasicGetOk)
    client.content()
    door.broker.alarms.set("a test", "disk")
    client.publish("q")
    wait_until(lambda: "blocked" in [one.flow for one in door.hub.clients], sleep=gevent.sleep)

    client.close()  # with connection.blocked unread

    wait_until(lambda: len(door.hub.clients) == 1, sleep=gevent.sleep)
    other.send_method(BasicGet(queue="q"))
    method, _, body = other.expect_message(BasicGetOk)
    assert method.redelivered and body == b"held"
    door.broker.alarms.clear("a test")


def test_client_that_comes_while_an_alarm_is_on_is_held_too(door):
    door.broker.alarms.set("a test", "disk")
    client = door.client()

    client.publish("q")

    client.expect(ConnectionBlocked, 0)
    client.send_method(QueueDeclare(queue="q"))
    client.expect_silence()
    door.broker.alarms.clear("a test")
    client.expect(ConnectionUnblocked, 0)
    client.expect(QueueDeclareOk)
