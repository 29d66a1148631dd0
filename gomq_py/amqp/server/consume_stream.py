"""Consume from a stream: what basic.consume and basic.get mean where the queue is a stream, and what is refused there, in RabbitMQ's words.

Beside consume, which leaves streams to it.
"""
from gomq_py.amqp.server.stream_consumer import StreamConsumer
from gomq_py.amqp.wire.errors import NotImplemented_, PreconditionFailed
from gomq_py.broker.names import described
from gomq_py.broker.queues.stream_filter import parse_filter
from gomq_py.broker.features.stream_offset import NEXT, StreamStart, parse_offset
from gomq_py.broker.queues.stream_queue import StreamQueue
from gomq_py.broker.values import type_name

OFFSET, TRACKING, PREFETCH_BYTES = "x-stream-offset", "x-stream-automatic-offset-tracking", "x-stream-prefetch-bytes"


def is_stream(queue):
    """Whether the queue is a stream."""
    return isinstance(queue, StreamQueue)


def check_stream_has_no_get(queue):
    """Refuse basic.get on a stream. Raises NotImplemented_."""
    if is_stream(queue):
        raise NotImplemented_(f"basic.get not supported by stream queues {described('queue', queue.name, queue.vhost)}")


def stream_consumer(channel, method, queue, tag, on_cancel):
    """The consumer that basic.consume asks for. Readers exclude nobody: ``exclusive`` has no effect, as in RabbitMQ.

    Raises NotImplemented_, PreconditionFailed.
    """
    entity = described("queue", queue.name, queue.vhost)
    if not channel.prefetch_is_given or not channel.prefetch_count:
        raise PreconditionFailed(f"consumer prefetch count is not set for stream {entity}")
    if method.no_ack:
        raise NotImplemented_(f"automatic acknowledgement not supported by stream {entity}")
    if channel.global_prefetch:
        raise NotImplemented_(f"{entity} does not support global qos")
    arguments = method.arguments
    return StreamConsumer(
        channel.connection.output, channel, queue, tag, _start(arguments, entity), _is_tracked(method, entity), _filter(arguments, entity),
        _most_octets(arguments, entity), arguments=arguments, prefetch=channel.prefetch_count, frame_max=channel.connection.frame_max,
        on_cancel=on_cancel,
    )


def _start(arguments, entity):
    """Where the consumer begins. Raises PreconditionFailed."""
    if OFFSET not in arguments:
        return StreamStart(NEXT)
    value = arguments[OFFSET]
    try:
        return parse_offset(value)
    except ValueError:
        reason = "invalid_max_age" if isinstance(value, str) else f"{{invalid_offset_arg,{type_name(value)}}}"
        raise PreconditionFailed(f"failed consuming from stream {entity}: {reason}") from None


def _is_tracked(method, entity):
    """Whether the broker stores where the consumer goes on: where its argument says so, or where the client has named it and gives no offset."""
    value = method.arguments.get(TRACKING)
    if value is None:
        return bool(method.consumer_tag) and not method.consumer_tag.startswith("amq.ctag-") and OFFSET not in method.arguments
    if value in ("true", "false"):
        value = value == "true"
    if not isinstance(value, bool):
        raise _wrong(TRACKING, entity, f"{{unacceptable_type,{type_name(value)}}}")
    return value


def _filter(arguments, entity):
    """The StreamFilter asked for, or None. Raises PreconditionFailed."""
    try:
        return parse_filter(arguments)
    except ValueError as reason:
        raise PreconditionFailed(f"failed consuming from stream {entity}: {reason}") from None


def _most_octets(arguments, entity):
    """Octets the consumer may hold unsettled, 0 for any number. Raises PreconditionFailed."""
    value = arguments.get(PREFETCH_BYTES, 0)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(PREFETCH_BYTES, entity, f'"expected integer, got {type_name(value)}"')
    if value < 0:
        raise _wrong(PREFETCH_BYTES, entity, f"{{value_negative,{value}}}")
    return value


def _wrong(argument, entity, reason):
    return PreconditionFailed(f"invalid arg '{argument}' for {entity}: {reason}")
