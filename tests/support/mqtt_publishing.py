"""Queues behind amq.topic, and what was stored in them of MQTT publishes."""
from gomq_py.mqtt.wire.frames import encode_publish
from gomq_py.storage.message import Message


def bound(door, pattern="#", name="q", durable=False, **arguments):
    """A queue that gets what is published to topics with such routing keys."""
    vhost = door.vhost
    arguments = {key.replace("_", "-"): value for key, value in arguments.items()}
    queue = vhost.create_queue(name, durable, False, arguments, None)
    vhost.bindings.attach(vhost.exchange("amq.topic"), queue, pattern, {})
    return queue


def drained(queue):
    """Every message of a queue: (exchange, routing key, properties as stored, body, QoS and RETAIN << 2,
    milliseconds it lives).
    """
    found, message = [], Message()
    while queue.get(message, True):
        about = message.describe()
        assert about["kind"] == 2 and about["persistent"] == (about["flags"] >> 1 & 3 > 0)
        lives_ms = about["expires_at_ms"] and about["expires_at_ms"] - about["timestamp_ms"]
        found.append((
            message.get_exchange(), message.get_routing_key(), message.get_raw(), message.get_body(),
            about["flags"] >> 1, lives_ms))
    return found


def bodies(queue):
    """The bodies of its messages, which are taken out."""
    return [row[3] for row in drained(queue)]


def publish(topic, payload=b"", qos=0, identifier=0, version=4, retain=False, dup=False, properties=b""):
    """The octets of a PUBLISH."""
    flags = dup << 3 | qos << 1 | retain
    return encode_publish(version, flags, topic, identifier, properties, payload)
