"""The judge of messages that cross amq.topic: what breaks a promise by hand is found."""
import pytest

from gomq_py.amqp.wire import methods
from gomq_py.content.properties import Properties
from gomq_py.mqtt.wire import packets
from tests.simulation.book import Book, Held
from tests.simulation.crossing import CrossedLedger, CrossedSubscriber
from tests.simulation.ledger import TopicLedger
from tests.simulation.network import Network
from tests.simulation.world import World


@pytest.fixture
def ledger():
    """With a message at QoS 1 and one at QoS 2."""
    world = World(1)
    ledger = CrossedLedger(world, "i", Book(world))
    for qos in (1, 2):
        ledger.publish_at(qos)
    return ledger


def findings(ledger):
    return [finding.split(": ", 1)[1] for finding in ledger.world.findings]


def take(ledger, number):
    ledger.consumer_connects().take(ledger.book.messages[number], Held(1, "tag", None), False)


def end(ledger):
    ledger.book.ends += 1
    ledger.process_ended()


@pytest.mark.parametrize("number, again, happens, is_found", [
    (0, [], None, True), (0, [0], None, False), (1, [1], None, True),
    (1, [1], lambda ledger: ledger.power_was_cut(), False),
    (1, [1], lambda ledger: ledger.disk_is_ill(True), False), (1, [1], end, True)])
def test_message_that_comes_twice_is_found(ledger, number, again, happens, is_found):
    if happens:
        happens(ledger)
    ledger.connects(again)

    take(ledger, number)
    ledger.hands[0].close()
    take(ledger, number)

    assert bool(findings(ledger)) is is_found


def test_message_may_come_twice_if_the_broker_had_no_room_for_identifiers_and_ends(ledger):
    ledger.disk_is_full(True)
    ledger.disk_is_full(False)
    number, _ = ledger.publish_at(2)
    end(ledger)
    ledger.connects([number])

    take(ledger, number)
    ledger.hands[0].close()
    take(ledger, number)

    assert findings(ledger) == []


def test_message_that_was_answered_and_does_not_come_is_found(ledger):
    ledger.accept(1)

    ledger.check_complete()

    assert findings(ledger) == ["i: accepted and lost, or never delivered: [1] of 1"]


@pytest.mark.parametrize("key, mode, qos, is_found", [
    ("i.m", 2, 1, False), ("i.a", 2, 1, True), ("i.m", 1, 1, True), ("i.m", 2, 2, True)])
def test_message_that_crosses_to_amqp_otherwise_than_promised_is_found(ledger, key, mode, qos, is_found):
    ledger.check_how(0, methods.BasicDeliver(exchange="amq.topic", routing_key=key), Properties(
        delivery_mode=mode, headers={"x-mqtt-publish-qos": qos}))

    assert bool(findings(ledger)) is is_found


@pytest.mark.parametrize("qos, retain, is_found", [(1, False, False), (2, False, True), (1, True, True)])
def test_message_that_crosses_to_mqtt_otherwise_than_promised_is_found(qos, retain, is_found):
    world = World(1)
    ledger = TopicLedger(world, "i/a")
    _, body = ledger.publish_at(1)
    subscriber = CrossedSubscriber(world, Network(world), "subscriber", ledger)
    subscriber.tell = lambda packet: None

    subscriber._published(packets.PublishPacket(
        topic_name="i/a", payload=body, qos=qos, packet_identifier=1, retain=retain))

    assert bool(world.findings) is is_found
