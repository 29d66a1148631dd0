"""Store: what keeps the messages of a queue or stream, as the broker sees it.

The interface, and what each store knows of itself.

Below broker.queues, which calls it and nothing else of a store; above it stand message_store (in order of
arrival), priority_store (a message store for each level) and stream_store (read without being consumed).
Never yields, never flushes.
"""
import os

from gomq_py.storage import locations
from gomq_py.storage.errors import StoreError
from gomq_py.storage.segments.pool import FIRST_SEGMENT_BYTES

LARGEST_SEGMENT_BYTES = 1 << locations.POSITION_BITS


class Store:
    """``ready_*`` count messages that wait, ``unacked_*`` those taken and not yet deleted; ``*_bytes`` are of
    bodies.

    ``durable=False``: the files have no names and no acks. ``is_fifo``: messages come out as they went
    in, once.

    ``key``: the first 8 octets of its incarnation as a number, which names it in other stores' records.
    ``failure``: the StoreClosed that every append raises once the store is closed, deleted or fenced.
    ``listener`` (optional) hears ``store_fenced(store, error)``, ``record_damaged(store, path, start, end,
    count)`` and, after ``open_aside``, ``segment_opened(store)``.

    A subclass implements the verbs that raise NotImplementedError. Those of taking messages say here that
    there is nothing to take; a store that has something implements them, too.
    """

    __slots__ = (
        "folder", "files", "pool", "committer", "incarnation", "segment_bytes", "durable", "listener",
        "failure", "ready_count", "unacked_count", "ready_bytes", "unacked_bytes", "key",
        "is_named_at_once", "is_fifo",
    )

    def __init__(self, folder, files, pool, committer, incarnation, segment_bytes, durable, listener):
        if not FIRST_SEGMENT_BYTES <= segment_bytes <= LARGEST_SEGMENT_BYTES or len(incarnation) != 16:
            raise ValueError(f"segment_bytes={segment_bytes} incarnation={incarnation!r}")
        self.folder = os.fspath(folder)
        self.files = files
        self.pool = pool
        self.committer = committer
        self.incarnation = incarnation
        self.key = int.from_bytes(incarnation[:8], "little")
        self.segment_bytes = segment_bytes
        self.durable = durable
        self.listener = listener
        self.failure = None
        self.is_named_at_once = False
        self.is_fifo = True
        self.ready_count = self.unacked_count = 0
        self.ready_bytes = self.unacked_bytes = 0

    # messages come

    def append(self, message):
        """Copy the message in and set its location.

        Raises StoreFull (no room on the disk; nothing changed), StoreClosed, or StoreError (larger than any
        segment).
        """
        raise NotImplementedError

    def flush(self):
        """End of a batch: what was done to the store so far outlives a kill of the process, and is announced.
        """
        raise NotImplementedError

    def mark(self):
        """Have what was deleted and requeued so far on the disk, too, by the next ``after_sync``."""
        raise NotImplementedError

    # whether one has come, as somebody asks who has noted it elsewhere before

    def place_of(self, size):
        """A number for the place at which a record of so many octets will lie if it is appended next. Where
        there are levels, on the lowest. No later run puts another record there.
        """
        return 0

    def holds(self, place, came_ms):
        """Whether the whole record of a message lies at a place that place_of() has named, or was acked
        there. ``came_ms``: when the message came in, Unix milliseconds; 0: at any time. Blocks: it is read.
        """
        return False

    def name_at_once(self):
        """Have new files named when they are taken, and not soon after, so that what is appended outlives a
        kill. It costs the hub a rename for each segment.
        """
        if not self.is_named_at_once:
            self.is_named_at_once = True
            self.pool.name_at_once(self.folder)
        return 0

    def outlives_kill(self):
        """Whether what was appended does: the files that it lies in have their names."""
        return not self.pool.is_naming(self.folder)

    # messages are taken

    def peek(self, message):
        """Show the next message without taking it. False if there is none, or if it ``is_waiting``.

        Valid until the next peek, read, shift, or switch.
        """
        return False

    def is_waiting(self):
        """True while a thread still has to open or read the file of the next message: see
        ``open_aside``.
        """
        return False

    def shift(self):
        """Take what the last peek showed: it is unacked until delete or requeue."""
        raise StoreError(self.folder, 0, "shift without peek")

    def shows_recovered(self):
        """Whether the last peek showed a message that an earlier run delivered and that has not come back
        in this run.
        """
        return False

    def postpone(self):
        """Take the message that the last peek showed, of which shows_recovered() is true, without delivering
        it. requeue() makes it ready again as it was.
        """
        raise StoreError(self.folder, 0, "postpone without peek")

    def peeked_due_s(self, now_s):
        """Unix seconds until which the peeked message, which shows_recovered(), must wait, if wait_until()
        said so; otherwise 0.
        """
        return 0

    def wait_until(self, location, count, due_s):
        """Record for the next run that an unacked message must not be delivered before this time (Unix
        seconds). It came back for the ``count``-th time.
        """
        return 0

    def delete(self, location):
        """Remove an unacked message for good."""
        raise StoreError(self.folder, 0, "no message was taken")

    def requeue(self, location):
        """Make an unacked message ready again, in its old place, marked as redelivered."""
        raise StoreError(self.folder, 0, "no message was taken")

    def read(self, location, message):
        """Show an unacked message again, by its location. False when the store was fenced meanwhile."""
        return False

    def body_file(self, message):
        """A Reading of the file in which the body of a message that was shown lies, at ``body_at``, if that
        is never written to again nor used for other messages; else None, as of one that was copied since
        (Message.own). It is the caller's to close.
        """
        return None

    def pick(self, location):
        """Take a ready message out of its turn: it is unacked until delete, requeue or unpick.

        False: it is not ready (any more).
        """
        return False

    def unpick(self, location):
        """Make a picked message ready again, as if it had not been picked."""
        raise StoreError(self.folder, 0, "no message was picked")

    # the slow verbs

    def purge(self):
        """Forget all ready messages. Returns how many there were."""
        raise NotImplementedError

    def ready_octets(self):
        """Octets that the ready messages take, topics, keys and properties included where the kind of store
        knows them.
        """
        return self.ready_bytes

    def oldest_ready_ms(self):
        """About when the oldest ready message came in, in Unix milliseconds. 0 if nothing is ready, or if a
        file would have to be opened to know.
        """
        return 0

    def failed_deliveries(self, bounds):
        """How many messages, ready or unacked, came back more than ``bounds[n - 1]`` and up to ``bounds[n]``
        times, as a list; its last entry counts those above.
        """
        return [0] * (len(bounds) + 1)

    def browsed(self):
        """The stores that this one is made of (itself, or its levels), in the order of delivery.
        """
        return (self,)

    # its life

    def open_aside(self):
        """Have threads open closed segments from here on, for readers that can wait. Such a reader is shown
        nothing of a segment before ``listener.segment_opened(store)`` is called.
        """
        raise NotImplementedError

    def hand_over(self, pool, committer):
        """Use this pool and this committer from here on. A thread has recovered the store, with others in
        their place.
        """
        self.pool = pool
        self.committer = committer

    def close(self):
        """Nothing goes in or out any more.

        The files stay, and are sealed and closed after the next sync; ``committer.stop`` waits for it.
        """
        raise NotImplementedError

    def delete_files(self):
        """Stop the store and remove its files."""
        raise NotImplementedError

    def forget_files(self):
        """Stop the store. The caller removes the folder, when it likes."""
        raise NotImplementedError

    def fence(self, error):
        """Stop the store after an I/O error: nobody knows what the disk holds until a restart has read it.
        """
        raise NotImplementedError
