"""Mutants of what AMQP clients ask for: as those in mutants, of which they are a part."""
from gomq_py.amqp.server.delivery import AMQPConsumer
from gomq_py.broker.queues.consumers import ConsumerRing
from gomq_py.broker.queues.queue import Queue


def no_ack_counts_as_to_be_acked():
    """What is sent to a consumer that does not acknowledge waits for its ack, and comes back."""
    take = Queue.take
    Queue.take = lambda queue, message, no_ack: take(queue, message, False)


def shared_limit_is_of_each_consumer():
    """basic.qos global=true counts what a consumer has in hand by itself."""
    capacity = AMQPConsumer.capacity

    def own(consumer):
        channel = consumer.channel
        shared, prefetch = channel.global_prefetch, consumer.prefetch
        channel.global_prefetch, consumer.prefetch = 0, min(shared or prefetch, prefetch or shared)
        try:
            return capacity(consumer)
        finally:
            channel.global_prefetch, consumer.prefetch = shared, prefetch

    AMQPConsumer.capacity = own


def exclusive_consumer_is_not_alone():
    """Others may consume, too."""
    Queue.check_exclusive = lambda queue, exclusive: None


def single_active_consumer_is_not_alone():
    """All consumers of the queue get messages."""
    init = ConsumerRing.__init__
    ConsumerRing.__init__ = lambda ring, single_active=False: init(ring)


def consumer_priority_ignored():
    """Consumers take turns, whatever their priorities."""
    init = AMQPConsumer.__init__

    def equal(consumer, *arguments, **options):
        init(consumer, *arguments, **{**options, "priority": 0})

    AMQPConsumer.__init__ = equal
