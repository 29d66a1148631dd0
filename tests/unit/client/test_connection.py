"""The client's connection against a scripted broker: handshake, limits, closing from both sides, heartbeats,
writes that find no room.
"""
import socket
import threading
import time

import gevent
import gevent.socket
import pytest

from gomq_py.amqp.wire.frames import HEARTBEAT_FRAME, method_frame
from gomq_py.amqp.wire.methods import (
    BasicConsume, BasicConsumeOk, BasicDeliver, ChannelOpenOk, ConnectionBlocked, ConnectionClose,
    ConnectionCloseOk, ConnectionSecure, ConnectionStart, ConnectionStartOk, ConnectionUnblocked,
    ConnectionUpdateSecret, ConnectionUpdateSecretOk, QueueDeclare, QueueDeclareOk,
)
from gomq_py.client.connection import Connection
from gomq_py.client.errors import ConnectionClosed, Timeout
from tests.support.scripted_broker import SERVER_PROPERTIES, scripted_broker
from tests.support.waiting import in_time

TIMEOUT_S = in_time(20)  # less than the scripted broker's, which waits for what its client does next


def served(peer):
    peer.handshake()
    peer.farewell()


@pytest.mark.parametrize("socket_module", [socket, gevent.socket])
def test_a_connection_opens_and_closes_with_either_socket_module(socket_module):
    with scripted_broker(served) as url:
        with Connection(url, socket_module=socket_module, timeout_s=TIMEOUT_S) as connection:
            assert connection.server_properties["product"] == "scripted"

    assert connection.closed


def test_the_login_names_user_password_vhost_and_client():
    seen = []

    def script(peer):
        seen.extend(peer.handshake())
        peer.farewell()

    with scripted_broker(script) as url:
        Connection(
            url.replace("guest:guest", "me:s%C3%A9cret").replace("%2f", "v%20h"), name="tester",
            timeout_s=TIMEOUT_S,
        ).close()

    start_ok, _, opened = seen
    assert (start_ok.mechanism, start_ok.response, opened.virtual_host) == (
        "PLAIN", b"\0me\0s\xc3\xa9cret", "v h"
    )
    assert start_ok.client_properties["connection_name"] == "tester"
    assert start_ok.client_properties["capabilities"]["authentication_failure_close"] is True


@pytest.mark.parametrize(("mechanism", "response"), [
    ("AMQPLAIN", b"\x05LOGINS\x00\x00\x00\x05guest\x08PASSWORDS\x00\x00\x00\x05guest"), ("EXTERNAL", b""),
])
def test_another_mechanism_may_be_asked_for(mechanism, response):
    seen = []

    def script(peer):
        seen.extend(peer.handshake())
        peer.farewell()

    with scripted_broker(script) as url:
        Connection(f"{url}?auth_mechanism={mechanism}", timeout_s=TIMEOUT_S).close()

    assert (seen[0].mechanism, seen[0].response) == (mechanism, response)


def test_a_mechanism_the_broker_does_not_offer_ends_the_handshake():
    def script(peer):
        peer.read_exactly(8)
        peer.send(0, ConnectionStart(version_minor=9, mechanisms=b"SCRAM"))

    with scripted_broker(script) as url:
        with pytest.raises(ConnectionClosed, match="offers SCRAM, not PLAIN"):
            Connection(url, timeout_s=TIMEOUT_S)


def test_a_further_challenge_ends_the_handshake():
    def script(peer):
        peer.read_exactly(8)
        peer.send(0, ConnectionStart(version_minor=9, mechanisms=b"PLAIN"))
        peer.expect(ConnectionStartOk)
        peer.send(0, ConnectionSecure(challenge=b"?"))

    with scripted_broker(script) as url:
        with pytest.raises(ConnectionClosed, match="further PLAIN response"):
            Connection(url, timeout_s=TIMEOUT_S)


@pytest.mark.parametrize(("asked", "offered", "agreed"), [
    ({"frame_max": 8192}, {"frame_max": 131072}, ("frame_max", 8192)),
    ({"frame_max": 131072}, {"frame_max": 8192}, ("frame_max", 8192)),
    ({"frame_max": 0}, {"frame_max": 8192}, ("frame_max", 8192)),
    ({"frame_max": 8192}, {"frame_max": 0}, ("frame_max", 8192)),
    ({"channel_max": 0}, {"channel_max": 0}, ("channel_max", 0)),
    ({"channel_max": 5}, {"channel_max": 9}, ("channel_max", 5)),
    ({}, {"heartbeat": 60}, ("heartbeat_s", 60)), ({"heartbeat_s": 5}, {"heartbeat": 60}, ("heartbeat_s", 5)),
    ({"heartbeat_s": 0}, {"heartbeat": 60}, ("heartbeat_s", 0)),
])
def test_limits_are_agreed(asked, offered, agreed):
    seen = []

    def script(peer):
        seen.extend(peer.handshake(**offered))
        peer.farewell()

    with scripted_broker(script) as url:
        connection = Connection(url, timeout_s=TIMEOUT_S, **asked)
        connection.close()

    name, value = agreed
    assert getattr(connection, name) == value
    assert getattr(seen[1], name.removesuffix("_s")) == value


def test_the_brokers_reason_is_raised_when_it_refuses_the_login():
    def script(peer):
        peer.read_exactly(8)
        peer.send(0, ConnectionStart(version_minor=9, mechanisms=b"PLAIN"))
        peer.expect(ConnectionStartOk)
        peer.send(
            0, ConnectionClose(reply_code=403, reply_text="ACCESS_REFUSED - no", class_id=10, method_id=11)
        )
        peer.expect(ConnectionCloseOk)

    with scripted_broker(script) as url:
        with pytest.raises(ConnectionClosed) as caught:
            Connection(url, timeout_s=TIMEOUT_S)

    assert (
        caught.value.reply_code, caught.value.reply_text, caught.value.class_id, caught.value.method_id
    ) == (403, "ACCESS_REFUSED - no", 10, 11)


def test_a_broker_of_another_protocol_version_is_told_apart():
    def script(peer):
        peer.read_exactly(8)
        peer.socket.sendall(b"AMQP\x03\x01\x00\x00")

    with scripted_broker(script) as url:
        with pytest.raises(ConnectionClosed, match="does not speak AMQP 0-9-1"):
            Connection(url, timeout_s=TIMEOUT_S)


def test_a_broker_that_closes_the_socket_without_a_word_is_reported():
    with scripted_broker(lambda peer: peer.read_exactly(8)) as url:
        with pytest.raises(ConnectionClosed, match="without saying why|lost"):
            Connection(url, timeout_s=TIMEOUT_S)


def test_a_broker_that_says_nothing_times_out():
    with scripted_broker(lambda peer: peer.read_exactly(8) and peer.frame()) as url:
        with pytest.raises(Timeout):
            Connection(url, timeout_s=0.05)


def test_nobody_listening_is_an_os_error():
    with socket.socket() as bound:  # holds the port, so that nobody else comes to listen there
        bound.bind(("127.0.0.1", 0))

        with pytest.raises(ConnectionRefusedError):
            Connection(f"amqp://127.0.0.1:{bound.getsockname()[1]}", timeout_s=TIMEOUT_S)


def test_a_close_by_the_broker_is_answered_and_ends_every_channel():
    def script(peer):
        peer.handshake()
        peer.channel()
        peer.send(0, ConnectionClose(reply_code=320, reply_text="CONNECTION_FORCED - shutdown"))
        peer.expect(ConnectionCloseOk)

    with scripted_broker(script) as url:
        connection = Connection(url, timeout_s=TIMEOUT_S)
        channel = connection.channel()
        with pytest.raises(ConnectionClosed, match="320 CONNECTION_FORCED - shutdown"):
            connection.drain(TIMEOUT_S)

    assert channel.closed
    with pytest.raises(ConnectionClosed, match="320"):
        channel.publish("", "q", b"")
    with pytest.raises(ConnectionClosed, match="320"):
        connection.drain(0)


def test_closing_twice_is_harmless():
    with scripted_broker(served) as url:
        connection = Connection(url, timeout_s=TIMEOUT_S)
        connection.close()
        connection.close()


def test_a_broker_that_breaks_the_protocol_is_told_and_left():
    told = []

    def script(peer):
        peer.handshake()
        peer.socket.sendall(b"\x09" + bytes(7))
        told.append(peer.expect(ConnectionClose)[1].reply_code)

    with scripted_broker(script) as url:
        with pytest.raises(ConnectionClosed, match="unknown frame type 9"):
            Connection(url, timeout_s=TIMEOUT_S).drain(TIMEOUT_S)

    assert told == [501]


def test_drain_gives_up_when_nothing_comes():
    with scripted_broker(served) as url:
        with Connection(url, timeout_s=TIMEOUT_S) as connection:
            assert connection.drain(0.01) is False


def test_the_broker_may_hold_publishers_back():
    def script(peer):
        peer.handshake()
        peer.send(0, ConnectionBlocked(reason="low on disk"))
        peer.channel()
        peer.send(0, ConnectionUnblocked())
        peer.farewell()

    with scripted_broker(script) as url:
        connection = Connection(url, timeout_s=TIMEOUT_S)
        connection.wait_for(lambda: connection.blocked_reason, TIMEOUT_S)
        blocked = connection.blocked_reason
        connection.channel()
        connection.wait_for(lambda: not connection.blocked_reason, TIMEOUT_S)
        connection.close()

    assert blocked == "low on disk"


def test_a_secret_is_renewed():
    def script(peer):
        peer.handshake()
        assert peer.expect(ConnectionUpdateSecret)[1].new_secret == b"token"
        peer.send(0, ConnectionUpdateSecretOk())
        peer.farewell()

    with scripted_broker(script) as url:
        with Connection(url, timeout_s=TIMEOUT_S) as connection:
            connection.update_secret("token", "expires soon")


def test_heartbeats_are_sent_while_waiting():
    seen = []

    def script(peer):
        peer.handshake()
        seen.append(peer.frame())
        peer.socket.sendall(HEARTBEAT_FRAME)
        peer.farewell()

    with scripted_broker(script) as url:
        with Connection(url, heartbeat_s=1, timeout_s=TIMEOUT_S) as connection:
            assert connection.drain(TIMEOUT_S)

    assert seen == [(8, 0, b"")]


def test_a_silent_broker_is_given_up_after_two_intervals():
    def script(peer):
        peer.handshake()
        while peer.frame() is not None:
            pass

    def given_up_after_s():
        with scripted_broker(script) as url:
            connection = Connection(url, heartbeat_s=1, timeout_s=TIMEOUT_S)
            started = time.monotonic()
            with pytest.raises(ConnectionClosed, match="nothing heard"):
                connection.drain(TIMEOUT_S)
            return time.monotonic() - started

    took_s = given_up_after_s()
    for _ in range(4):
        assert took_s > 1.9
        if took_s < 4:
            break
        took_s = given_up_after_s()  # this process may have stood still
    assert took_s < 4


def test_a_broker_that_writes_before_it_reads_does_not_deadlock_a_writing_client():
    """The broker sends 16 MiB of deliveries before it reads one octet, while the client publishes 16 MiB:
    more than both sockets hold.
    """
    count, body = 256, bytes(65536)

    def script(peer):
        peer.handshake()
        peer.channel()
        peer.expect(BasicConsume)
        peer.send(1, BasicConsumeOk(consumer_tag="t"))
        for tag in range(count):
            peer.send_content(1, BasicDeliver(consumer_tag="t", delivery_tag=tag + 1), body)
        for _ in range(3 * count):
            peer.frame()
        peer.farewell()

    with scripted_broker(script) as url:
        with Connection(url, timeout_s=TIMEOUT_S) as connection:
            channel = connection.channel()
            channel.consume("q", consumer_tag="t", no_ack=True)
            for _ in range(count):
                channel.publish("", "q", body)
            received = [channel.next_delivery(TIMEOUT_S) for _ in range(count)]

    assert [delivery.delivery_tag for delivery in received] == list(range(1, count + 1))


def test_a_broker_that_takes_nothing_is_given_up_by_a_wary_client():
    """There is no heartbeat: nothing else would end the wait for room in the socket."""
    over = threading.Event()

    def script(peer):
        peer.handshake()
        over.wait(TIMEOUT_S)

    with scripted_broker(script) as url:
        connection = Connection(url, heartbeat_s=0, timeout_s=0.5, wary=True)
        with pytest.raises(ConnectionClosed, match="has taken nothing of what it is sent for 0.5 s"):
            connection.send(bytes(32 * 1024 * 1024))
        over.set()


def test_greenlets_on_separate_connections_wait_side_by_side():
    def script(peer):
        peer.handshake()
        peer.channel()
        peer.expect(QueueDeclare)
        peer.send(1, QueueDeclareOk(queue="q"))
        peer.farewell()

    def client(url):
        with Connection(url, socket_module=gevent.socket, timeout_s=TIMEOUT_S) as connection:
            return connection.channel().queue_declare("q").queue

    with scripted_broker(script) as first, scripted_broker(script) as second:
        jobs = [gevent.spawn(client, first), gevent.spawn(client, second)]
        gevent.joinall(jobs, timeout=TIMEOUT_S, raise_error=True)

    assert [job.value for job in jobs] == ["q", "q"]


def test_all_channel_numbers_taken_is_said():
    def script(peer):
        peer.handshake(channel_max=1)
        peer.channel()
        peer.farewell()

    with scripted_broker(script) as url:
        with Connection(url, timeout_s=TIMEOUT_S) as connection:
            connection.channel()
            with pytest.raises(ValueError, match="all 1 channels"):
                connection.channel()


def test_an_aborted_connection_says_nothing():
    last = []

    def script(peer):
        peer.handshake()
        last.append(peer.frame())

    with scripted_broker(script) as url:
        Connection(url, timeout_s=TIMEOUT_S).abort()

    assert last == [None]


def test_a_channel_number_may_be_chosen():
    def script(peer):
        peer.handshake()
        assert peer.channel() == 77
        peer.farewell()

    with scripted_broker(script) as url:
        with Connection(url, timeout_s=TIMEOUT_S) as connection:
            assert connection.channel(77).id == 77


def test_frames_of_a_channel_nobody_knows_are_ignored():
    def script(peer):
        peer.handshake()
        peer.send(9, ChannelOpenOk())
        peer.channel()
        peer.farewell()

    with scripted_broker(script) as url:
        with Connection(url, timeout_s=TIMEOUT_S) as connection:
            assert not connection.channel().closed  # its answer came behind them


def test_a_broker_that_repeats_itself_is_left():
    def script(peer):
        peer.read_exactly(8)
        start = ConnectionStart(
            version_minor=9, server_properties=SERVER_PROPERTIES, mechanisms=b"PLAIN", locales=b"en_US")
        peer.socket.sendall(method_frame(0, start) * 100)
        assert peer.expect(ConnectionClose)[1].reply_code == 505

    with scripted_broker(script) as url:
        with pytest.raises(ConnectionClosed, match="connection.start, which nobody has asked for"):
            Connection(url, timeout_s=TIMEOUT_S)
