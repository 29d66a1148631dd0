"""The outgoing half of MQTT connections over a Node, without the door: a session, its Outbound, and the
client's end of a socket, which reads packets.
"""

from gevent import socket

from gomq_py.broker.topology.kinds import Kinds
from gomq_py.mqtt.model.kinds import register
from gomq_py.mqtt.model.session import Subscription
from gomq_py.mqtt.model.session_kind import EXTRA
from gomq_py.mqtt.model.sessions import NEVER
from gomq_py.mqtt.server.flows import Outbound
from gomq_py.mqtt.wire.codec import PacketReader
from gomq_py.mqtt.wire.constants import SERVER
from gomq_py.mqtt.wire.crossing import KIND, record_flags
from gomq_py.mqtt.wire.topics import swapped
from gomq_py.net.output import Output
from gomq_py.storage.message import Message
from tests.support.door import SILENCE_S, poll_the_loop
from tests.support.node import Node
from tests.support.sockets import receive_exactly
from tests.support.waiting import in_time

PATIENCE_S = in_time(30)
SILENT_POLLS = 20


def mqtt_node(path, **options):
    """A Node that knows MQTT's kinds."""
    kinds = Kinds()
    register(kinds)
    return Node(path, kinds=kinds, **options)


def noted_of(records):
    """How many records of identifiers a QoS2Records has; one is what is sure."""
    return records.store.unacked_count - bool(records.trust_at) - bool(records.doubt_at)


class Peer:
    """A client of a Node, connected. ``heard``: what its connection was told of its end."""

    wants_will = False

    def __init__(
        self, node, client_id="c", version=5, clean_start=False, expiry_s=NEVER, receive_maximum=65535,
        maximum_packet_size=0, topic_alias_maximum=0, begin=True,
        output_limit=1 << 20, socket_octets=None,
    ):
        self.node = node
        self.heard = []
        self.ours, theirs = socket.socketpair()
        self.theirs = theirs
        if socket_octets:
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, socket_octets)
            self.ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, socket_octets)
        self.ours.settimeout(PATIENCE_S)
        hub = node.hub
        self.output = Output(theirs, hub.buffers, output_limit)
        self.vhost = node.vhost
        self.hub, self.version = hub, version
        self.receive_maximum, self.maximum_packet_size = receive_maximum, maximum_packet_size
        self.topic_alias_maximum = topic_alias_maximum
        self.sessions = node.vhost.extras[EXTRA]
        self.session, self.was_there, _ = self.sessions.connect(
            self, client_id, "guest", clean_start, expiry_s, version)
        self.outbound = Outbound(self)
        self.outbound.start()
        self.reader = PacketReader(version, SERVER)
        if begin:
            self.outbound.begin()

    # the connection, for the outbound half and for sessions

    def abort(self, why):
        self.heard.append(why)
        self.disconnect()

    force_close = abort

    def taken_over(self):
        self.heard.append("taken over")
        self.outbound.stop()

    def session_ended(self, reason):
        self.heard.append(reason)
        self.outbound.stop()

    # the client

    def subscribe(self, *filters, qos=0, **options):
        for topic_filter in filters:
            self.session.subscribe(Subscription(topic_filter, qos, **options))
        self.outbound.attach()
        return self

    def disconnect(self):
        """The connection ends."""
        self.outbound.stop()
        self.sessions.disconnect(self.session, self)
        self.output.close()
        self.ours.close()
        self.theirs.close()

    def expect(self, octets):
        """The next octets must be these."""
        assert receive_exactly(self.ours, len(octets)) == octets

    def packet(self):
        """The next packet."""
        while (packet := self.reader.next_packet()) is None:
            data = self.ours.recv(65536)
            assert data, "a packet was awaited, but the socket was closed"
            self.reader.feed(data)
        return packet

    def packets(self, count):
        return [self.packet() for _ in range(count)]

    def poll(self, polls):
        """Let the loop be polled so often."""
        for _ in range(polls):
            poll_the_loop()

    def expect_nothing(self):
        """Nothing may come, for as many polls of the loop as the broker needs for all that it was asked."""
        for _ in range(SILENT_POLLS):
            poll_the_loop()
        self.ours.settimeout(SILENCE_S / 10)
        try:
            data = self.ours.recv(65536)
        except TimeoutError:
            data = None
        finally:
            self.ours.settimeout(PATIENCE_S)
        assert data is None and self.reader.next_packet() is None, f"nothing was awaited, but {data!r} came"

    def acknowledge(self, kind, packet_identifier, reason_code=0):
        """As the lanes do: in a walk of a read."""
        self.output.cork()
        self.node.hub.scheduler.begin(self.node.hub.scheduler.now_ms)
        try:
            if reason_code:
                self.outbound.acknowledged_with(kind, packet_identifier, reason_code)
            else:
                self.outbound.acknowledged(kind, packet_identifier)
        finally:
            self.node.hub.scheduler.finish()
            self.outbound.done()
            self.output.uncork()


def mqtt_message(topic, payload=b"x", qos=0, retain=False, properties=b"", expires_in_ms=None, more_flags=0,
                 publisher=None, now_ms=1_700_000_000_000):
    """What is stored of a PUBLISH."""
    message = Message()
    expires_at_ms = 0 if expires_in_ms is None else now_ms + expires_in_ms
    message.assign(
        b"amq.topic", swapped(topic).encode(), properties, payload, now_ms, expires_at_ms, persistent=qos > 0)
    message.set_kind(KIND, record_flags(qos, retain) | more_flags)
    message.publisher = publisher
    return message


def publish(node, *messages):
    """Route messages, as a walk of one read does."""
    scheduler = node.hub.scheduler
    scheduler.begin(scheduler.now_ms)
    try:
        for message in messages:
            key = message.get_routing_key().decode()
            for destination in node.vhost.route(node.vhost.exchange("amq.topic"), key):
                assert destination.publish(message) == 1
    finally:
        scheduler.finish()


def note_received(ids, identifier, queues=None):
    """A message has come with this identifier of ``ids``, and been stored in the queues. Its batch is over.
    """
    ids.begin(identifier, queues or (), mqtt_message("t", qos=2))
    ids.add(identifier, queues)
    if ids.records is not None:
        ids.records.write_out()


def make_sure(ids):
    """All that ``ids`` has is on the disk, with its messages."""
    ids.sure(ids.added, ids.records.last_received)
