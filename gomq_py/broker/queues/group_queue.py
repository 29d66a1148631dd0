"""Group queue: a queue with x-message-group, which delivers one message of each group at a time.

The order is that of its store, a storage.stores.group_store. The queue itself only tells limits and operators,
who may take any message, from consumers, who may take none of a group that is out. Never switches.
"""
from gomq_py.broker.queues import queue as _queue
from gomq_py.content.group_key import shown


class GroupQueue(_queue.Queue):
    """A queue whose store is a GroupStore, or None if it cannot be opened."""

    __slots__ = ("groups",)

    def __init__(
        self, name, vhost, store, scheduler, durable=True, exclusive_owner=None, auto_delete=False,
        arguments=None,
    ):
        _queue.Queue.__init__(
            self, name, vhost, store, scheduler, durable, exclusive_owner, auto_delete, arguments)
        self.groups = store

    def head(self, message):
        return self.groups.oldest(message)

    def show(self, message):
        return self.groups.peek(message)

    def shift_head(self):
        self.groups.leave()

    def waiting(self):
        if self.closed or self.paused or self.holds:
            return 0
        return self.groups.deliverable()

    def describe_groups(self):
        if self.closed:
            return None
        key, count = self.groups.deepest()
        since_ms = self.groups.longest_wait_ms()
        return {
            "groups_out": self.groups.groups_out, "groups_waiting": int(self.groups.waiting_groups),
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
