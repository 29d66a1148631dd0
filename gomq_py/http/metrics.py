"""Prometheus metrics of the broker's counters under RabbitMQ's names, so that its dashboards work.

Methods yield metric families for ``exposition.rendered``; each family of RabbitMQ's /metrics/detailed has its
own method. Nothing is kept between scrapes. Series per object are made lazily, and sums over many objects in
slices. A method's ``vhosts`` are the names of the wanted vhosts, None for all.
"""
import resource
import sys
from types import SimpleNamespace

from prometheus_client.core import CounterMetricFamily as Counter
from prometheus_client.core import GaugeMetricFamily as Gauge
from prometheus_client.core import InfoMetricFamily

import gomq_py
from gomq_py.broker.features.arguments import CLASSIC, QUORUM, STREAM
from gomq_py.broker.signals.alarms import DISK, MEMORY
from gomq_py.build_info import RABBITMQ_VERSION
from gomq_py.http import metric_rows as rows
from gomq_py.http import sums
from gomq_py.hub.turns import paced
from gomq_py.observability import resources

PREFIX = "rabbitmq_"
PROTOCOL = "amqp091"
# RabbitMQ's names for types of queues.
QUEUE_TYPES = {CLASSIC: "rabbit_classic_queue", QUORUM: "rabbit_quorum_queue", STREAM: "rabbit_stream_queue"}
# A dead letter leaves its queue once its copies are on disk.
STRATEGY = "at_least_once"
QUEUE, EXCHANGE = ("vhost", "queue"), ("vhost", "exchange")


class Families:
    """Makes the metric families of a node. ``endpoint`` is the value of the label ``rabbitmq_endpoint``."""

    def __init__(self, node, prefix=PREFIX, endpoint="aggregated", inner=""):
        """Families' names begin with ``prefix + inner``; identity, build, ``cluster_...`` lack ``inner``."""
        self._node = node
        self._outer = prefix
        self._prefix = prefix + inner
        self._endpoint = endpoint

    # the broker

    def identity(self, _vhosts=None):
        """Yield the node's identity and versions. Dashboards join these labels to all other families."""
        node = self._node
        yield InfoMetricFamily(f"{self._outer}identity", "Node and cluster identity", value={
            "rabbitmq_node": node.name, "rabbitmq_cluster": node.broker.cluster_name,
            "rabbitmq_cluster_permanent_id": node.broker.cluster_id,
            "rabbitmq_endpoint": self._endpoint})
        yield InfoMetricFamily(f"{self._outer}build", "Versions", value={
            "rabbitmq_version": RABBITMQ_VERSION, "prometheus_plugin_version": gomq_py.__version__,
            "prometheus_client_version": "python",
            "erlang_version": f"none: Python {sys.version.split()[0]}", "product_name": "gomq-py",
            "product_version": gomq_py.__version__})

    def churn(self, _vhosts=None):
        churn = self._node.churn()
        for name, text, counter in rows.CHURN:
            yield self._counter(name, text, churn[counter])

    def node_coarse(self, _vhosts=None):
        """Yield the process's memory, file descriptors, connections and CPU time, and the free disk space."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        yield self._gauge("process_open_fds", "Open file descriptors", resources.descriptor_count())
        yield self._gauge(
            "process_open_tcp_sockets", "Open connections of clients", len(self._node.clients.all())
        )
        yield self._gauge(
            "process_resident_memory_bytes", "Memory used in bytes", resources.resident_memory()
        )
        yield self._gauge(
            "disk_space_available_bytes", "Disk space available in bytes",
            self._node.broker.resource_watch.free_disk,
        )
        yield self._counter("cpu_user_time", "Seconds of CPU in the broker's own code", usage.ru_utime)
        yield self._counter("cpu_system_time", "Seconds of CPU in the kernel for the broker", usage.ru_stime)

    def node_limits(self, _vhosts=None):
        watch, descriptors = self._node.broker.resource_watch, resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        yield self._gauge("process_max_fds", "Open file descriptors limit", descriptors)
        yield self._gauge(
            "process_max_tcp_sockets", "Open connections limit: that of descriptors", descriptors
        )
        yield self._gauge(
            "resident_memory_limit_bytes", "Memory high watermark in bytes", watch.memory_limit
        )
        yield self._gauge(
            "disk_space_available_limit_bytes", "Free disk space low watermark in bytes", watch.disk_limit
        )
        for name in ("uptime", "erlang_uptime_seconds"):  # LavinMQ's name and RabbitMQ's
            yield self._gauge(name, "Node uptime in seconds", self._node.uptime_s())

    def alarms(self, _vhosts=None):
        """Yield the broker's alarms: 1 for an active alarm, which blocks publishers, otherwise 0."""
        alarms = self._node.broker.alarms
        for name, text, is_on in (
                ("memory_used_watermark", "for lack of memory", alarms.is_on(MEMORY)),
                ("free_disk_space_watermark", "for lack of disk space", alarms.is_on(DISK)),
                (
                    "file_descriptor_limit",
                    "for lack of descriptors: never, connections are refused instead", False,
                )):
            yield self._gauge(f"alarms_{name}", f"1 while publishers are held {text}", int(is_on))

    def auth(self, _vhosts=None):
        churn = self._node.clients.churn
        succeeded, failed = churn.logins_succeeded, churn.logins_failed
        for name, text, value in (
                ("", "Logins", succeeded + failed), ("_succeeded", "Logins that succeeded", succeeded),
                ("_failed", "Logins refused", failed)):
            yield self._counter(f"auth_attempts{name}", text, value, protocol=PROTOCOL)

    # totals

    def totals(self):
        """Yield the families of queues, channels and connections, summed over all objects. May switch
        greenlets.
        """
        by_type, exchanges, channels = self._summed()
        queues = SimpleNamespace(**sums.over_types(by_type))
        for name, text, _, value in (*rows.COARSE, *rows.CONSUMERS, *rows.DETAILS):
            yield self._gauge(f"queue_{name}", text, value(queues))
        for name, text, value in rows.DELIVERY:
            yield self._counter(f"channel_{name}", text, value(queues))
        yield self._counter("queue_messages_published", rows.PUBLISHED, queues.published)
        yield from self._channel_totals(exchanges, channels)
        yield from self._connection_totals()
        yield from self.global_counters(by_type, exchanges, channels)

    def counts(self):
        connections, vhosts = self._node.clients.all(), list(self._node.broker.vhosts.values())
        yield self._gauge("connections", "Connections currently open", len(connections))
        yield self._gauge(
            "channels", "Channels currently open", sum(len(one.channels) for one in connections)
        )
        yield self._gauge("consumers", "Consumers currently connected", self._consumer_count(connections))
        yield self._gauge("queues", "Queues available", sum(len(vhost.queues) for vhost in vhosts))

    def global_counters(self, by_type=None, exchanges=None, channels=None):
        """Yield RabbitMQ's counters by protocol. The arguments are the three parts of ``_summed()``, which is
        called if they are missing. May switch greenlets.
        """
        if by_type is None:
            by_type, exchanges, channels = self._summed()
        (publishes, confirmable, confirmed), (unroutable, returned) = channels, exchanges
        whole = SimpleNamespace(**sums.over_types(by_type))
        connections = self._node.clients.all()
        yield self._gauge(
            "global_consumers", "Consumers currently connected", self._consumer_count(connections),
            protocol=PROTOCOL,
        )
        yield self._gauge("global_publishers", "Open channels that have published", sum(
            channel.publishes > 0 for one in connections
            for channel in list(one.channels.values())), protocol=PROTOCOL)
        for name, text, value in (
                ("received", "Messages received from publishers", publishes),
                ("received_confirm", "Messages received from publishers that want a confirm", confirmable),
                ("confirmed", "Messages confirmed to publishers", confirmed),
                ("routed", "Copies that queues took", whole.published),
                ("unroutable_dropped", rows.UNROUTABLE_DROPPED, unroutable - returned),
                ("unroutable_returned", rows.UNROUTABLE_RETURNED, returned)):
            yield self._counter(f"global_messages_{name}", text, value, protocol=PROTOCOL)
        for name, text, value in rows.GLOBAL_QUEUES:
            family = Counter(
                f"{self._prefix}global_messages_{name}", text, labels=("protocol", "queue_type")
            )
            for kind, label in QUEUE_TYPES.items():
                of_kind = sums.over_types({kind: by_type[kind]}) if kind in by_type else sums.over_types({})
                family.add_metric((PROTOCOL, label), value(SimpleNamespace(**of_kind)))
            yield family
        yield from self._dead_letters()

    def _dead_letters(self):
        counts = self._node.broker.dead_letters.counts
        for reason, text in rows.DEAD_LETTERS:
            family = Counter(
                f"{self._prefix}global_messages_dead_lettered_{reason}",
                f"Messages sent to dead letter exchanges: {text}",
                labels=("queue_type", "dead_letter_strategy"),
            )
            for kind in (CLASSIC, QUORUM):
                family.add_metric((QUEUE_TYPES[kind], STRATEGY), counts[kind, reason])
            yield family

    def _channel_totals(self, exchanges, channels):
        (publishes, _, confirmed), (unroutable, returned) = channels, exchanges
        for name, text, value in (
                ("published", "Messages published", publishes),
                ("confirmed", "Messages confirmed to publishers", confirmed),
                ("unroutable_returned", rows.UNROUTABLE_RETURNED, returned),
                ("unroutable_dropped", rows.UNROUTABLE_DROPPED, unroutable - returned)):
            yield self._counter(f"channel_messages_{name}", text, value)
        values = [0] * len(rows.CHANNEL_GAUGES)
        for connection in paced(self._node.clients.all()):
            for channel in list(connection.channels.values()):
                for index, row in enumerate(rows.CHANNEL_GAUGES):
                    values[index] += row[2](channel)
        for (name, text, _), value in zip(rows.CHANNEL_GAUGES, values):
            yield self._gauge(name, text, value)

    def _connection_totals(self):
        connections, totals = self._node.clients.all(), self._node.totals()
        gone = (sum(one.received_octets for one in totals), sum(one.sent_octets for one in totals))
        for (name, text, value), before in zip(rows.CONNECTION_COUNTERS, gone):
            yield self._counter(name, text, before + sum(map(value, connections)))
        yield self._gauge(
            "connection_channels", "Channels on connections", sum(len(one.channels) for one in connections)
        )

    def _summed(self):
        """Return ({type: sums of queues}, sums of exchanges, sums of channels), as the module ``sums`` makes
        them, including deleted vhosts. May switch greenlets.
        """
        gone = self._node.broker.totals
        by_type, exchanges, channels = [sums.of_gone_queues(gone)], (gone.unroutable, gone.returned), (
            gone.publishes, gone.confirmable, gone.confirmed)
        for vhost in list(self._node.broker.vhosts.values()):
            connections = self._node.clients.in_vhost(vhost)
            by_type.append(sums.of_queues(vhost, connections))
            exchanges = _added(exchanges, sums.of_exchanges(vhost))
            channels = _added(channels, sums.of_channels(vhost, connections))
        return sums.merged(by_type), exchanges, channels

    @staticmethod
    def _consumer_count(connections):
        return sum(
            len(channel.consumers) for one in paced(connections) for channel in list(one.channels.values())
        )

    # one series per object; ``vhosts``: the wanted names, None for all

    def queue_coarse(self, vhosts=None):
        return self._queue_gauges(rows.COARSE, vhosts)

    def queue_consumers(self, vhosts=None):
        return self._queue_gauges(rows.CONSUMERS, vhosts)

    def queue_details(self, vhosts=None):
        return self._queue_gauges((*rows.CONSUMERS, *rows.CAPACITY, *rows.DETAILS), vhosts)

    def channel_queue(self, vhosts=None):
        """Yield each queue's counters of deliveries, with names that begin with ``channel_``."""
        return self._queue_counters("channel", vhosts)

    def queue_delivery(self, vhosts=None):
        """Yield each queue's counters of deliveries, with RabbitMQ 4's names that begin with ``queue_``."""
        return self._queue_counters("queue", vhosts)

    def queue_published(self, vhosts=None):
        yield self._series(
            Counter, "queue_messages_published", rows.PUBLISHED, ("queue_vhost", "queue"),
            (((queue.vhost, queue.name), queue.published) for queue in self._queues(vhosts)))

    def channel_exchange(self, vhosts=None):
        """Yield publishes per exchange and confirms per channel, with names that begin with ``channel_``."""
        yield from self._exchange_counters("channel_messages", vhosts)
        yield self._series(
            Counter, "channel_messages_confirmed", "Messages confirmed to publishers", ("channel", "vhost"), (
                ((f"{one.name} ({channel.id})", one.vhost.name), channel.confirmed_count)
                for channel, one in self._channels(vhosts) if channel.published))

    def exchanges(self, vhosts=None):
        """Yield each exchange's counts of published and of routed messages, under RabbitMQ 4's names."""
        yield from self._exchange_counters("exchange_messages", vhosts)
        yield self._series(
            Counter, "exchange_messages_routed", "Copies routed to queues", EXCHANGE,
            (((one.vhost, one.name), one.state.publish_out) for one in self._exchanges(vhosts)))

    def connection_octets(self, _vhosts=None):
        connections = self._node.clients.all()
        for name, text, value in rows.CONNECTION_COUNTERS:
            yield self._series(
                Counter, name, text, ("connection",), (((one.name,), value(one)) for one in connections))

    def connection_channels(self, _vhosts=None):
        yield self._series(
            Gauge, "connection_channels", "Channels on a connection", ("connection",),
            (((one.name,), len(one.channels)) for one in self._node.clients.all()))

    def channels(self, vhosts=None):
        """Yield each channel's consumers, prefetch limits, and unacknowledged and unconfirmed messages."""
        channels = self._channels(vhosts)
        for name, text, value in rows.CHANNEL_GAUGES:
            yield self._series(Gauge, name, text, ("connection", "channel", "vhost"), (
                ((one.name, str(channel.id), one.vhost.name), value(channel)) for channel, one in channels))

    def vhost_status(self, vhosts=None):
        """Yield a family with the sample 1 for each vhost, because all vhosts run."""
        names = sorted(vhost.name for vhost in self._wanted(vhosts))
        yield (
            Gauge(f"{self._outer}cluster_vhost_status", "Whether the vhost is running", labels=("vhost",)),
            (((name,), 1) for name in names))

    def exchange_bindings(self, vhosts=None):
        """Yield the number of bindings of each exchange except the default one."""
        yield self._of_exchanges(
            "bindings", "Bindings of the exchange", vhosts, lambda one: one.binding_count)

    def exchange_names(self, vhosts=None):
        """Yield a family with the sample 1 for each exchange except the default one."""
        yield self._of_exchanges("name", "Every exchange there is", vhosts, lambda _: 1)

    def _of_exchanges(self, name, text, vhosts, value):
        return Gauge(
            f"{self._outer}cluster_exchange_{name}", text, labels=(*EXCHANGE, "type")
        ), (((one.vhost, one.name, one.type), value(one)) for one in self._exchanges(vhosts) if one.name)

    def _queue_gauges(self, table, vhosts):
        queues = self._queues(vhosts)
        for name, text, value, _ in table:
            yield self._series(Gauge, f"queue_{name}", text, QUEUE, (
                ((queue.vhost, queue.name), value(queue)) for queue in queues))

    def _queue_counters(self, kind, vhosts):
        queues = self._queues(vhosts)
        for name, text, value in rows.DELIVERY:
            yield self._series(Counter, f"{kind}_{name}", text, QUEUE, (
                ((queue.vhost, queue.name), value(queue)) for queue in queues))

    def _exchange_counters(self, kind, vhosts):
        exchanges = self._exchanges(vhosts)
        for name, text, value in rows.EXCHANGE_COUNTERS:
            yield self._series(Counter, f"{kind}_{name}", text, EXCHANGE, (
                ((one.vhost, one.name), value(one.state)) for one in exchanges))

    def _series(self, kind, name, text, labels, samples):
        """Return (family, samples) for one series per object. ``samples`` yields (label values, value)."""
        return kind(self._prefix + name, text, labels=labels), samples

    def _queues(self, vhosts):
        found = []
        for vhost in self._wanted(vhosts):
            found += vhost.queues.values()
        return found

    def _exchanges(self, vhosts):
        return [exchange for vhost in self._wanted(vhosts) for exchange in list(vhost.exchanges.values())]

    def _channels(self, vhosts):
        return [(channel, one) for one in self._node.clients.all() for channel in list(one.channels.values())
                if vhosts is None or one.vhost.name in vhosts]

    def _wanted(self, vhosts):
        return [
            one for one in list(self._node.broker.vhosts.values()) if vhosts is None or one.name in vhosts]

    def _gauge(self, name, text, value, **labels):
        return _family(Gauge, self._prefix + name, text, value, labels)

    def _counter(self, name, text, value, **labels):
        return _family(Counter, self._prefix + name, text, value, labels)


def _family(kind, name, text, value, labels):
    family = kind(name, text, labels=tuple(labels))
    family.add_metric(tuple(labels.values()), value)
    return family


def _added(one, other):
    return tuple(left + right for left, right in zip(one, other))
