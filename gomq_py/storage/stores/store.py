"""Store: the interface for keeping the messages of a queue or stream, and the base of all stores.

Used by broker.queues, which uses nothing else of a store. Subclasses: message_store (FIFO), priority_store (a
message store for each level) and stream_store (read without being consumed). Never switches, never flushes.
"""
import os

from gomq_py.storage.errors import StoreError
from gomq_py.storage.format import record
from gomq_py.storage.segments.pool import FIRST_SEGMENT_BYTES

LARGEST_SEGMENT_BYTES = 1 << record.POSITION_BITS


class Store:
    """Keeps the messages of a queue or stream. ``ready_*`` count messages waiting to be taken, ``unacked_*``
    messages that were taken and neither deleted nor requeued; ``*_bytes``: bytes of their bodies.

        durable     False: the files have no names and no acks
        key         the first 8 bytes of ``incarnation`` as a number, by which other files name the store
        failure     the StoreClosed that every append raises once the store is closed, deleted or fenced
        listener    if set, gets ``store_fenced(store, error)``, ``record_damaged(store, path, start, end,
                    count)`` and, after ``open_aside``, ``segment_opened(store)``

    A subclass implements the methods that raise NotImplementedError, and overrides those for taking messages
    if its messages are taken.
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

        Raises StoreFull (no room on the disk, or the record is larger than any segment; nothing changed),
        StoreClosed, StoreLater or another StoreError.
        """
        raise NotImplementedError

    def write_out(self):
        """End a batch: all changes so far survive a kill, and are reported to the replicators."""
        raise NotImplementedError

    def mark(self):
        """Have the deletes and requeues so far flushed by the committer's next sync. Appends need no call."""
        raise NotImplementedError

    # whether a message is stored, for records elsewhere that were made before it

    def place_of(self, size):
        """A number for the place at which a record of ``size`` bytes would be appended next, on the lowest
        level of priority. No later run uses this place again.
        """
        return 0

    def has_record(self, place, came_ms):
        """Whether a complete record with the timestamp ``came_ms`` (Unix milliseconds; 0: any) lies at
        ``place``, a number from place_of(), or was acked there. Blocks while it reads the record.
        """
        return False

    def name_at_once(self):
        """Have new segment files renamed into the store's folder before they are used, so that appends
        survive a kill. The hub then waits for a rename with each segment.
        """
        if not self.is_named_at_once:
            self.is_named_at_once = True
            self.pool.name_at_once(self.folder)

    def outlives_kill(self):
        """Whether all appends survive a kill: all its files are renamed into its folder."""
        return not self.pool.is_naming(self.folder)

    # taking messages

    def peek(self, message):
        """Set ``message`` to the next message, without taking it. Returns False without a message, or while
        ``is_waiting``.

        The message shown is valid until the next peek, read, shift, or switch.
        """
        return False

    def is_waiting(self):
        """True if peek() can show the next message only after a thread has read its file (``open_aside``)."""
        return False

    def shift(self):
        """Take the message of the last peek: it is unacked until delete or requeue."""
        raise StoreError(self.folder, 0, "shift without peek")

    def shows_recovered(self):
        """Whether the last peek showed a message that an earlier run delivered and that was not requeued in
        this run.
        """
        return False

    def postpone(self):
        """Take the peeked message without delivering it, if shows_recovered() is true. requeue() then makes
        it ready without another failed delivery.
        """
        raise StoreError(self.folder, 0, "postpone without peek")

    def peeked_due_s(self, now_s):
        """Unix seconds until which the peeked message must wait, because an earlier run recorded an
        unfinished back-off; otherwise 0.
        """
        return 0

    def wait_until(self, location, count, due_s):
        """Save for later runs that an unacked message, whose delivery has failed ``count`` times, must not be
        delivered before ``due_s`` (Unix seconds).
        """

    def excuse(self, location, more):
        """Save that ``more`` deliveries (0 or 1) of a taken or peeked message were no failures. Returns how
        many of its deliveries were none.
        """
        return 0

    def delete(self, location):
        """Remove an unacked message for good."""
        raise StoreError(self.folder, 0, "no message was taken")

    def requeue(self, location):
        """Make an unacked message ready again, at its old position, marked as redelivered."""
        raise StoreError(self.folder, 0, "no message was taken")

    def read(self, location, message):
        """Set ``message`` to the unacked message at ``location``. Returns False if the store has stopped."""
        return False

    def body_file(self, message):
        """Return a Reading of the file that has this message's body, from ``message.body_at`` on; the caller
        closes it. None if this file may be overwritten or reused, or if Message.own() has copied the message.
        """
        return None

    def pick(self, location):
        """Take a ready message out of order: it is unacked until delete, requeue or unpick. Returns False if
        the message is not ready.
        """
        return False

    def unpick(self, location):
        """Undo pick(): the message is ready, with its earlier count of failed deliveries."""
        raise StoreError(self.folder, 0, "no message was picked")

    # the slow verbs

    def purge(self):
        """Drop all ready messages, but no unacked messages. Returns the number of dropped messages."""
        raise NotImplementedError

    def ready_octets(self):
        """Bytes of the ready messages' bodies; also of routing keys and properties if the store knows
        them.
        """
        return self.ready_bytes

    def oldest_ready_ms(self):
        """About when the oldest ready message came in, in Unix milliseconds; 0 if no message is ready, or if
        the time is unknown until a file is opened.
        """
        return 0

    def failed_deliveries(self, bounds):
        """Histogram of failed deliveries of ready and unacked messages: element n counts messages with more
        than ``bounds[n - 1]`` and at most ``bounds[n]``; the last element, messages above all bounds.
        """
        return [0] * (len(bounds) + 1)

    def passed_over(self):
        """Locations of the ready messages that were passed over and not requeued, as an array in no order."""
        return ()

    def is_passed_over(self, location):
        """Whether the message at ``location`` was passed over, and is still ready."""
        return False

    def browsed(self):
        """The stores that hold the messages, in order of delivery: this one, or its levels of priority."""
        return (self,)

    # its life

    def open_aside(self):
        """Have threads open closed segments, for readers that can wait. Such a reader gets no message of a
        segment before ``listener.segment_opened(store)`` is called.
        """
        raise NotImplementedError

    def hand_over(self, pool, committer):
        """Use this pool and committer from now on, in place of the stand-ins of a recovery in a thread."""
        self.pool = pool
        self.committer = committer

    def close(self):
        """Refuse all further calls. Files stay; they are sealed and closed after the next sync."""
        # committer.stop() waits for that sync.
        raise NotImplementedError

    def delete_files(self):
        """Stop the store and remove its files."""
        raise NotImplementedError

    def forget_files(self):
        """Stop the store. The caller removes the folder later."""
        raise NotImplementedError

    def fence(self, error):
        """Stop the store after an I/O error: the disk's content is unknown until a restart has read it."""
        raise NotImplementedError
