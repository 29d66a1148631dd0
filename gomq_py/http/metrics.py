"""Metrics: the broker's counters in Prometheus' text form, under RabbitMQ's names, so that its dashboards work.

Families are prometheus-client's and so is their text; they are rendered a slice at a time, yielding in between, so that ten thousand queues hold up
no message. Reads what the model counts, keeps nothing.
"""
import os
import resource
from itertools import islice

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.exposition import generate_latest

import gomq_py
from gomq_py.broker.alarms import DISK, MEMORY
from gomq_py.http.turns import give_way
from gomq_py.observability import resources

PREFIX = "rabbitmq_"
# Samples rendered between two turns of the loop: some 5 us each.
SLICE = 200
PROTOCOL = "amqp091"

# (name, help, what it is of a queue), gauges
QUEUE_GAUGES = (
    ("messages_ready", "Messages ready to be delivered", lambda queue: queue.ready_count),
    ("messages_unacked", "Messages delivered but not yet acknowledged", lambda queue: queue.unacked_count),
    ("messages", "Sum of ready and unacknowledged messages", lambda queue: queue.ready_count + queue.unacked_count),
    ("messages_ready_bytes", "Octets of the bodies of ready messages", lambda queue: queue.store.ready_bytes if queue.store else 0),
    ("messages_unacked_bytes", "Octets of the bodies of unacknowledged messages", lambda queue: queue.store.unacked_bytes if queue.store else 0),
    ("consumers", "Consumers of the queue", lambda queue: len(queue.ring.consumers) if queue.ring is not None else 0),
)
QUEUE_COUNTERS = (
    ("messages_published", "Messages published to the queue", lambda queue: queue.published),
    ("messages_delivered", "Messages delivered to consumers", lambda queue: queue.delivered),
    ("messages_acked", "Messages acknowledged", lambda queue: queue.acked),
    ("messages_redelivered", "Messages that came back", lambda queue: queue.requeued),
    ("get", "Messages taken with basic.get", lambda queue: queue.got),
)
CHANNEL_GAUGES = (
    ("channel_consumers", "Consumers on the channel", lambda channel: len(channel.consumers)),
    ("channel_messages_unacked", "Delivered but not yet acknowledged messages", lambda channel: channel.unacked.count),
    ("channel_prefetch", "Limit of unacknowledged messages for all consumers of the channel", lambda channel: channel.global_prefetch),
)


class Families:
    """Metric families over a node's present state; each method yields families, those that are per object lazily."""

    def __init__(self, node, prefix=PREFIX):
        self._node = node
        self._prefix = prefix

    def overview(self):
        """Totals over everything."""
        yield from self._identity()
        yield from self._process()
        yield from self._alarms()
        connections = self._node.connections()
        queues = list(self._queues())
        yield self._gauge("connections", "Connections currently open", len(connections))
        yield self._gauge("channels", "Channels currently open", sum(len(one.channels) for one in connections))
        yield self._gauge("queues", "Queues available", len(queues))
        yield self._gauge("consumers", "Consumers currently connected", sum(QUEUE_GAUGES[-1][2](queue) for queue in queues))
        for name, text, value in QUEUE_GAUGES[:-1]:
            yield self._gauge(f"queue_{name}", text, sum(map(value, queues)))
        yield from self._global(queues)

    def per_queue(self, vhosts=None, prefix="queue_"):
        """Every queue's figures, labelled vhost and queue; ``vhosts`` names those wanted, None all."""
        queues = list(self._queues(vhosts))
        for kind, rows in ((GaugeMetricFamily, QUEUE_GAUGES), (CounterMetricFamily, QUEUE_COUNTERS)):
            for name, text, value in rows:
                yield kind(f"{self._prefix}{prefix}{name}", text, labels=("vhost", "queue")), (
                    ((queue.vhost, queue.name), value(queue)) for queue in queues)

    def per_exchange(self, vhosts=None, prefix="exchange_"):
        """Every exchange's messages in and out."""
        exchanges = [
            exchange for vhost in list(self._node.broker.vhosts.values()) if vhosts is None or vhost.name in vhosts
            for exchange in list(vhost.exchanges.values())
        ]
        for name, text in (("publish_in", "Messages published to the exchange"), ("publish_out", "Copies routed to queues")):
            yield CounterMetricFamily(f"{self._prefix}{prefix}messages_{name}", text, labels=("vhost", "exchange")), (
                ((exchange.vhost, exchange.name), getattr(exchange.state, name)) for exchange in exchanges)

    def per_connection(self):
        """Every connection's octets and channels."""
        connections = self._node.connections()
        rows = (
            (CounterMetricFamily, "connection_incoming_bytes", "Octets received on a connection", lambda one: one.stream.received_octets),
            (CounterMetricFamily, "connection_outgoing_bytes", "Octets sent on a connection", lambda one: one.output.sent_octets),
            (GaugeMetricFamily, "connection_channels", "Channels on a connection", lambda one: len(one.channels)),
        )
        for kind, name, text, value in rows:
            yield kind(self._prefix + name, text, labels=("connection",)), (((one.name,), value(one)) for one in connections)

    def per_channel(self):
        """Every channel's consumers and unacknowledged messages."""
        channels = [(channel, one) for one in self._node.connections() for channel in list(one.channels.values())]
        for name, text, value in CHANNEL_GAUGES:
            yield GaugeMetricFamily(self._prefix + name, text, labels=("connection", "channel", "vhost")), (
                ((one.name, str(channel.id), one.vhost.name), value(channel)) for channel, one in channels)

    def _queues(self, vhosts=None):
        for vhost in list(self._node.broker.vhosts.values()):
            if vhosts is None or vhost.name in vhosts:
                yield from list(vhost.queues.values())

    def _identity(self):
        node = self._node
        yield InfoMetricFamily(f"{self._prefix}identity", "Node and cluster identity", value={
            "rabbitmq_node": node.name, "rabbitmq_cluster": node.cluster_name, "rabbitmq_cluster_permanent_id": node.cluster_name})
        yield InfoMetricFamily(f"{self._prefix}build", "Versions", value={"product_name": "gomq-py", "product_version": gomq_py.__version__})

    def _process(self):
        watch = self._node.broker.resource_watch
        usage = resource.getrusage(resource.RUSAGE_SELF)
        yield self._gauge("process_open_fds", "Open file descriptors", len(os.listdir("/proc/self/fd")))
        yield self._gauge("process_max_fds", "Open file descriptors limit", resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        yield self._gauge("process_resident_memory_bytes", "Memory used in octets", resources.resident_memory())
        yield self._gauge("resident_memory_limit_bytes", "Memory high watermark in octets", watch.memory_limit)
        yield self._gauge("disk_space_available_bytes", "Disk space available in octets", watch.free_disk)
        yield self._gauge("disk_space_available_limit_bytes", "Free disk space low watermark in octets", watch.disk_limit)
        yield self._gauge("uptime", "Node uptime in seconds", self._node.uptime_s())
        yield self._counter("cpu_user_time", "Seconds of CPU in the broker's own code", usage.ru_utime)
        yield self._counter("cpu_system_time", "Seconds of CPU in the kernel for the broker", usage.ru_stime)

    def _alarms(self):
        alarms = self._node.broker.alarms
        yield self._gauge("alarms_memory_used_watermark", "1 while publishers are held for lack of memory", int(alarms.is_on(MEMORY)))
        yield self._gauge("alarms_free_disk_space_watermark", "1 while publishers are held for lack of disk space", int(alarms.is_on(DISK)))

    def _global(self, queues):
        states = [exchange.state for vhost in self._node.broker.vhosts.values() for exchange in vhost.exchanges.values()]
        rows = (
            ("received", "Messages received from publishers", sum(state.publish_in for state in states)),
            ("routed", "Copies routed to queues", sum(state.publish_out for state in states)),
            ("unroutable_dropped", "Messages that no queue took", sum(state.unroutable for state in states)),
            ("delivered", "Messages delivered to consumers", sum(queue.delivered for queue in queues)),
            ("redelivered", "Messages that came back", sum(queue.requeued for queue in queues)),
            ("acknowledged", "Messages acknowledged by consumers", sum(queue.acked for queue in queues)),
        )
        for name, text, value in rows:
            family = CounterMetricFamily(f"{self._prefix}global_messages_{name}", text, labels=("protocol",))
            family.add_metric((PROTOCOL,), value)
            yield family

    def _gauge(self, name, text, value):
        return GaugeMetricFamily(self._prefix + name, text, value=value)

    def _counter(self, name, text, value):
        return CounterMetricFamily(self._prefix + name, text, value=value)


class _OneFamily:
    """What prometheus-client renders: a registry of one family."""

    def __init__(self, family):
        self._family = family

    def collect(self):
        return (self._family,)


def rendered(families):
    """The text of families; a pair of a family and its (labels, value) samples is rendered in slices. May switch."""
    parts = []
    for family in families:
        if not isinstance(family, tuple):
            parts.append(generate_latest(_OneFamily(family)))
            continue
        empty, samples = family
        parts.append(generate_latest(_OneFamily(empty)))
        head = len(parts[-1])
        while some := list(islice(samples, SLICE)):
            empty.samples.clear()
            for labels, value in some:
                empty.add_metric(labels, value)
            parts.append(generate_latest(_OneFamily(empty))[head:])
            give_way()
    return b"".join(parts)
