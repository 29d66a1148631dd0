"""Store: the interface for keeping the messages of a queue or stream, and the base of all stores.

broker.queues uses only this interface. Subclasses: message_store (first in, first out), priority_store (a
message store per priority) and stream_store (messages stay after they are read). Never switches greenlets,
never flushes.
"""
import os

from gomq_py.storage.errors import StoreError
from gomq_py.storage.format import record
from gomq_py.storage.segments.pool import FIRST_SEGMENT_BYTES

LARGEST_SEGMENT_BYTES = 1 << record.POSITION_BITS


class Store:
    """Keeps the messages of a queue or stream.

        ready_count      messages waiting to be taken; ``ready_bytes``: bytes of their bodies
        unacked_count    messages taken, not deleted or requeued; ``unacked_bytes``: bytes of their bodies
        durable          False if the files have no names and no acks
        key              first 8 bytes of ``incarnation`` as a number; identifies the store in other files
        failure          the StoreClosed that every append raises after a close, a delete or an I/O error
        listener         None, or an object with ``store_fenced(store, error)`` for I/O errors,
                         ``record_damaged(store, path, start, end, count)`` and ``segment_opened(store)``

    Subclasses implement the methods that raise NotImplementedError. A store whose messages can be taken also
    implements the methods for that.
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
        """Copy the message into the store, and set its location.

        Raises StoreFull (nothing changed: the disk has no space, or the record is larger than any segment),
        StoreClosed, StoreLater or another StoreError.
        """
        raise NotImplementedError

    def write_out(self):
        """End a batch. All earlier changes then survive a kill, and are reported to the replicators."""
        raise NotImplementedError

    def mark(self):
        """Have the next group commit flush all earlier deletes and requeues. Appends need no call."""
        raise NotImplementedError

    # whether a message is stored, for records elsewhere that were made before it

    def place_of(self, size):
        """Return a number for the place where a record of ``size`` bytes would be appended next, on the
        lowest level of priority. No later run uses this place again.
        """
        return 0

    def has_record(self, place, came_ms):
        """Return whether the record at ``place``, a number from place_of(), is complete or was acked. Blocks
        while reading. ``came_ms``: the record's timestamp in Unix milliseconds; 0: any.
        """
        return False

    def name_at_once(self):
        """Rename new segment files into the store's folder before use, so that appends survive a kill. The
        event loop then waits for a rename with each segment.
        """
        if not self.is_named_at_once:
            self.is_named_at_once = True
            self.pool.name_at_once(self.folder)

    def outlives_kill(self):
        """Return whether all appends survive a kill: all the store's files were renamed into its folder."""
        return not self.pool.is_naming(self.folder)

    # taking messages

    def peek(self, message):
        """Set ``message`` to the next message, without taking it. Returns False without one, or if
        ``is_waiting``. The message is valid until the next peek, read, shift or switch.
        """
        return False

    def is_waiting(self):
        """Return True if peek() must wait for a thread to read the next message's file (``open_aside``)."""
        return False

    def shift(self):
        """Take the message of the last peek, which is then unacked until delete or requeue."""
        raise StoreError(self.folder, 0, "shift without peek")

    def shows_recovered(self):
        """Return whether the peeked message was delivered by an earlier run and not yet by this run."""
        return False

    def postpone(self):
        """Take the peeked message without delivering it, if shows_recovered() is true. A later requeue() does
        not count as a failed delivery.
        """
        raise StoreError(self.folder, 0, "postpone without peek")

    def peeked_due_s(self, now_s):
        """Return the time (Unix seconds) that an earlier run saved for the peeked message by wait_until(); 0
        if there is none. ``now_s``: the present time, for the upper bits, which the file lacks.
        """
        return 0

    def wait_until(self, location, count, due_s):
        """Save for later runs that an unacked message must not be delivered before ``due_s`` (Unix seconds).
        ``count``: its failed deliveries.
        """

    def excuse(self, location, more):
        """Save that ``more`` (0 or 1) further deliveries of a taken or peeked message were no failures.
        Returns the number of all such deliveries of the message.
        """
        return 0

    def delete(self, location):
        raise StoreError(self.folder, 0, "no message was taken")

    def requeue(self, location):
        """Make an unacked message ready again, at its old position, with one more failed delivery."""
        raise StoreError(self.folder, 0, "no message was taken")

    def read(self, location, message):
        """Set ``message`` to the unacked message at ``location``. Returns False if the store has stopped."""
        return False

    def body_file(self, message):
        """Return a Reading of the file with this message's body, from ``message.body_at`` on. The caller
        closes it. None if the file may be overwritten or reused, or if Message.own() has copied the message.
        """
        return None

    def pick(self, location):
        """Take a ready message out of order; it is then unacked until delete, requeue or unpick. Returns
        False if the message is not ready.
        """
        return False

    def unpick(self, location):
        """Undo pick(): the message is ready, with its earlier count of failed deliveries."""
        raise StoreError(self.folder, 0, "no message was picked")

    # the slow verbs

    def purge(self):
        """Drop all ready messages, but no unacked ones. Returns the number of dropped messages."""
        raise NotImplementedError

    def ready_octets(self):
        """Return the ready messages' size in bytes: bodies and, if known, routing keys and properties."""
        return self.ready_bytes

    def oldest_ready_ms(self):
        """Return the approximate arrival of the oldest ready message, in Unix ms; 0 if none or unknown."""
        return 0

    def failed_deliveries(self, bounds):
        """Return a histogram, a list that counts ready and unacked messages by their failed deliveries.

        Element n counts messages with more than ``bounds[n - 1]`` and at most ``bounds[n]`` failed
        deliveries. The last element counts the messages above all bounds.
        """
        return [0] * (len(bounds) + 1)

    def passed_over(self):
        """Return the locations of ready messages that were skipped and not requeued, as an unsorted array."""
        return ()

    def is_passed_over(self, location):
        """Return whether the message at ``location`` was skipped and is still ready."""
        return False

    def browsed(self):
        """Return a tuple of the stores with the messages, in order of delivery: this store, or its levels."""
        return (self,)

    # its life

    def open_aside(self):
        """Have threads open closed segments, for readers that can wait. If a reader waits, the store calls
        ``listener.segment_opened(store)`` when the reader can go on.
        """
        raise NotImplementedError

    def hand_over(self, pool, committer):
        """Use this pool and committer from now on, instead of the stand-ins of a recovery in a thread."""
        self.pool = pool
        self.committer = committer

    def close(self):
        """Refuse all further calls. A durable store's files stay, sealed and closed after a last flush."""
        # committer.stop() waits for that sync.
        raise NotImplementedError

    def delete_files(self):
        raise NotImplementedError

    def forget_files(self):
        """Stop the store. The caller removes the folder later."""
        raise NotImplementedError

    def fence(self, error):
        """Stop the store after an I/O error. The disk's content is unknown until a restart has read it."""
        raise NotImplementedError
