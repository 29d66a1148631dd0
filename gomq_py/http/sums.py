"""Sums counters over the queues, exchanges and channels of a vhost, including those that are gone.

Used by statistics and metrics. Works in slices, so that ten thousand queues delay no message.
"""
from operator import attrgetter

from gomq_py.broker.features.arguments import queue_type_of
from gomq_py.broker.signals.totals import (
    CHANNEL_COUNTERS, EXCHANGE_COUNTERS, QUEUE_COUNTERS, of_delivered,
)
from gomq_py.hub.turns import paced
from gomq_py.mqtt.model.session_kind import TYPE as MQTT

# Queues and exchanges between two checks of the clock: some 3 us each.
LOOK = 10
# Sums of a queue that precede its QUEUE_COUNTERS.
LENGTHS = (
    "ready", "unacked", "ready_octets", "unacked_octets", "persistent", "persistent_octets", "consumers"
)
QUEUE_SUMS = (*LENGTHS, *QUEUE_COUNTERS)

_queue_counters = attrgetter(*QUEUE_COUNTERS)
_exchange_counters = attrgetter(*EXCHANGE_COUNTERS)
_channel_counters = attrgetter(*CHANNEL_COUNTERS)


def of_queue(queue):
    """Return a tuple of the values of QUEUE_SUMS for one queue."""
    ready, unacked, store = queue.ready_count, queue.unacked_count, queue.store
    ready_octets, unacked_octets = (store.ready_bytes, store.unacked_bytes) if store is not None else (0, 0)
    persistent, persistent_octets = (
        (ready + unacked, ready_octets + unacked_octets) if queue.durable else (0, 0)
    )
    return (
        ready, unacked, ready_octets, unacked_octets, persistent, persistent_octets, queue.consumer_count,
        *_queue_counters(queue),
    )


def of_queues(vhost, connections):
    """Return {type of queue: list of the values of QUEUE_SUMS} of a vhost. The type MQTT includes messages
    delivered to these ``connections`` without a queue. May switch greenlets.
    """
    sums = {kind: [0] * len(LENGTHS) + list(counters) for kind, counters in vhost.totals.queues.items()}
    for queue in paced(list(vhost.queues.values()), LOOK):
        _add(sums, queue_type_of(queue.arguments), of_queue(queue))
    unkept = sum(connection.unkept()[0] for connection in paced(connections))
    if unkept:
        _add(sums, MQTT, [0] * len(LENGTHS) + of_delivered(unkept))
    return sums


def of_gone_queues(totals):
    """Return {type of queue: list of the values of QUEUE_SUMS} of deleted vhosts, from their Totals."""
    return {kind: [0] * len(LENGTHS) + list(counters) for kind, counters in totals.queues.items()}


def of_exchanges(vhost):
    """Return (count of unroutable messages, count of those returned) of a vhost. May switch greenlets."""
    unroutable, returned = _exchange_counters(vhost.totals)
    for exchange in paced(list(vhost.exchanges.values()), LOOK):
        unroutable += exchange.state.unroutable
        returned += exchange.state.returned
    return unroutable, returned


def of_channels(vhost, connections):
    """Return the values of CHANNEL_COUNTERS of a vhost with these ``connections``. May switch greenlets."""
    publishes, confirmable, confirmed = _channel_counters(vhost.totals)
    for connection in paced(connections):
        for channel in connection.publishers():
            publishes += channel.publishes
            confirmable += channel.published
            confirmed += channel.confirmed_count
    return publishes, confirmable, confirmed


def of_dropped(totals, connections):
    """Return how many messages MQTT clients lost, by ``totals`` and ``connections``. May switch greenlets."""
    return sum(one.dropped for one in totals) + sum(one.unkept()[1] for one in paced(connections))


def merged(parts):
    """Return the sum of several {type of queue: values of QUEUE_SUMS} as one such dict."""
    sums: dict = {}
    for part in parts:
        for kind, values in part.items():
            _add(sums, kind, values)
    return sums


def over_types(sums):
    """Return {name: sum over all types of queues} from {type: values of QUEUE_SUMS}."""
    return dict(zip(QUEUE_SUMS, map(sum, zip(*sums.values())))) if sums else dict.fromkeys(QUEUE_SUMS, 0)


def _add(sums, kind, values):
    have = sums.get(kind)
    if have is None:
        sums[kind] = list(values)
    else:
        for index, value in enumerate(values):
            have[index] += value
