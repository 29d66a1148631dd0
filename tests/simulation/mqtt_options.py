"""MQTT 5 clients that talk with each other by one topic, with the options of subscriptions, which they
change: No Local, retain as published, retain handling; and one whose will waits for a while, and is taken
back where it comes again before that.
"""
from collections import Counter

from gomq_py.mqtt.wire import packets
from gomq_py.mqtt.wire.constants import MQTT_5
from tests.simulation.clock import CLOCK
from tests.simulation.ledger import Ledger, TopicLedger
from tests.simulation.mqtt_clients import ERROR, Testator, TopicPublisher, TopicSubscriber

SHARE = 0.15
HANDLINGS = (0, 1, 2)
WILL_DELAY_S = 1
AWAY_S = (0.0, 0.2, 0.5, 4.0)
SLACK_S = 2.0  # of a timer, and until the broker sees the end of a connection


class TalkLedger(Ledger):
    """Of a topic. ``said``: by number, (who published it, whether it was to be retained)."""

    is_subscribed = True

    def __init__(self, world, name):
        super().__init__(world, name)
        self.said = []
        self.talkers = []

    def say(self, who, retain):
        """(number, body) of another message."""
        self.said.append((who, retain))
        return self.publish(400)

    def accept(self, number):
        super().accept(number)
        for talker in self.talkers:
            talker.owe(number)

    def missing(self):
        return set().union(*(talker.owed for talker in self.talkers))


class Talker(TopicPublisher):
    """Publishes to the topic and subscribes to it, anew with each connection. ``owed``: what has to come over
    this one.
    """

    keeps_session = False

    def __init__(self, world, network, name, ledger):
        super().__init__(world, network, name, ledger)
        self.version, self.receive_maximum = MQTT_5, 20
        ledger.talkers.append(self)
        self.gone()

    def gone(self):
        self.owed = set()
        self._wants = None  # the Subscription that was asked for last
        self._is_sure = False  # it was answered
        self._begins = 0  # numbers from there on were published behind the first question
        self._since = 0  # and behind the last answer
        self._accepted_before = frozenset()  # the first question
        self._replays = 0  # so often it may have been sent what is retained
        self._came = Counter()  # over this connection
        self._under_way.clear()  # at QoS 1, of a session that is over

    def go_on(self):
        self._subscribe()

    def _subscribe(self):
        ledger = self.ledger
        is_new = self._wants is None
        self._wants = packets.Subscription(
            self.topic, 1, no_local=self.random.random() < 0.5,
            retain_as_published=self.random.random() < 0.5, retain_handling=self.random.choice(HANDLINGS))
        if is_new:
            self._begins, self._accepted_before = ledger.published, frozenset(ledger.accepted)
        self._replays += self._wants.retain_handling == 0 or is_new and self._wants.retain_handling == 1
        self._is_sure = False
        self.say(f"subscribes with options {self._wants.options:#x}")
        self.waits()
        self.tell(packets.SubscribePacket(packet_identifier=1, subscriptions=(self._wants,)))

    def _subscribed(self, packet):
        if packet.reason_codes[0] >= ERROR:  # a disk that fails
            self.leave(f"is refused its subscription with {packet.reason_codes}")
            return
        self._is_sure, self._since = True, self.ledger.published
        self.is_answered(not self._under_way)
        if not self.is_open:
            self.opened()

    def act(self):
        if not self.is_calm and self._is_sure and self.random.random() < 0.1:
            self._subscribe()
        elif self._is_sure:
            super().act()

    def publication(self):
        retain = self.random.random() < 0.3
        number, body = self.ledger.say(self.name, retain)
        return number, packets.PublishPacket(topic_name=self.topic, payload=body, qos=1, retain=retain)

    def owe(self, number):
        """It was accepted."""
        is_own = self.ledger.said[number][0] == self.name
        if self._is_sure and number >= self._since and not (is_own and self._wants.no_local):
            if not self._came[number]:
                self.owed.add(number)

    def _published(self, packet):
        ledger, number = self.ledger, self.ledger.number_of(packet.payload)
        if packet.qos:
            self.tell(packets.PubackPacket(packet_identifier=packet.packet_identifier))
        if number is None:
            return
        self.say(f"takes {number}{', retained' if packet.retain else ''}")
        self.owed.discard(number)
        self._came[number] += 1
        who, retain = ledger.said[number]
        most = self._replays + (number not in self._accepted_before)
        ledger.exercised["retain handling"] += not self._replays
        if self._came[number] > most:
            ledger.find(f"{number} came {self._came[number]} times in place of {most}")
        if packet.retain and not retain:
            ledger.find(f"{number} came with RETAIN, and was not to be retained")
        if self._is_sure and number >= self._since:
            self._check_options(number, packet, who == self.name, retain)

    def _check_options(self, number, packet, is_own, retain):
        """Of one that was published when they were in force."""
        ledger, wants = self.ledger, self._wants
        ledger.exercised["no local"] += wants.no_local
        if is_own and wants.no_local:
            ledger.find(f"{number} came to its publisher, with No Local")
        ledger.exercised["retain as published"] += retain
        if retain and wants.retain_as_published and not packet.retain:
            ledger.find(f"{number} came without RETAIN, which is to be as published")
        if packet.retain and not wants.retain_as_published and not self._replays:
            ledger.find(f"{number} came with RETAIN, which is not to be as published")

    HANDLERS = TopicPublisher.HANDLERS | {
        packets.SubackPacket: _subscribed, packets.PublishPacket: _published}


class DelayLedger(TopicLedger):
    """Of a topic of wills that wait. ``due``: number -> (when at the earliest, by which process)."""

    def __init__(self, world, name):
        super().__init__(world, name)
        self.due = {}
        self.processes = 0

    def process_ended(self):
        super().process_ended()
        self.processes += 1

    def deliver(self, number, qos, before):
        if number in self.due and not CLOCK.jumps:
            due_s, processes = self.due[number]
            self.exercised["wills that wait"] += 1
            if processes == self.processes and self.world.now_s < due_s:
                self.find(f"{number} came {due_s - self.world.now_s:.3f} s before its time")
        super().deliver(number, qos, before)

    def came_back(self, number, left_s, began_s, processes):
        """The client of this will has CONNACK, and has left its connection then."""
        if CLOCK.jumps or processes != self.processes:
            return
        if self.world.now_s < left_s + WILL_DELAY_S:
            self.exercised["wills in time"] += 1
            self.take_back(number)
        elif began_s > left_s + WILL_DELAY_S + SLACK_S and not self.may_have_refused(left_s):
            self.accept(number)


class Mourner(Testator):
    """Hangs up, and comes again with its session, in time or too late."""

    keeps_session = True
    _left = None  # (number, when, processes) of the connection before

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.version, self.receive_maximum = MQTT_5, 20
        self._pause_s = None

    def identifier(self):
        return self.name

    def begin(self):
        if self.ledger.is_subscribed:
            self._began_s = self.world.now_s
        super().begin()

    def adapted(self, connect):
        connect.will.properties["will_delay_interval"] = WILL_DELAY_S
        return connect

    def check_session(self, is_present):
        super().check_session(is_present)
        left, self._left = self._left, None
        if left is not None:
            number, left_s, processes = left
            self.ledger.came_back(number, left_s, self._began_s, processes)

    def act(self):
        if not self.is_calm and self.random.random() < 0.1:
            self._hang_up()

    def be_rude(self):
        self._hang_up()

    def _hang_up(self):
        """Where the broker has not ended the connection before."""
        if not self._end.peer.is_closed:
            self._left = self._number, self.world.now_s, self.ledger.processes
            self.ledger.due[self._number] = self.world.now_s + WILL_DELAY_S, self.ledger.processes
        self._pause_s = self.random.choice(AWAY_S)
        self.leave(f"hangs up for {self._pause_s} s, and leaves {self._number}")

    def pause_s(self):
        pause_s, self._pause_s = self._pause_s, None
        return super().pause_s() if pause_s is None else pause_s

    def gone(self):
        self._number = None


def clients_of_options(world, network, left):
    """(clients, ledgers) of a seed that has them, or none."""
    random = world.random("options")
    is_drawn = random.random() < SHARE
    clients, ledgers = [], left([TalkLedger(world, "n0")], is_drawn)
    for ledger in ledgers:
        clients += [Talker(world, network, f"talker-{number}-n0", ledger) for number in range(2)]
    for ledger in left([DelayLedger(world, "z0")], is_drawn):
        ledgers.append(ledger)
        clients += [kind(world, network, f"{kind.__name__.lower()}-z0", ledger)
                    for kind in (Mourner, TopicSubscriber)]
    return clients, ledgers
