"""Stream offset: where a consumer of a stream begins, as its argument ``x-stream-offset`` says.

    "first"           the oldest message kept
    "last"            the newest message (RabbitMQ: the last chunk, which may hold more)
    "next"            what is published from now on; so does a consumer without the argument
    a number          the message of this offset; the oldest kept where that is gone, waiting for it where it has not come yet
    a negative number the newest -n messages
    a timestamp       the first message that came at that time or later
    "1h", "7D"        the first message of the last hour, of the last seven days (Y M D h m s)

Used by the AMQP door and by stream_queue. Raises ValueError for anything else; the door says it in RabbitMQ's words.
"""
from datetime import datetime

from gomq_py.broker.features.age import milliseconds_of_age
from gomq_py.content.fields import seconds_of

FIRST, LAST, NEXT, NUMBER, NEWEST, SINCE, AGO = "first", "last", "next", "number", "newest", "since", "ago"

# What a location has room for (stream_reader): a million messages a second for nine years.
OFFSET_MAX = (1 << 48) - 2


class StreamStart:
    """A parsed ``x-stream-offset``: ``kind``, and the ``number`` that belongs to it (an offset, a count, Unix or plain milliseconds)."""

    __slots__ = ("kind", "number")

    def __init__(self, kind, number=0):
        self.kind = kind
        self.number = number

    def __eq__(self, other):
        return isinstance(other, StreamStart) and (self.kind, self.number) == (other.kind, other.number)

    def __hash__(self):
        return hash((self.kind, self.number))

    def __repr__(self):
        return f"<StreamStart {self.kind} {self.number}>"

    def move(self, cursor, now_ms):
        """Put the cursor there."""
        store = cursor.store
        first, end = store.first_offset, store.next_offset
        if self.kind in (SINCE, AGO):
            wanted_ms = self.number if self.kind == SINCE else max(0, now_ms - self.number)
            cursor.seek(store.offset_for_timestamp(wanted_ms))
            cursor.skip_before(wanted_ms)
            return
        offset = {
            FIRST: first, LAST: max(first, end - 1), NEXT: end, NUMBER: max(first, self.number), NEWEST: max(first, end - self.number),
        }[self.kind]
        cursor.seek(offset)


def parse_offset(value):
    """The StreamStart that a value of the argument means. Raises ValueError."""
    if isinstance(value, str):
        if value in (FIRST, LAST, NEXT):
            return StreamStart(value)
        return StreamStart(AGO, milliseconds_of_age(value))
    if isinstance(value, datetime):
        return StreamStart(SINCE, seconds_of(value) * 1000)
    if isinstance(value, int) and not isinstance(value, bool) and -OFFSET_MAX <= value <= OFFSET_MAX:
        return StreamStart(NUMBER, value) if value >= 0 else StreamStart(NEWEST, -value)
    raise ValueError(f"no stream offset: {value!r}")
