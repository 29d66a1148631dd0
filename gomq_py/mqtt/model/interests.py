"""Interests: decide by the matching subscriptions how a session's client gets messages of a topic.

Used for every message to an MQTT client. The result for a topic is remembered until subscriptions or rights
change. Never switches greenlets.
"""
from gomq_py import octets
from gomq_py.mqtt.model.filter_tree import FilterSet
from gomq_py.mqtt.wire import crossing, fields
from gomq_py.mqtt.wire.constants import SUBSCRIPTION_IDENTIFIER
from gomq_py.mqtt.wire.topics import is_shared, is_topic_name, matches, split_shared

# Remembered topics; at this number all are dropped. The same limit holds for sets of filters.
TOPICS = 1024
# Sessions with more subscriptions have a FilterSet; others save its memory.
LISTED = 8
QOS_MAX = 2


class Interest:
    """How a session's client gets messages of one topic.

        topic           the topic's bytes, at the pointer ``at``; empty if the client must not get messages
        qos             highest granted QoS
        as_published    messages keep their RETAIN flag
        identifiers     the subscription identifiers, encoded as MQTT 5 properties
        is_kept         an unshared subscription brings the messages to the session's queue
        is_shared       a matching subscription is shared
        is_wanted       a subscription matches
        alias           the topic's alias on the connection, or 0; the only attribute that may change
    """

    # ``own``: the Interest in the session's own publishes, if it differs (No Local), else None. An Interest
    # does not refer to itself: very many come and go, and would be reference cycles.
    __slots__ = (
        "topic", "at", "topic_length", "qos", "as_published", "identifiers", "is_kept", "is_shared",
        "is_wanted", "own", "alias",
    )

    def __init__(self, topic):
        self.topic = topic
        self.at = octets.pointer(topic)
        self.topic_length = len(topic)
        self.alias = 0
        self.qos = QOS_MAX
        self.as_published = self.is_kept = self.is_shared = self.is_wanted = False
        self.identifiers = b""
        self.own = None

    def want(self, subscriptions, is_kept):
        """Set ``is_kept``, and compute the other attributes from the Subscriptions that match the topic."""
        self.is_kept = is_kept
        self.is_wanted = len(subscriptions) > 0
        self.is_shared = any([is_shared(subscription.topic_filter) for subscription in subscriptions])
        # messages stored before an unsubscribe keep their QoS
        self.qos = max([subscription.qos for subscription in subscriptions], default=QOS_MAX)
        self.as_published = any([subscription.retain_as_published for subscription in subscriptions])
        identifiers = sorted({one.identifier for one in subscriptions})
        self.identifiers = b"".join([identifier_property(number) for number in identifiers if number])

    def of(self, topic, alias):
        """Return a copy of this Interest with another topic and topic alias."""
        one = Interest(topic)
        one.alias = alias
        one.qos = self.qos
        one.as_published = self.as_published
        one.identifiers = self.identifiers
        one.is_kept = self.is_kept
        one.is_shared = self.is_shared
        one.is_wanted = self.is_wanted
        if self.own is not None:
            one.own = self.own.of(topic, alias)
        return one

    def in_own(self):
        """Return the Interest for the client's own publishes: it leaves out subscriptions with No Local."""
        return self if self.own is None else self.own


class Interests:
    """Finds and remembers a Session's Interests. ``aliases``: {routing key: topic alias} of the connection.
    ``rights``: a number that grows when the client's rights change.
    """

    __slots__ = (
        "session", "rights", "rights_asked", "is_allowed_all", "aliases", "last", "last_key", "last_length",
        "found", "filters", "plain", "allowed", "kinds",
    )

    def __init__(self, session):
        self.session = session
        self.rights = 1
        self.rights_asked = 0  # the ``rights`` for which ``is_allowed_all`` was asked
        self.is_allowed_all = False
        self.aliases = None
        self.last = None
        self.last_key = b""
        self.last_length = -1
        self.found = self.filters = self.plain = self.allowed = self.kinds = None

    def changed(self, topic_filter):
        """Drop remembered results, because the subscription to this filter was added, changed or removed."""
        self.forget()
        if self.filters is not None:
            if topic_filter in self.session.subscriptions:
                self.filters.add(topic_filter)
            else:
                self.filters.discard(topic_filter)

    def forget(self):
        self.found = self.last = self.plain = self.allowed = self.kinds = None
        self.last_key = b""
        self.last_length = -1

    def rights_changed(self):
        self.rights += 1
        self.forget()

    def new_connection(self):
        """Drop topic aliases and remembered results, which belong to one connection."""
        self.aliases = None
        self.forget()

    def close(self):
        """Drop the session, which has ended; no topic matches any more."""
        self.forget()
        self.session = self.filters = None

    def find(self, at, start, length):
        """Return the Interest in the topic whose routing key is the bytes ``at[start:start + length]``."""
        if length == self.last_length and octets.same(at, start, self.last_key, 0, length):
            return self.last
        key = octets.part(at, start, length)
        if self.found is None:
            self.found = {}
        interest = self.found.get(key)
        if interest is None:
            if len(self.found) >= TOPICS:
                self.found.clear()
            interest = self.found[key] = self._look_up(key)
        self.last = interest
        self.last_key = key
        self.last_length = length
        return interest

    def name(self, key, alias):
        """Set a topic's alias on the connection. ``key``: its routing key, which find() was given before."""
        if self.aliases is None:
            self.aliases = {}
        self.aliases[key] = alias
        interest = self.found[key]
        interest.alias = alias
        if interest.own is not None:
            interest.own.alias = alias

    def _look_up(self, key):
        topic = crossing.swap(key)
        session = self.session
        if session is None:
            return Interest(b"")
        filters = self._matching(topic)
        if filters:
            filters = self._allowed(filters) or _NONE
        elif filters is not _NONE and not session.may_have(topic.decode()):
            filters = _NONE
        alias = 0 if self.aliases is None else self.aliases.get(key, 0)
        return self._kind(tuple(filters)).of(topic if filters is not _NONE else b"", alias)

    def _kind(self, filters):
        """Return the cached Interest for a tuple of filters, without a topic. It is copied for each topic."""
        kinds = self.kinds
        if kinds is None or len(kinds) >= TOPICS:
            kinds = self.kinds = {}
        kind = kinds.get(filters)
        if kind is None:
            kind = kinds[filters] = self._wanted(filters)
            without = tuple([one for one in filters if not self.session.subscriptions[one].no_local])
            if len(without) < len(filters):
                kind.own = self._wanted(without)
        return kind

    def _wanted(self, filters):
        interest = Interest(b"")
        # A share gives its message to the queue or sink in addition to the other subscriptions.
        is_kept = any([self.session.keeps(one) for one in filters if not is_shared(one)])
        interest.want([self.session.subscriptions[one] for one in filters], is_kept)
        return interest

    def _matching(self, topic):
        """Return the session's filters that match a topic (bytes); _NONE if the topic is malformed."""
        try:
            name = topic.decode()
        except UnicodeDecodeError:
            return _NONE
        if not is_topic_name(name):
            return _NONE
        subscriptions = self.session.subscriptions
        if self.filters is None and len(subscriptions) > LISTED:
            self.filters = FilterSet()
            for topic_filter in subscriptions:
                self.filters.add(topic_filter)
        if self.filters is not None:
            return self.filters.match(name)
        plain = self.plain
        if plain is None:
            plain = self.plain = [(split_shared(one)[1], one) for one in subscriptions]
        return [one for part, one in plain if matches(part, name)]

    def _allowed(self, filters):
        """Return the ``filters`` whose messages the client may receive. The answers are cached."""
        if self.rights_asked != self.rights:
            self.rights_asked = self.rights
            self.is_allowed_all = self.session.is_allowed_all()
        if self.is_allowed_all:
            return filters
        answers = self.allowed
        if answers is None or len(answers) >= TOPICS:
            answers = self.allowed = {}
        asked = [one for one in filters if one not in answers]
        if asked:
            may = self.session.allowed(asked)
            for one in asked:
                answers[one] = one in may
        return [one for one in filters if answers[one]]


_NONE: tuple = ()


def identifier_property(number):
    """Encode a subscription identifier as an MQTT 5 property."""
    return bytes((SUBSCRIPTION_IDENTIFIER,)) + fields.variable_byte_integer(number)
