"""The exchange that clients publish to: amq.topic, the setting's, or the parameter's of the vhost."""
import pytest

from gomq_py.amqp.wire.methods import QueueDeclare, QueueDeclareOk
from gomq_py.broker.policies.parameters import ParameterError
from gomq_py.errors import NotFound
from gomq_py.mqtt.model.session_kind import EXTRA
from gomq_py.mqtt.server.server import MQTTServer
from gomq_py.storage.message import Message
from tests.support.door import Door
from tests.support.mqtt_publishing import drained, publish
from tests.unit.mqtt.server import conftest
from tests.unit.mqtt.server.conftest import CONNACK_5, CONNECT_5
from tests.unit.mqtt.server.test_subscribe import suback, subscribe

make_mqtt, mqtt = conftest.make_mqtt, conftest.mqtt
PARAMETER = ("mqtt", "exchange")
REFUSED, UNSPECIFIED = b"\x83", b"\x80"
PUBACK = b"\x40\x02\x00\x01"


def puback(code):
    """That of MQTT 5 for packet identifier 1, with a reason code."""
    return b"\x40\x03\x00\x01" + code


def queue_behind(vhost, exchange, name="q"):
    queue = vhost.create_queue(name, False, False, {}, None)
    vhost.bindings.attach(vhost.exchange(exchange), queue, "#", {})
    return queue


def declare(vhost, name="devices", type_="topic"):
    return vhost.declare_exchange(name, type_, durable=True)


def routed(queue):
    return [(row[0], row[1], row[3]) for row in drained(queue)]


@pytest.fixture(params=["setting", "parameter"])
def devices(request, make_mqtt):
    """A door whose clients publish to the exchange ``devices``, which is there."""
    mqtt = make_mqtt(**({"mqtt_exchange": "devices"} if request.param == "setting" else {}))
    declare(mqtt.door.vhost)
    if request.param == "parameter":
        mqtt.broker.parameters.set(mqtt.door.vhost, *PARAMETER, "devices")
    return mqtt


@pytest.mark.parametrize("retain", [False, True], ids=["fast lane", "slow lane"])
def test_publishes_go_to_that_exchange_alone(devices, retain):
    there, usual = (queue_behind(devices.door.vhost, name, name) for name in ("devices", "amq.topic"))
    client = devices.client(CONNECT_5, CONNACK_5)

    client.send(publish(b"a/b", b"x", 1, 1, 5, retain))

    client.expect(PUBACK)
    assert routed(there) == [(b"devices", b"a.b", b"x")] and routed(usual) == []


def test_subscribers_get_what_comes_there_and_nothing_else(devices):
    vhost = devices.door.vhost
    client = devices.client(CONNECT_5, CONNACK_5)
    client.send(subscribe(b"a/+", options=0))
    client.expect(suback(b"\x00"))
    assert vhost.route(vhost.exchange("amq.topic"), "a.b") == ()

    client.send(publish(b"a/b", b"x", 0, 0, 5))

    client.expect(publish(b"a/b", b"x", 0, 0, 5))


def test_rights_are_asked_on_that_exchange(devices):
    users = devices.broker.users
    users.set_permission("guest", "/", ".*", "^(devices|mqtt..*)$", "^devices$")
    client = devices.client(CONNECT_5, CONNACK_5)

    client.send(subscribe(b"a/b", options=0))
    client.expect(suback(b"\x00"))
    client.send(publish(b"a/b", b"x", 1, 1, 5))
    client.expect(publish(b"a/b", b"x", 0, 0, 5) + PUBACK)
    users.set_topic_permission("guest", "/", "devices", "^x", "^x")

    client.send(publish(b"a/b", b"x", 1, 1, 5))
    client.expect(puback(b"\x87"))
    client.send(subscribe(b"a/+"))
    client.expect(suback(b"\x87"))


def test_another_exchange_counts_at_once_for_clients_that_are_there(mqtt):
    vhost, parameters = mqtt.door.vhost, mqtt.broker.parameters
    declare(vhost)
    there, usual = (queue_behind(vhost, name, name) for name in ("devices", "amq.topic"))
    client = mqtt.client(CONNECT_5, CONNACK_5)
    client.send(subscribe(b"a/b", options=0))
    client.expect(suback(b"\x00"))

    for payload, change in (
        (b"1", None), (b"2", lambda: parameters.set(vhost, *PARAMETER, "devices")),
        (b"3", lambda: parameters.clear(vhost, *PARAMETER)),
    ):
        if change is not None:
            change()
        client.send(publish(b"a/b", payload, 0, 0, 5))
        client.expect(publish(b"a/b", payload, 0, 0, 5))

    assert [row[2] for row in routed(usual)] == [b"1", b"3"] and [row[2] for row in routed(there)] == [b"2"]


def test_rights_on_the_other_exchange_count_at_once_for_subscribers(mqtt):
    vhost = mqtt.door.vhost
    declare(vhost)
    client = mqtt.client(CONNECT_5, CONNACK_5)
    client.send(subscribe(b"a/b", options=0))
    client.send(publish(b"a/b", b"1", 0, 0, 5))
    client.expect(suback(b"\x00") + publish(b"a/b", b"1", 0, 0, 5))

    mqtt.broker.users.set_topic_permission("guest", "/", "devices", ".*", "^x")
    mqtt.broker.parameters.set(vhost, *PARAMETER, "devices")
    client.send(publish(b"a/b", b"2", 1, 1, 5))

    client.expect(PUBACK)
    client.expect_nothing()


@pytest.mark.parametrize("name, type_", [("amq.fanout", None), ("amq.rabbitmq.trace", None), ("", None)])
def test_names_of_what_is_no_topic_exchange_for_clients_are_refused(mqtt, name, type_):
    with pytest.raises(ParameterError, match="topic exchange|internal|name of an exchange"):
        mqtt.broker.parameters.set(mqtt.door.vhost, *PARAMETER, name)

    assert mqtt.door.vhost.topic_exchange == "amq.topic"


@pytest.mark.parametrize("value", [7, None, ["amq.topic"], "\ud800", "x" * 256])
def test_values_that_are_no_names_are_refused(mqtt, value):
    with pytest.raises(ValueError):
        mqtt.broker.parameters.set(mqtt.door.vhost, *PARAMETER, value)
    with pytest.raises(ParameterError, match="there is 'exchange'"):
        mqtt.broker.parameters.set(mqtt.door.vhost, "mqtt", "other", "amq.topic")


@pytest.mark.parametrize("type_", [None, "fanout"], ids=["none", "of another type"])
def test_clients_are_refused_until_there_is_a_topic_exchange(make_mqtt, type_, caplog):
    mqtt = make_mqtt(mqtt_exchange="devices")
    assert "cannot publish or subscribe: no exchange 'devices' in vhost '/'" in caplog.text
    vhost = mqtt.door.vhost
    if type_ is not None:
        declare(vhost, type_=type_)
    client = mqtt.client(CONNECT_5, CONNACK_5)

    client.send(subscribe(b"a/b", options=0))
    client.expect(suback(UNSPECIFIED))
    client.send(publish(b"a/b", b"x", 1, 1, 5))
    client.expect(puback(REFUSED))
    vhost.delete_exchange("devices")
    declare(vhost)
    client.send(subscribe(b"a/b", options=0))
    client.send(publish(b"a/b", b"x", 0, 0, 5))

    client.expect(suback(b"\x00") + publish(b"a/b", b"x", 0, 0, 5))


def test_subscriptions_outlive_the_exchange(devices):
    vhost = devices.door.vhost
    client = devices.client(CONNECT_5, CONNACK_5)
    client.send(subscribe(b"a/b", options=0))
    client.send(publish(b"a/b", b"1", 0, 0, 5))
    client.expect(suback(b"\x00") + publish(b"a/b", b"1", 0, 0, 5))

    vhost.delete_exchange("devices")
    client.send(publish(b"a/b", b"x", 1, 1, 5))
    client.expect(puback(REFUSED))
    declare(vhost)
    client.send(publish(b"a/b", b"2", 0, 0, 5))

    client.expect(publish(b"a/b", b"2", 0, 0, 5))


def test_addresses_of_topics_lead_to_it(devices):
    """A reply_to of an AMQP client that came from a response topic."""
    vhost = devices.door.vhost
    queue = queue_behind(vhost, "devices")
    client = devices.door.client()

    client.publish("amq.topic.a.b", b"answer")
    client.call(QueueDeclare(queue="after", exclusive=True), QueueDeclareOk)

    message = Message()
    assert queue.get(message, True)
    assert (message.get_exchange(), message.get_routing_key()) == (b"devices", b"a.b")


def test_parameter_is_there_after_a_restart_whatever_became_of_its_exchange(tmp_path):
    with Door(tmp_path) as door:
        for name in ("one", "two", "three"):
            door.broker.create_vhost(name)
            vhost = door.broker.vhosts[name]
            door.broker.parameters.set(vhost, *PARAMETER, "devices")
        declare(door.broker.vhosts["one"])
        declare(door.broker.vhosts["three"], type_="fanout")

    with Door(tmp_path) as door:
        MQTTServer(door.broker, door.settings, door.hub)
        one, two, three = (door.broker.vhosts[name] for name in ("one", "two", "three"))
        assert one.exchange("devices").onward is one.exchange("mqtt.default")
        assert one.exchange("amq.topic").onward is None is three.exchange("devices").onward
        with pytest.raises(NotFound, match="no exchange 'devices' in vhost 'two'"):
            two.extras[EXTRA].source()
        door.broker.parameters.clear(two, *PARAMETER)
        assert two.extras[EXTRA].source() is two.exchange("amq.topic")
        assert door.broker.vhosts["/"].extras[EXTRA].source_name == "amq.topic"
