"""Stream offset: where a consumer of a stream begins (``x-stream-offset``), and whether the broker keeps
where it goes on.

    "first"           the oldest message kept
    "last"            the newest message (RabbitMQ: the last chunk, which may hold more)
    "next"            what is published from now on; so does a consumer without the argument
    a number          the message of this offset; the oldest kept if it is gone; the next one published if it
                      has not come yet, as in RabbitMQ: after a loss of power offsets may go on at a lower one
    a negative number the newest -n messages
    a timestamp       the first message that came at that time or later
    "1h", "7D"        the first message of the last hour, of the last seven days (Y M D h m s)

Acted on by broker.queues.stream_queue. The broker keeps the position of a consumer that says so
(``x-stream-automatic-offset-tracking``), and of one whose client has named it and gives no offset, as
LavinMQ.
"""
from datetime import datetime

from gomq_py.broker.features import checks
from gomq_py.broker.features.age import milliseconds_of_age
from gomq_py.broker.features.feature import STREAM_ONLY, ConsumerArgument
from gomq_py.broker.values import type_name
from gomq_py.content.fields import seconds_of

OFFSET, TRACKING = "x-stream-offset", "x-stream-automatic-offset-tracking"
# What the broker calls consumers whose client has not named them begins so.
GENERATED_TAG = "amq.ctag-"
FIRST, LAST, NEXT, NUMBER, NEWEST, SINCE, AGO = "first", "last", "next", "number", "newest", "since", "ago"

# What a location has room for (broker.queues.stream_reader): a million messages a second for nine years.
OFFSET_MAX = (1 << 48) - 2


class StreamStart:
    """A parsed ``x-stream-offset``: a ``kind`` and its ``number`` (an offset, a count, or Unix or plain
    milliseconds).
    """

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
            FIRST: first, LAST: max(first, end - 1), NEXT: end, NUMBER: min(max(first, self.number), end),
            NEWEST: max(first, end - self.number),
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


def start_of(arguments):
    """The StreamStart of a consumer with these arguments, which were checked."""
    return parse_offset(arguments[OFFSET]) if OFFSET in arguments else StreamStart(NEXT)


def is_tracked(arguments, tag):
    """Whether the broker keeps the position of a consumer with these arguments, which were checked.

    ``tag`` is what its client called it, empty if it did not.
    """
    value = arguments.get(TRACKING)
    if value is None:
        return bool(tag) and not tag.startswith(GENERATED_TAG) and OFFSET not in arguments
    return value in (True, "true")


def _check_offset(value, _arguments):
    try:
        parse_offset(value)
    except ValueError:
        reason = "invalid_max_age" if isinstance(value, str) else f"{{invalid_offset_arg,{type_name(value)}}}"
        raise checks.WrongValue(reason) from None


def _check_tracking(value, arguments):
    if value not in (None, "true", "false"):
        checks.boolean(value, arguments)


CONSUMER_ROWS = (
    ConsumerArgument(
        argument=OFFSET, kinds=STREAM_ONLY, check=_check_offset, only_there=True,
        refusal="failed consuming from stream {entity}: {reason}", effect="Where the consumer begins.",
    ),
    ConsumerArgument(
        argument=TRACKING, kinds=STREAM_ONLY, check=_check_tracking,
        effect="Whether the broker keeps where a consumer of this tag goes on.",
    ),
)
