"""Consume from a stream: basic.consume and basic.get on a stream, and what is refused there, in RabbitMQ's
words.

Beside consume, which hands streams to it.
"""
from gomq_py.amqp.wire.errors import NotImplemented_, PreconditionFailed
from gomq_py.broker.features.arguments import check_own_arguments
from gomq_py.broker.features.arguments import STREAM, queue_type_of
from gomq_py.broker.features.stream_offset import is_tracked, start_of
from gomq_py.broker.features.stream_prefetch import prefetch_bytes_of
from gomq_py.broker.names import described
from gomq_py.late_imports import importing


def is_stream(queue):
    """Whether the queue is a stream."""
    return queue_type_of(queue.arguments) == STREAM


def check_stream_has_no_get(queue):
    """Refuse basic.get on a stream. Raises NotImplemented_."""
    if is_stream(queue):
        raise NotImplemented_(
            f"basic.get not supported by stream queues {described('queue', queue.name, queue.vhost)}"
        )


def stream_consumer(channel, method, queue, tag, on_cancel):
    """Make the consumer that basic.consume asks for.

    ``exclusive`` has no effect, as in RabbitMQ: any number of consumers may read a stream.

    Raises NotImplemented_, OutOfResources, PreconditionFailed.
    """
    arguments, entity = method.arguments, described("queue", queue.name, queue.vhost)
    if not channel.prefetch_is_given or not channel.prefetch_count:
        raise PreconditionFailed(f"consumer prefetch count is not set for stream {entity}")
    if method.no_ack:
        raise NotImplemented_(f"automatic acknowledgement not supported by stream {entity}")
    if channel.global_prefetch:
        raise NotImplemented_(f"{entity} does not support global qos")
    check_own_arguments(entity, STREAM, arguments)
    with importing("a consumer of streams"):  # here, because a broker without should not carry it
        from gomq_py.amqp.server.stream_consumer import StreamConsumer
        from gomq_py.broker.queues.stream_filter import parse_filter

    return StreamConsumer(
        channel.connection.output, channel, queue, tag, start_of(arguments),
        is_tracked(arguments, method.consumer_tag),
        parse_filter(arguments), prefetch_bytes_of(arguments), arguments=arguments,
        prefetch=channel.prefetch_count, frame_max=channel.connection.limits.frame_max, on_cancel=on_cancel,
    )
