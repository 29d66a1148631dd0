"""Mutants of queues with limits: as those in mutants, of which they are a part."""
from gomq_py.broker.queues.limits import QueueLimits
from gomq_py.broker.queues.queue import Queue
from gomq_py.broker.transfer.dead_letters import DeadLetters


def limit_of_octets_lets_more_in():
    """A queue holds more octets than it may."""
    _scale_octets(2)


def limit_of_octets_drops_more():
    """A queue drops, or refuses, what it has room for."""
    _scale_octets(0.5)


def _scale_octets(factor):
    configure = QueueLimits.configure

    def scaled(limits, settings):
        configure(limits, settings)
        if limits.max_bytes > 0:
            limits.max_bytes = int(limits.max_bytes * factor)

    QueueLimits.configure = scaled


def refused_message_is_no_dead_letter():
    """With reject-publish-dlx."""
    DeadLetters.send_refused = lambda letters, queue, message, reason: None


def message_without_time_waits_for_basic_get():
    """One with a TTL of 0 is there until the next look at the head."""
    QueueLimits.asked = lambda limits: None


def transient_message_is_lost():
    """One of twenty, without a kill."""
    publish, count = Queue.publish, iter(range(1, 1 << 40))

    def forget(queue, message):
        if not message.persistent and next(count) % 20 == 0:
            return 1
        return publish(queue, message)

    Queue.publish = forget
