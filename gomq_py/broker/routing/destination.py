"""Destination: what a route leads to. Queues are one kind; sinks without a store (direct reply-to, QoS 0 sessions, event exchanges) are others.

Above storage, below routes and doors. A destination takes one message at a time and does its further work, such as delivering, once per read: it
puts itself on the scheduler's list (hub.scheduler) when it is first touched. Never yields.
"""

# The answer to a message that may wait, where a thread has to make files for it first.
LATER = 2


class Destination:
    """Takes messages. ``touched`` belongs to the scheduler: True while this waits for its turn at the end of the read.

    ``unable`` tells of the last message that was refused: True where its store could not take it (a full disk, a fault), and may later.
    """

    __slots__ = ("name", "durable", "touched", "unable")

    def __init__(self, name, durable=False):
        self.name = name
        self.durable = durable
        self.touched = self.unable = False

    def publish(self, message):
        """Take one message, copying what it needs. 1: taken, 0: refused (a confirming publisher is told so), LATER: nothing was done,
        and it is to be published again when ``message.lacking(callback)`` has called back. Never raises for the message's sake.
        """
        return 0

    def not_stored(self, error):
        """The files that a message waited for (LATER) could not be made: it is refused."""

    def flush(self):
        """End of a batch: let everything taken so far outlive a kill of this process."""

    def turn(self):
        """End of a batch, after flush(): a bounded amount of work, such as delivering. Returns the octets written to sockets, about."""
        return 0
