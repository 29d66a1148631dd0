"""Runs ``gomq-py-perf mqtt throughput``.

Each publisher and each subscriber has its own connection. The broker delivers a message to every subscriber,
or to one subscriber of each shared subscription.
"""
from gomq_py.client.errors import ClientError
from gomq_py.client.mqtt import MQTTClient
from gomq_py.mqtt.wire.constants import MQTT_5, PUBLISH, STRING_MAX
from gomq_py.mqtt.wire.errors import MQTTError
from gomq_py.mqtt.wire.fields import variable_byte_integer
from gomq_py.mqtt.wire.frames import encode_publish
from gomq_py.mqtt.wire.packets import (
    DisconnectPacket, PubackPacket, PubcompPacket, PubrecPacket, SubackPacket, SubscribePacket, Subscription,
)
from gomq_py.mqtt.wire.properties import encode_values
from gomq_py.mqtt.wire.reason_codes import UNSPECIFIED_ERROR, name_of
from gomq_py.perf import messages, shared
from gomq_py.perf.load import Load
from gomq_py.perf.walk import ArrivalCheck, MQTTWalk, PacketWindow
from gomq_py.perf.role import ConsumerRole, PublisherRole, Role

# All cycles of publishes together: with thousands of publishers each has only one or a few messages.
_CYCLES_OCTETS = 64 << 20
_CYCLE_OCTETS = 65536
_PUBLISHER_READ_OCTETS = 16384  # acknowledgements of four bytes
_PUBLISHER_PACKET_OCTETS = 4096  # for an acknowledgement with a reason
_HEAD_OCTETS = 70000  # before a body: a topic and a broker's additions
_SESSION_EXPIRY_S = 3600  # of a kept session: cleans up after a killed run


def connect(options, name, **more):
    return MQTTClient(
        options.uri, version=options.version, client_identifier=name, keep_alive_s=0,
        timeout_s=options.timeout_s, **more)


def kept(options):
    """Return the keyword arguments of an MQTTClient whose session the broker keeps after a disconnect."""
    properties = {"session_expiry_interval": _SESSION_EXPIRY_S} if options.version >= MQTT_5 else None
    return {"clean_start": False, "properties": properties}


def encoded_properties(options):
    """Return the encoded MQTT 5 properties of each message, without the length before them.

    Raises ValueError if there are properties and the version is lower than 5.
    """
    if options.properties and options.version < MQTT_5:
        raise ValueError("--properties need --mqtt-version 5")
    return encode_values(options.properties, PUBLISH)


def _make_batch(options, topic, publishers):
    properties = encoded_properties(options)
    encoded_topic = topic.encode()

    def encode(key, body):
        packet = encode_publish(options.version, options.qos << 1, key, 1, properties, body)
        return packet, len(packet) - len(body)

    # The identifier lies before the properties and their length.
    before = len(variable_byte_integer(len(properties))) + len(properties) if options.version >= MQTT_5 else 0
    identifier_before = 2 + before if options.qos else 0
    cycle_octets = min(_CYCLE_OCTETS, _CYCLES_OCTETS // publishers)
    return messages.make_batch(options, [encoded_topic], encode, cycle_octets, identifier_before)


class _MQTT(Role):
    """Base of the MQTT publisher and consumer. Handles packets that a Walk does not, such as DISCONNECT."""

    def read(self, now_ns, limit_octets=131072):
        """Read as Role.read does. Also raises ClientError if the broker violates the protocol."""
        try:
            return super().read(now_ns, limit_octets)
        except MQTTError as error:
            raise ClientError(f"the broker sent what is no MQTT: {error}") from error

    def other(self, what):
        """Handle a SUBACK, a DISCONNECT, or an acknowledgement with a reason code.

        Raises ClientError if the broker disconnects, or refuses a subscription.
        """
        if isinstance(what, DisconnectPacket):
            reason = name_of(what.TYPE, what.reason_code, self.options.version)
            raise ClientError(f"the broker disconnected: {reason}")
        if isinstance(what, SubackPacket):
            code = what.reason_codes[0]
            if code >= UNSPECIFIED_ERROR:
                raise ClientError(
                    f"SUBSCRIBE refused: {name_of(what.TYPE, code, self.options.version)}")
            self.counters[shared.READY] = 1
        elif isinstance(what, (PubackPacket, PubrecPacket, PubcompPacket)):
            self.acknowledged(what)

    def acknowledged(self, packet):
        """Handle a PUBACK, PUBREC or PUBCOMP that has a reason code. Only publishers get these."""


class MQTTPublisher(_MQTT, PublisherRole):
    """Publishes to one topic at one QoS, with a limited number of unacknowledged messages."""

    def __init__(self, options, counters, index, topic, quota, publishers):
        connection = connect(options, f"{options.name}-publisher-{index}")
        confirm = min(options.confirm, connection.receive_maximum) if options.qos else 0
        window = PacketWindow(confirm or 1)
        if options.own_topics:
            topic = f"{topic}/{index}"
        super().__init__(
            options, counters, connection, index, quota, _make_batch(options, topic, publishers), window,
            confirm, index / publishers)
        self.attach(MQTTWalk(
            options.version, _PUBLISHER_READ_OCTETS, _PUBLISHER_PACKET_OCTETS, window=window))
        counters[shared.READY] = 1

    def read(self, now_ns, limit_octets=_PUBLISHER_READ_OCTETS):
        return super().read(now_ns, limit_octets)

    def allowed(self):
        # At most ``confirm`` messages follow the oldest unacknowledged one, so that no packet identifier is
        # used twice at a time.
        allowed = super().allowed()
        if self.confirm and allowed > 0:
            allowed = min(allowed, self.confirm - (self.published + 1 - self.window.low))
        return allowed

    def stamp(self, first, last):
        super().stamp(first, last)
        if self.confirm:
            self.batch.identify(first, last, self.published % STRING_MAX + 1)

    def answer(self):
        """Send PUBREL for each PUBREC just received."""
        self.send_answers()

    def acknowledged(self, packet):
        refused = packet.reason_code >= UNSPECIFIED_ERROR
        if refused or not isinstance(packet, PubrecPacket):
            self.window.note_packet_confirm(packet.packet_identifier, refused)
        else:
            raise ClientError(f"PUBREC with reason code 0x{packet.reason_code:02X}")


class MQTTConsumer(_MQTT, ConsumerRole):
    """Subscribes to one topic filter, counts its messages, and acknowledges them."""

    def __init__(self, options, counters, index, topic, quota, check, latencies):
        more = kept(options) if options.persistent else {}
        if options.version >= MQTT_5 and options.prefetch:
            more["properties"] = {**(more.get("properties") or {}), "receive_maximum": options.prefetch}
        connection = connect(options, consumer_name(options, index), **more)
        super().__init__(options, counters, connection, quota)
        self.attach(MQTTWalk(
            options.version, packet_octets=options.size[1] + _HEAD_OCTETS,
            **self.checks(ArrivalCheck, check, latencies)))
        # Read here, not by the client: messages behind the answer in the same read must be counted.
        subscribe = SubscribePacket(
            packet_identifier=1,
            subscriptions=(Subscription(filter_of(options, topic), options.subscribe_qos),))
        self.send(subscribe.encode(options.version))
        self.write()

    def finish(self):
        self.answer()

    def _count(self, now_ns):
        super()._count(now_ns)
        if self.walk.check is not None:
            self.counters[shared.DOUBLED] = self.walk.check.doubled


def consumer_name(options, index):
    """Return the client identifier of consumer number ``index``, the same in every run."""
    return f"{options.name}-consumer-{index}"


def filter_of(options, topic):
    """Return the topic filter of this topic's consumers; with the option ``share``, a shared one."""
    topic_filter = options.filter or (f"{topic}/+" if options.own_topics else topic)
    return f"$share/{options.share}/{topic_filter}" if options.share else topic_filter


class MQTTThroughput(Load):
    """A run of MQTT publishers and consumers over the topics in ``options``."""

    consumer_kind = MQTTConsumer

    def __init__(self, options, progress):
        super().__init__(options, options.topics, progress)
        # The publishers and consumers of one topic follow each other.
        self._of_topic = [
            (range(number * options.publishers, (number + 1) * options.publishers),
             self.consumers[number * options.consumers:(number + 1) * options.consumers])
            for number in range(len(options.topics))
        ]

    def prepare(self):
        """Delete consumers' sessions that an earlier run left, because messages in them would be counted.

        Without kept sessions, only check that a client can log in.
        """
        self.clean_up()
        if not self.options.persistent:
            connect(self.options, f"{self.options.name}-0").close()  # an error here is one line

    def clean_up(self):
        for index in range(len(self.consumers)) if self.options.persistent else ():
            connect(self.options, consumer_name(self.options, index)).close()

    def publisher(self, group, index, quota):
        return MQTTPublisher(
            self.options, self.region.counters(index), index, group, quota, len(self.publishers))

    def expected(self):
        """Return how many deliveries to expect: for each message that was not refused, one per consumer of
        its topic.

        With the option ``share``, one per message.
        """
        total = 0
        for publishers, consumers in self._of_topic:
            copies = min(1, len(consumers)) if self.options.share else len(consumers)
            for counters in map(self.region.counters, publishers):
                total += copies * (counters[shared.PUBLISHED] - counters[shared.REFUSED])
        return total

    def judge(self, result):
        """Count lost and duplicate messages, and append the faults to ``result.faults``."""
        # Faults: lost messages (unless a QoS is 0), doubled messages, missing acknowledgements; with --verify
        # also wrong order and unknown bodies.
        options, region = self.options, self.region
        undisturbed = not (self.interrupted or result.faults)
        result.lost, result.doubled = 0, region.total(shared.DOUBLED)
        if undisturbed and self.publishers and self.consumers and not options.consume_count:
            expected = self.expected()
            result.doubled = max(result.doubled, result.consumed - expected)
            result.lost = max(0, expected - (result.consumed - result.doubled))
        unanswered = result.published - result.confirmed if options.qos and undisturbed else 0
        promised = result.lost if options.qos and options.subscribe_qos else 0
        for count, text in (
            (region.total(shared.MISORDERED), "messages out of order"),
            (region.total(shared.CORRUPT), "bodies that nobody published"),
            (result.doubled, "messages more than once"), (promised, "messages lost"),
            (unanswered, "publishes without an answer"),
        ):
            if count:
                result.faults.append(f"{count} {text}")
