"""Mutants of what MQTT sessions keep and get: as those in mutants, of which they are a part."""
from gomq_py.broker.queues.limits import QueueLimits
from gomq_py.mqtt.model import redistribution, sent as sent_module
from gomq_py.mqtt.model.sent import Sent
from gomq_py.mqtt.model.session import Session, Subscription
from gomq_py.mqtt.model.session_queue import SessionQueue
from gomq_py.mqtt.model.sessions import NEVER, Sessions
from gomq_py.mqtt.model.wills import Wills
from gomq_py.mqtt.server.publication import Publication


def qos_2_identifier_forgotten_with_its_connection():
    """What was sent at QoS 2 and is not answered comes again with another identifier."""
    end = Sent.end

    def forget(sent):
        end(sent)
        before = sent_module.QOS_2 | sent_module.FROM_BEFORE
        for identifier in range(1, sent.capacity + 1):
            if sent.at[(identifier - 1) * sent_module.ROW + 20] == before:
                sent._free(identifier)

    Sent.end = forget


def late_end_of_a_connection_that_was_taken_over():
    """It ends the session of the connection that has its place, if there was a DISCONNECT."""
    disconnect = Sessions.disconnect

    def late(sessions, session, connection, expiry_s=None):
        disconnect(sessions, session, connection, expiry_s)
        if not connection.wants_will and sessions.by_client.get(session.client_id) is session:
            sessions.end(session)

    Sessions.disconnect = late


def messages_of_a_member_are_lost_with_its_session():
    """Others of the share do not get what it had not acknowledged."""
    redistribution.of = lambda session: None


def expired_message_is_delivered():
    """What is out of date stays in the queue of a session."""
    due_ms = QueueLimits._due_ms
    QueueLimits._due_ms = lambda limits, message: (
        0 if isinstance(limits.queue, SessionQueue) else due_ms(limits, message))


def message_expiry_interval_is_not_counted_down():
    """A message has as long to live as when it was published, whenever it is delivered."""
    measure = Publication.measure
    Publication.measure = lambda publication, message, interest, now_ms, qos: measure(
        publication, message, interest, message.timestamp_ms, qos)


def dup_is_not_set():
    """What comes again looks like what is new."""
    write = Publication.write
    Publication.write = lambda publication, out, at, message, packet_identifier, dup: write(
        publication, out, at, message, packet_identifier, False)


def unsubscribe_is_answered_and_not_done():
    """The subscription stays."""
    Session.unsubscribe = lambda session, topic_filter: True


def session_never_expires():
    """It is kept for ever, whatever its client has asked for."""
    connect = Sessions.connect
    Sessions.connect = lambda sessions, connection, client_id, user, clean_start, expiry_s, *others, **more: (
        connect(sessions, connection, client_id, user, clean_start, expiry_s and NEVER, *others, **more))


def will_of_a_connection_that_was_taken_over_is_lost():
    """Only a connection that is lost otherwise leaves its will."""
    take_over, ended = Sessions._take_over, Wills.connection_ended

    def silent(sessions, client_id):
        Wills.connection_ended = lambda wills, client_id, wants_will: ended(wills, client_id, False)
        try:
            take_over(sessions, client_id)
        finally:
            Wills.connection_ended = ended

    Sessions._take_over = silent


def _subscribed_without(**options):
    init = Subscription.__init__

    def other(subscription, topic_filter, qos, *others, **more):
        init(subscription, topic_filter, qos, *others, **more)
        for name, value in options.items():
            setattr(subscription, name, value)

    Subscription.__init__ = other


def no_local_ignored():
    """A client gets what it has published."""
    _subscribed_without(no_local=False)


def retain_as_published_ignored():
    """RETAIN is 0 for all that comes as it is published."""
    _subscribed_without(retain_as_published=False)


def retain_handling_ignored():
    """Each SUBSCRIBE brings what is retained."""
    _subscribed_without(retain_handling=0)


def will_does_not_wait():
    """It is published when its client is lost."""
    unpublished = Wills._unpublished

    def at_once(wills, client_id):
        will = unpublished(wills, client_id)
        return will and will._replace(delay_s=0)

    Wills._unpublished = at_once


def will_that_waits_is_not_taken_back():
    """It is published when its client is back."""
    begin = Wills.begin

    def too_late(wills, client_id, user, will=None):
        before = wills._unpublished(client_id)
        if before is not None and wills._publish is not None:
            wills._publish_now(before)
        return begin(wills, client_id, user, will)

    Wills.begin = too_late


def bridge_of_topics_forgets():
    """One of twenty messages that come to amq.topic for sessions is dropped."""
    publish, count = SessionQueue.publish, iter(range(1, 1 << 40))
    SessionQueue.publish = lambda queue, message: (
        publish(queue, message) if next(count) % 20 else 1)
