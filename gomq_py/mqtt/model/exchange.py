"""MQTT exchange: routes messages by topic filters, matched level by level (MQTT 5 §4.7).

Registered by mqtt.model.kinds. Its bindings are the sessions' subscriptions. Routing keys are turned into
topics (mqtt.wire.topics.swapped). An operator may bind queues to the exchange by filters, and bind the MQTT
exchange to other exchanges, so that their messages reach it.
"""
from functools import cached_property

from gomq_py.broker.exchanges.exchange import Exchange
from gomq_py.broker.names import described
from gomq_py.content.fields import RETAIN_HEADER
from gomq_py.errors import PreconditionFailed
from gomq_py.mqtt.model.filter_tree import FilterTree, levels_of
from gomq_py.mqtt.wire.topics import (
    SEPARATOR, binding_key, is_shared, is_topic_name, split_shared, swapped, topic_filter_fault,
)
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog

QUIET = QuietLog(logger("mqtt"))

# Most levels of a filter, as in Mosquitto. Each level is a step of a match and a node of the tree.
MAX_LEVELS = 200
# Most nodes that one match may reach because of filters with +: 1 ms. All arrangements of + in filters of up
# to eight levels are 3586.
MAX_COSTLY_LEVELS = 16_384
# Prefix of binding arguments that hold a subscription's options.
OPTION_PREFIX = "x-mqtt-"


class MQTTExchange(Exchange):
    """Routes messages by topic filters. ``retained``: the Destination of retained messages, or None."""

    type = "mqtt"

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.retained = None
        self._tree = FilterTree()

    @cached_property
    def _shares(self):
        from gomq_py.mqtt.model.shared_subscriptions import SharedSubscriptions

        return SharedSubscriptions(self.departed)

    def check_binding(self, routing_key, arguments):
        """Raise PreconditionFailed for an invalid topic filter, or arguments reserved for subscriptions."""
        entity = described("exchange", self.name, self.vhost)
        if is_shared(routing_key):
            raise PreconditionFailed(f"cannot bind to {entity} with the shared subscription '{routing_key}'")
        fault = self.filter_fault(routing_key) or self.room_fault(routing_key)
        if fault:
            raise PreconditionFailed(f"cannot bind to {entity}: {fault}")
        for key in arguments:
            if key.startswith(OPTION_PREFIX):
                raise PreconditionFailed(
                    f"invalid arg '{key}' for a binding from {entity}: it is for subscriptions over MQTT")

    def filter_fault(self, topic_filter):
        """Return an error text if an unshared topic filter is malformed or has too many levels; else ""."""
        fault = topic_filter_fault(topic_filter)
        if fault:
            return fault
        if topic_filter.count(SEPARATOR) >= MAX_LEVELS:
            return f"a topic filter has more than {MAX_LEVELS} levels"
        return ""

    def room_fault(self, topic_filter):
        """Return an error text if a valid, unshared topic filter would make matching too costly; else ""."""
        if self._tree.arrangements.has_room(levels_of(topic_filter), MAX_COSTLY_LEVELS):
            return ""
        return no_room(f"virtual host '{self.vhost}'", MAX_COSTLY_LEVELS)

    def asks_for(self, binding):
        """Return (binding key, arguments) by which a topic exchange would match what ``binding`` matches."""
        return binding_key(split_shared(binding.routing_key)[1]), {}

    def match(self, routing_key, headers, targets):
        topic = swapped(routing_key)
        if _is_no_topic(topic):
            QUIET.warning(
                (self.vhost, self.name), "messages whose routing keys are no MQTT topics go to no "
                "subscriber: %r, through exchange %r in vhost %r", routing_key, self.name, self.vhost,
            )
            return
        self._tree.match(topic, targets)
        if headers and self.retained is not None and headers.get(RETAIN_HEADER) is True:
            targets[self.retained] = None

    def _added(self, binding):
        topic_filter, destination = binding.routing_key, binding.destination
        session = _session_of(destination)
        if session is None or not is_shared(topic_filter):
            self._tree.add(topic_filter, destination)
        else:
            share, is_new = self._shares.add(topic_filter, session, destination)
            if is_new:
                self._tree.add(split_shared(topic_filter)[1], share)
        if session is not None:
            session.subscribed(binding)

    def _removed(self, binding):
        topic_filter, destination = binding.routing_key, binding.destination
        session = _session_of(destination)
        if session is None or not is_shared(topic_filter):
            self._tree.remove(topic_filter, destination)
        else:
            share, is_last = self._shares.remove(topic_filter, session, destination)
            if is_last:
                self._tree.remove(split_shared(topic_filter)[1], share)
        if session is not None:
            session.unsubscribed(binding)

    def share(self, topic_filter):
        """Return the Destination for the members of a shared subscription, or None if it has no members."""
        return self._shares.by_filter.get(topic_filter)

    def presence_changed(self, session):
        """Update the shared subscriptions of a session whose client has connected or disconnected."""
        for share in self._shares.of(session):
            share.move(session.queue)
            share.move(session.sink)

    def queue_failed(self, session):
        """Replace the shared subscriptions of a session whose queue failed. Returns False if it has none."""
        shares = self._shares.of(session)
        for share in shares:
            topic_filter = split_shared(share.name)[1]
            self._tree.remove(topic_filter, share)
            self._tree.add(topic_filter, self._shares.renew(share))
        return bool(shares)


def no_room(whose, most):
    """Return the error text for a topic filter that exceeds a limit on arrangements of ``+``. ``most`` is the
    limit; ``whose`` says whose limit it is, such as "virtual host '/'".
    """
    return f"topic filters of {whose} have their + in too many different places (limit of {most} levels)"


def _session_of(destination):
    return getattr(destination, "session", None)


def _is_no_topic(topic):
    if not is_topic_name(topic):
        return True
    if topic.isascii():
        return False
    try:
        topic.encode()
    except UnicodeEncodeError:  # the routing key is not UTF-8
        return True
    return False
