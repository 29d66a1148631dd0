"""Our MQTT client beside Mosquitto and paho-mqtt: what a server that others wrote, and a client that others
wrote, make of its packets.
"""
import queue

import paho.mqtt.client as paho
import pytest

from gomq_py.client.errors import ConnectionClosed
from gomq_py.client.mqtt import MQTTClient, Session
from gomq_py.mqtt.wire.packets import Subscription, Will
from tests.support import certificates
from tests.support.mosquitto_process import MosquittoProcess
from tests.support.waiting import TIMEOUT_S, in_time

pytestmark = pytest.mark.needs_program("mosquitto")
VERSIONS = pytest.mark.parametrize("version", [3, 4, 5])


@pytest.fixture(scope="module")
def mosquitto(tmp_path_factory):
    with MosquittoProcess(tmp_path_factory.mktemp("mosquitto")) as process:
        yield process


@VERSIONS
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_is_published_is_received_in_order(mosquitto, version, qos):
    topic = f"order/{version}/{qos}"
    with MQTTClient(mosquitto.url, version=version, client_identifier="in") as receiver, \
            MQTTClient(mosquitto.url, version=version, client_identifier="out") as sender:
        assert receiver.subscribe("order/#", qos=2).reason_codes == (2,)
        for number in range(100):
            sender.begin_publish(topic, b"%d" % number, qos)
        sender.wait_acknowledged()
        messages = [receiver.next_message(TIMEOUT_S) for _ in range(100)]

    assert [(each.topic_name, each.qos, int(each.payload)) for each in messages] == [
        (topic, qos, number) for number in range(100)
    ]


@VERSIONS
def test_messages_of_an_absent_client_wait_for_its_session(mosquitto, version):
    options = {
        "version": version, "client_identifier": f"absent-{version}", "clean_start": False,
        "properties": {"session_expiry_interval": 600} if version == 5 else None,
    }
    with MQTTClient(mosquitto.url, **options) as receiver:
        receiver.subscribe("absent", qos=2)
    with MQTTClient(mosquitto.url) as sender:
        for number in range(20):
            sender.publish("absent", b"%d" % number, qos=1 + number % 2)
    with MQTTClient(mosquitto.url, **options) as receiver:
        received = [int(receiver.next_message(TIMEOUT_S).payload) for _ in range(20)]
        receiver.unsubscribe("absent")

    assert received == list(range(20))
    assert receiver.connack.session_present == (version > 3)


def test_exactly_once_over_connections_that_are_lost(mosquitto):
    """Both ends lose their connections between the steps of QoS 2, and go on with their sessions."""
    options = {"clean_start": False, "version": 5, "properties": {"session_expiry_interval": 600}}
    ends = Session(), Session()
    received: list = []
    for round_ in range(10):
        receiver = MQTTClient(mosquitto.url, client_identifier="once-in", session=ends[0], **options)
        receiver.subscribe(Subscription("once", 2, retain_handling=2))
        sender = MQTTClient(mosquitto.url, client_identifier="once-out", session=ends[1], **options)
        for number in range(5):
            sender.begin_publish("once", b"%d" % (round_ * 5 + number), qos=2)
        if round_ % 3 == 1:  # PUBRECs are answered
            sender.ping()
        elif round_ % 3 == 2 or round_ == 9:
            sender.wait_acknowledged()
        receiver.ping()
        received += [int(message.payload) for message in receiver.messages]
        receiver.messages.clear()
        if round_ < 9:
            sender.abort()
            receiver.abort()
    while len(received) < 50:
        received.append(int(receiver.next_message(TIMEOUT_S).payload))
    sender.close()
    receiver.ping()
    received += [int(message.payload) for message in receiver.messages]
    receiver.close()

    assert sorted(received) == list(range(50))


def test_will_of_a_client_that_is_lost_is_published(mosquitto):
    with MQTTClient(mosquitto.url) as receiver:
        receiver.subscribe("will", qos=1)
        MQTTClient(mosquitto.url, will=Will("will", b"gone", qos=1)).abort()
        assert receiver.next_message(TIMEOUT_S).payload == b"gone"


def test_properties_of_mqtt_5_pass_both_ways(mosquitto):
    sent = {
        "content_type": "text/plain", "response_topic": "r", "correlation_data": b"\x00\xff",
        "payload_format_indicator": 1,
        "user_property": [("a", "1"), ("a", "2")],
    }
    with MQTTClient(mosquitto.url, version=5, properties={"topic_alias_maximum": 5}) as connection:
        connection.subscribe("properties", properties={"subscription_identifier": 9})
        connection.publish("properties", b"x", properties=sent)
        message = connection.next_message(TIMEOUT_S)

    assert message.properties == {**sent, "subscription_identifier": [9]}


@pytest.mark.parametrize("version", [4, 5])
def test_paho_receives_what_we_publish_and_the_other_way_round(mosquitto, version):
    heard: queue.Queue = queue.Queue()
    other = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=version)
    other.on_message = lambda client, data, message: heard.put((message.topic, message.payload, message.qos))
    other.on_subscribe = lambda *_: heard.put("subscribed")
    other.on_connect = lambda *_: other.subscribe(f"to-paho/{version}", 2)
    other.connect("127.0.0.1", mosquitto.port)
    other.loop_start()
    try:
        assert heard.get(timeout=TIMEOUT_S) == "subscribed"
        with MQTTClient(mosquitto.url, version=version) as connection:
            connection.subscribe(f"from-paho/{version}", qos=2)
            for qos in (0, 1, 2):
                connection.publish(f"to-paho/{version}", b"hello", qos)
                other.publish(f"from-paho/{version}", b"hello", qos).wait_for_publish(TIMEOUT_S)
            ours = [connection.next_message(TIMEOUT_S) for _ in range(3)]
        theirs = [heard.get(timeout=TIMEOUT_S) for _ in range(3)]
    finally:
        other.disconnect()
        other.loop_stop()

    assert [(each.topic_name, each.payload, each.qos) for each in ours] == [
        (f"from-paho/{version}", b"hello", qos) for qos in (0, 1, 2)
    ]
    assert theirs == [(f"to-paho/{version}", b"hello", qos) for qos in (0, 1, 2)]


def test_large_messages_pass_through_tls(tmp_path):
    files = certificates.make(tmp_path / "tls")
    payload = bytes(range(256)) * 2048
    with MosquittoProcess(tmp_path, tls=files) as process:
        with MQTTClient(f"{process.url}?cacertfile={files.authority}", timeout_s=in_time(20)) as connection:
            connection.subscribe("large", qos=1)
            connection.publish("large", payload, qos=1)
            assert connection.next_message(TIMEOUT_S).payload == payload


@pytest.mark.parametrize(("version", "code"), [(3, 5), (4, 5), (5, 0x87)])
def test_client_without_a_login_is_told_that_it_needs_one(tmp_path, version, code):
    with MosquittoProcess(tmp_path, "allow_anonymous false") as process:
        with pytest.raises(ConnectionClosed, match="(?i)not authorized") as caught:
            MQTTClient(process.url, version=version, client_identifier="c")

    assert caught.value.reply_code == code
