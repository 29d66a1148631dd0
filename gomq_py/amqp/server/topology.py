"""Topology: handles the exchange.* and queue.* methods of a channel by calling broker.verbs.

Adds what only AMQP has: the channel's last declared queue, direct reply-to as a queue, and answers that wait
until a durable change is on disk. Handlers take (channel, method) and raise the errors that the client gets.
"""
from gomq_py.amqp.wire.errors import NotFound
from gomq_py.amqp.wire.methods import (
    ExchangeBindOk, ExchangeDeclareOk, ExchangeDeleteOk, ExchangeUnbindOk, QueueBindOk, QueueDeclareOk,
    QueueDeleteOk, QueuePurgeOk, QueueUnbindOk,
)
from gomq_py.broker.names import cleaned
from gomq_py.broker.verbs import bindings, exchanges, queues
from gomq_py.broker.verbs.access import EXCHANGE, QUEUE

REPLY_TO = "amq.rabbitmq.reply-to"


# exchanges

def exchange_declare(channel, method):
    """exchange.declare: create the exchange, or check its properties; if ``passive``, only its existence."""
    if method.passive:
        exchanges.passive_declare(channel.caller, method.exchange)
        return _answer(channel, method, ExchangeDeclareOk(), False)
    declared = exchanges.declare(
        channel.caller, method.exchange, method.type, method.durable, method.auto_delete, method.internal,
        method.arguments)
    return _answer(channel, method, ExchangeDeclareOk(), declared.durable)


def exchange_delete(channel, method):
    """exchange.delete: delete the exchange. A missing exchange is no error."""
    durable = exchanges.delete(channel.caller, method.exchange, method.if_unused)
    _answer(channel, method, ExchangeDeleteOk(), durable)


def exchange_bind(channel, method):
    """exchange.bind: bind an exchange to another exchange."""
    durable = bindings.bind(
        channel.caller, EXCHANGE, method.destination, method.source, method.routing_key, method.arguments)
    _answer(channel, method, ExchangeBindOk(), durable)


def exchange_unbind(channel, method):
    """exchange.unbind: delete a binding between exchanges. A missing binding is no error."""
    durable = bindings.unbind(
        channel.caller, EXCHANGE, method.destination, method.source, method.routing_key, method.arguments)
    _answer(channel, method, ExchangeUnbindOk(), durable)


# queues

def queue_declare(channel, method):
    """queue.declare: create the queue, or check that the existing queue has the same properties. If
    ``passive``, only check that it exists. The queue becomes the channel's last declared queue.
    """
    name = cleaned(method.queue)
    if name == REPLY_TO or name.startswith(REPLY_TO + "."):
        return _declare_reply_to(channel, method, name)
    if method.passive:
        queue, durable = queues.passive_declare(channel.caller, name), False
    else:
        queue, _, durable = queues.declare(
            channel.caller, name, method.durable, method.exclusive, method.auto_delete, method.arguments)
    channel.last_queue = queue.name
    answer = QueueDeclareOk(
        queue=queue.name, message_count=queue.ready_count, consumer_count=queue.consumer_count
    )
    return _answer(channel, method, answer, durable)


def queue_bind(channel, method):
    """queue.bind: bind a queue to an exchange. A method without queue name and routing key binds the last
    declared queue, with its name as routing key.
    """
    queue, routing_key = _queue_and_key(channel, method)
    durable = bindings.bind(channel.caller, QUEUE, queue, method.exchange, routing_key, method.arguments)
    _answer(channel, method, QueueBindOk(), durable)


def queue_unbind(channel, method):
    """queue.unbind: delete a binding of a queue. A missing binding is no error."""
    queue, routing_key = _queue_and_key(channel, method)
    durable = bindings.unbind(channel.caller, QUEUE, queue, method.exchange, routing_key, method.arguments)
    channel.reply_durably(QueueUnbindOk(), durable)


def queue_purge(channel, method):
    """queue.purge: drop the ready messages. For a durable queue, purge-ok waits until this is on disk."""
    queue, count = queues.purge(channel.caller, named_queue(channel, method.queue))
    answer = QueuePurgeOk(message_count=count)
    if queue.durable and not method.no_wait:
        channel.reply_after_purge(answer, queue)
    else:
        _answer(channel, method, answer, False)


def queue_delete(channel, method):
    """queue.delete: delete the queue and cancel its consumers. A missing queue is no error."""
    name = named_queue(channel, method.queue)
    # The client's own consumers are cancelled after delete-ok: py-amqp raises ConsumerCancelled from a
    # queue_delete that is still waiting.
    channel.held_notices = notices = []
    try:
        deleted = queues.delete(channel.caller, name, method.if_unused, method.if_empty)
    finally:
        channel.held_notices = None
    _answer(channel, method, QueueDeleteOk(message_count=deleted.message_count), deleted.durable)
    for notice in notices:
        channel.reply(notice)


def named_queue(channel, name):
    """Return ``name`` or, if it is empty, the channel's last declared queue. Raises NotFound without one."""
    name = cleaned(name)
    if name:
        return name
    if not channel.last_queue:
        raise NotFound("no previously declared queue")
    return channel.last_queue


def _declare_reply_to(channel, method, name):
    """Answer a queue.declare of the direct reply-to pseudo-queue. Raises NotFound for an unknown name."""
    # Requesters declare it under its common name; repliers declare a requester's name, to learn whether the
    # requester still waits.
    if name != REPLY_TO and name not in channel.vhost.sinks:
        raise NotFound(f"no queue '{name}' in vhost '{channel.vhost.name}'")
    _answer(channel, method, QueueDeclareOk(queue=name, message_count=0, consumer_count=1), False)


def _queue_and_key(channel, method):
    queue = named_queue(channel, method.queue)
    routing_key = queue if not method.queue and not method.routing_key else method.routing_key
    return queue, routing_key


def _answer(channel, method, answer, durable):
    if not method.no_wait:
        channel.reply_durably(answer, durable)
