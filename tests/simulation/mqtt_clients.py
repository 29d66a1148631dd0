"""MQTT clients: a publisher at QoS 1 and 2 and a subscriber that keep their sessions, one that looks at what
is retained, and one that leaves wills. Each speaks MQTT 3.1.1 or 5.

Both go on by the specification after each lost connection: the publisher sends again what was not answered,
in its order; the subscriber remembers the identifiers of messages whose exchange is not complete.
"""
from gomq_py.mqtt.wire import packets
from gomq_py.mqtt.wire.codec import PacketReader
from gomq_py.mqtt.wire.constants import MQTT_3_1_1, MQTT_5, SERVER
from tests.simulation.client import Client
from tests.simulation.network import MQTT_PORT

RECEIVE_MAXIMA = (1, 3, 20)
ERROR = 0x80  # and above: reason codes of what is refused
WILL_OCTETS = 100
LOOKS_AGAIN_S = 5.0
STAYS_S = 2.0  # a connection that its client has forgotten


class MQTTClient(Client):
    """``topic`` is the ledger's name. ``receive_maximum``: 0 before MQTT 5."""

    HANDLERS = {}
    keeps_session = True
    will = None

    def __init__(self, world, network, name, ledger):
        super().__init__(world, network, name, MQTT_PORT)
        self.topic = ledger.name
        self.ledger = ledger
        self.version = self.random.choice((MQTT_3_1_1, MQTT_5))
        self.receive_maximum = self.random.choice(RECEIVE_MAXIMA) if self.version == MQTT_5 else 0
        self._is_kept = False  # the broker has said that it has our session

    def begin(self):
        self._reader = PacketReader(self.version, SERVER)
        properties = {}
        if self.receive_maximum:
            properties = {"receive_maximum": self.receive_maximum}
            if self.keeps_session:
                properties["session_expiry_interval"] = 0xFFFFFFFF
        self.tell(self.adapted(packets.ConnectPacket(
            version=self.version, clean_start=not self.keeps_session, client_identifier=self.identifier(),
            user_name="guest", password=b"guest", will=self.will, properties=properties)))

    def adapted(self, connect):
        """The CONNECT as this client has it."""
        return connect

    def identifier(self):
        """Of the client, for its session."""
        return self.name

    def tell(self, packet):
        """Send a packet."""
        self.send(packet.encode(self.version))

    def take(self, octets):
        self._reader.feed(octets)
        while self._end is not None and (packet := self._reader.next_packet()) is not None:
            if isinstance(packet, packets.ConnackPacket):
                self._connected(packet)
            elif isinstance(packet, packets.DisconnectPacket):
                self.leave(f"is told {packet.reason_code:#x}")
            else:
                self.HANDLERS[type(packet)](self, packet)

    def _connected(self, connack):
        if connack.reason_code:
            self.leave(f"is refused with {connack.reason_code}")
            return
        self.check_session(connack.session_present)
        self._is_kept = self.keeps_session
        self.is_answered(True)
        self.go_on()

    def check_session(self, is_present):
        """The broker has it, or not."""
        if self._is_kept and not is_present:
            self.ledger.find(f"the session of {self.name} is not there any more")

    def go_on(self):
        """The session is there again."""
        self.opened()

    def say_goodbye(self):
        self.tell(packets.DisconnectPacket())

    def be_rude(self):
        """Connect again, with the old connection still there, which the broker has to end."""
        self.leave("forgets its connection", STAYS_S)


class TopicPublisher(MQTTClient):
    """Publishes at QoS 1 and 2. ``_under_way``: identifier -> [number, PUBLISH or PUBREL that was not
    answered yet], in order. ``most``: of them.
    """

    most = 20
    retain = False

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
        for _ in range(min(self.random.choice((1, 1, 5)), self.most - len(self._under_way))):
            number, packet = self.publication()
            if packet.qos:
                self._identifier = packet.packet_identifier = self._identifier % 65535 + 1
                self._under_way[self._identifier] = [number, packet]
                self.waits()
            self.say(f"publishes {number} at QoS {packet.qos} as {packet.packet_identifier}")
            self.tell(packet)

    def publication(self):
        """(number, PUBLISH) of what is next."""
        qos = self.random.choice((1, 2))
        number, body = self.ledger.publish_at(qos)
        return number, packets.PublishPacket(
            topic_name=self.topic, payload=body, qos=qos, retain=self.retain)

    def awaits(self):
        return list(dict.fromkeys(packet.NAME for _, packet in self._under_way.values()))

    def _puback(self, packet):
        number, _ = self._under_way.pop(packet.packet_identifier)
        self.say(f"has PUBACK {packet.reason_code:#x} for {number}")
        if packet.reason_code < ERROR:
            self.ledger.accept(number)
        self.is_answered(not self._under_way)

    def _pubrec(self, packet):
        entry = self._under_way[packet.packet_identifier]
        self.say(f"has PUBREC {packet.reason_code:#x} for {entry[0]}")
        if packet.reason_code >= ERROR:
            del self._under_way[packet.packet_identifier]
            self.is_answered(not self._under_way)
            return
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
    """Subscribes at QoS 2. ``_begun``: identifier -> number of messages without PUBREL. ``_here``: those that
    came over this connection.
    """

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._begun = {}
        self._here = set()

    def go_on(self):
        self._here.clear()
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
            self._here.add(identifier)
            if self.receive_maximum:
                self.ledger.exercised["receive maximum"] += 1
                if len(self._here) > self.receive_maximum:
                    self.ledger.find(f"{len(self._here)} messages have begun for {self.name}")
            self._begun[identifier] = number
            self.tell(packets.PubrecPacket(packet_identifier=identifier))
        elif qos == 1:
            self.tell(packets.PubackPacket(packet_identifier=identifier))

    def _released(self, packet):
        identifier = packet.packet_identifier
        self._here.discard(identifier)
        if identifier in self._begun:
            number = self._begun.pop(identifier)
            self.say(f"has PUBREL for {number}")
            self.ledger.complete(number)
        self.tell(packets.PubcompPacket(packet_identifier=identifier))

    HANDLERS = {
        packets.SubackPacket: _subscribed, packets.PublishPacket: _published,
        packets.PubrelPacket: _released,
    }


class Retainer(TopicPublisher):
    """Publishes what is to be retained, one after the other."""

    most = 1
    retain = True


class Watcher(MQTTClient):
    """Subscribes again and again, and gets what is retained."""

    keeps_session = False

    def go_on(self):
        self.opened()
        self._subscribe()

    def act(self):
        if self.waits_since_s is None:
            if self._least is not None:
                self._subscribe()
        elif self.is_calm and self.world.now_s > self.waits_since_s + LOOKS_AGAIN_S:
            self.leave("looks again")  # it was replaced while the watcher subscribed, and came as any other

    def _subscribe(self):
        self._least = max(self.ledger.accepted, default=None)
        self.waits()
        self.tell(packets.SubscribePacket(
            packet_identifier=1, subscriptions=(packets.Subscription(self.topic, 1),)))

    def _subscribed(self, packet):
        if packet.reason_codes != (1,):
            self.leave(f"is refused its subscription with {packet.reason_codes}")
        elif self._least is None:
            self.is_answered(True)
            if not self.is_calm:
                self.leave("looks again")  # what is retained from now on may come late

    def _published(self, packet):
        number = self.ledger.number_of(packet.payload)
        if packet.retain and self._least is not None:
            self.say(f"sees {number} retained")
            self.ledger.exercised["retained"] += 1
            if number < self._least:
                self.ledger.find(f"{number} is retained, and {self._least} was accepted before")
            self.is_answered(True)
        if packet.qos:
            self.tell(packets.PubackPacket(packet_identifier=packet.packet_identifier))

    HANDLERS = {packets.SubackPacket: _subscribed, packets.PublishPacket: _published}


class Testator(MQTTClient):
    """Leaves a will, with another identifier each time, so that it never comes back."""

    keeps_session = False
    HANDLERS = {}
    _number = None
    _wills = 0
    _says_goodbye = False
    _taken_over = None  # the number of the will of the connection that this one takes over
    _forgot_s = 0.0  # when it was forgotten

    def identifier(self):
        return f"{self.name}-{self._wills}"

    def begin(self):
        if not self.ledger.is_subscribed:
            self.leave("comes later")
            return
        door = self._network.listening.get(self._port)
        if self._taken_over is None:
            self._wills += 1
        elif door is not self._door:  # the client is back before its will is published: docs/mqtt.md
            self._taken_over = None
        self._says_goodbye = False
        self._door = door
        self._number, body = self.ledger.publish_at(2, WILL_OCTETS)
        self.will = packets.Will(self.topic, body, 2)
        self.say(f"has {self._number} for its will")
        super().begin()

    def go_on(self):
        if self._taken_over is not None:
            self.say(f"leaves {self._taken_over} by taking over")
            if not self.ledger.may_have_refused(self._forgot_s):  # and it waited: docs/mqtt.md, "Wills"
                self.ledger.accept(self._taken_over)
            self._taken_over = None
        super().go_on()

    def be_rude(self):
        self._taken_over = None if self._says_goodbye else self._number
        self._forgot_s = self.world.now_s
        super().be_rude()

    def act(self):
        if not self.is_calm and not self._says_goodbye and self.random.random() < 0.2:
            self._says_goodbye = True
            self.say("says goodbye")
            self.tell(packets.DisconnectPacket())

    def ended(self):
        # Otherwise it may be the end of the broker that ended it.
        if self._says_goodbye and self._network.listening.get(self._port) is self._door:
            self.ledger.take_back(self._number)

    def gone(self):
        if self._number not in (None, self._taken_over) and not self._says_goodbye and self._was_open:
            self.say(f"leaves {self._number}")
            self.ledger.accept(self._number)
        self._number = None
