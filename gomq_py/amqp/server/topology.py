"""Topology: exchange.* and queue.* methods of a channel.

Above the vhost, which knows every rule about entities; here are the rules about clients: permissions, exclusive owners, the last declared queue,
and that the answer about something durable leaves only when it is on disk. Each handler takes (channel, method) and raises what the client is told.
"""
from gomq_py.amqp.wire.errors import NotFound
from gomq_py.amqp.wire.methods import (
    ExchangeBindOk, ExchangeDeclareOk, ExchangeDeleteOk, ExchangeUnbindOk, QueueBindOk, QueueDeclareOk, QueueDeleteOk, QueuePurgeOk, QueueUnbindOk,
)
from gomq_py.broker.verbs import rights
from gomq_py.broker.exchange_types import exchange_type
from gomq_py.broker.names import check_not_reserved, cleaned, server_named

REPLY_TO = "amq.rabbitmq.reply-to"


# exchanges

def exchange_declare(channel, method):
    """exchange.declare; passive: asks only whether it exists, and for no right."""
    vhost, name = channel.vhost, cleaned(method.exchange)
    if not method.passive:
        exchange_type(method.type)
    vhost.check_not_default(name)
    if method.passive:
        vhost.exchange(name)
        if not method.no_wait:
            channel.reply(ExchangeDeclareOk())
        return
    channel.access.check(rights.to_declare_exchange(vhost, name, method.arguments))
    exchange = vhost.declare_exchange(name, method.type, method.durable, method.auto_delete, method.internal, method.arguments)
    _answer(channel, method, ExchangeDeclareOk(), exchange.durable)


def exchange_delete(channel, method):
    """exchange.delete: of a missing one too."""
    name = cleaned(method.exchange)
    channel.vhost.check_not_default(name)
    channel.access.configure("exchange", name)
    exchange = channel.vhost.delete_exchange(name, method.if_unused)
    _answer(channel, method, ExchangeDeleteOk(), exchange is None or exchange.durable)  # as in _exchange_durable


def exchange_bind(channel, method):
    """exchange.bind: write on the destination, read on the source."""
    _may_bind_exchanges(channel, method)
    channel.vhost.bind_exchange(method.destination, method.source, method.routing_key, method.arguments)
    _answer(channel, method, ExchangeBindOk(), _exchange_durable(channel, method.source))


def exchange_unbind(channel, method):
    """exchange.unbind: of what is not there too."""
    _may_bind_exchanges(channel, method)
    channel.vhost.unbind_exchange(method.destination, method.source, method.routing_key, method.arguments)
    _answer(channel, method, ExchangeUnbindOk(), _exchange_durable(channel, method.source))


# queues

def queue_declare(channel, method):
    """queue.declare: makes, or compares with what is there; either way the queue is the channel's last declared one."""
    vhost, name = channel.vhost, cleaned(method.queue)
    if name == REPLY_TO or name.startswith(REPLY_TO + "."):
        return _declare_reply_to(channel, method, name)
    if method.passive:
        queue = vhost.queue(name, channel.connection)
        if queue.limits is not None:
            queue.limits.used()
        durable = False
    else:
        queue = _declare(channel, method, name)
        durable = queue.durable
    channel.last_queue = queue.name
    answer = QueueDeclareOk(queue=queue.name, message_count=queue.ready_count, consumer_count=queue.consumer_count)
    return _answer(channel, method, answer, durable)


def queue_bind(channel, method):
    """queue.bind: write on the queue, read on the exchange. Without a queue name the last declared one; then an empty routing key is its name."""
    queue, routing_key = _queue_and_key(channel, method)
    _may_bind(channel, method.exchange, rights.QUEUE, queue, routing_key)
    channel.vhost.bind_queue(queue, method.exchange, routing_key, method.arguments, channel.connection)
    _answer(channel, method, QueueBindOk(), _binding_durable(channel, method.exchange, queue))


def queue_unbind(channel, method):
    """queue.unbind: of what is not there too."""
    queue, routing_key = _queue_and_key(channel, method)
    _may_bind(channel, method.exchange, rights.QUEUE, queue, routing_key)
    channel.vhost.unbind_queue(queue, method.exchange, routing_key, method.arguments, channel.connection)
    channel.reply_durably(QueueUnbindOk(), _binding_durable(channel, method.exchange, queue))


def queue_purge(channel, method):
    """queue.purge: drops the ready messages. Needs read."""
    name = named_queue(channel, method.queue)
    channel.access.read("queue", name)
    queue = channel.vhost.queue(name, channel.connection)
    queue.serve()
    answer = QueuePurgeOk(message_count=queue.purge())
    if queue.durable and not method.no_wait:
        channel.reply_after_purge(answer, queue)
    else:
        _answer(channel, method, answer, False)


def queue_delete(channel, method):
    """queue.delete: of a missing one too. Its consumers are cancelled."""
    name = named_queue(channel, method.queue)
    channel.access.configure("queue", name)
    queue = channel.vhost.queues.get(name)
    if queue is not None:
        queue.serve()
    # The client's own consumers hear of it behind delete-ok: py-amqp raises ConsumerCancelled from a queue_delete that is still waiting.
    channel.held_notices = notices = []
    try:
        count = channel.vhost.delete_queue(name, method.if_unused, method.if_empty, channel.connection)
    finally:
        channel.held_notices = None
    _answer(channel, method, QueueDeleteOk(message_count=count), queue is None or queue.durable)
    for notice in notices:
        channel.reply(notice)


def named_queue(channel, name):
    """The name a method means: an empty one is the channel's last declared queue. Raises NotFound when there was none."""
    name = cleaned(name)
    if name:
        return name
    if not channel.last_queue:
        raise NotFound("no previously declared queue")
    return channel.last_queue


def _declare(channel, method, name):
    """A queue.declare that is not passive."""
    vhost = channel.vhost
    if name:
        check_not_reserved("queue", name)
    generated = not name
    if generated:
        # Made here and not by the vhost, because permissions are asked for by name.
        name = server_named()
    channel.access.check(rights.to_declare_queue(vhost, name, method.arguments))
    queue, _ = vhost.declare_queue(
        name, method.durable, method.exclusive, method.auto_delete, method.arguments, channel.connection, server_named=generated,
    )
    return queue


def _declare_reply_to(channel, method, name):
    """Direct reply-to: clients may ask for their own pseudo-queue, and whether somebody still waits for an answer."""
    if name != REPLY_TO and name not in channel.vhost.sinks:
        raise NotFound(f"no queue '{name}' in vhost '{channel.vhost.name}'")
    if not method.no_wait:
        channel.reply(QueueDeclareOk(queue=name, message_count=0, consumer_count=1))


def _queue_and_key(channel, method):
    queue = named_queue(channel, method.queue)
    routing_key = queue if not method.queue and not method.routing_key else method.routing_key
    return queue, routing_key


def _may_bind_exchanges(channel, method):
    destination, source = cleaned(method.destination), cleaned(method.source)
    channel.vhost.check_not_default(destination)
    channel.vhost.check_not_default(source)
    _may_bind(channel, source, rights.EXCHANGE, destination, method.routing_key)


def _may_bind(channel, source, kind, destination, routing_key):
    """Or unbind: the rights at both ends, and read on the routing key where that is limited."""
    source = cleaned(source)
    channel.access.check(rights.to_bind(source, kind, destination))
    channel.access.read_topic(channel.vhost.exchanges.get(source), routing_key)


def _exchange_durable(channel, name):
    exchange = channel.vhost.exchanges.get(cleaned(name))
    return exchange is None or exchange.durable  # one that went with its last binding, say, may not be gone on the disk yet


def _binding_durable(channel, exchange, queue):
    """Whether a binding between them is kept over a restart, or was until one of them went, so that its answer has to
    wait for the disk.
    """
    queue = channel.vhost.queues.get(queue)
    if cleaned(exchange) not in channel.vhost.exchanges:
        return True
    return queue is None or queue.durable and _exchange_durable(channel, exchange)


def _answer(channel, method, answer, durable):
    if not method.no_wait:
        channel.reply_durably(answer, durable)
