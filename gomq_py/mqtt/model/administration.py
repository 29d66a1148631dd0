"""Administration: shows and changes a vhost's MQTT sessions and retained messages, for the management API.

Functions with a ``caller`` check the caller's rights. Never switches greenlets.
"""
import time

from gomq_py.broker.names import described
from gomq_py.errors import NoPermission, NotFound
from gomq_py.mqtt.model.session_kind import EXTRA
from gomq_py.mqtt.wire.topics import swapped, topic_name_fault
from gomq_py.storage.message import Message


def sessions_of(vhost):
    return list(vhost.extras[EXTRA].by_client.values())


def find_session(vhost, client_id):
    """Return the Session of a client id. Raises NotFound."""
    session = vhost.extras[EXTRA].by_client.get(client_id)
    if session is None:
        raise NotFound(f"no MQTT session '{client_id}' in vhost '{vhost.name}'")
    return session


def has_session(vhost, session):
    """Return whether this Session is still the vhost's session of its client id."""
    return vhost.extras[EXTRA].by_client.get(session.client_id) is session


def check_configure(caller, session):
    """Raise NoPermission if the caller may not configure the session's queue."""
    caller.access.check_configure("queue", session.queue_name)


def end_session(caller, client_id):
    """End a session and its connection. Needs configure on its queue. Raises NoPermission, NotFound."""
    session = find_session(caller.vhost, client_id)
    check_configure(caller, session)
    caller.vhost.extras[EXTRA].end(session)


def unsubscribe(caller, client_id, topic_filter):
    """Remove a session's subscription. Needs configure on its queue. Raises NoPermission, NotFound."""
    session = find_session(caller.vhost, client_id)
    check_configure(caller, session)
    if not session.unsubscribe(topic_filter):
        raise NotFound(f"MQTT session '{client_id}' in vhost '{caller.vhost.name}' has no such subscription")


# retained messages

def retained_totals(vhost):
    """Return (number of topics, payload bytes) of a vhost's retained messages, including expired messages."""
    retained = vhost.extras[EXTRA].retained
    return retained.index.count, retained.octets


def retained_topics(caller, after):
    """Return an iterator of (topic, payload size in bytes) for retained messages, sorted, after topic
    ``after``. The size is None if the message has expired or the caller may not read the topic. Costs some 20
    us per topic. Raises NoPermission, NotFound.
    """
    sessions = caller.vhost.extras[EXTRA]
    caller.access.check_read("exchange", sessions.source_name)
    source = sessions.source()
    return sessions.retained.topics(
        int(time.time() * 1000), after, lambda topic: _may_read(caller, source, topic))


def retained_message(caller, topic):
    """Return a topic's retained message as a new Message, valid until the retained messages change. The
    caller needs read permission on the exchange for MQTT clients and on the topic. Raises NoPermission,
    NotFound.
    """
    sessions = _with_topic(caller, topic)
    caller.access.check_read("exchange", sessions.source_name)
    caller.access.check_read_topic(sessions.source(), swapped(topic))
    message = Message()
    if not sessions.retained.look(topic, message):
        raise _nothing(caller, topic)
    return message


def delete_retained(caller, topic):
    """Delete a topic's retained message. Needs the rights of a publish. Raises NoPermission, NotFound."""
    sessions = _with_topic(caller, topic)
    caller.access.check_write("exchange", sessions.source_name)
    caller.access.check_write_topic(sessions.source(), (swapped(topic),))
    if not sessions.retained.look(topic, Message()):
        raise _nothing(caller, topic)
    sessions.retained.delete(topic)


def _with_topic(caller, topic):
    if topic_name_fault(topic):
        raise _nothing(caller, topic)
    return caller.vhost.extras[EXTRA]


def _nothing(caller, topic):
    return NotFound(f"nothing is retained for {described('topic', topic, caller.vhost.name)}")


def _may_read(caller, source, topic):
    try:
        caller.access.check_read_topic(source, swapped(topic))
    except NoPermission:
        return False
    return True
