"""Destination: the target of a route: a queue, or a sink without a store (direct reply-to, QoS 0 sessions,
event exchanges).

Above storage, below routes and doors. A destination takes one message at a time and does further work, such
as deliveries, once per read: when first touched it puts itself on the scheduler's list (hub.scheduler). Never
yields.
"""
from gomq_py.hub import scheduler as _scheduler

# The answer to a message that must wait, because a thread has to make files for it first.
LATER = 2


class Destination(_scheduler.TurnTaker):
    """Takes messages.

    ``unable``: the last refusal was the store's (a full disk, a fault), and the message may be accepted
    later. ``failed``: the store had a fault, so that the last messages may not be on disk.
    """

    __slots__ = ("durable", "unable", "failed")

    # Whether it refuses messages that the broker sends on, such as dead letters and operators' moves.
    takes_publishes_only = False

    def __init__(self, name, durable=False):
        super().__init__(name)
        self.durable = durable
        self.unable = self.failed = False

    def publish(self, message):
        """Take one message, copying what is needed. 1: taken; 0: refused, and a confirming publisher is told;
        LATER: nothing was done, publish again after ``message.lacking(callback)`` has called back. Never
        raises because of the message.
        """
        return 0

    def next_store(self):
        """The durable store (storage.stores.store.Store) of the next message; None: unknown or transient."""
        return None

    def stores(self):
        """The durable stores that may have its messages, as a list."""
        store = self.next_store()
        return [] if store is None else [store]

    def is_one_of(self, keys):
        """Whether one of its stores has one of these keys."""
        return any(store.key in keys for store in self.stores())

    def outlives_kill(self):
        """Whether all durable messages it has taken outlive a kill."""
        return True

    def is_outrun(self):
        """Whether publishers are faster than its consumers, although these do what they can."""
        return False

    def not_stored(self, error):
        """Refuse a message that was answered LATER, because its files could not be made."""
