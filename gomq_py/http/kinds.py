"""Tables of the entities in long lists: how to build their JSON, and how to filter and sort by their facts.

A row is a listed entity. A fact is the value of one JSON field, read without building the whole object. A
sort by a field without a fact builds each row's object once per statistics interval.
"""
from operator import itemgetter

from gomq_py.broker.topology.bindings import Binding
from gomq_py.http import curves, shapes, statistics
from gomq_py.http.answers import at, node
from gomq_py.mqtt.model import administration

# Characters kept of a text: enough to sort by.
KEPT_CHARACTERS = 200


class Kind:
    """A kind of entity in lists. A row is one entity.

        build(row)       returns the row's JSON
        name_of(row)     returns the text that filters match
        now(row)         returns the row in its present state, or None if it is deleted
        numbers(rows)    returns a list of the rows' ids, each valid while the row exists. ``numbers`` is
                         None if rows are made for each request
        facts            {JSON field: function that reads it from a row}, for fields that are read quickly
    """

    __slots__ = ("build", "name_of", "now", "numbers", "facts")

    def __init__(self, build=None, name_of=None, now=None, numbers=None, facts=None):
        self.build = build or _itself
        self.name_of = name_of or _name_of
        self.now = now or _itself
        self.numbers = numbers
        self.facts = facts or {}

    def fact(self, field):
        """Return a function that reads a JSON field, such as ``message_stats.publish``, from a row."""
        found = self.facts.get(field)
        if found is not None:
            return found
        path = field.split(".")
        return lambda row: _kept(at(self.build(row), path))


def _kept(value):
    """Return a field's value as the index keeps it: a number or None unchanged, otherwise a short text."""
    return value if value is None or isinstance(value, (int, float)) else str(value)[:KEPT_CHARACTERS]


def _itself(row):
    return row


def _name_of(row):
    return row.get("name", "") if isinstance(row, dict) else row.name


# The upper of 63 bits are the address, so that no two rows have the same number; addresses have 48 bits at
# most, and the last four are 0. The lower bits are the name's: another object may later have the same
# address.
_SHIFT = 15
_ADDRESS, _NAME = (1 << 63) - (1 << 19), (1 << 19) - 1


def _numbers_of_named(rows):
    return [id(row) << _SHIFT & _ADDRESS | hash(row.name) & _NAME for row in rows]


def _numbers_of_channels(pairs):
    return [
        id(channel) << _SHIFT & _ADDRESS | hash((connection.name, channel.id)) & _NAME
        for channel, connection in pairs]


def _numbers_of_consumers(pairs):
    return [id(consumer) << _SHIFT & _ADDRESS | hash(consumer.tag) & _NAME for consumer, _ in pairs]


# current rows

def _queue_now(queue):
    vhost = node().broker.vhosts.get(queue.vhost)
    return None if vhost is None else vhost.queues.get(queue.name)


def _exchange_now(exchange):
    vhost = node().broker.vhosts.get(exchange.vhost)
    return None if vhost is None else vhost.exchanges.get(exchange.name)


def _connection_now(connection):
    return connection if connection in node().clients else None


def _channel_now(pair):
    channel, connection = pair
    return pair if connection.channels.get(channel.id) is channel else None


def _consumer_now(pair):
    consumer, connection = pair
    channel = consumer.channel
    return (
        pair if connection.channels.get(channel.id) is channel
        and channel.consumers.get(consumer.tag) is consumer else None
    )


def _session_now(pair):
    session, vhost = pair
    return pair if administration.has_session(vhost, session) else None


def _subscription_now(row):
    subscription, session, vhost = row
    current = session.subscriptions.get(subscription.topic_filter)
    if current is None or not administration.has_session(vhost, session):
        return None
    return current, session, vhost


# facts

def _messages(queue):
    return queue.ready_count + queue.unacked_count


def _rates(group, first, prefix):
    """Return {field: function that reads a counter's rate from an entity} for the counters of ``group`` from
    index ``first`` on. Field names begin with ``prefix``. Reading a rate counts as a look (http.rates).
    """
    def rate(index):
        return lambda thing: curves.view(group, thing).details(index)["rate"]
    return {
        f"{prefix}{name}_details.rate": rate(index)
        for index, name in enumerate(group.names) if index >= first
    }


_LENGTHS = {
    "messages": _messages, "messages_ready": lambda queue: queue.ready_count,
    "messages_unacknowledged": lambda queue: queue.unacked_count,
}
_ITSELF = {
    "name": lambda queue: queue.name, "vhost": lambda queue: queue.vhost, "type": shapes.queue_kind,
    "state": shapes.queue_state,
    "durable": lambda queue: bool(queue.durable), "auto_delete": lambda queue: bool(queue.auto_delete),
    "exclusive": lambda queue: queue.exclusive_owner is not None,
}
_QUEUE = {
    **_ITSELF, **_LENGTHS, "consumers": lambda queue: queue.consumer_count,
    "message_bytes": lambda queue: (
        queue.store.ready_bytes + queue.store.unacked_bytes if queue.store is not None else 0
    ),
    **_rates(statistics.QUEUE, len(statistics.LENGTH_NAMES), "message_stats."),
}
_EXCHANGE = {
    "name": lambda exchange: exchange.name, "vhost": lambda exchange: exchange.vhost,
    "type": lambda exchange: exchange.type, "durable": lambda exchange: bool(exchange.durable),
}
_CONNECTION = {
    "name": lambda one: one.name, "vhost": lambda one: one.vhost.name, "user": lambda one: one.user.name,
    "channels": lambda one: len(one.channels), "connected_at": lambda one: int(one.connected_at * 1000),
    **_rates(statistics.CONNECTION, 0, ""),
}
_CHANNEL = {
    "name": lambda pair: shapes.channel_name(*pair), "number": lambda pair: pair[0].id,
    "vhost": lambda pair: pair[1].vhost.name,
    "user": lambda pair: pair[1].user.name, "messages_unacknowledged": lambda pair: pair[0].unacked.count,
}
_CONSUMER = {
    "consumer_tag": lambda pair: pair[0].tag, "queue.name": lambda pair: pair[0].source.name,
    "queue.vhost": lambda pair: pair[0].source.vhost,
    "channel_details.name": lambda pair: shapes.channel_name(pair[0].channel, pair[1]),
    "prefetch_count": lambda pair: pair[0].prefetch,
}


def _binding(one):
    return shapes.binding(one) if isinstance(one, Binding) else shapes.default_binding(one)


def _source(one):
    return one.source.name if isinstance(one, Binding) else ""


# JSON made for each request, and the fields that filters match.
JSON = Kind()
BY_USER, BY_VHOST = Kind(name_of=itemgetter("user")), Kind(name_of=itemgetter("vhost"))
BY_SOURCE, BY_DESTINATION, BY_KEY = (
    Kind(name_of=itemgetter(field)) for field in ("source", "destination", "routing_key")
)
# Short lists, and rows that exist only during the request.
VHOSTS = Kind(shapes.vhost)
BINDINGS = Kind(_binding, _source)  # and queues, for their bindings to the default exchange
DEFAULT_BINDINGS = Kind(shapes.default_binding)

QUEUES = Kind(shapes.queue, now=_queue_now, numbers=_numbers_of_named, facts=_QUEUE)
# As in lists with ``disable_stats``, and with ``enable_queue_totals`` too.
QUEUES_THEMSELVES = Kind(shapes.queue_itself, now=_queue_now, numbers=_numbers_of_named, facts=_ITSELF)
QUEUES_WITH_TOTALS = Kind(
    shapes.queue_with_totals, now=_queue_now, numbers=_numbers_of_named, facts={**_ITSELF, **_LENGTHS}
)
EXCHANGES = Kind(shapes.exchange, now=_exchange_now, numbers=_numbers_of_named, facts=_EXCHANGE)
CONNECTIONS = Kind(shapes.connection, now=_connection_now, numbers=_numbers_of_named, facts=_CONNECTION)
# Pairs (channel, its connection) and (consumer, its connection).
CHANNELS = Kind(
    lambda pair: shapes.channel(*pair), lambda pair: shapes.channel_name(*pair), _channel_now,
    _numbers_of_channels, _CHANNEL)
# MQTT connections; pairs (session, its vhost); triples (subscription, its session, its vhost).
MQTT_CONNECTIONS = Kind(shapes.mqtt_connection, lambda one: one.client_id, _connection_now, _numbers_of_named)
MQTT_SESSIONS = Kind(lambda pair: shapes.mqtt_session(*pair), lambda pair: pair[0].client_id, _session_now)
MQTT_SUBSCRIPTIONS = Kind(
    lambda row: shapes.mqtt_subscription(*row), lambda row: row[0].topic_filter, _subscription_now)
CONSUMERS = Kind(
    lambda pair: shapes.consumer(*pair), lambda pair: pair[0].tag, _consumer_now, _numbers_of_consumers,
    _CONSUMER,
)
