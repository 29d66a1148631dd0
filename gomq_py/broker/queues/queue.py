"""Queue: keeps messages in order of arrival, and delivers them to consumers.

Exchanges publish into a queue, protocol servers consume from it, and storage.stores.message_store keeps its
messages. A change that may allow a delivery schedules the queue for one *turn*, a delivery round at the end
of the current socket read (docs/decisions/0003). Never switches greenlets, never waits for a socket or a
disk.
"""
from gomq_py.broker.features.queue_type import QUORUM_PRIORITY, SINGLE_ACTIVE_CONSUMER, queue_type_of
from gomq_py.broker.features.retry import LOST
from gomq_py.broker.policies.policy import UNDER_NONE
from gomq_py.broker.queues import consumers as _consumers
from gomq_py.broker.queues.cancelling import cancel_all
from gomq_py.broker.queues.opened import tell_opened
from gomq_py.broker.queues.set_aside import SetAside, described
from gomq_py.broker.routing import route as routes
from gomq_py.content import forms
from gomq_py.errors import AccessRefused, Malformed
from gomq_py.observability.log import logger
from gomq_py.storage.errors import StoreError, StoreFull, StoreLater
from gomq_py.storage.message import Message
from gomq_py.storage.stores.message_store import MessageStore

LOG = logger("queue")

# Octets one queue writes in a turn before others get theirs: two full output buffers.
TURN_OCTETS = 256 * 1024
# Time between two log lines about messages that a full disk refuses.
COMPLAIN_MS = 10_000
# Unreadable messages that one get sets aside before it returns no message: some 2 ms.
UNREADABLE_MAX = 200


class Queue(routes.Destination):
    """A FIFO queue in the vhost named ``vhost``. Subclasses order messages in other ways.

        type                    ``classic``, ``quorum`` or ``stream``
        limits                  the QueueGuard that limits or expires messages, or None
        on_unused(queue)        called when the last consumer has gone
        on_expiring(queue)      called before a message with an expiry is stored in a queue
                                without limits; may set ``limits``
        on_turn(queue)          if set, called at the end of each turn
        consumer_timeout_ms     how long a delivery may stay unacked, 0: no limit; channels apply it
        dead_letter_count       number of the queue's dead letters not moved yet
        aside                   the SetAside, which counts messages that cannot be handled, or None
        in_force                the policies that apply to the queue (an InForce)
        is_state                True for an MQTT session's queue, which is not exported as a definition
    """

    __slots__ = (
        "vhost", "arguments", "type", "auto_delete", "closed", "paused", "exclusive_owner", "on_unused",
        "on_expiring", "limits", "store", "scheduler", "ring",
        "published", "delivered", "auto_delivered", "acked", "requeued", "got", "auto_got", "got_none",
        "holds", "complained_ms", "consumer_timeout_ms", "behind", "turning", "dead_letter_count", "aside",
        "in_force", "is_state", "on_turn", "_waiting_for_files", "__weakref__",
    )

    def __init__(
        self, name, vhost, store, scheduler, durable=True, exclusive_owner=None, auto_delete=False,
        arguments=None,
    ):
        routes.Destination.__init__(self, name, durable)
        self.vhost = vhost
        self.store = store
        self.scheduler = scheduler
        self.exclusive_owner = exclusive_owner
        self.auto_delete = auto_delete
        self.arguments = arguments or {}
        self.type = queue_type_of(self.arguments)
        self.closed = self.paused = self.behind = self.turning = self.is_state = False
        self.on_unused = self.on_expiring = self.limits = self.ring = self.aside = None
        self.published = self.delivered = self.acked = self.requeued = self.got = 0
        self.holds = self.complained_ms = 0
        self.auto_delivered = self.auto_got = self.got_none = 0
        self.consumer_timeout_ms = self.dead_letter_count = 0
        self.in_force = UNDER_NONE
        self.on_turn = self._waiting_for_files = None
        if store is not None:
            store.listener = self

    # publishing

    def publish(self, message):
        """Store or deliver the message. Returns 1 (done), 0 (refused) or LATER (see Destination.publish)."""
        if self.closed:
            self.unable = True
            return 0
        if self.limits is not None:
            admitted = self.limits.admits(message)
            if admitted != _consumers.ADMITTED:
                self.unable = bool(self.closed)
                return 1 if admitted == _consumers.DUPLICATE else 0
        elif message.expires_at_ms:
            if self.on_expiring is not None:
                self.on_expiring(self)
        elif 2 * message.body_length >= TURN_OCTETS and not self.store.ready_count and self.ring is not None:
            answer = self._hand_over(message)
            if answer:
                return answer
        try:
            self.store.append(message)
            if self.limits is not None:
                self.limits.appended()
        except StoreLater as error:
            message.lacking = error.wait
            return routes.LATER
        except StoreError as error:
            self._refuse(error)
            return 0
        self.published += 1
        if not self.touched:
            self.scheduler.touch(self)
        return 1

    def _hand_over(self, message):
        """Write a large message directly to the next consumer, without storing it. Returns 1 (written), LATER
        (the consumer may be able to take it soon) or 0 (store it).
        """
        # To store a large message costs more than all else. Only if that consumer needs no acks and no other
        # message is ready.
        if self.paused or self.holds or self.turning or self.scheduler.is_shut or self._waiting_for_files:
            return 0
        consumer = self.ring.show_next()
        if consumer is None:
            if self.ring.handed is None or not message.may_wait:
                return 0
            wait = self.ring.handed.wait_for(message, self.scheduler.now_ms)
            if wait is None:
                return 0
            message.lacking = wait
            return routes.LATER
        if not consumer.hand_over(message):
            return 0
        self.published += 1
        self.delivered += 1
        self.auto_delivered += 1
        if self.ring is not None and consumer.queue is self:  # otherwise its socket broke
            self.ring.handed = consumer
            self.ring.pass_on(consumer)
        if self.on_turn is not None:
            self.wake()
        return 1

    def next_store(self):
        return self.store if self.durable else None

    def outlives_kill(self):
        return not self.durable or self.store.outlives_kill()

    # consuming: the three steps of a delivery, used by consumers and get()

    def peek(self, message):
        """Fill ``message`` with the next deliverable message, without taking it. Returns False if no message
        is ready, or if the files of the next message are still being opened. The message is valid until the
        next call on this queue.
        """
        if self.closed:
            return False
        return self.store.peek(message) if self.limits is None else self.limits.peek(message)

    def turn_to(self, taker):
        """Choose the client for which the next peek() or get() shows a message. ``taker`` is any object
        that stays the same for this client. Only queues with message groups need this method.
        """

    # the head, for limits and dead letters; kinds with several stores override these methods too

    def head(self, message):
        """Fill ``message`` with the oldest ready message, even if it has expired or waits for its back-off.
        Returns False if no message is ready, or if the files of the next message are still being opened.
        """
        return self.store.peek(message)

    def shift_head(self):
        """Move the message shown by head() or peek() to the unacked ones, without a delivery."""
        self.store.shift()

    def may_go(self, message):
        """True if the oldest ready message may be expired or dropped. Subclasses may protect messages."""
        return True

    def spare(self, message):
        """Put aside a message that may_go() protects, until its client reconnects. Returns True if done."""
        return False

    def counted_bytes(self, message):
        """Return the bytes that the size limit counts: of ready messages and, if not None, ``message``."""
        return self.store.ready_bytes + (0 if message is None else message.body_length)

    def read(self, location, message):
        """Fill ``message`` with the unacked message at ``location``. Returns False if it is missing."""
        return not self.closed and self.store.read(location, message)

    def body_file(self, message):
        """Return a Reading of the file with a peeked message's body, or None (see Store.body_file)."""
        return self.store.body_file(message)

    def take(self, message, no_ack):
        """Take the message that the last peek() has shown. With ``no_ack`` it is removed. Otherwise it stays
        unacked until ack(), requeue() or reject() with its location.
        """
        self.store.shift()
        self.delivered += 1
        if no_ack:
            self.auto_delivered += 1
            self.store.delete(message.location)

    def get(self, message, no_ack):
        """Fill ``message`` with the next message and take it (basic.get). Returns False if no message is
        ready. Also returns False while the queue ``is_opening``: call again from a ``when_opened`` callback.
        The message is valid until the next call on this queue; with ``no_ack``, without limit.
        """
        if self.limits is not None:
            self.limits.used()
        try:
            if self.limits is not None and self.waiting():
                self.limits.asked()
            if not self._show_readable(message):
                self.got_none += not self.is_opening()
                return False
            if no_ack:
                # The segment of the last message may be freed with it.
                message.own()
            self.take(message, no_ack)
        except StoreError as error:
            self.fail(error)
            return False
        self.got += 1
        if no_ack:
            self.auto_got += 1
        if not self.touched:
            self.scheduler.touch(self)
        return True

    def _show_readable(self, message):
        """Fill ``message`` with the next message whose properties can be read as basic properties. Unreadable
        messages before that message are set aside. Returns False if no message is shown.
        """
        for _ in range(UNREADABLE_MAX):
            if self.scheduler.is_shut or self.paused or self.holds or not self.peek(message):
                return False
            if message.kind == forms.BASIC:
                return True
            try:
                message.get_properties()
                return True
            except Malformed as error:
                self.shift_head()
                self.set_aside(message.location, error, "getting it")
        return False

    def count_ready(self):
        """Drop expired messages from the head, and count the ready ones. Invalidates a peeked message."""
        if self.limits is not None and self.ready_count:
            try:
                self.limits.asked()
                self.peek(Message())
            except StoreError as error:
                self.fail(error)
        return self.ready_count

    def is_opening(self):
        """True while no message can be shown: a thread opens the next message's files, or the scheduler is
        shut. A delivery round follows.
        """
        return not self.closed and (self.scheduler.is_shut or self.store.is_waiting())

    def when_opened(self, callback):
        """Call ``callback()`` once, in a delivery round, when the files are open or the queue is closed."""
        self._waiting_for_files = [*(self._waiting_for_files or ()), callback]
        self.wake()

    def segment_opened(self, store):
        """Called when the store has opened the files that it waited for: schedule a delivery round."""
        self.wake()

    def ack(self, location):
        """Remove the unacked message at ``location``, because it was acknowledged."""
        if self.drop(location):
            self.acked += 1

    def requeue(self, location):
        """Put an unacked message back to its position, marked redelivered. Counts as retry.LOST."""
        if self.limits is None or not self._waits(location, LOST):
            self.ready_again(location)

    def give_back(self, location, how):
        """Requeue a message that a client returned. ``how``: RETURNED (nack, recover) or FAILED (reject)."""
        if self.limits is None:
            self.requeue(location)
        elif not self._waits(location, how):
            self.ready_again(location)

    def _waits(self, location, how):
        try:
            return not self.closed and self.limits.returned(location, how)
        except StoreError as error:
            self.fail(error)
            return True

    def ready_again(self, location):
        if self.closed:
            return
        try:
            self.store.requeue(location)
            self.requeued += 1
            if self.limits is not None:
                self.limits.came_back()
        except StoreError as error:
            self.fail(error)
            return
        if not self.touched:
            self.scheduler.touch(self)

    def reject(self, location, requeue):
        """Put an unacked message back (``requeue``), or else dead-letter or drop it (basic.reject)."""
        if requeue:
            self.requeue(location)
        elif self.limits is None or self.closed:
            self.ack(location)
        else:
            self.limits.rejected(location)

    def drop(self, location):
        """Remove the unacked message at ``location``, for any reason. Returns False if the queue is closed,
        or is now closed by a fault of its store.
        """
        if self.closed:
            return False
        try:
            self.store.delete(location)
        except StoreError as error:
            self.fail(error)
            return False
        if not self.touched:
            self.scheduler.touch(self)
        return True

    def set_aside(self, location, error, doing):
        """Keep an unacked message that cannot be handled, until the queue is next opened. ``error`` was
        raised while ``doing``, a text such as "moving".
        """
        if self.aside is None:
            self.aside = SetAside(f"queue '{self.name}' in vhost '{self.vhost}'")
        self.aside.add(location, error, doing)

    # consumers

    def add_consumer(self, consumer):
        """Attach ``consumer``, which gets its first messages in the next delivery round. Raises AccessRefused
        if exclusive use forbids another consumer.
        """
        self.check_exclusive(consumer.exclusive)
        if self.ring is None:
            self.ring = _consumers.ConsumerRing(self.single_active)
        consumer.queue = self
        self.ring.add(consumer)
        self.wake()

    def check_exclusive(self, exclusive):
        """Raise AccessRefused if a consumer is exclusive, or the new one may not be ``exclusive`` here."""
        consumers = () if self.ring is None else self.ring.consumers
        if (consumers and (exclusive or consumers[0].exclusive)) or (exclusive and self.single_active):
            raise AccessRefused(f"queue '{self.name}' in vhost '{self.vhost}' in exclusive use")

    def check_taking(self):
        """Raise AccessRefused if clients may not take messages from this kind of queue."""

    def check_binding_from(self, source):
        """Raise AccessRefused if clients may not bind this kind of queue to the exchange ``source``."""

    def remove_consumer(self, consumer):
        """Detach ``consumer``, whose messages stay unacked. Calls ``on_unused`` if no consumer is left."""
        if self.ring is None or not self.ring.remove(consumer):
            consumer.queue = None  # the queue may be gone, and the consumer not told yet
            return
        consumer.queue = None
        if self.ring.consumers:
            self.wake()
        else:
            self.ring = None
            if self.on_turn is not None:
                self.wake()
            if self.limits is not None:
                self.limits.used()
            if self.on_unused is not None:
                self.on_unused(self)

    def offer(self, consumer):
        """Make ``consumer``, which has capacity again, ready for deliveries."""
        if self.ring is not None:
            self.ring.offer(consumer)
            if not self.touched and self.waiting():
                self.scheduler.touch(self)

    def wake(self):
        """Schedule a delivery round of the queue."""
        if not self.touched:
            self.scheduler.touch(self)

    def hold_deliveries(self):
        """Pause deliveries until resume_deliveries() is called as often as this method."""
        # No delivery may overtake messages that are requeued in slices.
        self.holds += 1

    def resume_deliveries(self):
        self.holds -= 1
        self.wake()

    def has_hungry(self):
        """True if no message is ready, and a consumer of priority 0 or higher could take a message."""
        # Federation links have negative priorities and do not count.
        return (
            self.ring is not None and self.ring.ready > 0 and not self.ready_count and not self.closed
            and not self.paused and not self.holds and self.ring.ready_priority() >= 0
        )

    @property
    def single_active(self):
        """True if the queue has ``x-single-active-consumer``: only one consumer at a time gets messages."""
        return self.arguments.get(SINGLE_ACTIVE_CONSUMER) is True

    @property
    def consumer_count(self):
        return 0 if self.ring is None else len(self.ring.consumers)

    @property
    def ready_count(self):
        return 0 if self.closed else self.store.ready_count

    @property
    def ready_bytes(self):
        """Bytes of the ready messages' bodies."""
        return 0 if self.closed else self.store.ready_bytes

    @property
    def unacked_count(self):
        return 0 if self.closed else self.store.unacked_count

    def waiting(self):
        """Return the count of ready messages; 0 while deliveries are paused."""
        if self.closed or self.paused or self.holds:
            return 0
        return self.store.ready_count

    # the scheduler's side

    def write_out(self):
        """Write collected acks and marks of deliveries into the files, so that they outlive a kill."""
        if not self.closed:
            try:
                self.store.write_out()
            except StoreError as error:
                self.fail(error)

    def turn(self):
        """Deliver about TURN_OCTETS bytes to consumers with capacity. Returns the count of bytes written.
        Further messages follow after the next poll of the event loop.
        """
        octets = 0
        self.turning = True
        try:
            if self._waiting_for_files is not None and not self.is_opening():
                # Before deliveries, because consumers may take all messages of the opened files.
                waiting, self._waiting_for_files = self._waiting_for_files, None
                left = tell_opened(self, waiting)
                self._waiting_for_files = [*left, *(self._waiting_for_files or ())] or None
                self.scheduler.later(self)  # a greenlet that was just told of an opened file comes first
                return 0
            if self.ring is not None and self.ring.ready:
                octets = self._deliver()
            if self.limits is not None:
                self.limits.enforce()
            if self.on_turn is not None:
                self.on_turn(self)
        except StoreError as error:
            self.fail(error)
        except Exception as error:  # the fault would come again at every touch
            LOG.exception("queue '%s' in vhost '%s' cannot go on", self.name, self.vhost)
            self.fail(described(error))
        finally:
            self.turning = False
        return octets

    def _deliver(self):
        octets = 0
        before = taken = asked = -1
        while octets < TURN_OCTETS:
            ready = self.waiting()
            rivals = 0 if self.ring is None else self.ring.ready_at_top()
            if ready == 0 or rivals == 0:
                break
            if octets == taken and ready == before and self.ring.ready == asked:
                # Nobody was given anything in a round, so the counts are too high. The hub must not ask for
                # ever.
                self.behind = False
                return octets
            before, taken, asked = ready, octets, self.ring.ready
            # Each ready consumer gets its share; with a slow publisher that is one message for one consumer.
            quantum = (ready + rivals - 1) // rivals
            if rivals > 1:
                quantum = self.ring.rate().quantum(
                    self.scheduler.now_ms, self.delivered - self.requeued, quantum, rivals)
            while rivals > 0 and octets < TURN_OCTETS and self.ring is not None and self.waiting():
                consumer = self.ring.take_next()
                if consumer is None:
                    break
                octets += self._serve(consumer, quantum)
                if self.ring is not None and consumer.queue is self:
                    self.ring.offer(consumer)
                rivals -= 1
        self.behind = self.ring is not None and self.ring.ready and self.waiting()
        if self.behind:
            self.scheduler.later(self)
        return octets

    def _serve(self, consumer, quantum):
        return consumer.deliver(quantum)

    def is_outrun(self):
        ready = 0 if self.ring is None else self.waiting()
        return ready > 0 and self.ring.rate().is_exceeded(
            self.scheduler.now_ms, self.delivered - self.requeued, ready, self.store.ready_bytes)

    def serve(self):
        """Deliver now, instead of at the end of the socket read. Called before a step that depends on the
        deliveries, such as a basic.cancel.
        """
        # Has no effect within a turn, or if the last turn could not deliver all messages.
        if (
            self.touched and not self.behind and not self.turning and self.ring is not None
            and self.ring.ready and not self.scheduler.is_shut
        ):
            self.write_out()
            self.turn()

    # ends

    def purge(self):
        """Drop all ready messages. Returns their count. The purge is on disk with the next flush."""
        count = self.store.purge()
        if self.durable:
            self.store.mark()
        self.wake()
        return count

    def after_purge(self, durability, callback):
        """Call ``callback(error or None)`` once the purge is on disk."""
        durability.when_safe(callback, lambda: self.failed)

    def purge_some(self, limit):
        """Drop up to ``limit`` ready messages, the oldest first. Returns the count of dropped messages. A
        count below ``limit`` means that no more are ready, or that the queue ``is_opening``.
        """
        message = Message()
        count = 0
        try:
            while count < limit and not self.closed and self.head(message):
                location = message.describe()["location"]
                self.shift_head()
                self.drop(location)
                count += 1
            if self.durable and count:
                self.store.mark()
        except StoreError as error:
            self.fail(error)
        self.wake()
        return count

    def redefine(self, arguments):
        """Replace the queue's arguments. The vhost calls this and logs the new arguments."""
        self.arguments = arguments

    def on_added(self, vhost):
        """Called when a new, recovered or reopened queue is in its vhost. Must not switch greenlets."""

    def redistribution(self):
        """Return a function that finds the new Destination of a ready message; None to drop all messages. The
        function returns None for a message to drop. Called just before the queue is deleted.
        """
        return None

    def on_deleted(self, reason):
        """Called once the queue is deleted and removed from its vhost. Must not switch greenlets."""

    def close(self, reason="queue closed"):
        """Cancel the consumers and close the store. The files stay."""
        self._let_go(reason)
        if not self.closed:
            self.closed = True
            self.store.close()

    def retire(self, reason):
        """Cancel the consumers and close the queue, but not its store, which may hold dead letters."""
        # Acks are written into the files first, so that they hold even if a kill undoes the deletion.
        if not self.closed:
            try:
                self.store.write_out()
            except StoreError as error:
                LOG.error("queue '%s' in vhost '%s', while it was deleted: %s", self.name, self.vhost, error)
        self._let_go(reason)
        self.closed = True

    def delete(self):
        """Cancel the consumers and remove the files. Returns the count of ready messages."""
        self._let_go(f"queue '{self.name}' in vhost '{self.vhost}' deleted")
        if self.closed:
            count = 0
        else:
            count = self.store.ready_count
            self.closed = True
        self.store.delete_files()
        return count

    def not_stored(self, error):
        self._refuse(StoreFull(self.name, 0, f"no new segment: {error}"))

    def _refuse(self, error):
        """Handle a failure to store a message: a full disk is logged, any other fault closes the queue."""
        self.unable = True
        if not isinstance(error, StoreFull):
            self.fail(error)
        elif not 0 <= self.scheduler.now_ms - self.complained_ms < COMPLAIN_MS:
            self.complained_ms = self.scheduler.now_ms
            LOG.error("queue '%s' in vhost '%s' refuses messages: %s", self.name, self.vhost, error)

    def fail(self, error):
        """Close the queue after a fault of its store, such as an I/O error. The broker goes on."""
        self.failed = True  # set even if it is closed already: its last flush may have failed
        if self.closed:
            return
        LOG.error("queue '%s' in vhost '%s' closed: %s", self.name, self.vhost, error)
        self.closed = True
        self._let_go(str(error))

    def store_fenced(self, store, error):
        """Close the queue, because the disk has reported an I/O error (storage.flush.group_commit)."""
        self.fail(error)

    def record_damaged(self, store, path, start, end, count):
        """Log that the store has quarantined damaged records. The queue goes on without them."""
        LOG.error(
            "queue '%s' in vhost '%s': %d damaged records in %s, bytes %d to %d, set aside", self.name,
            self.vhost, count, path, start, end,
        )

    def _let_go(self, reason):
        if self.limits is not None:
            self.limits.close()
        if self._waiting_for_files is not None:
            self.wake()
        ring, self.ring = self.ring, None
        if ring is not None:
            for consumer in ring.consumers:
                consumer.ringed = False
            cancel_all(self, list(ring.consumers), reason)


class QuorumQueue(Queue):
    """A queue that delivers by priority. Its store has no priorities until a message needs them."""

    __slots__ = ()

    def publish(self, message):
        if message.priority_or(QUORUM_PRIORITY) != QUORUM_PRIORITY and isinstance(self.store, MessageStore):
            from gomq_py.broker.queues.quorum import with_levels  # imported with the first of these

            self.store = with_levels(self.store)
        return Queue.publish(self, message)
