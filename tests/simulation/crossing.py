"""Clients of AMQP and MQTT that meet at amq.topic: what an AMQP client publishes there comes to an MQTT
client that subscribes, and what an MQTT client publishes comes to a queue that is bound. docs/mqtt.md,
"Topics and routing keys".
"""
from typing import NamedTuple

from gomq_py.amqp.wire import methods
from gomq_py.amqp.wire.frames import content_frames, method_frame
from gomq_py.content.properties import Properties
from gomq_py.mqtt.wire import packets
from tests.simulation.amqp_channel import OF_CONSUMERS, Channel
from tests.simulation.amqp_clients import AMQPClient
from tests.simulation.ledger import TopicLedger
from tests.simulation.mqtt_clients import TopicPublisher, TopicSubscriber
from tests.simulation.queue_ledger import QueueLedger

SHARE = 0.15
EXCHANGE = "amq.topic"


class Sent(NamedTuple):
    """What waits for a confirm."""

    number: int


class TopicChannel(Channel):
    """Publishes to a topic, whose TopicLedger it has."""

    def _declare(self, ledgers, declared):
        """There is nothing to declare."""

    def _publish_one(self):
        ledger = self._publishes
        if not ledger.is_subscribed:
            return
        number, body = ledger.publish_at(1)
        self._tag += 1
        self._unconfirmed[self._tag] = Sent(number)
        key = ledger.name.replace("/", ".")
        self._say(f"publishes {number} to {key}")
        self._client.waits()
        publish = methods.BasicPublish(exchange=EXCHANGE, routing_key=key)
        self._client.send(method_frame(self._number, publish) + content_frames(
            self._number, Properties(delivery_mode=2).encode(), body, self._client.frame_max))

    def _accepted(self, message):
        self._publishes.accept(message.number)


class CrossedSubscriber(TopicSubscriber):
    """Looks at how it comes over MQTT."""

    def _published(self, packet):
        self.ledger.exercised["crossed to MQTT"] += 1
        if (packet.topic_name, packet.qos, packet.retain) != (self.topic, 1, False):
            self.ledger.find(f"came as {packet.topic_name} at QoS {packet.qos}")
        super()._published(packet)

    HANDLERS = TopicSubscriber.HANDLERS | {packets.PublishPacket: _published}


class CrossedLedger(QueueLedger):
    """Of a queue that is bound to a topic, whose publisher has this ledger, too. ``topic``: its name."""

    is_subscribed = False  # bind-ok was there

    def __init__(self, world, name, book):
        super().__init__(world, name, book)
        self.topic = f"{name}/m"
        self.qos = {}  # number -> QoS
        self.source = object()
        self._again = set()  # numbers that were sent again
        self._events = 0  # power cuts, faults of the disk, ends of processes whose disk was full
        self._is_full = self._was_full = False  # it was in this process
        self._since = {}  # number -> those before it was published

    # the publisher's side

    def publish_at(self, qos):
        """(number, body) of another message."""
        message = self.book.publish(self.source, [self])
        self.qos[message.number] = qos
        self._since[message.number] = -1 if self.is_ill() else self._events
        return message.number, message.body

    def connects(self, unanswered):
        """Its publisher does, and sends these again, which come in no order, at QoS 1 perhaps twice."""
        self.source = object()
        for number in unanswered:
            self.book.messages[number].source = object()
            self._again.add(number)

    def accept(self, message):
        if isinstance(message, int):  # from MQTT
            self.book.accept(self.book.messages[message])
        else:
            super().accept(message)

    def power_was_cut(self):
        super().power_was_cut()
        self._events += 1

    def disk_is_ill(self, fails):
        super().disk_is_ill(fails)
        self._events += 1

    def disk_is_full(self, is_full):
        super().disk_is_full(is_full)
        self._is_full, self._was_full = is_full, True
        self._events += 1

    def process_ended(self):
        super().process_ended()
        self._events += self._was_full  # "no room for packet identifiers": docs/mqtt.md
        self._was_full = self._is_full

    # what comes

    def _may_be_two(self, message, copy):
        """At QoS 2 it comes once, but for a loss of power, and disks that refuse: docs/mqtt.md."""
        number = message.number
        is_sure = self.qos[number] == 2 and self._since[number] == self._events
        self.exercised["crossed once"] += number in self._again and is_sure
        return number in self._again and not is_sure

    def check_how(self, number, method, properties):
        """A message came over AMQP, with these Properties."""
        self.exercised["crossed to AMQP"] += 1
        how = method.exchange, method.routing_key, properties.delivery_mode, (properties.headers or {}).get(
            "x-mqtt-publish-qos")
        if how != (EXCHANGE, self.topic.replace("/", "."), 2, self.qos[number]):
            self.find(f"{number} came as {how}")


class CrossingPublisher(TopicPublisher):
    """Publishes to the topic of a CrossedLedger."""

    def __init__(self, world, network, name, ledger):
        super().__init__(world, network, name, ledger)
        self.topic = ledger.topic

    def go_on(self):
        self.ledger.connects([number for number, packet in self._under_way.values()
                              if isinstance(packet, packets.PublishPacket)])
        super().go_on()


class CrossedConsumer(Channel):
    """Consumes from the queue of a CrossedLedger, and binds it."""

    def _declare_queue(self, ledger):
        super()._declare_queue(ledger)

        def bound(_method):
            ledger.is_subscribed = True

        key = ledger.topic.replace("/", ".")
        self._ask(methods.QueueBind(
            queue=ledger.name, exchange=EXCHANGE, routing_key=key), methods.QueueBindOk, bound)

    def _take_message(self, method, properties, body):
        copy = super()._take_message(method, properties, body)
        if copy is not None:
            self._consumes.check_how(copy.number, method, Properties.decode(properties))
        return copy


def clients_that_cross(world, network, book, left):
    """(clients, ledgers) of a seed that has them, or none; the book has those of its queues."""
    random = world.random("crossing")
    is_drawn = random.random() < SHARE
    roles, clients, ledgers = [], [], left([TopicLedger(world, "i0/a")], is_drawn)
    for ledger in ledgers:
        roles.append((TopicChannel, ledger, None, False, False, ["publish", "close_channel"]))
        clients.append(CrossedSubscriber(world, network, "subscriber-i0", ledger))
    if left(["i0"], is_drawn):
        ledger = CrossedLedger(world, "i0", book)
        actions = random.sample(OF_CONSUMERS, random.randrange(len(OF_CONSUMERS) + 1))
        roles.append((CrossedConsumer, None, ledger, False, random.random() < 0.8, [
            *actions, "ack_multiple", "get"]))
        clients.append(CrossingPublisher(world, network, "publisher-i0", ledger))
    if roles:
        clients.append(AMQPClient(world, network, "crossing", book, roles))
    return clients, ledgers
