"""Administration: what somebody who is no MQTT client may see and do of what a vhost keeps for MQTT.

One function for each thing, which asks for the rights that it needs, as broker.verbs does for queues and
exchanges; doors other than MQTT's translate to these. Never switches.
"""
import time

from gomq_py.broker.names import described
from gomq_py.errors import NoPermission, NotFound
from gomq_py.mqtt.model.session_queue import EXTRA
from gomq_py.mqtt.wire.topics import swapped, topic_name_fault
from gomq_py.storage.message import Message

# Topics that are looked at for one page, allowed or not: some 20 us each.
LOOKED_AT = 2000


def sessions_of(vhost):
    """Its sessions, as a new list."""
    return list(vhost.extras[EXTRA].by_client.values())


def find_session(vhost, client_id):
    """The Session of a client id. Raises NotFound."""
    session = vhost.extras[EXTRA].by_client.get(client_id)
    if session is None:
        raise NotFound(f"no MQTT session '{client_id}' in vhost '{vhost.name}'")
    return session


def end_session(caller, client_id):
    """End a session with all that it holds; a client that is connected is told. Asks for configure on its
    queue's name. Raises NoPermission, NotFound.
    """
    session = find_session(caller.vhost, client_id)
    caller.access.configure("queue", session.queue_name)
    caller.vhost.extras[EXTRA].end(session)


def unsubscribe(caller, client_id, topic_filter):
    """Take a subscription from a session. Asks for configure on its queue's name. Raises NoPermission,
    NotFound.
    """
    session = find_session(caller.vhost, client_id)
    caller.access.configure("queue", session.queue_name)
    if not session.unsubscribe(topic_filter):
        raise NotFound(f"MQTT session '{client_id}' in vhost '{caller.vhost.name}' has no such subscription")


# what is retained

def retained_totals(vhost):
    """(topics, octets of payloads) that a vhost retains, of what has expired, too."""
    retained = vhost.extras[EXTRA].retained
    return retained.index.count, retained.octets


def retained_page(caller, after, most):
    """([(topic, octets of its payload)], where to go on): the next topics behind ``after`` that the caller
    may read, up to ``most``; "" for the place where there are no more. Raises NoPermission.
    """
    sessions = caller.vhost.extras[EXTRA]
    caller.access.read("exchange", sessions.source.name)
    now_ms = int(time.time() * 1000)
    found, looked_at = [], 0
    while len(found) < most and looked_at < LOOKED_AT:
        page = sessions.retained.page(after, most - len(found), now_ms)
        if not page:
            return found, ""
        after = page[-1][0]
        looked_at += len(page)
        found += [(topic, octets) for topic, octets in page if _may_read(caller, sessions, topic)]
    return found, after


def retained_message(caller, topic):
    """A Message filled with what is retained for a topic, which is good until the next change. Asks for read
    on the exchange and its topic permission. Raises NoPermission, NotFound.
    """
    sessions = _with_topic(caller, topic)
    caller.access.read("exchange", sessions.source.name)
    caller.access.read_topic(sessions.source, swapped(topic))
    message = Message()
    if not sessions.retained.look(topic, message):
        raise _nothing(caller, topic)
    return message


def delete_retained(caller, topic):
    """Retain nothing for a topic. Asks for write, as a client that publishes an empty payload would be asked.

    Raises NoPermission, NotFound.
    """
    sessions = _with_topic(caller, topic)
    caller.access.write("exchange", sessions.source.name)
    caller.access.write_topic(sessions.source, (swapped(topic),))
    if not sessions.retained.look(topic, Message()):
        raise _nothing(caller, topic)
    sessions.retained.delete(topic)


def _with_topic(caller, topic):
    if topic_name_fault(topic):
        raise _nothing(caller, topic)
    return caller.vhost.extras[EXTRA]


def _nothing(caller, topic):
    return NotFound(f"nothing is retained for {described('topic', topic, caller.vhost.name)}")


def _may_read(caller, sessions, topic):
    try:
        caller.access.read_topic(sessions.source, swapped(topic))
    except NoPermission:
        return False
    return True
