"""The MQTT client against a server of literal octets: what it writes, what it makes of what it reads, and
what it says when it is refused, cut off or told nonsense.
"""
import socket
import ssl

import gevent.socket
import pytest

from gomq_py.client.errors import ConnectionClosed, Refused, Timeout
from gomq_py.client.mqtt import MQTTClient, Session
from gomq_py.mqtt.wire.packets import PublishPacket, PubrecPacket, Subscription, Will
from tests.support import certificates
from tests.support.scripted_broker import OctetPeer, scripted_broker
from tests.support.waiting import in_time

TIMEOUT_S = in_time(20)  # less than the server's, which waits for what its client does next
CONNECT = bytes.fromhex("10 0c 0004 4d515454 04 02 0000 0000")  # 3.1.1, clean session, no keep alive, no name
CONNACK = bytes.fromhex("20 02 00 00")
CONNECT_5 = bytes.fromhex("10 0d 0004 4d515454 05 02 0000 00 0000")
CONNACK_5 = bytes.fromhex("20 03 00 00 00")
DISCONNECT = bytes.fromhex("e0 00")


def server(script, tls_context=None, login="", path=""):
    return scripted_broker(script, tls_context, OctetPeer, ("mqtt", "mqtts"), login, path)


def logged_in(peer):
    peer.expect(CONNECT)
    peer.send(CONNACK)


def logged_in_5(peer):
    peer.expect(CONNECT_5)
    peer.send(CONNACK_5)


def client(url, **options):
    return MQTTClient(url, timeout_s=TIMEOUT_S, **options)


@pytest.mark.parametrize("socket_module", [socket, gevent.socket])
def test_connect_and_disconnect_are_the_least_octets(socket_module):
    def script(peer):
        logged_in(peer)
        peer.expect(DISCONNECT)
        peer.expect_end()

    with server(script) as url, client(url, socket_module=socket_module) as connection:
        assert not connection.connack.session_present


def test_connect_carries_login_keep_alive_will_and_virtual_host():
    def script(peer):
        peer.expect(
            bytes.fromhex("10 23 0004 4d515454 04 ee 003c"), b"\0\2me", b"\0\1w", b"\0\3bye", b"\0\3v:u",
            b"\0\6secret",
        )
        peer.send(CONNACK)
        peer.expect(DISCONNECT)

    with server(script, login="u:secret@", path="/v") as url:
        client(
            url, client_identifier="me", keep_alive_s=60, will=Will("w", b"bye", qos=1, retain=True)
        ).close()


def test_connect_of_mqtt_5_carries_properties_and_learns_those_of_the_answer():
    def script(peer):
        peer.expect(bytes.fromhex("10 12 0004 4d515454 05 00 0000 05 11 0000003c 0000"))
        peer.send(bytes.fromhex("20 0f 01 00 0c 12 0003 616263 13 0007 21 0002"))
        peer.expect(DISCONNECT)

    with server(script) as url, client(
        url, version=5, clean_start=False, properties={"session_expiry_interval": 60}
    ) as connection:
        assert connection.connack.session_present
        assert (connection.client_identifier, connection.keep_alive_s, connection.receive_maximum) == (
            "abc", 7, 2
        )


def test_version_clean_start_and_expiry_may_stand_in_the_url():
    def script(peer):
        peer.expect(bytes.fromhex("10 12 0004 4d515454 05 00 0000 05 11 0000003c 0000"))
        peer.send(CONNACK_5)
        peer.expect(DISCONNECT)

    with server(script, path="?version=5&clean_start=false&session_expiry=60") as url:
        client(url).close()


def test_properties_before_mqtt_5_are_refused_here():
    with pytest.raises(ValueError, match="MQTT 3.1.1 has no properties: receive_maximum"):
        MQTTClient("mqtt://127.0.0.1:1", properties={"receive_maximum": 1})


@pytest.mark.parametrize(("version", "answer", "code", "text"), [
    (4, "20 02 00 05", 5, "CONNECT refused: Connection Refused, not authorized"),
    (5, "20 03 00 87 00", 0x87, "CONNECT refused: Not authorized"),
    (5, "20 08 00 86 05 1f 0002 6e6f", 0x86, "CONNECT refused: Bad User Name or Password [(]no[)]"),
])
def test_refused_connect_says_why(version, answer, code, text):
    def script(peer):
        peer.expect(CONNECT if version == 4 else CONNECT_5)
        peer.send(bytes.fromhex(answer))
        peer.expect_end()

    with server(script) as url, pytest.raises(ConnectionClosed, match=text) as caught:
        client(url, version=version)

    assert caught.value.reply_code == code


def test_subscribe_and_unsubscribe_answer_for_each_filter():
    def script(peer):
        logged_in(peer)
        peer.expect(bytes.fromhex("82 0c 0001 0001 61 01 0003 622f23 01"))
        peer.send(bytes.fromhex("90 04 0001 01 80"))
        peer.expect(bytes.fromhex("a2 05 0002 0001 61"))
        peer.send(bytes.fromhex("b0 02 0002"))
        peer.expect(DISCONNECT)

    with server(script) as url, client(url) as connection:
        assert connection.subscribe("a", "b/#", qos=1).reason_codes == (1, 0x80)
        assert connection.unsubscribe("a").reason_codes == ()


def test_subscribe_of_mqtt_5_carries_options_and_identifier():
    def script(peer):
        logged_in_5(peer)
        peer.expect(bytes.fromhex("82 09 0001 02 0b 07 0001 61 2e"))
        peer.send(bytes.fromhex("90 04 0001 00 02"))
        peer.expect(DISCONNECT)

    with server(script) as url, client(url, version=5) as connection:
        asked = Subscription("a", 2, no_local=True, retain_as_published=True, retain_handling=2)
        assert connection.subscribe(asked, properties={"subscription_identifier": 7}).reason_codes == (2,)


def test_publishes_of_each_qos_are_written_and_acknowledged():
    def script(peer):
        logged_in(peer)
        peer.expect(bytes.fromhex("31 05 0001 61 6869"))
        peer.expect(bytes.fromhex("32 07 0001 61 0001 6869"))
        peer.send(bytes.fromhex("40 02 0001"))
        peer.expect(bytes.fromhex("34 07 0001 61 0002 6869"))
        peer.send(bytes.fromhex("50 02 0002"))
        peer.expect(bytes.fromhex("62 02 0002"))
        peer.send(bytes.fromhex("70 02 0002"))
        peer.expect(DISCONNECT)

    with server(script) as url, client(url) as connection:
        assert [connection.publish("a", b"hi", qos, retain=not qos) for qos in (0, 1, 2)] == [0, 0, 0]
        assert connection.session.outgoing == {}


@pytest.mark.parametrize(("qos", "answer", "text"), [
    (1, "40 03 0001 97", "PUBLISH refused: Quota exceeded"),
    (2, "50 03 0001 87", "PUBLISH refused: Not authorized"),
])
def test_refused_publish_is_raised_with_its_name_and_is_over(qos, answer, text):
    def script(peer):
        logged_in_5(peer)
        peer.expect(bytes((0x30 | qos << 1, 6)), bytes.fromhex("0001 61 0001 00"))
        peer.send(bytes.fromhex(answer))
        peer.expect(DISCONNECT)

    with server(script) as url, client(url, version=5) as connection:
        with pytest.raises(Refused, match=text):
            connection.publish("a", qos=qos)
        assert connection.session.outgoing == {}


def test_publisher_is_told_that_nobody_is_subscribed():
    def script(peer):
        logged_in_5(peer)
        peer.expect(bytes.fromhex("32 06 0001 61 0001 00"))
        peer.send(bytes.fromhex("40 03 0001 10"))
        peer.expect(DISCONNECT)

    with server(script) as url, client(url, version=5) as connection:
        assert connection.publish("a", qos=1) == 0x10


def test_no_more_is_unacknowledged_than_the_server_takes():
    def script(peer):
        peer.expect(CONNECT_5)
        peer.send(bytes.fromhex("20 06 00 00 03 21 0001"))
        peer.expect(bytes.fromhex("32 06 0001 61 0001 00"))
        peer.send(bytes.fromhex("40 02 0001"))
        peer.expect(bytes.fromhex("32 06 0001 61 0002 00"))
        peer.send(bytes.fromhex("40 02 0002"))
        peer.expect(DISCONNECT)

    with server(script) as url, client(url, version=5) as connection:
        for _ in range(2):
            connection.begin_publish("a", qos=1)
        connection.wait_acknowledged()


def test_messages_of_each_qos_are_given_out_and_answered():
    def script(peer):
        logged_in(peer)
        peer.send(bytes.fromhex("30 04 0001 61 30  32 06 0001 61 0007 31  3d 06 0001 61 0008 32"))
        peer.expect(bytes.fromhex("40 02 0007  50 02 0008"))
        peer.send(bytes.fromhex("62 02 0008"))
        peer.expect(bytes.fromhex("70 02 0008"))
        peer.send(bytes.fromhex("d0 00"))
        peer.expect(DISCONNECT)

    with server(script) as url, client(url) as connection:
        messages = [connection.next_message(TIMEOUT_S) for _ in range(3)]
        assert connection.next_packet(TIMEOUT_S).NAME == "PINGRESP"

    assert messages == [
        PublishPacket(topic_name="a", payload=b"0"),
        PublishPacket(topic_name="a", payload=b"1", qos=1, packet_identifier=7),
        PublishPacket(topic_name="a", payload=b"2", qos=2, packet_identifier=8, retain=True, dup=True),
    ]


def test_message_of_qos_2_that_is_sent_again_is_given_out_once():
    def script(peer):
        logged_in(peer)
        peer.send(bytes.fromhex("34 05 0001 61 0008"))
        peer.expect(bytes.fromhex("50 02 0008"))
        peer.send(bytes.fromhex("3c 05 0001 61 0008  62 02 0008  34 05 0001 61 0008"))
        peer.expect(bytes.fromhex("50 02 0008  70 02 0008  50 02 0008"))
        peer.expect(DISCONNECT)

    with server(script) as url, client(url) as connection:
        assert [connection.next_message(TIMEOUT_S).dup for _ in range(2)] == [False, False]


def test_topic_alias_stands_for_the_name_it_came_with():
    def script(peer):
        logged_in_5(peer)
        peer.send(bytes.fromhex("30 07 0001 61 03 23 0001  30 06 0000 03 23 0001"))
        peer.expect(DISCONNECT)

    with server(script) as url, client(url, version=5) as connection:
        assert [connection.next_message(TIMEOUT_S).topic_name for _ in range(2)] == ["a", "a"]


def test_unacknowledged_publishes_are_sent_again_to_a_server_that_has_the_session():
    def first(peer):
        peer.expect(bytes.fromhex("10 0d 0004 4d515454 04 00 0000 0001 63"))
        peer.send(CONNACK)
        peer.expect(bytes.fromhex("32 06 0001 61 0001 31  34 06 0001 61 0002 32  34 06 0001 61 0003 33"))
        peer.send(bytes.fromhex("50 02 0003"))
        peer.expect(bytes.fromhex("62 02 0003"))

    def second(peer):
        peer.expect(bytes.fromhex("10 0d 0004 4d515454 04 00 0000 0001 63"))
        peer.send(bytes.fromhex("20 02 01 00"))
        peer.expect(bytes.fromhex("3a 06 0001 61 0001 31  3c 06 0001 61 0002 32  62 02 0003"))
        peer.send(bytes.fromhex("40 02 0001  50 02 0002  70 02 0003"))
        peer.expect(bytes.fromhex("62 02 0002"))
        peer.send(bytes.fromhex("70 02 0002"))
        peer.expect(DISCONNECT)

    session, options = Session(), {"client_identifier": "c", "clean_start": False}
    with server(first) as url:
        connection = client(url, session=session, **options)
        for identifier, qos in ((1, 1), (2, 2), (3, 2)):
            assert connection.begin_publish("a", b"%d" % identifier, qos) == identifier
        assert connection.wait_closed().reply_code == 0
    with server(second) as url, client(url, session=session, **options) as connection:
        connection.wait_acknowledged()


def test_session_that_the_server_has_not_is_forgotten():
    session = Session()
    session.outgoing[1] = PublishPacket(topic_name="a", qos=1, packet_identifier=1)
    session.incoming.add(5)

    def script(peer):
        logged_in(peer)
        peer.expect(DISCONNECT)

    with server(script) as url:
        client(url, session=session).close()

    assert (session.outgoing, session.incoming) == ({}, set())


def test_packet_identifiers_go_round_and_leave_out_those_in_use():
    session = Session()
    session.outgoing[2] = None

    assert [session.next_identifier() for _ in range(65535)] == [1, *range(3, 65536), 1]


def test_all_packet_identifiers_in_use_is_an_error():
    session = Session()
    session.outgoing.update(dict.fromkeys(range(1, 65536)))

    with pytest.raises(ValueError, match="all 65535 packet identifiers"):
        session.next_identifier()


def test_ping_waits_for_its_answer():
    def script(peer):
        logged_in(peer)
        peer.expect(bytes.fromhex("c0 00"))
        peer.send(bytes.fromhex("d0 00"))
        peer.expect(DISCONNECT)

    with server(script) as url, client(url) as connection:
        connection.ping()


def test_silent_client_pings_within_its_keep_alive():
    def script(peer):
        peer.expect(bytes.fromhex("10 0c 0004 4d515454 04 02 0003 0000"))
        peer.send(CONNACK)
        peer.expect(bytes.fromhex("c0 00"))
        peer.send(bytes.fromhex("d0 00  30 03 0001 61"))
        peer.expect(DISCONNECT)

    with server(script) as url, client(url, keep_alive_s=3) as connection:
        assert connection.next_message(TIMEOUT_S).topic_name == "a"


def test_server_that_answers_no_ping_is_given_up():
    def script(peer):
        peer.expect(bytes.fromhex("10 0c 0004 4d515454 04 02 0001 0000"))
        peer.send(CONNACK)
        while peer.socket.recv(100):
            pass

    with server(script) as url, client(url, keep_alive_s=1) as connection:
        with pytest.raises(ConnectionClosed, match="nothing heard from the broker for 2 s"):
            connection.next_message(TIMEOUT_S)


def test_disconnect_of_the_server_is_told_with_its_reason():
    def script(peer):
        logged_in_5(peer)
        peer.send(bytes.fromhex("e0 07 8e 05 1f 0002 6279"))
        peer.expect_end()

    with server(script) as url, client(url, version=5) as connection:
        closed = connection.wait_closed()

    assert (closed.reply_code, closed.reply_text) == (
        0x8E, "the server disconnected: Session taken over (by)"
    )


def test_disconnect_may_ask_for_the_will():
    def script(peer):
        logged_in_5(peer)
        peer.expect(bytes.fromhex("e0 01 04"))
        peer.expect_end()

    with server(script) as url:
        client(url, version=5).disconnect(0x04)


def test_aborted_client_leaves_without_a_word():
    def script(peer):
        logged_in(peer)
        peer.expect_end()

    with server(script) as url:
        client(url).abort()


def test_socket_that_the_server_closes_is_told():
    with server(logged_in) as url, client(url) as connection:
        with pytest.raises(ConnectionClosed, match="closed the socket without saying why"):
            connection.next_message(TIMEOUT_S)


@pytest.mark.parametrize(("version", "octets", "said"), [
    (4, "36 05 0001 61 0001", b""), (5, "36 06 0001 61 0001 00", bytes.fromhex("e0 01 81")),
    (5, "82 06 0001 00 0001 61 00", bytes.fromhex("e0 01 82")),
])
def test_server_that_breaks_the_protocol_is_left_with_the_reason(version, octets, said):
    def script(peer):
        (logged_in if version == 4 else logged_in_5)(peer)
        peer.send(bytes.fromhex(octets))
        peer.expect(said)
        peer.expect_end()

    with server(script) as url, client(url, version=version) as connection:
        with pytest.raises(ConnectionClosed, match="closed by this client"):
            connection.next_message(TIMEOUT_S)


def test_answer_that_does_not_come_is_a_timeout():
    def script(peer):
        logged_in(peer)
        peer.expect(bytes.fromhex("c0 00"))
        peer.expect_end()

    with server(script) as url, client(url) as connection:
        connection.timeout_s = 0.05
        with pytest.raises(Timeout, match="no answer from 127.0.0.1"):
            connection.ping()
        connection.abort()


def test_octets_of_any_kind_may_be_sent_and_packets_read_one_by_one():
    def script(peer):
        peer.expect(bytes.fromhex("ff 00"))
        peer.send(CONNACK)
        peer.send(bytes.fromhex("34 05 0001 61 0008"))
        peer.expect(bytes.fromhex("50 02 0008"))
        peer.send(bytes.fromhex("62 02 0008"))
        peer.expect_end()

    with server(script) as url:
        connection = client(url, login=False, automatic=False)
        connection.send(bytes.fromhex("ff 00"))
        assert connection.next_packet(TIMEOUT_S).NAME == "CONNACK"
        message = connection.next_message(TIMEOUT_S)
        connection.acknowledge(message)
        assert connection.next_packet(TIMEOUT_S).NAME == "PUBREL"
        connection.abort()


def test_answer_to_an_unknown_pubrec_says_so():
    def script(peer):
        logged_in_5(peer)
        peer.send(PubrecPacket(packet_identifier=9).encode(5))
        peer.expect(bytes.fromhex("62 03 0009 92"))
        peer.expect(DISCONNECT)

    with server(script) as url, client(url, version=5) as connection:
        assert connection.receive()


def test_octets_read_ahead_are_the_callers_after_take_over():
    def script(peer):
        peer.expect(CONNECT)
        peer.send(CONNACK, bytes.fromhex("30 03 00"))
        peer.expect_end()

    with server(script) as url:
        connection = client(url)
        octets = connection.take_over()
        while len(octets) < 3:
            connection.socket.settimeout(TIMEOUT_S)
            octets += connection.socket.recv(100)
        connection.abort()

    assert octets == bytes.fromhex("30 03 00")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return certificates.make(tmp_path_factory.mktemp("certificates"))


def test_large_messages_pass_both_ways_over_tls(files):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    payload = bytes(range(256)) * 4096

    def script(peer):
        logged_in(peer)
        packet = bytes.fromhex("30 838040 0001 61") + payload
        peer.expect(packet)
        peer.send(packet)
        peer.expect(DISCONNECT)

    with server(script, context) as url:
        with client(f"{url}?cacertfile={files.authority}") as connection:
            connection.publish("a", payload)
            assert connection.next_message(TIMEOUT_S).payload == payload
