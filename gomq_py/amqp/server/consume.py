"""Consume: handles basic.consume, cancel, qos, get and recover.

Consume-ok may have to wait for other answers of the channel; the first delivery then waits, too.
"""
import os
from base64 import urlsafe_b64encode
from functools import partial

from gomq_py.amqp.server import events
from gomq_py.amqp.server.delivery import AMQPConsumer
from gomq_py.amqp.server.replies import message_frames
from gomq_py.amqp.server.reply_to import ReplyConsumer
from gomq_py.amqp.server.topology import REPLY_TO, named_queue
from gomq_py.amqp.wire.errors import (
    ContentTooLarge, NotAllowed, NotImplemented_, PreconditionFailed, ResourceError,
)
from gomq_py.amqp.wire.frames import HEADER_OVERHEAD
from gomq_py.amqp.wire.methods import (
    BasicCancel, BasicCancelOk, BasicConsumeOk, BasicGetEmpty, BasicGetOk, BasicQosOk, BasicRecoverOk,
)
from gomq_py.broker.features.arguments import QUORUM, STREAM, check_common_arguments, check_own_arguments
from gomq_py.broker.features.consumer_priority import priority_of
from gomq_py.broker.features.consumer_timeout import timeout_of
from gomq_py.broker.features.retry import RETURNED
from gomq_py.broker.features.stream_offset import GENERATED_TAG, is_tracked, start_of
from gomq_py.broker.features.stream_prefetch import prefetch_bytes_of
from gomq_py.broker.names import cleaned, described
from gomq_py.broker.queues.peeking import count_refusal, next_properties_length
from gomq_py.broker.verbs import queues
from gomq_py.errors import Refused
from gomq_py.late_imports import importing
from gomq_py.observability.log import logger
from gomq_py.storage.message import Message

LOG = logger("amqp")
# More octets than properties have.
ANY_SIZE = 1 << 62


def basic_qos(channel, method):
    """basic.qos: limit the unacked messages (0: no limit) of each consumer started later. With ``global`` the
    limit is shared by all consumers of the channel instead.
    """
    # As in RabbitMQ, a limit without ``global`` removes the shared limit; a client that wants both sets the
    # shared limit last.
    if method.prefetch_size:
        raise NotImplemented_(f"prefetch_size!=0 ({method.prefetch_size})")
    if not method.global_:
        channel.prefetch_count = method.prefetch_count
        channel.prefetch_is_given = True
    limited, channel.global_prefetch = channel.global_prefetch, method.prefetch_count if method.global_ else 0
    if method.global_ or limited:
        channel.resume_consumers()
    channel.reply(BasicQosOk())


def basic_consume(channel, method):
    """basic.consume: start a consumer. ``no_local`` is accepted and ignored, as in RabbitMQ."""
    channel.connection.takes = True
    tag = method.consumer_tag
    if tag and (tag in channel.consumers or _is_reply_tag(channel, tag)):
        raise NotAllowed(f"attempt to reuse consumer tag '{tag}'")
    _check_consumer_count(channel)
    tag = tag or f"{GENERATED_TAG}{urlsafe_b64encode(os.urandom(16)).rstrip(b'=').decode()}"
    if cleaned(method.queue) == REPLY_TO:
        consumer = _reply_consumer(channel, method, tag)
    else:
        consumer = _queue_consumer(channel, method, tag)
    if not method.no_wait:
        channel.reply(BasicConsumeOk(consumer_tag=tag))
    channel.replies.act(lambda: _start(channel, consumer))


def basic_cancel(channel, method):
    """basic.cancel: stop a consumer. Its unacked messages stay with the channel. Ignores unknown tags."""
    tag = method.consumer_tag
    if _is_reply_tag(channel, tag):
        stop_reply_consumer(channel)
    elif tag in channel.consumers:
        if channel.consumers[tag].queue is not None:
            channel.consumers[tag].queue.serve()
        consumer = channel.consumers.pop(tag)
        consumer.stop()
        channel.connection.events.emit("consumer.deleted", events.consumer_deleted, consumer)
    if not method.no_wait:
        channel.reply(BasicCancelOk(consumer_tag=tag))


def basic_get(channel, method):
    """basic.get: answer with the queue's next message, or with get-empty."""
    channel.connection.takes = True
    name = named_queue(channel, method.queue)
    queue = queues.to_take_from(channel.caller, name)
    if queue.type == STREAM:
        raise NotImplemented_(
            f"basic.get not supported by stream queues {described('queue', queue.name, queue.vhost)}"
        )
    _check_unacked(channel, method.no_ack)
    queue.serve()
    message = Message()
    _check_header(channel, queue)
    if not queue.get(message, method.no_ack):
        if queue.is_opening():
            channel.go_on_later(
                queue.when_opened, partial(basic_get, channel, method),
                f"files of queue '{name}' to be opened",
            )
        else:
            channel.got_none += 1
            channel.reply(BasicGetEmpty())
        return
    about = message.describe()
    properties = message.get_properties(channel.connection.limits.frame_max - HEADER_OVERHEAD)
    body = message.get_body()
    if channel.tracing:
        # Publishing the traced copy moves the store's view; the message keeps its own octets.
        message.own()
        channel.trace_delivery(message, name, {})
    channel.unacked.redelivered_count += about["redelivered"]
    tag = _got(channel, queue, method.no_ack, about["location"], len(body))
    channel.replies.send(message_frames(
        channel, BasicGetOk, message, properties, body, delivery_tag=tag, redelivered=about["redelivered"],
        message_count=queue.count_ready()))


def _got(channel, queue, no_ack, location, size):
    """Count a message that basic.get took. Returns its delivery tag."""
    if no_ack:
        channel.got_no_ack += 1
        return channel.unacked.skip()
    channel.got += 1
    holder = channel.unacked.make_holder(queue, None)
    tag = channel.unacked.add(holder, location, size, channel.connection.scheduler.now_ms // 1000)
    if holder.timeout_ms() and not channel.watched:
        channel.watch_unacked()
    return tag


def basic_recover(channel, method):
    """basic.recover: requeue all unacked messages of the channel."""
    _recover(channel, method, lambda: channel.reply(BasicRecoverOk()))


def basic_recover_async(channel, method):
    """basic.recover-async: requeue all unacked messages of the channel, without an answer."""
    _recover(channel, method, None)


def header_too_large(channel, queue, octets):
    """Return the ContentTooLarge for the next message of ``queue``, with ``octets`` bytes of properties."""
    return ContentTooLarge(
        f"the next message of {described('queue', queue.name, channel.vhost.name)} has a header of "
        f"{octets + HEADER_OVERHEAD} bytes, larger than the negotiated frame_max of "
        f"{channel.connection.limits.frame_max}")


def stop_reply_consumer(channel):
    """Stop the channel's direct reply-to consumer, if it has one."""
    consumer, channel.reply_consumer = channel.reply_consumer, None
    if consumer is not None:
        consumer.stop()


def end_overdue(channel, holder, error):
    """Cancel a consumer that has not acked in time, and requeue its messages without counting failures.
    The consumer must be of a quorum queue, its client must support cancellation by the broker, and the
    channel must be one that may_return() all its unacked messages. Otherwise close the channel with
    ``error``, and return False.
    """
    consumer, queue, connection = holder.consumer, holder.queue, channel.connection
    LOG.warning(
        "connection %s, channel %d: %s on queue '%s' in vhost '%s' has not acknowledged a delivery in time",
        connection.name, channel.id, "basic.get" if consumer is None else f"consumer '{consumer.tag}'",
        queue.name, queue.vhost)
    if (
        consumer is None or channel.consumers.get(consumer.tag) is not consumer or queue.type != QUORUM
        or not connection.capabilities.get("consumer_cancel_notify")
        or not channel.may_return(channel.unacked.count)
    ):
        connection.fail_channel(channel, error)
        return False
    tags = [tag for tag, one, *_ in channel.unacked.entries(channel.unacked.count) if one is holder]
    queue.remove_consumer(consumer)
    consumer.cancel(error.text)
    for tag in tags:
        channel.return_one(tag)
    return True


def _recover(channel, method, then):
    if not method.requeue:
        raise NotImplemented_("requeue=false")
    if channel.transaction is None:
        channel.settle_many(channel.unacked.next_tag - 1, RETURNED, then)
        return
    channel.transaction.requeue_unsettled(then)


def _check_consumer_count(channel):
    limit = channel.connection.server.settings.max_consumers_per_channel
    if limit and len(channel.consumers) >= limit:
        raise ResourceError(f"Max {limit} consumers per channel reached").soft()
    limit = channel.connection.server.settings.max_consumers_per_connection
    if limit and sum(len(one.consumers) for one in channel.connection.channels.values()) >= limit:
        raise ResourceError(f"Max {limit} consumers per connection reached").soft()


def _check_unacked(channel, no_ack):
    if not no_ack and channel.unacked.count >= channel.max_unacked:
        raise ResourceError(f"Max {channel.max_unacked} unacknowledged messages per channel reached").soft()


def _check_header(channel, queue):
    """Raise ContentTooLarge if the queue's next message has a header too large for a frame to the client. The
    message stays in the queue.
    """
    queue.turn_to(channel.unacked)
    most = channel.connection.properties_max
    if most < ANY_SIZE:
        octets = next_properties_length(queue, most)
        if octets > most:
            count_refusal(queue)
            raise header_too_large(channel, queue, octets)


def _queue_consumer(channel, method, tag):
    name = named_queue(channel, method.queue)
    queue = queues.to_take_from(channel.caller, name)
    arguments, entity = method.arguments, described("queue", name, channel.vhost.name)
    check_common_arguments(entity, queue.type, arguments)
    if queue.type == QUORUM:
        check_own_arguments(entity, QUORUM, arguments)
    queue.check_exclusive(method.exclusive)
    if queue.type == STREAM:
        consumer = _stream_consumer(channel, method, queue, tag)
    else:
        consumer = AMQPConsumer(
            channel.connection.output, channel, queue, tag, no_ack=method.no_ack, exclusive=method.exclusive,
            priority=priority_of(arguments), arguments=arguments, prefetch=channel.prefetch_count,
            frame_max=channel.connection.limits.frame_max, on_cancel=_cancelled,
        )
    if queue.type == QUORUM:
        consumer.holder.own_timeout_ms = timeout_of(arguments)
    consumer.properties_max = channel.connection.properties_max
    consumer.large = channel.connection.hub.large_output
    consumer.timers = channel.connection.hub.timers
    channel.consumers[tag] = consumer
    channel.connection.events.emit("consumer.created", events.consumer_created, consumer)
    return consumer


def _stream_consumer(channel, method, queue, tag):
    """Create the consumer of a stream. ``exclusive`` has no effect, as in RabbitMQ. Raises RabbitMQ's errors
    if prefetch or acks do not suit a stream.
    """
    arguments, entity = method.arguments, described("queue", queue.name, queue.vhost)
    if not channel.prefetch_is_given or not channel.prefetch_count:
        raise PreconditionFailed(f"consumer prefetch count is not set for stream {entity}")
    if method.no_ack:
        raise NotImplemented_(f"automatic acknowledgement not supported by stream {entity}")
    if channel.global_prefetch:
        raise NotImplemented_(f"{entity} does not support global qos")
    check_own_arguments(entity, STREAM, arguments)
    with importing("a consumer of streams"):  # imported here: a broker without streams does not load it
        from gomq_py.amqp.server.stream_consumer import StreamConsumer
        from gomq_py.broker.queues.stream_reader import parse_filter

    return StreamConsumer(
        channel.connection.output, channel, queue, tag, start_of(arguments),
        is_tracked(arguments, method.consumer_tag),
        parse_filter(arguments), prefetch_bytes_of(arguments), arguments=arguments,
        prefetch=channel.prefetch_count, frame_max=channel.connection.limits.frame_max, on_cancel=_cancelled,
    )


def _start(channel, consumer):
    """Start deliveries, unless the consumer or its queue has ended since consume-ok was requested."""
    if channel.consumers.get(consumer.tag) is not consumer and channel.reply_consumer is not consumer:
        return
    try:
        consumer.start()
    except Refused as error:
        channel.connection.fail_channel(channel, error)


def _cancelled(consumer, _reason):
    """Forget a consumer that its queue has dropped, and send basic.cancel if the client supports it."""
    channel = consumer.channel
    if channel.consumers.get(consumer.tag) is consumer:
        del channel.consumers[consumer.tag]
        channel.connection.events.emit("consumer.deleted", events.consumer_deleted, consumer)
        if channel.connection.capabilities.get("consumer_cancel_notify"):
            channel.notify(BasicCancel(consumer_tag=consumer.tag, no_wait=True))


def _reply_consumer(channel, method, tag):
    if not method.no_ack:
        raise PreconditionFailed("reply consumer cannot acknowledge")
    if channel.reply_consumer is not None:
        raise PreconditionFailed("reply consumer already set")
    channel.reply_consumer = ReplyConsumer(channel, tag)
    return channel.reply_consumer


def _is_reply_tag(channel, tag):
    return channel.reply_consumer is not None and channel.reply_consumer.tag == tag
