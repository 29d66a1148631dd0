"""Group queue: a queue with x-message-group. It delivers a group's messages in order, to one consumer at a
time.

The store, a storage.stores.group_store, keeps the order. The queue tells the store which consumer takes
messages. Limits and operators may take any message. Consumers that have groups of their own are served
first, because no other consumer may have the messages of these groups. Never switches greenlets.
"""
from gomq_py.broker.queues import queue as _queue
from gomq_py.broker.queues.consumers import Consumer
from gomq_py.storage.stores.group_key import shown


class GroupQueue(_queue.Queue):
    """A queue whose store is a GroupStore, or None if the store cannot be opened."""

    __slots__ = ("groups", "_is_peeking")

    def __init__(
        self, name, vhost, store, scheduler, durable=True, exclusive_owner=None, auto_delete=False,
        arguments=None,
    ):
        _queue.Queue.__init__(
            self, name, vhost, store, scheduler, durable, exclusive_owner, auto_delete, arguments)
        self.groups = store
        self._is_peeking = False

    def peek(self, message):
        if self.closed:
            return False
        if self.limits is None:
            return self.groups.peek(message)
        self._is_peeking = True
        try:
            return self.limits.peek(message)
        finally:
            self._is_peeking = False

    def turn_to(self, taker):
        if not self.closed:
            self.groups.lines.turn_to(taker)

    def head(self, message):
        # limits ask for what is delivered next only within peek()
        return self.groups.peek(message) if self._is_peeking else self.groups.oldest(message)

    def shift_head(self):
        self.groups.leave()

    def offer(self, consumer):
        _queue.Queue.offer(self, consumer)
        if consumer.ringed and not self.closed and self.groups.lines.offer(consumer):
            self.wake()

    def waiting(self):
        if self.closed or self.paused or self.holds:
            return 0
        return self.groups.deliverable()

    def describe_groups(self):
        """Return a dict of figures about the groups, for operators; None if the queue is closed."""
        if self.closed:
            return None
        key, count = self.groups.deepest()
        since_ms = self.groups.longest_wait_ms()
        return {
            "groups_out": self.groups.groups_out, "messages_out": self.groups.messages_out,
            "groups_waiting": int(self.groups.waiting.group_count),
            "messages_waiting": int(self.groups.waiting.count),
            "longest_wait_s": max(0.0, (self.scheduler.now_ms - since_ms) / 1000) if since_ms else 0.0,
            "deepest_group": None if key is None else shown(key), "deepest_group_messages": count,
            "is_full": bool(self.groups.is_full),
        }

    def turn(self):
        if self.closed:
            return _queue.Queue.turn(self)
        self.groups.begin_turn()
        octets = _queue.Queue.turn(self)
        if not self.closed and self.groups.passes_on:
            self.scheduler.later(self)
        return octets

    def _deliver(self):
        octets = self._deliver_bound(0)
        if octets < _queue.TURN_OCTETS and self.ring is not None:
            octets += _queue.Queue._deliver(self)
            octets = self._deliver_bound(octets)
        if not self.closed:
            self.groups.lines.turn_to(None)
        return octets

    def _deliver_bound(self, octets):
        """Serve consumers whose own groups have ready messages. Returns ``octets`` plus the bytes written."""
        lines = self.groups.lines
        idle = None
        if self.paused or self.holds:
            return octets
        while lines.due and octets < _queue.TURN_OCTETS:
            line = lines.next_due()
            if not isinstance(line.taker, Consumer):
                continue
            consumer = line.taker
            if not consumer.ringed or line.first() is None:
                continue  # it is due again when it has room
            self.ring.unring(consumer)
            if consumer.capacity() > 0:
                # and its part of what anybody may have, in the same write
                written = self._serve(consumer, line.count + self.waiting() // (self.ring.ready + 1))
                octets += written
                if written == 0:
                    idle = [line] if idle is None else [*idle, line]
                if self.ring is None or self.closed:
                    return octets
                if consumer.queue is self:
                    self.ring.offer(consumer)
                if self.paused or self.holds:
                    break
        if idle is not None:
            for line in idle:
                lines.note_due(line)  # its file is opened, for example
        elif lines.due and not self.holds:
            self.scheduler.later(self)
        return octets

    def _serve(self, consumer, quantum):
        lines = self.groups.lines
        lines.turn_to(consumer)
        octets = consumer.deliver(quantum)
        if octets and not self.closed:
            lines.note_due(lines.now)
        return octets

    def _hand_over(self, message):
        return 0  # its group may be bound
