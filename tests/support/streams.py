"""Streams for tests: a store in a folder, with messages as plain values,
and what the wire says of a stream.
"""
from gomq_py.storage.disk.files import Files
from gomq_py.storage.flush.group_commit import GroupCommit
from gomq_py.storage.format import head as head_format
from gomq_py.storage.format.record import RecordScanner
from gomq_py.storage.message import Message
from gomq_py.storage.segments.pool import SegmentPool
from gomq_py.storage.stores.stream_cursor import StreamCursor
from gomq_py.storage.stores.stream_recovery import open_stream_store
from tests.support.stores import INCARNATION

STREAM = {"x-queue-type": "stream"}
# The smallest there is; about 1170 messages without properties in each.
SEGMENT_BYTES = 65536


class StreamBench:
    """One stream's store with everything below it.

    Message n has the body ``b"n"`` and came at n milliseconds after ``epoch_ms``.
    """

    epoch_ms = 1_700_000_000_000

    def __init__(self, folder, files=None, enabled=False, segment_bytes=SEGMENT_BYTES):
        self.folder = folder
        self.files = files or Files()
        self.enabled = enabled
        self.segment_bytes = segment_bytes
        self.damaged = []
        self.fenced = []
        self.opened = 0  # how often readers that wait were told to go on
        self.message = Message()
        self.start()

    def start(self):
        self.committer = GroupCommit(self.files, enabled=self.enabled)
        self.pool = SegmentPool(self.folder / "pool", self.files, self.committer)
        self.store, self.report = open_stream_store(
            self.folder / "stream", self.files, self.pool, self.committer, INCARNATION, self.segment_bytes,
            self)
        return self.store

    def reopen(self):
        self.store.close()
        self.committer.stop()
        return self.start()

    def crash(self):
        """As after kill -9: what is in the mappings is there, what is in memory is not."""
        self.committer.kill()
        return self.start()

    def sync(self):
        """Everything so far is on the disk, and what waited for that has happened."""
        self.committer.wait()
        self.committer.wait()

    # what the store tells

    def record_damaged(self, store, path, start, end, count):
        self.damaged.append((path, start, end, count))

    def store_fenced(self, store, error):
        self.fenced.append(error)

    def segment_opened(self, store):
        self.opened += 1

    # messages as values

    def push(self, count=1, body=None, persistent=True):
        """A batch of messages with their offsets as bodies."""
        self.append(count, body, persistent)
        self.store.write_out()

    def append(self, count=1, body=None, persistent=True):
        """The same while the batch goes on."""
        for _ in range(count):
            offset = self.store.next_offset
            self.message.assign(
                b"", b"s", b"\0\0", b"%d" % offset if body is None else body, self.epoch_ms + offset,
                persistent=persistent,
            )
            self.store.append(self.message)

    def cursor(self, offset=0):
        """A new cursor."""
        return StreamCursor(self.store, offset)

    def read(self, cursor, limit=1 << 30):
        """The bodies of the next messages as numbers; each must be the message of its offset."""
        message = Message()
        found = []
        while len(found) < limit and cursor.peek(message):
            number = int(message.get_body())
            assert cursor.offset == number == message.describe()["location"]
            found.append(number)
            cursor.step()
        return found

    def read_all(self, offset=0):
        """Everything from an offset on."""
        cursor = self.cursor(offset)
        try:
            return self.read(cursor)
        finally:
            cursor.close()

    def files_there(self):
        """The names of the stream's segment files."""
        return sorted(path.name for path in (self.folder / "stream").glob("msgs.*"))

    def damage(self, offsets, place="body"):
        """Turn a bit in the header or the body of the records of these offsets, on the disk."""
        for path in (self.folder / "stream").glob("msgs.*"):
            damage_records(path, offsets, place)


def damage_records(path, offsets, place="body"):
    """Turn a bit in those records of a stream's sound segment file that have one of these offsets."""
    content = bytearray(path.read_bytes())
    head = head_format.decode(content)
    scanner = RecordScanner(bytes(content), head_format.HEAD_BYTES, len(content), head.seed, head.begun_ms)
    hit = []
    while scanner.next():
        if head.first_offset + scanner.ordinal in offsets:
            body_at = scanner.routing_at + scanner.routing_length + scanner.properties_length
            hit.append(scanner.position + 6 if place == "header" else body_at)
    for at in hit:
        content[at] ^= 0x40
    path.write_bytes(content)
