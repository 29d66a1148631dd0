"""Mutants of limits, ends of queues and dead letters: as those in mutants, of which they are a part."""
from gomq_py.broker.queues.limits import QueueLimits
from gomq_py.broker.queues.queue import Queue
from gomq_py.broker.topology.vhost import VHost
from gomq_py.broker.transfer.dead_letters import DeadLetters
from gomq_py.broker.transfer.dead_letters import Death


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


def use_by_basic_get_does_not_count():
    """A queue expires though a client gets from it."""
    get, used = Queue.get, QueueLimits.used

    def unnoticed(queue, message, no_ack):
        QueueLimits.used = lambda limits: None
        try:
            return get(queue, message, no_ack)
        finally:
            QueueLimits.used = used

    Queue.get = unnoticed


def unused_queue_stays():
    """Whatever its x-expires."""
    QueueLimits._perhaps_idle = lambda limits: None


def condition_of_a_deletion_ignored():
    """A queue is deleted, empty and unused or not."""
    delete = VHost.delete_queue
    VHost.delete_queue = lambda vhost, name, if_unused=False, if_empty=False, owner=None: delete(
        vhost, name, owner=owner)


def dead_letters_go_round():
    """For ever, if nobody takes them."""
    Death.has_come_round = lambda death, queue: False


def dead_letter_that_was_rejected_counts_as_come_round():
    """It is dropped where it comes to a queue that it has died in."""
    Death.has_come_round = lambda death, queue: any(
        one.get("queue") == queue for one in death._deaths)
