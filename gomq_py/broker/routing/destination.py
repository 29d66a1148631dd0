"""Destination: what a route leads to. Queues are one kind; sinks without a store (direct reply-to, QoS 0
sessions, event exchanges) are others.

Above storage, below routes and doors. A destination takes one message at a time and does its further work,
such as delivering, once per read: it puts itself on the scheduler's list (hub.scheduler) when it is first
touched. Never yields.
"""
from gomq_py.hub import scheduler as _scheduler

# The answer to a message that may wait, where a thread has to make files for it first.
LATER = 2


class Destination(_scheduler.TurnTaker):
    """Takes messages.

    ``unable``: whether the last message that was refused was refused because the store could not take it (a
    full disk, a fault), and may be taken later. ``failed``: the store had a fault, so that the messages it
    took last may not be on disk.
    """

    __slots__ = ("durable", "unable", "failed")

    # Whether it is for what clients publish alone, and not for what the broker sends on: dead letters, and
    # what an operator brings back to its exchange.
    takes_publishes_only = False

    def __init__(self, name, durable=False):
        super().__init__(name)
        self.durable = durable
        self.unable = self.failed = False

    def publish(self, message):
        """Take one message, copying what it needs. 1: taken, 0: refused (a confirming publisher is told so),
        LATER: nothing was done, and it is to be published again when ``message.lacking(callback)`` has called
        back. Never raises for the message's sake.
        """
        return 0

    def next_store(self):
        """The durable store (storage.stores.store.Store) that the next message comes to; None: nobody knows,
        or what comes is not kept over a restart.
        """
        return None

    def stores(self):
        """The durable stores that its messages may have come to, a list."""
        store = self.next_store()
        return [] if store is None else [store]

    def is_one_of(self, keys):
        """Whether it keeps messages in one of the stores with these keys."""
        return any(store.key in keys for store in self.stores())

    def outlives_kill(self):
        """Whether what it has taken does, as far as that is to outlive the process."""
        return True

    def is_outrun(self):
        """Whether more comes than those who take it can follow, although they do what they can."""
        return False

    def not_stored(self, error):
        """Refuse a message that answered LATER, because the files it waited for could not be made."""
