"""Stream queue: a Queue whose messages stay, so that every consumer reads all of them.

storage.stores.stream_store keeps the messages. A delivery round serves, in rotation, the consumers that have
credit and are not at the end of the stream. Consumers at the end cost nothing until the next publish. Never
switches greenlets.
"""
from gomq_py.broker.queues import consumers as _consumers, queue
from gomq_py.broker.queues.stream_pace import READERS, StreamPace
from gomq_py.broker.queues.stream_reader import OFFSET_BITS, SLOTS, StreamFlight, StreamReader
from gomq_py.broker.queues.stream_retention import StreamRetention
from gomq_py.errors import OutOfResources
from gomq_py.storage.errors import StoreFull
from gomq_py.storage.stores.stream_cursor import StreamCursor


class StreamQueue(queue.Queue):
    """A stream: durable, shared, never deleted automatically. ``stream`` is its store. Consumers read through
    StreamReaders; peek(), head(), read() and get() return False.
    """

    __slots__ = ("stream", "retention", "pace", "_readers", "_moved", "_free_slots", "_unacked")

    def __init__(self, name, vhost, store, scheduler, timers, arguments=None):
        queue.Queue.__init__(self, name, vhost, store, scheduler, True, None, False, arguments)
        self.stream = store
        self.retention = None if store is None else StreamRetention(store, timers, self.wake)
        self.pace = StreamPace(timers, self.wake)
        self._readers = []
        self._moved = []
        self._free_slots = []
        self._unacked = 0

    # readers

    def open_reader(self, start, tag=None, wanted=None, is_counted=False):
        """Make a StreamReader that begins at ``start`` (a StreamStart). close_reader() ends it. With ``tag``
        the reader begins at the position stored under this consumer tag, if any. Later positions are stored.
        ``wanted``: a StreamFilter or None. ``is_counted``: count unsettled bytes. Raises OutOfResources.
        """
        if not self._free_slots and len(self._readers) >= SLOTS:
            raise OutOfResources(
                f"stream '{self.name}' in vhost '{self.vhost}' has {SLOTS} readers, and can have no more"
            )
        self._store_positions()  # an earlier consumer of this tag may have moved in this batch
        cursor = StreamCursor(self.stream, self.stream.next_offset)
        stored = None if tag is None else self.stream.offsets.get(tag)
        if stored is None:
            start.move(cursor, self.scheduler.now_ms)
        else:
            cursor.seek(max(stored, self.stream.first_offset))
        if self._free_slots:
            slot = self._free_slots.pop()
        else:
            slot = len(self._readers)
            self._readers.append(None)
        cursor.let_wait()
        reader = StreamReader(
            cursor, slot, tag, wanted, StreamFlight() if is_counted or tag is not None else None
        )
        self._readers[slot] = reader
        return reader

    def close_reader(self, reader):
        """Close the reader of a consumer that has gone. Its unacked messages stay with the channel."""
        if reader.attached:
            reader.attached = False
            reader.cursor.close()
            if reader.outstanding == 0:
                self._free(reader)

    def forget_offset(self, tag):
        """Delete the position stored under a consumer tag. Returns False if there was none."""
        return not self.closed and self.stream.forget_offset(tag)

    def readers(self):
        """List the StreamReaders of attached consumers."""
        return [reader for reader in self._readers if reader is not None and reader.attached]

    # for management, and for jobs that read many messages

    @property
    def epoch(self):
        """32 hexadecimal digits that distinguish this stream from deleted streams of the same name."""
        return "" if self.stream is None else self.stream.incarnation.hex()

    def describe(self):
        """Describe the stream for the API as a dict: offsets, consumers with their lag, stored positions.
        Messages before ``synced_offset`` are on disk and cannot change.
        """
        if self.closed:
            return {"epoch": self.epoch, "state": "closed"}
        store = self.stream
        return {
            "epoch": self.epoch, "state": "running", "first_offset": store.first_offset,
            "next_offset": store.next_offset,
            "synced_offset": store.synced_offset, "messages": store.ready_count,
            "message_bytes": store.ready_bytes,
            "consumers": [
                {
                    "consumer_tag": consumer.tag,
                    **({} if consumer.reader is None else consumer.reader.describe()),
                }
                for consumer in (() if self.ring is None else self.ring.consumers)
            ],
            "offsets": [
                {"consumer_tag": tag, "offset": offset, "updated_ms": at}
                for tag, offset, at in store.offsets.items()
            ],
        }

    def cursor_at(self, offset):
        """Return a StreamCursor at ``offset`` or the oldest message after it. The caller closes it."""
        return StreamCursor(self.stream, min(max(offset, self.stream.first_offset), self.stream.next_offset))

    def segments(self):
        """Describe the segment files as a list of dicts (see StreamStore.describe)."""
        return [] if self.closed else self.stream.describe()

    def open_segment(self, number):
        """Return (file descriptor, readable bytes) of a segment file; None if it is gone. Raises OSError."""
        return None if self.closed else self.stream.open_for_reading(number)

    def offset_for_timestamp(self, timestamp_ms):
        """Return the offset of the first message at or after this Unix time in ms, or of the next publish."""
        cursor = StreamCursor(self.stream, self.stream.offset_for_timestamp(timestamp_ms))
        try:
            return cursor.skip_before(timestamp_ms)
        finally:
            cursor.close()

    def note_delivered(self):
        self.delivered += 1
        self._unacked += 1

    def configure(self, settings):
        if not self.closed:
            self.retention.configure(settings)

    def segment_opened(self, store):
        self.pace.hurry()
        self.wake()

    # settling removes nothing; the consumer gets credit

    def ack(self, location):
        """Settle a delivery as processed (basic.ack). The message stays in the stream."""
        if not self.closed:
            self._give_back(location, True)
            self.acked += 1

    def requeue(self, location):
        """Settle a delivery that a client returns. As in RabbitMQ, credit comes back, but not the message."""
        # Clients can read a message again by its offset. If the consumer has gone, the channel is closing:
        # the message was not processed, and the stored position stays.
        if self.closed:
            return
        self._give_back(location, False)
        self.requeued += 1

    def reject(self, location, requeue):
        """Settle a rejected delivery: with ``requeue`` like requeue(), otherwise like ack()."""
        if requeue:
            self.requeue(location)
        else:
            self.ack(location)

    def _give_back(self, location, is_done):
        reader = self._readers[location >> OFFSET_BITS]
        self._unacked -= 1
        if reader.settle(location, is_done):
            self._moved.append(reader)
            if not self.touched:
                self.scheduler.touch(self)
        if reader.outstanding == 0 and not reader.attached:
            self._free(reader)

    def _free(self, reader):
        self._readers[reader.slot] = None
        self._free_slots.append(reader.slot)

    # overrides for streams

    def check_exclusive(self, exclusive):
        """Do nothing: a stream allows any number of consumers."""

    def purge(self):
        """Drop all messages. Returns their count. Raises OutOfResources if a full disk keeps some."""
        try:
            return queue.Queue.purge(self)
        except StoreFull as error:
            self.wake()
            raise OutOfResources(
                f"cannot purge all of stream '{self.name}' in vhost '{self.vhost}', try again when there is "
                f"room: {error.reason}") from error

    def after_purge(self, durability, callback):
        # That takes two flushes: one of the remaining stream, after which the files are removed, and one of
        # their removal.
        def flushed(error):
            if error is None:
                queue.Queue.after_purge(self, durability, callback)
            else:
                callback(error)

        durability.when_on_disk(flushed, concerns=lambda: self.failed)

    def purge_some(self, limit):
        """Drop all messages, whatever the ``limit``: a stream drops whole segments. Returns their count."""
        return 0 if self.closed else self.purge()

    @property
    def unacked_count(self):
        return 0 if self.closed else self._unacked

    # turns

    def write_out(self):
        if self._moved and not self.closed:
            self._store_positions()
        queue.Queue.write_out(self)

    def _store_positions(self):
        moved, self._moved = self._moved, []
        for reader in moved:
            reader.moved = False
            position, stored = reader.position(), self.stream.offsets.get(reader.tag)
            if reader.attached or stored is None or position > stored:
                self.stream.put_offset(reader.tag, position, self.scheduler.now_ms)

    def turn(self):
        """Deliver unread messages to consumers with credit; apply retention. Returns the count of bytes."""
        if (
            self.ring is not None and self.ring.ready >= READERS
            and self.pace.must_wait(self.scheduler.now_ms, self.stream.next_offset)
        ):
            return 0
        octets = queue.Queue.turn(self)
        if not self.closed and self.stream.rolled:
            self.retention.apply()
        return octets

    def offer(self, consumer):
        if self.ring is None:
            return
        was_ready = consumer.ringed
        self.ring.offer(consumer)
        if consumer.ringed and not self.touched and self.waiting() and consumer.is_behind():
            if not was_ready:
                self.pace.hurry()
            elif self.pace.is_waiting():
                return
            self.scheduler.touch(self)

    def is_outrun(self):
        """Return False: a stream never slows its publishers down for slow consumers."""
        return False

    def waiting(self):
        """Return the count of messages kept; 0 while deliveries are paused."""
        # hold_deliveries() has no effect on streams: no message is requeued that others could overtake.
        return 0 if self.closed or self.paused else self.stream.ready_count

    def _deliver(self):
        octets = 0
        more = True
        while more and octets < queue.TURN_OCTETS and self.waiting():
            more = False
            rivals = 0 if self.ring is None else self.ring.ready
            while rivals > 0 and octets < queue.TURN_OCTETS and self.ring is not None:
                consumer = self.ring.take_next()
                if consumer is None:
                    break
                rivals -= 1
                taken = consumer.deliver(_consumers.UNLIMITED) if consumer.is_behind() else 0
                octets += taken
                if self.ring is not None and consumer.queue is self:
                    self.ring.offer(consumer)
                    # A consumer that is behind but found no message is not asked again before a change: the
                    # hub would loop.
                    if taken and consumer.ringed and consumer.is_behind():
                        more = True
            if rivals > 0:
                more = True
        if more and self.ring is not None and self.ring.ready and self.waiting():
            self.pace.hurry()
            self.scheduler.later(self)
        return octets

    def _let_go(self, reason):
        self.pace.stop()
        if self.retention is not None:
            self.retention.close()
        for reader in self.readers():
            self.close_reader(reader)  # before the store closes, although the consumer is told later
        queue.Queue._let_go(self, reason)
