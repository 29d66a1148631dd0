"""Mutants: faults that the simulation must find, put back into the interpreted broker.

``python -m tests.simulation --mutant NAME 1-100`` stops at the first seed that finds it, and ``--mutant all``
tries each. test_seeds says of some how many seeds that may take, and what the finding says.
"""
import gevent

from gomq_py.amqp.server.delivery import AMQPConsumer
from gomq_py.amqp.server.tx import Commit, Transaction
from gomq_py.broker.exchanges.delayed import DelayedExchange
from gomq_py.broker.queues.limits import QueueLimits
from gomq_py.broker.queues.queue import Queue
from gomq_py.broker.topology.queue_factory import QueueFactory
from gomq_py.broker.transfer.dead_letters import DeadLetters
from gomq_py.broker.transfer.engine import Transfer
from gomq_py.client.backoff import Attempts
from gomq_py.content import properties
from gomq_py.links.target_writer import TargetWriter
from gomq_py.mqtt.model.qos2_records import QoS2Records
from gomq_py.mqtt.model.retained import Retained
from gomq_py.mqtt.model.sent import Sent
from gomq_py.mqtt.model.wills import Wills
from gomq_py.shovel.supervisor import Shovels
from gomq_py.storage.flush.durability import Durability
from gomq_py.storage.stores.priority_store import PriorityStore
from gomq_py.storage.stores.requeued import DeliveryCounts, LocationHeap
from gomq_py.storage.stores.stream_cursor import StreamCursor
from gomq_py.storage.stores.stream_store import StreamStore
from tests.simulation import (
    amqp_mutants, keeping_mutants, limit_mutants, mended_mutants, mqtt_mutants, storage_mutants,
    vhost_mutants)


def confirm_before_the_flush():
    """Clients are answered at once, and the flush comes later."""
    when_safe = Durability.when_safe

    def at_once(durability, callback, *arguments, **options):
        when_safe(durability, lambda error: None, *arguments, **options)
        callback(None)

    Durability.when_safe = at_once


def pubrec_before_its_record():
    """The identifier of what comes at QoS 2 is not on the disk when it is answered, or ever."""
    QoS2Records.begun = lambda records, *_: 0


def requeue_out_of_order():
    """Of the messages that came back, the last one goes first."""
    def newest(heap):
        return max(range(heap.count), key=heap._items.__getitem__)

    def first(heap):
        return heap._items[newest(heap)]

    def pop(heap):
        location = first(heap)
        heap.discard(location)
        return location

    LocationHeap.first, LocationHeap.pop = first, pop


def dead_letter_dropped_before_its_copy_is_safe():
    """The message in the source is gone, and its copy in the page cache alone."""
    init = Transfer.__init__

    def hasty(transfer, *arguments, **options):
        init(transfer, *arguments, **options)
        transfer._when_safe = lambda callback: callback(None)

    Transfer.__init__ = hasty


def dead_letter_that_expired_is_dropped():
    """It goes nowhere."""
    send = DeadLetters.send

    def drop(letters, queue, location, reason):
        if reason == "expired":
            queue.drop(location)
        else:
            send(letters, queue, location, reason)

    DeadLetters.send = drop


def delivery_count_lost():
    """Nobody remembers that a message has come back."""
    DeliveryCounts.put = lambda counts, location, failed, entry: 0


def delivery_limit_counts_one_more():
    """A message comes once more than it may."""
    returned = QueueLimits.returned

    def later(limits, location, how):
        more = limits.delivery_limit >= 0
        limits.delivery_limit += more
        try:
            return returned(limits, location, how)
        finally:
            limits.delivery_limit -= more

    QueueLimits.returned = later


def tx_commit_half_applied():
    """The last message of a transaction of several is not stored."""
    publish = Commit._publish

    def most(commit, clock):
        if len(commit._publications) > 1 and not commit._targets:
            del commit._publications[0]
        return publish(commit, clock)

    Commit._publish = most


def tx_rollback_keeps_what_was_published():
    """The next commit stores it."""
    clear = Transaction.clear

    def keep(transaction):
        publications = list(transaction._publications)
        clear(transaction)
        transaction._publications = publications

    Transaction.clear = keep


def consumer_cancelled_between_poll_and_turn():
    """It leaves its queue with the next callbacks."""
    stop = AMQPConsumer.stop
    AMQPConsumer.stop = lambda consumer: gevent.get_hub().loop.run_callback(stop, consumer) and None


def hold_never_released():
    """Of a queue whose messages come back by basic.recover, now and then."""
    release, count = Queue.resume_deliveries, iter(range(1, 1 << 40))

    def forget(queue):
        if next(count) % 5:
            release(queue)

    Queue.resume_deliveries = forget


def unacked_message_expires():
    """One that a client has in hand dies when its time is over."""
    take, settled = Queue.take, QueueLimits.enforce
    due, dead = {}, set()  # (queue, location) -> when; and of those that have died

    def note(queue, message, no_ack):
        take(queue, message, no_ack)
        if not no_ack and queue.limits is not None:
            due[queue, message.location] = queue.limits._due_ms(message)

    def expire(limits):
        settled(limits)
        for (queue, location), due_ms in list(due.items()):
            if queue is limits.queue and 0 < due_ms < queue.scheduler.now_ms:
                del due[queue, location]
                dead.add((queue, location))
                limits._let_go(location, "expired")

    def unless_dead(method):
        def call(queue, location, *how):
            due.pop((queue, location), None)
            if (queue, location) not in dead:
                method(queue, location, *how)

        return call

    Queue.take, QueueLimits.enforce = note, expire
    for name in ("settle", "requeue", "give_back", "reject"):
        setattr(Queue, name, unless_dead(getattr(Queue, name)))


def timer_that_dies():
    """The timer of the oldest message is never started again when it has fired."""
    QueueLimits._head_is_due = lambda limits: None


def priority_ignored():
    """A third of the messages does not go before those of lower priority."""
    raise_top, count = PriorityStore._raise_top, iter(range(1, 1 << 40))

    def stay(store, number):
        if next(count) % 3 or not store.ready_count:
            raise_top(store, number)

    PriorityStore._raise_top = stay


def delayed_message_comes_early():
    """At half of its time."""
    due_ms = properties.due_ms

    def early(p, at, end, arrived_ms):
        due = due_ms(p, at, end, arrived_ms)
        return due - (due - arrived_ms) // 2 if due > arrived_ms else due

    properties.due_ms = early


def delayed_message_outlives_its_exchange():
    """It goes on when its time has come, by an exchange of the same name."""
    QueueFactory.remove_delayed_store = lambda factory, exchange: None
    DelayedExchange._removed = lambda exchange, binding: None


def ack_lost():
    """One ack of fifty."""
    settle, count = Queue.ack, iter(range(1, 1 << 40))

    def forget(queue, location):
        if next(count) % 50:
            settle(queue, location)

    Queue.ack = forget


def http_answers_before_the_flush():
    """A change is answered when it is made."""
    from gomq_py.http import durability  # here, for it brings Flask

    durability.after_request = lambda response: response


def prefetch_counts_one_more():
    """A consumer has one more message in hand than it asked for."""
    init = AMQPConsumer.__init__

    def more(consumer, *arguments, **options):
        init(consumer, *arguments, **options)
        if consumer.prefetch:
            consumer.prefetch += 1

    AMQPConsumer.__init__ = more


def stream_position_ahead():
    """A consumer of a stream goes on behind a message that it has not settled."""
    put = StreamStore.put_offset
    StreamStore.put_offset = lambda store, tag, offset, now_ms: put(store, tag, offset + 1, now_ms)


def stream_position_lost():
    """Where a consumer goes on, only this run remembers."""
    StreamStore.put_offset = lambda store, tag, offset, now_ms: None


def stream_reader_skips():
    """One that begins at an offset begins behind it."""
    seek = StreamCursor.seek
    StreamCursor.seek = lambda cursor, offset: seek(cursor, min(offset + 1, cursor.store.next_offset))


def will_of_who_said_goodbye():
    """It is published all the same."""
    ended = Wills.connection_ended
    Wills.connection_ended = lambda wills, client_id, wants_will: ended(wills, client_id, True)


def will_lost():
    """It is forgotten when its client is lost."""
    ended = Wills.connection_ended
    Wills.connection_ended = lambda wills, client_id, wants_will: ended(wills, client_id, False)


def retained_message_stays():
    """What is retained is not replaced, every third time."""
    store, count = Retained.store, iter(range(1, 1 << 40))
    Retained.store = lambda retained, topic, message: (
        store(retained, topic, message) if next(count) % 3 else 1)


def receive_maximum_counts_one_more():
    """A subscriber has one more message under way than it asked for."""
    begin = Sent.begin
    Sent.begin = lambda sent, window: begin(sent, window + 1)


def purge_answered_before_the_flush():
    """Over HTTP: what is purged may come back after a power cut. A purge waits twice: as all changes do, and
    once more for the sake of streams.
    """
    from flask import request  # here, as they take long to import

    from gomq_py.http import durability
    from gomq_py.http.api import queues

    after_request = durability.after_request
    queues._await_purge = lambda queue: None
    durability.after_request = lambda response: (
        response if request.path.endswith("/contents") else after_request(response))


def link_settles_before_the_confirm():
    """At its source, what it has sent."""
    TargetWriter.when_safe = lambda writer, callback: callback(None)


def federation_link_forgets_what_it_had_under_way():
    """Each time it connects, the queue that waits for it upstream is made anew."""
    from gomq_py.federation.exchange_link import ExchangeLink  # here, for it brings a client

    declare = ExchangeLink._declare_queue

    def anew(link, connection, queue):
        with connection.channel() as channel:
            channel.queue_delete(queue)
        declare(link, connection, queue)

    ExchangeLink._declare_queue = anew


def link_gives_up():
    """It does not connect again after a failure."""
    failed = Attempts.failed
    Attempts.failed = lambda attempts: failed(attempts) and None


def shovel_outlives_its_parameter():
    """One that was deleted goes on."""
    Shovels.cleared = lambda shovels, vhost, name: None


MUTANTS = {
    name: mutant
    for place in (
        globals(), *map(vars, (
            amqp_mutants, keeping_mutants, limit_mutants, storage_mutants, mended_mutants, mqtt_mutants,
            vhost_mutants)))
    for name, mutant in place.items()
    if getattr(mutant, "__module__", None) == place["__name__"] and not name.startswith("_")
}
# The parts that a run with a mutant consists of, if few seeds would have all that its fault takes.
_OF_FOLLOWERS = "follower", "lose_machine", "pauses"
ONLY = {mutant.__name__: frozenset(parts) for mutant, parts in {
    confirm_before_the_flush: ("q0", "cut_power", "slow_flush"),
    pubrec_before_its_record: ("t0", "kill"),
    requeue_out_of_order: ("q0", "give_back"),
    tx_commit_half_applied: ("q0", "tx"),
    tx_rollback_keeps_what_was_published: ("q0", "tx"),
    keeping_mutants.budget_not_given_back_on_reset: ("q0",),
    keeping_mutants.client_served_without_end: ("q0",),
    keeping_mutants.mapping_leaked_per_segment: ("q0",),
    storage_mutants.log_not_flushed: ("q0", "t0", "cut_power"),
    mended_mutants.refusal_told_behind_its_batch: ("t0", "refuse_files_and_kill"),
    mended_mutants.qos_2_sent_before_followers_know: ("t0", *_OF_FOLLOWERS),
    mended_mutants.promise_forgets_what_was_told_while_a_flush_ran: ("t0", "follower", "lose_machine"),
    mended_mutants.qos_2_identifier_told_behind_its_message: ("t0", *_OF_FOLLOWERS),
    storage_mutants.part_of_a_write_counts_as_all: ("q0", "take_little"),
    storage_mutants.message_told_behind_the_question: ("q0", *_OF_FOLLOWERS),
    storage_mutants.definitions_told_behind_the_question: ("http0", *_OF_FOLLOWERS),
    vhost_mutants.vhost_takes_one_more: ("v0",),
    vhost_mutants.right_to_read_withdrawn_in_vain: ("v0", "v0-withdrawals"),
    amqp_mutants.messages_of_a_group_are_free: ("q0", "q0-groups"),
    amqp_mutants.limit_of_a_group_ignored: ("q0", "q0-groups"),
    amqp_mutants.schedule_acknowledged_before_its_next_time_is_safe: ("schedules", "cut_power"),
    amqp_mutants.schedule_leaves_out_what_came_meanwhile: ("schedules", "kill"),
    amqp_mutants.schedule_sent_twice: ("schedules",),
}.items()}
