"""MQTT clients of a flow: a publisher at each QoS, whose messages may expire, and subscribers by one filter
or several, whose sessions are kept for ever, for some seconds or not at all, alone or as members of a share.
"""
from gomq_py.mqtt.wire import packets
from gomq_py.mqtt.wire.constants import MQTT_5
from tests.simulation.flow_ledger import SLACK_S, Flow, Group, Inbox, Wish
from tests.simulation.mqtt_clients import ERROR, STAYS_S, MQTTClient, TopicPublisher

TOPICS = "a", "b"
EXPIRIES_S = (None, None, 1, 3)  # of messages
FOR_EVER = 0xFFFFFFFF
SESSIONS_S = (FOR_EVER, FOR_EVER, 1, 3, 0)
AWAY_S = (0.0, 0.0, 0.3, 2.0, 6.0)
UNLIMITED = 65535


class FlowPublisher(TopicPublisher):
    """Publishes to several topics at QoS 0, 1 and 2."""

    def go_on(self):
        for number, packet in self._under_way.values():
            if isinstance(packet, packets.PublishPacket):
                self.ledger.sends_again(number)
        super().go_on()

    def publication(self):
        topic = f"{self.topic}/{self.random.choice(TOPICS)}"
        qos = self.random.choice((0, 1, 1, 2, 2))
        expiry_s = self.random.choice(EXPIRIES_S) if self.version == MQTT_5 else None
        number, body = self.ledger.publish_to(topic, qos, expiry_s)
        return number, packets.PublishPacket(
            topic_name=topic, payload=body, qos=qos,
            properties={} if expiry_s is None else {"message_expiry_interval": expiry_s})


class FlowSubscriber(MQTTClient):
    """``ledger`` is its Inbox. It answers some messages later, and refuses few."""

    def __init__(self, world, network, name, ledger):
        super().__init__(world, network, name, ledger)
        ledger.tells_identifiers = self.version == MQTT_5
        self._keeps_s = self.random.choice(SESSIONS_S)
        if self.version < MQTT_5 and self._keeps_s:
            self._keeps_s = FOR_EVER
        self.keeps_session = self._keeps_s > 0
        self._is_lazy = self.random.random() < 0.3
        self._begins_anew = False
        self._may_be_over = self._has_tried = False
        self._left_s = self._began_s = self._was_there_s = 0.0
        self._processes = None
        self._connections = 0  # of this session
        self._is_ours = False  # all is subscribed to
        self._unanswered = 0
        self._begun = {}
        self._late = []
        self._pause_s = None

    # its session

    def begin(self):
        self._begins_anew = self._begins_anew or not self.keeps_session or self.begins_anew()
        self._has_tried = self._began_s > self._was_there_s
        self._began_s = self.world.now_s
        self._late.clear()
        super().begin()

    def begins_anew(self):
        """Whether it asks for a clean start. Before MQTT 5 a session that begins so ends with its connection.
        """
        return self.version == MQTT_5 and self.random.random() < 0.05

    def adapted(self, connect):
        connect.clean_start = self._begins_anew
        if self.version == MQTT_5:
            connect.properties["session_expiry_interval"] = self._keeps_s
        return connect

    def pause_s(self):
        pause_s, self._pause_s = self._pause_s, None
        return super().pause_s() if pause_s is None else pause_s

    def check_session(self, is_present):
        ledger = self.ledger
        if self._begins_anew:
            if is_present:
                ledger.find(f"{self.name} has asked for a new session, and got an old one")
            is_present = False
        elif self._is_kept and not self._may_be_over:
            ledger.exercised["sessions kept"] += 1
            away_s = self.world.now_s - self._left_s
            # The broker may have ended the connection long before a client that does not read knows.
            if not is_present and self.world.now_s < self._was_there_s + self._keeps_s:
                ledger.find(f"the session of {self.name} is not there after {away_s:.3f} s")
            if is_present and self._keeps_s != FOR_EVER and self._processes == self.ledger.processes and (
                self._began_s - self._left_s > self._keeps_s + STAYS_S + SLACK_S
            ):
                ledger.find(f"the session of {self.name} is there after {away_s:.3f} s")
        if not is_present:
            if self._connections:
                self.say("has lost its session")
                ledger.session_ended(self.receive_maximum or UNLIMITED)
            self._begun.clear()
            self._connections = 0
            self._is_ours = False
        elif self._may_be_over or self._may_be_anew():
            ledger.may_be_new()
            self._is_ours = False
        self._connections += 1
        self._begins_anew = self._may_be_over = False
        self._was_there_s = self._began_s

    def _may_be_anew(self):
        """Whether an earlier CONNECT, which was refused or not answered, may have made the session, because
        the time of the one before was over: docs/mqtt.md.
        """
        return self._has_tried and self._keeps_s != FOR_EVER and (
            self.world.now_s >= self._was_there_s + self._keeps_s)

    def gone(self):
        self._left_s = self.world.now_s
        self._processes = self.ledger.processes
        if not self.keeps_session:
            self.ledger.session_ended()

    # its subscriptions

    def go_on(self):
        if self._is_ours:
            self.opened()
        else:
            self._subscribe()

    def _subscribe(self):
        self.ledger.opens()
        self.waits()
        self._unanswered = 0
        for number, wish in enumerate(self.ledger.wishes, 1):
            self._unanswered += 1
            has_identifier = wish.identifier and self.version == MQTT_5
            self.tell(packets.SubscribePacket(
                packet_identifier=number, subscriptions=(packets.Subscription(wish.topic_filter, wish.qos),),
                properties={"subscription_identifier": wish.identifier} if has_identifier else {}))

    def _subscribed(self, packet):
        if packet.reason_codes[0] >= ERROR:  # a disk that fails
            self.leave(f"is refused its subscription with {packet.reason_codes}")
            return
        self._unanswered -= 1
        if not self._unanswered:
            self.say("has subscribed")
            self._is_ours = True
            self.has_subscribed()
            self.is_answered(True)
            if not self.is_open:
                self.opened()

    def has_subscribed(self):
        """From now on it must get what is published."""
        self.ledger.subscribed()

    def _unsubscribe(self):
        self.say("unsubscribes")
        self._is_ours = False
        self.ledger.closes()
        self.waits()
        self._unanswered = 1
        self.tell(packets.UnsubscribePacket(
            packet_identifier=9, topic_filters=tuple(wish.topic_filter for wish in self.ledger.wishes)))

    def _unsubscribed(self, packet):
        if any(code >= ERROR for code in packet.reason_codes):
            self.leave(f"is refused its end with {packet.reason_codes}")
            return
        self.say("has unsubscribed")
        self._unanswered = 0
        self.ledger.unsubscribed()
        self.is_answered(True)

    def act(self):
        self._answer_late()
        if self._unanswered:
            return
        if not self._is_ours:
            if self.is_calm or self.random.random() < 0.3:
                self._subscribe()
        elif not self.is_calm:
            draw = self.random.random()
            if draw < 0.01 and self.may_unsubscribe():
                self._unsubscribe()
            elif draw < 0.03:
                self._say_goodbye()

    def may_unsubscribe(self):
        """Whether it does so at times."""
        return True

    def _say_goodbye(self):
        """DISCONNECT, and after a while, or at once, CONNECT."""
        packet = packets.DisconnectPacket()
        if self.version == MQTT_5 and self._keeps_s != FOR_EVER and self.random.random() < 0.3:
            self._may_be_over = True
            packet.properties = {"session_expiry_interval": 0}
        self.tell(packet)
        self._pause_s = self.random.choice(AWAY_S)
        self.leave(f"says goodbye for {self._pause_s} s", STAYS_S)

    # what comes

    def _published(self, packet):
        ledger, identifier = self.ledger, packet.packet_identifier
        number = ledger.number_of(packet.payload)
        if number is None:
            return
        before = self._begun.get(identifier) if packet.qos == 2 else None
        self.say(f"takes {number} at QoS {packet.qos} as {identifier}{' again' if packet.dup else ''}")
        if packet.dup and self._connections == 1 and ledger.is_ordered:
            ledger.find(f"{number} came with DUP over the first connection of {self.name}")
        if before is None or before != number:
            ledger.check(number, packet, self._began_s)
            ledger.deliver(number, packet.qos, before)
        elif not packet.dup:
            ledger.find(f"{number} came again as {identifier} without DUP")
        if packet.qos == 2:
            self._begun[identifier] = number
            self._answer(packets.PubrecPacket(packet_identifier=identifier))
        elif packet.qos == 1:
            self._answer(packets.PubackPacket(packet_identifier=identifier))

    def _answer(self, packet):
        if self._is_lazy and not self.is_calm:
            self._late.append(packet)
        else:
            self._answer_late()
            self.tell(packet)

    def _answer_late(self):
        late, self._late = self._late, []
        for packet in late:
            if not isinstance(packet, packets.PubrecPacket) or packet.packet_identifier in self._begun:
                self.tell(packet)

    def _released(self, packet):
        identifier = packet.packet_identifier
        self.say(f"has PUBREL for {self._begun.get(identifier)} as {identifier}")
        if identifier in self._begun:
            self.ledger.complete(self._begun.pop(identifier))
        self.tell(packets.PubcompPacket(packet_identifier=identifier))

    HANDLERS = {
        packets.SubackPacket: _subscribed, packets.UnsubackPacket: _unsubscribed,
        packets.PublishPacket: _published, packets.PubrelPacket: _released,
    }


class Member(FlowSubscriber):
    """One of several of a share, whose sessions are kept: what a member that is not kept has goes with the
    broker. The first one stays in the share.
    """

    def __init__(self, world, network, name, ledger, stays):
        super().__init__(world, network, name, ledger)
        self._stays = stays
        if stays or not self.keeps_session:
            self._keeps_s, self.keeps_session = FOR_EVER, True

    def begins_anew(self):
        return not self._stays and super().begins_anew()

    def adapted(self, connect):
        connect = super().adapted(connect)
        if connect.clean_start:
            self.ledger.ending.add(self.name)
        return connect

    def check_session(self, is_present):
        super().check_session(is_present)
        self.ledger.connected(self.name)

    def gone(self):
        self._left_s = self.world.now_s
        self._processes = self.ledger.processes
        if self._keeps_s != FOR_EVER:
            self.ledger.ending.add(self.name)

    def has_subscribed(self):
        if self._stays:
            super().has_subscribed()

    def may_unsubscribe(self):
        return False


def flow_of(world, network, name, left):
    """(ledgers, clients) of a flow. ``left(parts)``: those that are not left out of the seed."""
    random = world.random(name)
    flow = Flow(world, name)
    clients = [FlowPublisher(world, network, f"publisher-{name}", flow)]
    one, all_, any_ = f"{name}/a", f"{name}/#", f"{name}/+"
    for number in range(random.choice((1, 1, 2))):
        qos = random.choice((0, 1, 2, 2))
        wishes = random.choice((
            [Wish(one, qos)], [Wish(any_, qos, 7)],
            [Wish(one, qos, 3), Wish(all_, random.choice((0, 1, 2)), 5)]))
        inbox = f"{name}-{number}"
        if left([inbox]):
            clients.append(FlowSubscriber(
                world, network, f"subscriber-{inbox}", Inbox(world, inbox, flow, wishes)))
    share = f"{name}-share"
    if left([share], random.random() < 0.5):
        group = Group(world, share, flow, [Wish(f"$share/g/{all_}", random.choice((1, 2, 2)))])
        clients += [
            Member(world, network, f"member-{number}-{name}", group, number == 0)
            for number in range(random.choice((2, 3)))]
    return [flow, *flow.inboxes], clients
