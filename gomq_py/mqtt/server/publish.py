"""Publish: handles each PUBLISH that the fast lane leaves to this slow lane: retained messages, topic
aliases, topics without a remembered route, and everything that is refused.

    publish                        PUBLISH -> Publication -> destinations, and its answer
    route_of, routing_of           the fast lane's route of a topic

Complete and simple, never fast. A property test checks that both lanes give equal answers.
"""
from functools import partial

from gomq_py.broker.envelope import Envelope
from gomq_py.broker.verbs import blocked_publish, publishing
from gomq_py.content.properties import Properties
from gomq_py.errors import AccessRefused, OutOfResources, Refused
from gomq_py.mqtt.server.flows import TOPIC_MAX, Refusal
from gomq_py.mqtt.wire import crossing, reason_codes
from gomq_py.mqtt.wire.constants import MQTT_5
from gomq_py.mqtt.wire.topics import BROKER_PREFIX, is_broker_topic
from gomq_py.storage.message import Message

# Topics with this prefix go to the default exchange: to queues and direct replies named by the rest.
OF_DEFAULT_EXCHANGE = b"$default/"
_BELOW_SYS = BROKER_PREFIX.encode()


class MQTTEnvelope(Envelope):
    """Reads the properties of one PUBLISH. ``properties``: the MQTT 5 properties as bytes, without their
    length.
    """

    __slots__ = ("_octets", "_routing_key", "_qos", "_expiry_s", "flags")

    kind = crossing.KIND

    def __init__(self, properties, routing_key, qos, retain, expiry_s):
        self._octets = properties
        self._routing_key = routing_key
        self._qos = qos
        self._expiry_s = expiry_s
        self.flags = crossing.record_flags(qos, retain)

    def lives_ms(self):
        return None if self._expiry_s is None else self._expiry_s * 1000

    def is_persistent(self):
        return self._qos > 0

    def headers(self):
        return self.properties().headers

    def properties(self):
        message = Message()
        message.assign(b"", self._routing_key, self._octets, b"", 0)
        message.set_kind(self.kind, self.flags)
        return Properties.decode(message.get_properties())

    def octets(self):
        return self._octets


# publishing

def publish(connection, walk):
    """Handle the PUBLISH that ``walk`` found last. Returns False to pause reading. Raises MQTTError."""
    if not walk.plain:
        walk.decode()
        raise AssertionError("the walk refuses what the codec accepts")
    qos, identifier = walk.qos, walk.packet_identifier
    topic = _topic(connection, walk)
    properties = walk.part(walk.properties_at, walk.properties_length)
    body = walk.part(walk.payload_at, walk.payload_length)
    try:
        if qos and not walk.dup:
            connection.inbound.received.give_up_partly(identifier)
        if qos and not connection.inbound.is_new(qos, identifier):
            return not connection.stream.paused
        publication = _prepare(connection, walk, topic, properties, body)
    except (Refusal, Refused) as error:
        _refuse(connection, qos, identifier, error)
        return True
    store(connection, publication, qos, identifier)
    return not connection.stream.paused and not connection.inbound.is_over


def store(connection, publication, qos, packet_identifier):
    """Publish the message to its destinations, and have the PUBLISH answered once it is safe."""
    publication.message.publisher = connection.session
    if qos == 2:
        publication.message.at_once = True
        received = connection.inbound.received
        lacking = received.lacking(packet_identifier, publication.destinations)
        publication.somebody_took = len(lacking) < len(publication.destinations)
        publication.destinations = lacking
        received.begin(packet_identifier, tuple(publication.destinations), publication.message)
    wait = partial(_wait, connection, qos, packet_identifier)
    taken = publishing.store(connection.caller, publication, connection.hub.scheduler.now_ms, wait)
    if taken is not None:
        _stored(connection, publication, qos, packet_identifier)


def _topic(connection, walk):
    """Return the topic name (bytes), from its alias if needed. Raises TopicAliasInvalid, ProtocolError."""
    topic = walk.part(walk.topic_at, walk.topic_length)
    if walk.topic_alias_at < 0:
        return topic
    return connection.inbound.alias(walk.topic_alias, topic)


def check_head(connection, head):
    """Check topic, rights and size of a PUBLISH before its payload arrives. Raises Refusal, or ProtocolError
    for an undefined topic alias.
    """
    try:
        topic = head.topic or connection.inbound.alias(head.topic_alias, b"")
        _check(connection, topic, head.payload_octets)
        exchange, key = address_of(connection.sessions, topic)
        publishing.check_address(connection.caller, exchange, key.decode())
    except Refused as error:
        raise _refusal(error) from None


def refuse_whole(connection, head, error):
    """Answer a complete PUBLISH whose head was refused with ``error``. Raises MQTTError."""
    try:
        if connection.inbound.is_new(head.qos, head.packet_identifier):
            raise error
    except Refusal as refusal:
        _refuse(connection, head.qos, head.packet_identifier, refusal)


def _check(connection, topic, payload_octets):
    if len(topic) > TOPIC_MAX:
        raise Refusal(
            reason_codes.TOPIC_NAME_INVALID, f"a topic name of {len(topic)} bytes, {TOPIC_MAX} are accepted")
    if is_broker_topic(topic):
        raise Refusal(reason_codes.NOT_AUTHORIZED, "a publish to a topic of the broker")
    most = connection.server.settings.max_message_size
    if payload_octets > most:
        raise Refusal(
            reason_codes.QUOTA_EXCEEDED, f"a payload of {payload_octets} bytes, {most} are accepted")


def _prepare(connection, walk, topic, properties, body):
    """Check a PUBLISH. Returns its Publication. Raises Refusal, Refused."""
    _check(connection, topic, len(body))
    expiry_s = None
    if walk.message_expiry_at >= 0:
        expiry_s = int.from_bytes(walk.part(walk.message_expiry_at, 4), "big")
    if walk.payload_format_at >= 0 and walk.part(walk.payload_format_at, 1) == b"\1" and not is_text(body):
        raise Refusal(reason_codes.PAYLOAD_FORMAT_INVALID, "a payload that is no UTF-8")
    if walk.topic_alias_at >= 0:
        at = walk.topic_alias_at - 1 - walk.properties_at
        properties = properties[:at] + properties[at + 3:]
    exchange, key = address_of(connection.sessions, topic)
    envelope = MQTTEnvelope(properties, key, walk.qos, walk.retain, expiry_s)
    return publishing.prepare(
        connection.caller, exchange, key.decode(), lambda _tables: envelope, body,
        connection.hub.scheduler.now_ms)


def address_of(sessions, topic):
    """Return (exchange name, routing key as bytes) for publishes to a topic (bytes). Raises NotFound if the
    exchange for MQTT clients does not exist.
    """
    if topic.startswith(OF_DEFAULT_EXCHANGE):
        return "", crossing.swap(topic.removeprefix(OF_DEFAULT_EXCHANGE))
    return sessions.source().name, crossing.swap(topic)


def is_text(payload):
    """Return whether a payload is UTF-8, as its payload format indicator 1 claims."""
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


def publish_later(connection, qos, packet_identifier, message, destinations, at, taken):
    """Continue a publish from destination number ``at``, which answered LATER, once it can store the message.
    ``taken``: True if all earlier destinations stored the message.
    """
    publication = publishing.begun(connection.vhost, message, destinations)
    _wait(connection, qos, packet_identifier, publication, at, taken)


def _wait(connection, qos, packet_identifier, publication, at, taken):
    def stored(taken, somebody_took):
        publishing.stored(publication, taken, somebody_took)
        _stored(connection, publication, qos, packet_identifier)
        connection.inbound.done()

    before = None
    if qos == 2:
        destinations = tuple(publication.destinations)
        before = connection.inbound.received.postpone(
            packet_identifier, publication.message, destinations, destinations[at:], taken)
    blocked_publish.wait_for_files(
        connection.hub, connection.stream, connection.vhost, publication, at, taken, stored, before)


def _stored(connection, publication, qos, packet_identifier):
    queues = None
    if not publication.taken:
        queues = tuple(publication.destinations)
    elif publication.durable:
        queues = tuple(publication.awaited)
    connection.inbound.stored(
        qos, packet_identifier, bool(publication.taken), len(publication.destinations) > 0, queues)


# refusals

_CODES = {
    AccessRefused: reason_codes.NOT_AUTHORIZED,
    OutOfResources: reason_codes.QUOTA_EXCEEDED,
}


def _refuse(connection, qos, packet_identifier, error):
    """Answer a refused PUBLISH, or raise the error if MQTT has no answer."""
    error = _refusal(error)
    if not is_answered(connection, qos) or error.reason_code == reason_codes.RECEIVE_MAXIMUM_EXCEEDED:
        raise error
    connection.inbound.refused(qos, packet_identifier, error.reason_code)


def _refusal(error):
    if isinstance(error, Refusal):
        return error
    code = next(
        (code for kind, code in _CODES.items() if isinstance(error, kind)),
        reason_codes.IMPLEMENTATION_SPECIFIC_ERROR)
    return Refusal(code, error.text)


def is_answered(connection, qos):
    """Return whether MQTT can answer a PUBLISH with a refusal; otherwise a refusal ends the connection."""
    return qos > 0 and connection.version >= MQTT_5


# questions of the fast lane

def route_of(connection, key):
    """Return a Route that may be remembered for a topic (bytes); None if each message must be routed."""
    if len(key) > TOPIC_MAX or key.startswith((_BELOW_SYS, OF_DEFAULT_EXCHANGE)):
        return None
    if connection.slow_walk.is_over():
        return None  # routes of this read took too long: the slow lane takes the message and ends the walk
    try:
        exchange = connection.sessions.source().name
    except Refused:
        return None
    # Headers that the route watches do not matter: it watches lists, and user properties are strings.
    return publishing.remembered_route(
        connection.caller.access, connection.vhost, exchange, crossing.swap(key).decode())


def routing_of(connection, key):
    """Encode the exchange and routing key of a topic (bytes) as two short strings, as in stored messages."""
    exchange = connection.sessions.source_name.encode("utf-8", "surrogateescape")
    return bytes((len(exchange),)) + exchange + bytes((len(key),)) + crossing.swap(key)
