"""Queue arguments: every key that has a meaning, how its value is checked, which kinds of queue take it, and RabbitMQ's text when it is wrong.

Used by vhosts when a queue is declared. Unknown keys are accepted and kept, as in RabbitMQ. A queue that exists already is only compared with, never
checked again, so that a definition from an older broker stays usable.
"""
from gomq_py.broker.age import milliseconds_of_age
from gomq_py.broker.deduplication import MAX_SIZE
from gomq_py.broker.names import NAME_OCTETS_MAX, fits_short_string
from gomq_py.broker.values import MAX_TIMER_MS, difference_in, is_integer, same_argument, type_name
from gomq_py.content.fields import Seconds
from gomq_py.errors import PreconditionFailed

CLASSIC, QUORUM, STREAM = "classic", "quorum", "stream"
QUEUE_TYPE = "x-queue-type"

# RabbitMQ's internal names, which its texts show.
TYPE_MODULES = {CLASSIC: "rabbit_classic_queue", QUORUM: "rabbit_quorum_queue", STREAM: "rabbit_stream_queue"}

_ALL = TYPES = frozenset((CLASSIC, QUORUM, STREAM))
_QUEUES = frozenset((CLASSIC, QUORUM))
_CLASSIC_ONLY = frozenset((CLASSIC,))
_STREAM_ONLY = frozenset((STREAM,))


class _Wrong(Exception):
    """The value is not acceptable; the text is RabbitMQ's reason, in Erlang's notation."""


def queue_type_of(arguments):
    """``classic``, ``quorum`` or ``stream``: what was asked for, classic where nothing was."""
    return arguments.get(QUEUE_TYPE) or CLASSIC


def check_queue_arguments(entity, durable, exclusive, auto_delete, arguments):
    """Check a new queue; ``entity`` is how texts call it. Of several faults RabbitMQ's first is named. Raises PreconditionFailed."""
    dead_letter_exchange = arguments.get("x-dead-letter-exchange", "")
    if not isinstance(dead_letter_exchange, str):
        raise PreconditionFailed(f"invalid type '{type_name(dead_letter_exchange)}' for arg 'x-dead-letter-exchange' in {entity}")
    check_values(entity, arguments, (QUEUE_TYPE,))  # before the rest, which depends on it
    kind = queue_type_of(arguments)
    check_values(entity, arguments, [key for key in ARGUMENTS if kind in ARGUMENTS[key][1]])
    for key in arguments:
        if key in ARGUMENTS and kind not in ARGUMENTS[key][1]:
            raise PreconditionFailed(f"invalid arg '{key}' for {entity} of queue type {TYPE_MODULES[kind]}")
    if kind != CLASSIC:
        for wrong, name in ((auto_delete, "auto-delete"), (exclusive, "exclusive-owner"), (not durable, "non-durable")):
            if wrong:
                raise PreconditionFailed(f"invalid property '{name}' for {entity}")


def check_may_be_unnamed(arguments):
    """Refuse a generated name to kinds that are shared by their name. Raises PreconditionFailed."""
    kind = arguments.get(QUEUE_TYPE, CLASSIC)
    if kind in (QUORUM, STREAM):
        raise PreconditionFailed(f"Cannot declare a server-named queue for type {TYPE_MODULES[kind]}")


def check_same_arguments(entity, received, current):
    """Compare a declaration's arguments with those the queue has. Raises PreconditionFailed for the first known key that differs."""
    for key in ARGUMENTS:
        if key == QUEUE_TYPE and queue_type_of(received) == queue_type_of(current):
            continue  # none is classic
        if not same_argument(received, current, key):
            raise PreconditionFailed(difference_in(key, entity, received, current))


def check_values(entity, arguments, keys):
    """Check the values of these keys, as far as they are there; ``entity`` is a queue or an exchange. Raises PreconditionFailed."""
    for key in keys:
        if key not in ARGUMENTS or key not in arguments:
            continue
        try:
            ARGUMENTS[key][0](arguments[key], arguments)
        except _Wrong as reason:
            raise PreconditionFailed(f"invalid arg '{key}' for {entity}: {reason}") from None


# one check per kind of value

def _integer(value, _arguments):
    if is_integer(value):
        return
    if not isinstance(value, int) or isinstance(value, (bool, Seconds)):
        raise _Wrong(f'"expected integer, got {type_name(value)}"')
    raise _Wrong(f"{{value_too_{'large' if value > 0 else 'small'},{value}}}")  # JSON has longer ones than AMQP


def _not_negative(value, arguments):
    _integer(value, arguments)
    if value < 0:
        raise _Wrong(f"{{value_negative,{value}}}")


def _milliseconds(value, arguments):
    _not_negative(value, arguments)
    if value > MAX_TIMER_MS:
        raise _Wrong(f"{{value_too_large,{value}}}")


def _positive_milliseconds(value, arguments):
    _milliseconds(value, arguments)
    if value == 0:
        raise _Wrong("{value_zero,0}")


def _priority(value, arguments):
    _not_negative(value, arguments)
    if value > 255:
        raise _Wrong(f"{{max_value_exceeded,{value}}}")


def _cache_size(value, arguments):
    _not_negative(value, arguments)
    if value > MAX_SIZE:
        raise _Wrong(f"{{max_value_exceeded,{value}}}")


def _text(value, _arguments):
    if not isinstance(value, str):
        raise _Wrong(f"{{unacceptable_type,{type_name(value)}}}")


def _boolean(value, _arguments):
    if not isinstance(value, bool):
        raise _Wrong(f"{{unacceptable_type,{type_name(value)}}}")


def _dead_letter_routing_key(value, arguments):
    _text(value, arguments)
    if "x-dead-letter-exchange" not in arguments:
        raise _Wrong("routing_key_but_no_dlx_defined")
    if not fits_short_string(value):
        raise _Wrong(f'"expected a routing key of at most {NAME_OCTETS_MAX} octets"')


def _one_of(reason, *allowed):
    def check(value, arguments):
        _text(value, arguments)
        if value not in allowed:
            raise _Wrong(reason.format(value))
    return check


def _queue_version(value, arguments):
    _integer(value, arguments)
    if value not in (1, 2):
        raise _Wrong(f"\"unsupported queue version '{value}'\"")


def _max_age(value, arguments):
    _text(value, arguments)
    try:
        milliseconds_of_age(value)
    except ValueError:
        raise _Wrong("invalid_max_age") from None


def _filter_size(value, arguments):
    _integer(value, arguments)
    if not 16 <= value <= 255:
        raise _Wrong(f"{{value_out_of_range,{value}}}")


_queue_type = _one_of("\"unsupported queue type '{}'\"", CLASSIC, QUORUM, STREAM)

# key: (check, kinds of queue that take it). The order is RabbitMQ's: the first difference found is the one that is reported.
ARGUMENTS = {
    "x-expires": (_positive_milliseconds, _QUEUES),
    "x-message-ttl": (_milliseconds, _QUEUES),
    "x-dead-letter-exchange": (_text, _QUEUES),
    "x-dead-letter-routing-key": (_dead_letter_routing_key, _QUEUES),
    "x-dead-letter-strategy": (_one_of("invalid_dlx_strategy", "at-most-once", "at-least-once"), _QUEUES),
    "x-max-length": (_not_negative, _ALL),
    "x-max-length-bytes": (_not_negative, _ALL),
    "x-max-in-memory-length": (_not_negative, frozenset((QUORUM,))),
    "x-max-in-memory-bytes": (_not_negative, frozenset((QUORUM,))),
    "x-max-priority": (_priority, _CLASSIC_ONLY),
    "x-overflow": (_one_of("invalid_overflow", "drop-head", "reject-publish", "reject-publish-dlx"), _QUEUES),
    "x-queue-mode": (_one_of("\"unsupported queue mode '{}'\"", "default", "lazy"), _CLASSIC_ONLY),
    "x-queue-version": (_queue_version, _CLASSIC_ONLY),
    "x-single-active-consumer": (_boolean, _ALL),
    QUEUE_TYPE: (_queue_type, _ALL),
    "x-quorum-initial-group-size": (_not_negative, frozenset((QUORUM,))),
    "x-max-age": (_max_age, _STREAM_ONLY),
    "x-stream-max-segment-size-bytes": (_not_negative, _STREAM_ONLY),
    "x-stream-filter-size-bytes": (_filter_size, _STREAM_ONLY),
    "x-initial-cluster-size": (_not_negative, _STREAM_ONLY),
    "x-queue-leader-locator": (_one_of("invalid_queue_locator_arg", "client-local", "balanced", "random", "least-leaders"), _ALL),
    "x-delivery-limit": (_integer, _QUEUES),  # below 0 it is none
    "x-consumer-timeout": (_milliseconds, _QUEUES),
    "x-delayed-retry-type": (_one_of("invalid_delayed_retry_type", "disabled", "all", "failed", "returned"), _QUEUES),
    "x-delayed-retry-min": (_milliseconds, _QUEUES),
    "x-delayed-retry-max": (_milliseconds, _QUEUES),
    "x-message-deduplication": (_boolean, _QUEUES),
    "x-cache-size": (_cache_size, _QUEUES),
    "x-cache-ttl": (_milliseconds, _QUEUES),
    "x-deduplication-header": (_text, _QUEUES),
}
