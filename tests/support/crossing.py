"""Content of MQTT in the tests: its Form is registered by whoever imports this,
and messages as its door stores them.
"""
from gomq_py.content import forms
from gomq_py.content.properties import Properties
from gomq_py.hub.scheduler import unix_ms
from gomq_py.mqtt.wire import crossing
from gomq_py.mqtt.wire.constants import PUBLISH, SERVER
from gomq_py.mqtt.wire.fields import Reader, variable_byte_integer
from gomq_py.mqtt.wire.properties import decode_properties, encode_values
from gomq_py.storage.message import Message

forms.register(crossing.MQTTForm())


def stored(
    topic, values=None, qos=0, retain=False, body=b"body", exchange=b"amq.topic", block=None, timestamp_ms=1
):
    """The Message of a PUBLISH with these properties, by name, or with the octets ``block``."""
    made = Message()
    made.assign(
        exchange, crossing.swap(topic.encode()),
        encode_values(values or {}, PUBLISH) if block is None else block, body, timestamp_ms,
        persistent=qos > 0)
    made.set_kind(crossing.KIND, crossing.record_flags(qos, retain))
    return made


def values_of(block):
    """The properties by name of a block that a server may send. Raises MQTTError."""
    return decode_properties(
        Reader(variable_byte_integer(len(block)) + block, 0, len(block) + 4, "PUBLISH", 5), PUBLISH, SERVER
    )


def publish(launcher, *messages, vhost="/"):
    """Route messages that stored() made, and deliver them, as their door does; in the broker's own thread."""
    found = launcher.broker.vhosts[vhost]
    scheduler = launcher.hub.scheduler
    scheduler.begin(unix_ms())
    try:
        for message in messages:
            exchange = found.exchanges[message.get_exchange().decode()]
            headers = Properties.decode(message.get_properties()).headers
            for destination in found.route(exchange, message.get_routing_key().decode(), headers):
                assert destination.publish(message) == 1, destination.name
    finally:
        scheduler.finish()


def put(launcher, queue, *messages, vhost="/"):
    """Give one queue messages, whatever they are."""
    scheduler = launcher.hub.scheduler
    scheduler.begin(unix_ms())
    try:
        for message in messages:
            assert launcher.broker.vhosts[vhost].queues[queue].publish(message) == 1
    finally:
        scheduler.finish()
