"""Redistribution: sends an ended session's unacknowledged messages to other members of its shared
subscriptions (MQTT 5 §4.8.2).

broker.transfer.redistribution moves the messages. Messages of QoS 1 and 2 that came by a shared subscription
are published to it again, unless their delivery at QoS 2 has begun [MQTT-4.8.2-5]. Never switches greenlets.
"""
from gomq_py.content import forms
from gomq_py.mqtt.wire import crossing
from gomq_py.mqtt.wire.topics import is_shared, matches, split_shared, swapped

# Remembered topics; at this number all are dropped.
TOPICS = 1024
# Mask for the part of a message's time that Sent keeps.
LOW_OCTETS = 0xFFFFFFFF


def of(session):
    """Return the Redistribution for a session whose queue will be deleted. First returns the session's
    unacknowledged messages to the queue. Without shared subscriptions, does nothing and returns None.
    """
    if not any(is_shared(one) for one in session.subscriptions):
        return None
    begun = {}
    if session.sent is not None:
        session.sent.end()  # returns unacknowledged messages to the queue
        while session.sent.put_back_some():
            pass
        begun = session.sent.begun()
    return Redistribution(session.exchange, list(session.subscriptions), begun)


class Redistribution:
    """A callable that returns the SharedSubscription to which an ended session's message is published, or
    None. ``filters``: the session's topic filters; ``begun``: result of Sent.begun().
    """

    def __init__(self, exchange, filters, begun):
        self._exchange = exchange
        self._filters = filters
        self._begun = begun
        self._known = {}  # routing key: [the filters its copies came by, position of the next copy]

    def __call__(self, message):
        about = message.describe()
        if not _is_acknowledged(about):
            return None
        topic_filter = self._came_by(message.get_routing_key())
        stored_ms = self._begun.get(about["location"])
        if topic_filter is None or stored_ms is not None and stored_ms in (
            0, about["timestamp_ms"] & LOW_OCTETS
        ):
            return None
        return self._exchange.share(topic_filter)

    def _came_by(self, key):
        """Return the shared filter that brought this copy of a message; None if an unshared filter did.
        ``key``: the message's routing key.
        """
        # Each matching shared filter brought one copy of every message to the queue, and all matching
        # unshared filters together brought one; successive calls for a key return these in turn.
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= TOPICS:
                self._known.clear()
            known = self._known[key] = [self._matching(key), 0]
        filters, place = known
        if not filters:
            return None
        known[1] = (place + 1) % len(filters)
        return filters[place]

    def _matching(self, key):
        try:
            topic = swapped(key.decode())
        except UnicodeDecodeError:
            return []
        found = [one for one in self._filters if matches(split_shared(one)[1], topic)]
        shared = [one for one in found if is_shared(one)]
        return shared if len(shared) == len(found) else [*shared, None]


def _is_acknowledged(about):
    """Return whether clients acknowledge a message, unlike QoS 0 or a replay. ``about``: its describe()."""
    if about["kind"] == forms.BASIC:
        return about["persistent"]
    return crossing.is_acknowledged(about["flags"])
