"""Store: the interface for keeping the messages of a queue or stream, and the base of all stores.

Below broker.queues, which uses nothing else of a store; above it are message_store (FIFO), priority_store (a
message store for each level) and stream_store (read without being consumed). Never switches, never flushes.
"""
import os

from gomq_py.storage.errors import StoreError
from gomq_py.storage.format import record
from gomq_py.storage.segments.pool import FIRST_SEGMENT_BYTES

LARGEST_SEGMENT_BYTES = 1 << record.POSITION_BITS


class Store:
    """Keeps the messages of a queue or stream. ``ready_*`` count waiting messages, ``unacked_*`` messages
    that were taken and not yet deleted; ``*_bytes`` are of bodies.

    ``durable=False``: the files have no names and no acks.

    ``key``: the first 8 bytes of its incarnation as a number: it identifies the store in others' records.
    ``failure``: the StoreClosed that every append raises once the store is closed, deleted or fenced.
    ``listener`` (optional) hears ``store_fenced(store, error)``, ``record_damaged(store, path, start, end,
    count)`` and, after ``open_aside``, ``segment_opened(store)``.

    A subclass implements the methods that raise NotImplementedError. The methods for taking messages find
    nothing here; stores that have messages to take override them.
    """

    __slots__ = (
        "folder", "files", "pool", "committer", "incarnation", "segment_bytes", "durable", "listener",
        "failure", "ready_count", "unacked_count", "ready_bytes", "unacked_bytes", "key",
        "is_named_at_once",
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
        self.ready_count = self.unacked_count = 0
        self.ready_bytes = self.unacked_bytes = 0

    # adding messages

    def append(self, message):
        """Copy the message in and set its location.

        Raises StoreFull (no room on the disk; nothing changed), StoreClosed, or StoreError (larger than any
        segment).
        """
        raise NotImplementedError

    def write_out(self):
        """End a batch: all changes so far survive a kill of the process, and are announced."""
        raise NotImplementedError

    def mark(self):
        """Have the deletes and requeues so far on the disk, as appends are, by the next ``after_sync``."""
        raise NotImplementedError

    # whether a message is stored, for records elsewhere that were made before it

    def place_of(self, size):
        """A number for the place that a record of ``size`` bytes gets if it is appended next, on the lowest
        level. No later run puts another record there.
        """
        return 0

    def has_record(self, place, came_ms):
        """Whether the complete record of a message lies at a place of place_of(), or was acked there.
        ``came_ms``: when the message came in, Unix milliseconds; 0: any time. Blocks to read it.
        """
        return False

    def name_at_once(self):
        """Have new files named when they are taken, and not soon after, so that appends survive a kill. Costs
        the hub a rename for each segment.
        """
        if not self.is_named_at_once:
            self.is_named_at_once = True
            self.pool.name_at_once(self.folder)

    def outlives_kill(self):
        """Whether all appends survive a kill: their files have their names."""
        return not self.pool.is_naming(self.folder)

    # taking messages

    def peek(self, message):
        """Show the next message without taking it. Returns False if there is none, or while ``is_waiting``.

        The message shown is valid until the next peek, read, shift, or switch.
        """
        return False

    def is_waiting(self):
        """True while a thread still has to open or read the file of the next message: see
        ``open_aside``.
        """
        return False

    def shift(self):
        """Take the message of the last peek: it is unacked until delete or requeue."""
        raise StoreError(self.folder, 0, "shift without peek")

    def shows_recovered(self):
        """Whether the last peek showed a message that an earlier run delivered and that has not come back
        in this run.
        """
        return False

    def postpone(self):
        """Take the message of the last peek, of which shows_recovered() is true, without delivering it.
        requeue() makes it ready again as it was.
        """
        raise StoreError(self.folder, 0, "postpone without peek")

    def peeked_due_s(self, now_s):
        """Unix seconds until which the peeked message must wait, if an earlier run recorded an unfinished
        back-off; otherwise 0.
        """
        return 0

    def wait_until(self, location, count, due_s):
        """Record for the next run that an unacked message, which came back for the ``count``-th time, must
        not be delivered before this time (Unix seconds).
        """

    def delete(self, location):
        """Remove an unacked message for good."""
        raise StoreError(self.folder, 0, "no message was taken")

    def requeue(self, location):
        """Make an unacked message ready again, in its old place, marked as redelivered."""
        raise StoreError(self.folder, 0, "no message was taken")

    def read(self, location, message):
        """Show an unacked message again, by its location. Returns False if the store was fenced meanwhile."""
        return False

    def body_file(self, message):
        """A Reading of the file with the body of a shown message, at ``body_at``, if that file is never
        overwritten or reused; otherwise None, also for a message that was copied since (Message.own). The
        caller closes it.
        """
        return None

    def pick(self, location):
        """Take a ready message out of its turn: it is unacked until delete, requeue or unpick.

        Returns False if the message is not ready (any more).
        """
        return False

    def unpick(self, location):
        """Make a picked message ready again, as if it had not been picked."""
        raise StoreError(self.folder, 0, "no message was picked")

    # the slow verbs

    def purge(self):
        """Drop all ready messages. Returns their count."""
        raise NotImplementedError

    def ready_octets(self):
        """Bytes of the ready messages, including topics, keys and properties if the kind of store knows them.
        """
        return self.ready_bytes

    def oldest_ready_ms(self):
        """About when the oldest ready message came in, in Unix milliseconds. 0 if nothing is ready, or if a
        file would have to be opened to know.
        """
        return 0

    def failed_deliveries(self, bounds):
        """Counts of messages, ready or unacked, that came back more than ``bounds[n - 1]`` and up to
        ``bounds[n]`` times, as a list; the last entry counts messages above all bounds.
        """
        return [0] * (len(bounds) + 1)

    def browsed(self):
        """The stores that this one is made of (itself, or its levels), in the order of delivery.
        """
        return (self,)

    # its life

    def open_aside(self):
        """Have threads open closed segments from now on, for readers that can wait: they see nothing of a
        segment before ``listener.segment_opened(store)`` is called.
        """
        raise NotImplementedError

    def hand_over(self, pool, committer):
        """Use this pool and this committer from now on. A thread has recovered the store with stand-ins for
        them.
        """
        self.pool = pool
        self.committer = committer

    def close(self):
        """Refuse all further calls.

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
        """Stop the store after an I/O error: the disk's content is unknown until a restart has read it."""
        raise NotImplementedError
