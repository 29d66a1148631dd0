"""Subscribe: handles SUBSCRIBE and UNSUBSCRIBE: checks rights and limits, changes the session, and answers.

Answers leave in order; for a durable session they leave when the changes are on disk. Never switches
greenlets.
"""
from collections import deque

from gomq_py.broker.verbs import bindings
from gomq_py.broker.verbs.pending_confirms import Answer, PendingConfirms
from gomq_py.errors import OutOfResources, Refused
from gomq_py.hub.scheduler import Job, SliceClock
from gomq_py.mqtt.model.session import Subscription
from gomq_py.mqtt.server.broker_topics import is_of_broker
from gomq_py.mqtt.server.refusals import FilterRefused, subscribe_code
from gomq_py.mqtt.wire import reason_codes
from gomq_py.mqtt.wire.codec import fitting
from gomq_py.mqtt.wire.constants import MQTT_5
from gomq_py.mqtt.wire.errors import MQTTError, PacketTooLarge, shown
from gomq_py.mqtt.wire.packets import SubackPacket, UnsubackPacket
from gomq_py.mqtt.wire.topics import binding_key, is_shared, split_shared


class Answers:
    """Sends answers to SUBSCRIBE and UNSUBSCRIBE in order, then starts replays of retained messages."""

    __slots__ = ("_pending", "_connection", "_told", "_is_closed")

    def __init__(self, connection):
        self._pending = None  # set while an answer waits: most clients subscribe once
        self._connection = connection
        self._is_closed = False
        self._told = ()  # (Subscription, is_new, Retained.mark()) of SUBACKs about to leave

    def done(self, answer, unsynced):
        if self._is_closed:
            return
        if self._pending is None:
            self._pending = PendingConfirms(self._send, self._connection.durability.when_safe)
        self._pending.done(answer, unsynced)
        if not self._pending.is_waiting():
            self._pending = None

    def close(self):
        self._is_closed = True
        if self._pending is not None:
            self._pending.close()
        self._pending = self._connection = None  # break reference cycles

    def tell(self, replays):
        """Add replays (Subscription, is_new, mark) of retained messages, to start after the next SUBACK."""
        self._told += (*replays,)

    def _send(self, octets):
        connection, told = self._connection, self._told
        self._told = ()
        connection.output.write(octets)
        for subscription, is_new, mark in told:
            connection.sessions.retained.replay(connection.session, subscription, is_new, mark)


class _Suback(Answer):
    """A pending SUBACK or UNSUBACK with a reason code per filter. The ``replays`` start once it is sent."""

    __slots__ = ("make", "connection", "packet_identifier", "codes", "replays")

    def __init__(self, make, connection, packet_identifier):
        Answer.__init__(self)
        self.make = make
        self.connection = connection
        self.packet_identifier = packet_identifier
        self.codes = []
        self.replays = []

    def kept(self):
        self.connection.answers.tell(self.replays)
        return self._octets()

    def lost(self):
        failed = reason_codes.UNSPECIFIED_ERROR
        self.codes = [max(code, failed) for code in self.codes]
        return self._octets()

    def _octets(self):
        packet = self.make(packet_identifier=self.packet_identifier, reason_codes=self.codes)
        return packet.encode(self.connection.version)


def subscribe(connection, packet):
    """Handle a SUBSCRIBE. The SUBACK has a reason code for each filter. Raises PacketTooLarge."""
    _check_room(connection, SubackPacket, packet.subscriptions)
    identifier = packet.properties.get("subscription_identifier", 0)
    answer = _Suback(SubackPacket, connection, packet.packet_identifier)
    _Filters(
        connection, answer, packet.subscriptions,
        lambda wanted: _subscribe_one(connection, wanted, identifier, answer.replays)).begin()


def unsubscribe(connection, packet):
    """Handle an UNSUBSCRIBE, which needs no rights. Raises PacketTooLarge."""
    _check_room(connection, UnsubackPacket, packet.topic_filters)
    answer = _Suback(UnsubackPacket, connection, packet.packet_identifier)
    _Filters(
        connection, answer, packet.topic_filters,
        lambda topic_filter: _unsubscribe_one(connection, topic_filter)).begin()


def _check_room(connection, make, filters):
    """Raise PacketTooLarge if the answer to these ``filters`` is larger than the client accepts."""
    answer = make(packet_identifier=1, reason_codes=bytes(len(filters))).encode(connection.version)
    if not fitting(answer, connection.maximum_packet_size):
        raise PacketTooLarge(
            f"the answer to its {len(filters)} topic filters has {len(answer)} bytes, the client takes "
            f"{connection.maximum_packet_size}")


class _Filters(Job):
    """A job that handles a packet's topic filters in order. ``one(filter)`` returns the reason code. Long
    work goes on in slices, while reading from the client is paused.
    """

    name = "subscribing MQTT clients"

    def __init__(self, connection, answer, filters, one):
        super().__init__()
        self._connection = connection
        self._answer = answer
        self._filters = deque(filters)
        self._one = one
        self._hold = None

    def begin(self):
        if self._some():
            self._hold = self._connection.stream.pause_reading("its filters to be done")
            self._connection.scheduler.start(self)

    def step(self):
        if self._connection.is_open and self._some():
            return True
        self._hold.release()
        return False

    def failed(self, error):
        """End the connection without an answer to the packet."""
        self._hold.release()
        self._connection.fail(MQTTError("a fault of the broker"))
        return False

    def _some(self):
        """Handle filters for a slice of time, and answer after the last. Returns True if some are left."""
        clock = SliceClock()
        while self._filters:
            self._answer.codes.append(self._one(self._filters.popleft()))
            if clock.is_over() and self._filters:
                return True
        session = self._connection.session
        is_kept = session.queue is not None and session.is_durable
        self._connection.answers.done(self._answer, ((session.queue,),) if is_kept else ())
        return False


def _subscribe_one(connection, wanted, identifier, replays):
    """Subscribe to one filter. Returns its reason code. Adds an unshared filter's replay to ``replays``."""
    # A Mosquitto bridge must not get back its own publishes and needs RETAIN kept; before MQTT 5 it cannot
    # ask for that by options.
    is_bridge = connection.is_bridge
    subscription = Subscription(
        wanted.topic_filter, wanted.qos,
        wanted.no_local or is_bridge and not is_shared(wanted.topic_filter),
        wanted.retain_as_published or is_bridge, wanted.retain_handling, identifier)
    try:
        connection.sessions.source()
        check_rights(connection, subscription.topic_filter)
        _check_limits(connection, subscription.topic_filter)
        is_new = connection.session.subscribe(subscription)
    except Refused as error:
        connection.server.strangers.warning(  # a packet may have a thousand filters
            connection.name, "connection %s: it does not subscribe to %s: %s", connection.name,
            shown(wanted.topic_filter), error.text)
        code = subscribe_code(error)
        return code if connection.version >= MQTT_5 else reason_codes.SUBACK_FAILURE
    connection.outbound.attach()  # there may be a queue now
    if is_of_broker(subscription.topic_filter):
        connection.server.broker_topics.subscribed(connection.session)
    if not is_shared(subscription.topic_filter):
        replays.append((subscription, is_new, connection.sessions.retained.mark()))
    return wanted.qos


def check_rights(connection, topic_filter):
    """Raise NoPermission if the client may not receive messages by this filter. The client needs the rights
    to bind the session's queue to the exchange for MQTT clients.
    """
    bindings.check_own(
        connection.caller, connection.session.queue_name, connection.vhost.topic_exchange,
        binding_key(split_shared(topic_filter)[1]))


def may(connection, topic_filter):
    """Return whether the client may receive messages by this filter."""
    try:
        check_rights(connection, topic_filter)
    except Refused:
        return False
    return True


def may_all(connection):
    """Return whether the client may now receive messages by every filter."""
    return bindings.may_own_all(
        connection.caller, connection.session.queue_name, connection.vhost.topic_exchange)


def _check_limits(connection, topic_filter):
    """Check the limits for a new subscription. Raises FilterRefused, OutOfResources."""
    settings, session = connection.server.settings, connection.session
    fault = connection.sessions.filter_fault(topic_filter, settings.mqtt_max_topic_levels)
    if fault:
        raise FilterRefused(fault)
    most = settings.mqtt_max_subscriptions
    if topic_filter not in session.subscriptions and len(session.subscriptions) >= most:
        raise OutOfResources(f"it has {most} subscriptions (mqtt max_subscriptions)")
    connection.sessions.check_room(session, topic_filter)


def _unsubscribe_one(connection, topic_filter):
    try:
        there_was = connection.session.unsubscribe(topic_filter)
    except Refused as error:
        connection.server.strangers.warning(
            connection.name, "connection %s: it does not unsubscribe from %s: %s", connection.name,
            shown(topic_filter), error.text)
        return reason_codes.UNSPECIFIED_ERROR
    return reason_codes.SUCCESS if there_was else reason_codes.NO_SUBSCRIPTION_EXISTED
