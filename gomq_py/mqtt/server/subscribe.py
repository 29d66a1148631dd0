"""Subscribe: SUBSCRIBE and UNSUBSCRIBE: rights, limits, the session's subscriptions, and the answers.

Handlers of the connection. An answer leaves when what it says is on the disk, where that is to be kept, and
answers leave in order. Never switches.
"""
from gomq_py.broker.verbs import bindings
from gomq_py.broker.verbs.promised import Answer, Promised
from gomq_py.errors import OutOfResources, Refused
from gomq_py.mqtt.model.session import Subscription
from gomq_py.mqtt.server.broker_topics import PREFIX as BROKER_TOPICS
from gomq_py.mqtt.server.refusals import FilterRefused, subscribe_code
from gomq_py.mqtt.wire import reason_codes
from gomq_py.mqtt.wire.constants import MQTT_5
from gomq_py.mqtt.wire.errors import shown
from gomq_py.mqtt.wire.packets import SubackPacket, UnsubackPacket
from gomq_py.mqtt.wire.topics import binding_key, is_shared, split_shared
from gomq_py.observability.log import logger

LOG = logger("mqtt")


class Answers:
    """Those to SUBSCRIBE and UNSUBSCRIBE of one connection, which leave in order. What is retained for a
    filter follows its SUBACK.
    """

    __slots__ = ("done", "close", "_connection", "_told")

    def __init__(self, connection):
        promised = Promised(self._send, connection.durability.when_safe)
        self.done, self.close = promised.done, promised.close
        self._connection = connection
        self._told = []  # (Subscription, whether it is new) of SUBACKs on their way out

    def tell(self, replays):
        """A SUBACK leaves with what is to be sent next."""
        self._told += replays

    def _send(self, octets):
        connection, told = self._connection, self._told
        self._told = []
        connection.output.write(octets)
        for subscription, is_new in told:
            connection.sessions.retained.replay(connection.session, subscription, is_new)


class _Suback(Answer):
    """A SUBACK or UNSUBACK (``make``) with a reason code for each filter; ``replays`` as Answers.tell."""

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
    """SUBSCRIBE: each filter is answered for itself."""
    identifier = packet.properties.get("subscription_identifier", 0)
    answer = _Suback(SubackPacket, connection, packet.packet_identifier)
    for wanted in packet.subscriptions:
        answer.codes.append(_subscribe_one(connection, wanted, identifier, answer.replays))
    _answer(connection, answer)


def unsubscribe(connection, packet):
    """UNSUBSCRIBE, which asks for no rights."""
    answer = _Suback(UnsubackPacket, connection, packet.packet_identifier)
    answer.codes = [_unsubscribe_one(connection, topic_filter) for topic_filter in packet.topic_filters]
    _answer(connection, answer)


def _subscribe_one(connection, wanted, identifier, replays):
    """The reason code for one filter; what is retained for it is to be replayed, if it is not shared."""
    subscription = Subscription(
        wanted.topic_filter, wanted.qos, wanted.no_local, wanted.retain_as_published, wanted.retain_handling,
        identifier)
    try:
        check_rights(connection, subscription.topic_filter)
        _check_limits(connection, subscription.topic_filter)
        is_new = connection.session.subscribe(subscription)
    except Refused as error:
        LOG.warning(
            "connection %s: it does not subscribe to %s: %s", connection.name, shown(wanted.topic_filter),
            error.text)
        code = subscribe_code(error)
        return code if connection.version >= MQTT_5 else reason_codes.SUBACK_FAILURE
    connection.outbound.attach()  # there may be a queue now
    if BROKER_TOPICS in subscription.topic_filter:
        connection.server.broker_topics.subscribed(connection.session)
    if not is_shared(subscription.topic_filter):
        replays.append((subscription, is_new))
    return wanted.qos


def check_rights(connection, topic_filter):
    """The client may have what comes by this filter. Raises NoPermission, NotFound.

    Rights are asked as if its session's queue were bound to the exchange by the filter in AMQP's words.
    """
    bindings.check_own(
        connection.caller, connection.session.queue_name, connection.sessions.source.name,
        binding_key(split_shared(topic_filter)[1]))


def may(connection, topic_filter):
    """Whether check_rights() passes."""
    try:
        check_rights(connection, topic_filter)
    except Refused:
        return False
    return True


def _check_limits(connection, topic_filter):
    """Raises FilterRefused, OutOfResources."""
    settings, session = connection.server.settings, connection.session
    fault = connection.sessions.filter_fault(topic_filter, settings.mqtt_max_topic_levels)
    if fault:
        raise FilterRefused(fault)
    most = settings.mqtt_max_subscriptions
    if topic_filter not in session.subscriptions and len(session.subscriptions) >= most:
        raise OutOfResources(f"it has {most} subscriptions (mqtt max_subscriptions)")


def _unsubscribe_one(connection, topic_filter):
    try:
        there_was = connection.session.unsubscribe(topic_filter)
    except Refused as error:
        LOG.warning(
            "connection %s: it does not unsubscribe from %r: %s", connection.name, topic_filter, error.text)
        return reason_codes.UNSPECIFIED_ERROR
    return reason_codes.SUCCESS if there_was else reason_codes.NO_SUBSCRIPTION_EXISTED


def _answer(connection, answer):
    session = connection.session
    is_kept = session.queue is not None and session.is_durable
    connection.answers.done(answer, ((session.queue,),) if is_kept else ())
