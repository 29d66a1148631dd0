"""MQTT clients of one session: a publisher at QoS 1 and 2, and a subscriber that keeps its session.

Both go on by the specification after each lost connection: the publisher sends again what was not answered,
in its order; the subscriber remembers the identifiers of messages whose exchange is not complete.
"""
from gomq_py.mqtt.wire import packets
from gomq_py.mqtt.wire.codec import PacketReader
from gomq_py.mqtt.wire.constants import MQTT_3_1_1, SERVER
from tests.simulation.client import Client
from tests.simulation.network import MQTT_PORT

MOST_UNDER_WAY = 20


class MQTTClient(Client):
    """``topic`` is the ledger's name."""

    HANDLERS = {}

    def __init__(self, world, network, name, ledger):
        super().__init__(world, network, name, MQTT_PORT)
        self.topic = ledger.name
        self.ledger = ledger
        self._is_kept = False  # the broker has said that it has our session

    def begin(self):
        self._reader = PacketReader(MQTT_3_1_1, SERVER)
        self.tell(packets.ConnectPacket(
            version=MQTT_3_1_1, clean_start=False, client_identifier=self.name, user_name="guest",
            password=b"guest"))

    def tell(self, packet):
        """Send a packet."""
        self.send(packet.encode(MQTT_3_1_1))

    def take(self, octets):
        self._reader.feed(octets)
        while self._end is not None and (packet := self._reader.next_packet()) is not None:
            if isinstance(packet, packets.ConnackPacket):
                self._connected(packet)
            else:
                self.HANDLERS[type(packet)](self, packet)

    def _connected(self, connack):
        if connack.reason_code:
            self.leave(f"is refused with {connack.reason_code}")
            return
        if self._is_kept and not connack.session_present:
            self.ledger.find(f"the session of {self.name} is not there any more")
        self._is_kept = True
        self.is_answered(True)
        self.go_on()

    def go_on(self):
        """The session is there again."""
        self.opened()


class TopicPublisher(MQTTClient):
    """Publishes at QoS 1 and 2. ``_under_way``: identifier -> [number, PUBLISH or PUBREL that was not
    answered yet], in order.
    """

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._under_way = {}
        self._identifier = 0

    def go_on(self):
        for number, packet in self._under_way.values():
            self.say(f"sends {packet.NAME} of {number} again")
            if isinstance(packet, packets.PublishPacket):
                packet.dup = True
            self.tell(packet)
            self.waits()
        self.opened()

    def act(self):
        if self.is_calm or not self.ledger.is_subscribed:
            return
        for _ in range(min(self.random.choice((1, 1, 5)), MOST_UNDER_WAY - len(self._under_way))):
            qos = self.random.choice((1, 2))
            number, body = self.ledger.publish_at(qos)
            self._identifier = self._identifier % 65535 + 1
            packet = packets.PublishPacket(
                topic_name=self.topic, payload=body, qos=qos, packet_identifier=self._identifier)
            self._under_way[self._identifier] = [number, packet]
            self.say(f"publishes {number} at QoS {qos} as {self._identifier}")
            self.waits()
            self.tell(packet)

    def _puback(self, packet):
        number, _ = self._under_way.pop(packet.packet_identifier)
        self.say(f"has PUBACK for {number}")
        self.ledger.accept(number)
        self.is_answered(not self._under_way)

    def _pubrec(self, packet):
        entry = self._under_way[packet.packet_identifier]
        self.say(f"has PUBREC for {entry[0]}")
        self.ledger.accept(entry[0])
        entry[1] = packets.PubrelPacket(packet_identifier=packet.packet_identifier)
        self.tell(entry[1])
        self.is_answered(False)

    def _pubcomp(self, packet):
        self.say(f"has PUBCOMP for {self._under_way.pop(packet.packet_identifier)[0]}")
        self.is_answered(not self._under_way)

    HANDLERS = {
        packets.PubackPacket: _puback, packets.PubrecPacket: _pubrec, packets.PubcompPacket: _pubcomp,
    }


class TopicSubscriber(MQTTClient):
    """Subscribes at QoS 2. ``_begun``: identifier -> number of messages without PUBREL."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._begun = {}

    def go_on(self):
        if self.ledger.is_subscribed:
            self.opened()
        else:
            self.waits()
            self.tell(packets.SubscribePacket(
                packet_identifier=1, subscriptions=(packets.Subscription(self.topic, 2),)))

    def _subscribed(self, packet):
        if packet.reason_codes != (2,):  # a disk that fails
            self.leave(f"is refused its subscription with {packet.reason_codes}")
            return
        self.ledger.is_subscribed = True
        self.is_answered(True)
        self.opened()

    def _published(self, packet):
        identifier, qos = packet.packet_identifier, packet.qos
        number = self.ledger.number_of(packet.payload)
        before = self._begun.get(identifier) if qos == 2 else None
        self.say(f"takes {number} at QoS {qos} as {identifier}{' again' if packet.dup else ''}")
        if before is None or before != number:
            self.ledger.deliver(number, qos, before)
        if qos == 2:
            self._begun[identifier] = number
            self.tell(packets.PubrecPacket(packet_identifier=identifier))
        elif qos == 1:
            self.tell(packets.PubackPacket(packet_identifier=identifier))

    def _released(self, packet):
        identifier = packet.packet_identifier
        if identifier in self._begun:
            number = self._begun.pop(identifier)
            self.say(f"has PUBREL for {number}")
            self.ledger.complete(number)
        self.tell(packets.PubcompPacket(packet_identifier=identifier))

    HANDLERS = {
        packets.SubackPacket: _subscribed, packets.PublishPacket: _published,
        packets.PubrelPacket: _released,
    }
