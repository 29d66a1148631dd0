"""Mutants of what AMQP clients ask for: as those in mutants, of which they are a part."""
from gomq_py.amqp.server import connection
from gomq_py.amqp.server.delivery import AMQPConsumer
from gomq_py.broker.exchanges.schedule import Schedule
from gomq_py.broker.queues.consumers import ConsumerRing
from gomq_py.broker.queues.queue import Queue
from gomq_py.broker.routing.routing import Routing
from gomq_py.broker.topology.vhost import VHost
from gomq_py.broker.transfer.schedules import Schedules
from gomq_py.broker.verbs import publishing
from gomq_py.storage.stores.group_store import GroupStore


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


def messages_of_a_group_are_free():
    """The next message of a group may go to others while one of it is delivered."""
    GroupStore._key_of = lambda store, message: None


def schedule_comes_early():
    """Half of a second before its time."""
    Schedule.due_ms = lambda schedule, time_ms: time_ms - 500


def schedule_sent_twice():
    """Every fifth time of one is."""
    dropped, count = Schedules.dropped, iter(range(1, 1 << 40))

    def again(schedules, location):
        if next(count) % 5:
            dropped(schedules, location)
        else:
            schedules.put_back(location, schedules._queue.timers.now_ms())

    Schedules.dropped = again


def schedule_leaves_out_what_came_meanwhile():
    """Whatever its rule is."""
    Schedules._next_ms = lambda schedules, entry, schedule, now_ms: schedule.next_ms(now_ms)


def schedule_acknowledged_before_its_next_time_is_safe():
    """A power cut may find neither."""
    Schedules._acknowledge = lambda schedules, entry, location: schedules._safe(entry, location, None)


def schedule_outlives_its_deletion():
    """It is sent once more."""
    Schedules.delete = lambda schedules, name: True


def limit_of_a_group_ignored():
    """A consumer gets as many messages of a group as it has room for."""
    GroupStore._may_go = lambda store, group: group.resting == 0


def unbind_answered_and_still_routed():
    """The route that was found before is taken, every third time that one has changed."""
    changed, count = Routing.routes_changed, iter(range(1, 1 << 40))

    def forget(routing, exchange):
        if next(count) % 3:
            changed(routing, exchange)

    Routing.routes_changed = forget


def alternate_exchange_forgotten():
    """What no binding leads anywhere is dropped."""
    Routing.set_alternate = lambda routing, exchange, from_policy: None


def user_id_is_not_looked_at():
    """A message may have the name of another user."""
    publishing.check_user_id = lambda user_id, user: None


def exclusive_queue_outlives_its_connection():
    """Its name stays locked, and its messages stay."""
    VHost.release_owner = lambda vhost, owner: 0


def purge_takes_what_is_unacked():
    """A message that comes back to a queue that was purged is gone."""
    purge, ready_again, purged = Queue.purge, Queue.ready_again, set()

    def note(queue):
        purged.add(queue.name)
        return purge(queue)

    Queue.purge = note
    Queue.ready_again = lambda queue, location: (
        queue.ack(location) if queue.name in purged else ready_again(queue, location))


def consumers_of_a_deleted_queue_are_not_told():
    """They wait for ever."""
    AMQPConsumer.cancel = lambda consumer, reason: None


def silent_client_stays():
    """However long it has sent nothing."""
    connection.SILENT_CHECKS = 1 << 40


def silence_of_two_intervals_ends_a_connection():
    """A client whose heartbeats come every two intervals is cut off."""
    connection.SILENT_CHECKS = 7


def heartbeats_leave_late():
    """A client that reads with a timeout of one interval, as Java's on Netty, gives up."""
    connection.HEARTBEAT_CHECKS = 6
