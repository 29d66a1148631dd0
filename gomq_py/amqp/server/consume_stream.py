"""Consume from a stream: what basic.consume and basic.get mean where the queue is a stream, and what is refused there, in RabbitMQ's words.

Beside consume, which leaves streams to it.
"""
from gomq_py.amqp.server.stream_consumer import StreamConsumer
from gomq_py.amqp.wire.errors import NotImplemented_, PreconditionFailed
from gomq_py.broker.names import described
from gomq_py.broker.queues.stream_offset import NEXT, StreamStart, parse_offset
from gomq_py.broker.queues.stream_queue import StreamQueue
from gomq_py.broker.values import type_name


def is_stream(queue):
    """Whether the queue is a stream."""
    return isinstance(queue, StreamQueue)


def check_stream_has_no_get(queue):
    """Refuse basic.get on a stream. Raises NotImplemented_."""
    if is_stream(queue):
        raise NotImplemented_(f"basic.get not supported by stream queues {described('queue', queue.name, queue.vhost)}")


def stream_consumer(channel, method, queue, tag, on_cancel):
    """The consumer that basic.consume asks for. Raises NotImplemented_, PreconditionFailed."""
    entity = described("queue", queue.name, queue.vhost)
    if not channel.prefetch_is_given or not channel.prefetch_count:
        raise PreconditionFailed(f"consumer prefetch count is not set for stream {entity}")
    if method.no_ack:
        raise NotImplemented_(f"automatic acknowledgement not supported by stream {entity}")
    if channel.global_prefetch:
        raise NotImplemented_(f"{entity} does not support global qos")
    if method.exclusive:
        raise PreconditionFailed(f"exclusive consumers are not supported by stream {entity}: readers do not take messages from each other")
    return StreamConsumer(
        channel.connection.output, channel, queue, tag, _start(method.arguments, entity), arguments=method.arguments,
        prefetch=channel.prefetch_count, frame_max=channel.connection.frame_max, on_cancel=on_cancel,
    )


def _start(arguments, entity):
    """Where the consumer begins. Raises PreconditionFailed."""
    if "x-stream-offset" not in arguments:
        return StreamStart(NEXT)
    value = arguments["x-stream-offset"]
    try:
        return parse_offset(value)
    except ValueError:
        reason = "invalid_max_age" if isinstance(value, str) else f"{{invalid_offset_arg,{type_name(value)}}}"
        raise PreconditionFailed(f"failed consuming from stream {entity}: {reason}") from None
