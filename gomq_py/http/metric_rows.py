"""Tables of counters of queues, channels and connections: RabbitMQ's names, and functions that read the
counters.

A row of gauges of queues has four items: name, help, a function that reads a queue, a function that reads the
sums over all queues (a namespace of sums.QUEUE_SUMS). Other rows have one function.
"""

# rows of gauges, by RabbitMQ's family

COARSE = (
    ("messages_ready", "Messages ready to be delivered", lambda queue: queue.ready_count,
     lambda sums: sums.ready),
    ("messages_unacked", "Messages delivered but not yet acknowledged", lambda queue: queue.unacked_count,
     lambda sums: sums.unacked),
    ("messages", "Sum of ready and unacknowledged messages",
     lambda queue: queue.ready_count + queue.unacked_count, lambda sums: sums.ready + sums.unacked),
)
CONSUMERS = (
    ("consumers", "Consumers of the queue", lambda queue: queue.consumer_count, lambda sums: sums.consumers),
)
DETAILS = (
    ("messages_bytes", "Bytes of the bodies of ready and unacknowledged messages",
     lambda queue: _octets(queue), lambda sums: sums.ready_octets + sums.unacked_octets),
    ("messages_ready_bytes", "Bytes of the bodies of ready messages",
     lambda queue: queue.store.ready_bytes if queue.store else 0, lambda sums: sums.ready_octets),
    ("messages_unacked_bytes", "Bytes of the bodies of unacknowledged messages",
     lambda queue: queue.store.unacked_bytes if queue.store else 0, lambda sums: sums.unacked_octets),
    ("messages_persistent", "Messages that are on disk to stay: those of durable queues",
     lambda queue: queue.ready_count + queue.unacked_count if queue.durable else 0,
     lambda sums: sums.persistent),
    ("messages_persistent_bytes", "Bytes of the bodies of these",
     lambda queue: _octets(queue) if queue.durable else 0, lambda sums: sums.persistent_octets),
)
# RabbitMQ reports a share of time here; this is whether there is a consumer at all, as in the API.
CAPACITY = (
    ("consumer_capacity", "1 where there are consumers", lambda queue: int(queue.consumer_count > 0), None),
    ("consumer_utilisation", "As consumer_capacity, under its older name",
     lambda queue: int(queue.consumer_count > 0), None),
)

# rows of counters: the same function reads a queue and the sums

DELIVERY = (
    ("get_ack", "Messages taken with basic.get, to be acknowledged", lambda one: one.got - one.auto_got),
    ("get", "Messages taken with basic.get, acknowledged by that", lambda one: one.auto_got),
    ("messages_delivered_ack", "Messages delivered to consumers that acknowledge",
     lambda one: one.delivered - one.got - one.auto_delivered + one.auto_got),
    ("messages_delivered", "Messages delivered to consumers that do not acknowledge",
     lambda one: one.auto_delivered - one.auto_got),
    ("messages_redelivered", "Messages that came back", lambda one: one.requeued),
    ("messages_acked", "Messages acknowledged by consumers", lambda one: one.acked),
    ("get_empty", "Times that basic.get found no message", lambda one: one.got_none),
)
PUBLISHED = "Messages published to queues"

# rows of RabbitMQ's global counters: per protocol and type of queue, and per protocol

GLOBAL_QUEUES = (
    ("acknowledged", "Messages acknowledged by consumers", lambda one: one.acked),
    ("delivered", "Messages delivered to consumers, by basic.get too", lambda one: one.delivered),
    ("delivered_consume_auto_ack", "Messages delivered to consumers that do not acknowledge",
     lambda one: one.auto_delivered - one.auto_got),
    ("delivered_consume_manual_ack", "Messages delivered to consumers that acknowledge",
     lambda one: one.delivered - one.got - one.auto_delivered + one.auto_got),
    ("delivered_get_auto_ack", "Messages taken with basic.get, acknowledged by that",
     lambda one: one.auto_got),
    ("delivered_get_manual_ack", "Messages taken with basic.get, to be acknowledged",
     lambda one: one.got - one.auto_got),
    ("get_empty", "Times that basic.get found no message", lambda one: one.got_none),
    ("redelivered", "Messages that came back", lambda one: one.requeued),
)
# Reasons of dead letters, with their help text.
DEAD_LETTERS = (
    ("expired", "their time was over"), ("rejected", "a consumer did not want them"),
    ("maxlen", "there were too many"), ("delivery_limit", "they came back too often"),
)

UNROUTABLE_RETURNED = "Messages that no queue took and that went back"
UNROUTABLE_DROPPED = "Messages that no queue took and nobody wanted back"
EXCHANGE_COUNTERS = (
    ("published", "Messages published to the exchange", lambda state: state.publish_in),
    ("unroutable_returned", UNROUTABLE_RETURNED, lambda state: state.returned),
    ("unroutable_dropped", UNROUTABLE_DROPPED, lambda state: state.unroutable - state.returned),
)
CHANNEL_GAUGES = (
    ("channel_consumers", "Consumers on the channel", lambda channel: len(channel.consumers)),
    ("channel_messages_unacked", "Delivered but not yet acknowledged messages",
     lambda channel: channel.unacked.count),
    ("channel_messages_unconfirmed", "Published messages whose confirm is due",
     lambda channel: unconfirmed(channel)),
    ("consumer_prefetch", "Limit of unacknowledged messages for each consumer",
     lambda channel: channel.prefetch_count),
    ("channel_prefetch", "Limit of unacknowledged messages for all consumers of the channel",
     lambda channel: channel.global_prefetch),
)
CONNECTION_COUNTERS = (
    ("connection_incoming_bytes", "Bytes received on a connection",
     lambda one: one.stream.received_octets if one.stream is not None else 0),
    ("connection_outgoing_bytes", "Bytes sent on a connection",
     lambda one: one.output.sent_octets if one.output is not None else 0),
)
CHURN = (
    ("connections_opened", "Connections opened", "connection_created"),
    ("connections_closed", "Connections closed", "connection_closed"),
    ("channels_opened", "Channels opened", "channel_created"),
    ("channels_closed", "Channels closed", "channel_closed"),
    ("queues_declared", "Queues declared", "queue_declared"),
    ("queues_created", "Queues created", "queue_created"),
    ("queues_deleted", "Queues deleted", "queue_deleted"),
)


def unconfirmed(channel):
    """Return the number of messages published on a channel and not confirmed yet."""
    return channel.published - channel.confirmed_count if channel.confirming else 0


def _octets(queue):
    return queue.store.ready_bytes + queue.store.unacked_bytes if queue.store is not None else 0
