"""Group queue: a queue with x-message-group, which delivers one message of each group at a time.

The order is that of its store, a storage.stores.group_store. The queue tells limits and operators, who may
take any message, from consumers, who may take none of a group that is out. Never switches.
"""
from gomq_py.broker.queues import queue as _queue
from gomq_py.storage.stores.groups import shown


class GroupQueue(_queue.Queue):
    """A queue whose store is a GroupStore, or None if it cannot be opened."""

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

    def head(self, message):
        # limits ask for what is delivered next only within peek()
        return self.groups.peek(message) if self._is_peeking else self.groups.oldest(message)

    def shift_head(self):
        self.groups.leave()

    def waiting(self):
        if self.closed or self.paused or self.holds:
            return 0
        return self.groups.deliverable()

    def describe_groups(self):
        """What operators see of the groups, as a dict; None while the queue is closed."""
        if self.closed:
            return None
        key, count = self.groups.deepest()
        since_ms = self.groups.longest_wait_ms()
        return {
            "groups_out": self.groups.groups_out, "groups_waiting": int(self.groups.waiting.group_count),
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

    def _hand_over(self, message):
        return 0  # its group may be out
