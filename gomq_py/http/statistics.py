"""The counters of each kind of entity, under RabbitMQ's names, and functions that read the counters from the
broker.

Sums over many queues are made in slices, so that ten thousand queues delay no message.
"""
import resource
from operator import attrgetter

from gomq_py.broker.signals.totals import QUEUE_COUNTERS
from gomq_py.http import sums
from gomq_py.http.rates import DATA, LENGTHS, MESSAGES, NODE, Group
from gomq_py.observability import resources

LENGTH_NAMES = ("messages", "messages_ready", "messages_unacknowledged")
QUEUE_STATS = (
    "publish", "deliver", "deliver_no_ack", "get", "get_no_ack", "get_empty", "deliver_get", "redeliver",
    "ack",
)
VHOST_STATS = (*QUEUE_STATS, "confirm", "return_unroutable", "drop_unroutable")
CHANNEL_STATS = (
    "publish", "confirm", "return_unroutable", "drop_unroutable", "deliver", "deliver_no_ack", "get",
    "get_no_ack", "get_empty", "deliver_get", "redeliver", "ack",
)
EXCHANGE_STATS = ("publish_in", "publish_out")
OCTETS = ("recv_oct", "send_oct")
CHURN = (
    "connection_created", "connection_closed", "channel_created", "channel_closed", "queue_declared",
    "queue_created", "queue_deleted",
)
NODE_STATS = (
    "mem_used", "fd_used", "sockets_used", "disk_free", "proc_used", "cpu_user_time", "cpu_sys_time"
)

_queue_counters = attrgetter(*QUEUE_COUNTERS)


def queue_stats(counters):
    """Return a tuple of the QUEUE_STATS, computed from ``counters``, the values of QUEUE_COUNTERS."""
    published, delivered, auto_delivered, got, auto_got, got_none, acked, requeued = counters
    no_ack = auto_delivered - auto_got
    return (
        published, delivered - got - no_ack, no_ack, got - auto_got, auto_got, got_none, delivered, requeued,
        acked
    )


def _queue(queue):
    ready, unacked = queue.ready_count, queue.unacked_count
    return (ready + unacked, ready, unacked, *queue_stats(_queue_counters(queue)))


def _channel(channel):
    unacked = channel.unacked
    delivered = unacked.next_tag - 1
    no_ack = delivered - unacked.count - unacked.acked_count - unacked.returned_count
    return (
        channel.publishes, channel.confirmed_count, channel.return_unroutable, channel.drop_unroutable,
        delivered - no_ack - channel.got, no_ack - channel.got_no_ack, channel.got, channel.got_no_ack,
        channel.got_none, delivered, unacked.redelivered_count, unacked.acked_count)


def _exchange(exchange):
    return exchange.state.publish_in, exchange.state.publish_out


def octets_of(connection):
    """Return (received bytes, sent bytes) of a connection."""
    return (connection.stream.received_octets if connection.stream is not None else 0,
            connection.output.sent_octets if connection.output is not None else 0)


def vhost_values(thing):
    """Return a tuple of the values of one vhost's counters, in the order of ``VHOST.names``. ``thing`` is
    (vhost, node). May switch greenlets.
    """
    vhost, node_ = thing
    connections = node_.clients.in_vhost(vhost)
    queues = sums.over_types(sums.of_queues(vhost, connections))
    unroutable, returned = sums.of_exchanges(vhost)
    published, _, confirmed = sums.of_channels(vhost, connections)
    received, sent = vhost.totals.received_octets, vhost.totals.sent_octets
    for connection in connections:
        octets = octets_of(connection)
        received, sent = received + octets[0], sent + octets[1]
    counted = queue_stats([queues[name] for name in QUEUE_COUNTERS])
    ready, unacked = queues["ready"], queues["unacked"]
    return (
        ready + unacked, ready, unacked, published, *counted[1:], confirmed, returned, unroutable - returned,
        received, sent,
    )


def _whole(thing):
    """Return a tuple of the sums of VHOST's counters. ``thing`` is (vhosts, node). If ``vhosts`` is None, the
    sums are over all vhosts, including deleted ones. May switch greenlets.
    """
    vhosts, node_ = thing
    if vhosts is not None:
        return _sums(vhost_values((vhost, node_)) for vhost in vhosts)
    return whole_values(
        node_.broker, [vhost_values((vhost, node_)) for vhost in list(node_.broker.vhosts.values())])


def whole_values(broker, values):
    """Return VHOST's counters, summed over deleted vhosts and ``values``, a tuple for each present vhost."""
    gone = broker.totals
    queues = sums.over_types(sums.of_gone_queues(gone))
    counted = queue_stats([queues[name] for name in QUEUE_COUNTERS])
    counters = (gone.publishes, *counted[1:], gone.confirmed, gone.returned, gone.unroutable - gone.returned)
    lengths = (0,) * len(LENGTH_NAMES)
    return _sums((*values, (*lengths, *counters, gone.received_octets, gone.sent_octets)))


def _sums(values):
    whole = [0] * len(VHOST.names)
    for one in values:
        for index, value in enumerate(one):
            whole[index] += value
    return tuple(whole)


def _churn(node_):
    churn = node_.churn()
    return tuple(churn[name] for name in CHURN)


def _node(node_):
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return (
        resources.used_memory(), resources.descriptor_count(), len(node_.clients.all()),
        node_.broker.resource_watch.free_disk or 0,
        1, usage.ru_utime, usage.ru_stime)


def _lengths_and(stats):
    return dict.fromkeys(LENGTH_NAMES, LENGTHS) | dict.fromkeys(stats, MESSAGES)


QUEUE = Group(_lengths_and(QUEUE_STATS), _queue)
VHOST = Group(_lengths_and(VHOST_STATS) | dict.fromkeys(OCTETS, DATA), vhost_values, long=True)
WHOLE = Group(_lengths_and(VHOST_STATS) | dict.fromkeys(OCTETS, DATA), _whole, long=True)
EXCHANGE = Group(dict.fromkeys(EXCHANGE_STATS, MESSAGES), _exchange)
CHANNEL = Group(dict.fromkeys(CHANNEL_STATS, MESSAGES), _channel)
CONNECTION = Group(dict.fromkeys(OCTETS, DATA), octets_of)
THE_NODE = Group(dict.fromkeys(NODE_STATS, NODE), _node, long=True)
NODE_CHURN = Group(dict.fromkeys(CHURN, NODE), _churn, long=True)
