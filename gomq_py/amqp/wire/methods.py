"""Methods: a class for each method of AMQP 0-9-1 and of RabbitMQ's extensions.

A test checks the classes against the specification. ``METHODS[class_id << 16 | method_id]`` finds a class.
``SYNCHRONOUS``: the sender waits for an answer. amqp.server carries methods out.
"""
from gomq_py.amqp.wire.errors import FrameError, NotImplemented_
from gomq_py.amqp.wire.frames import BIT, LONG, LONGLONG, LONGSTR, OCTET, SHORT, SHORTSTR, TABLE, Method


def decode_method(payload):
    """Return the method in a method frame's payload. Raises FrameError for malformed fields, NotImplemented_
    for an unknown class or method id.
    """
    if len(payload) < 4:
        raise FrameError(f"method frame of {len(payload)} bytes: no class and method id")
    identity = int.from_bytes(payload[:4], "big")
    method_class = METHODS.get(identity)
    if method_class is None:
        class_id, method_id = identity >> 16, identity & 0xFFFF
        raise NotImplemented_(f"unknown method, class {class_id} method {method_id}", class_id, method_id)
    return method_class.decode(payload)


class ConnectionStart(Method):
    """The server's first method: its properties and login mechanisms."""
    NAME, ID, SYNCHRONOUS = "connection.start", 10 << 16 | 10, True
    FIELDS = (
        ("version_major", OCTET), ("version_minor", OCTET), ("server_properties", TABLE),
        ("mechanisms", LONGSTR), ("locales", LONGSTR),
    )


class ConnectionStartOk(Method):
    """The client's properties, its chosen mechanism and that mechanism's response."""
    NAME, ID, SYNCHRONOUS = "connection.start-ok", 10 << 16 | 11, False
    FIELDS = (
        ("client_properties", TABLE), ("mechanism", SHORTSTR), ("response", LONGSTR), ("locale", SHORTSTR)
    )


class ConnectionSecure(Method):
    """A further challenge, if the login mechanism needs one."""
    NAME, ID, SYNCHRONOUS = "connection.secure", 10 << 16 | 20, True
    FIELDS = (("challenge", LONGSTR),)


class ConnectionSecureOk(Method):
    """The client's answer to the server's challenge."""
    NAME, ID, SYNCHRONOUS = "connection.secure-ok", 10 << 16 | 21, False
    FIELDS = (("response", LONGSTR),)


class ConnectionTune(Method):
    """The limits that the server offers. 0: no limit."""
    NAME, ID, SYNCHRONOUS = "connection.tune", 10 << 16 | 30, True
    FIELDS = (("channel_max", SHORT), ("frame_max", LONG), ("heartbeat", SHORT))


class ConnectionTuneOk(Method):
    """The limits that the client accepts."""
    NAME, ID, SYNCHRONOUS = "connection.tune-ok", 10 << 16 | 31, False
    FIELDS = (("channel_max", SHORT), ("frame_max", LONG), ("heartbeat", SHORT))


class ConnectionOpen(Method):
    """Choose the virtual host."""
    NAME, ID, SYNCHRONOUS = "connection.open", 10 << 16 | 40, True
    FIELDS = (("virtual_host", SHORTSTR), ("reserved_1", SHORTSTR), ("reserved_2", BIT))


class ConnectionOpenOk(Method):
    """The connection is ready."""
    NAME, ID, SYNCHRONOUS = "connection.open-ok", 10 << 16 | 41, False
    FIELDS = (("reserved_1", SHORTSTR),)


class ConnectionClose(Method):
    """End the connection. Contains the reason, and the method that caused it (0, 0: none)."""
    NAME, ID, SYNCHRONOUS = "connection.close", 10 << 16 | 50, True
    FIELDS = (("reply_code", SHORT), ("reply_text", SHORTSTR), ("class_id", SHORT), ("method_id", SHORT))


class ConnectionCloseOk(Method):
    """The last frame of a connection."""
    NAME, ID, SYNCHRONOUS = "connection.close-ok", 10 << 16 | 51, False


class ConnectionBlocked(Method):
    """RabbitMQ's extension: the broker blocks publishers. Contains the reason."""
    NAME, ID, SYNCHRONOUS = "connection.blocked", 10 << 16 | 60, False
    FIELDS = (("reason", SHORTSTR),)


class ConnectionUnblocked(Method):
    """RabbitMQ's extension: the broker accepts publishes again."""
    NAME, ID, SYNCHRONOUS = "connection.unblocked", 10 << 16 | 61, False


class ConnectionUpdateSecret(Method):
    """RabbitMQ's extension: replace the OAuth token of an open connection."""
    NAME, ID, SYNCHRONOUS = "connection.update-secret", 10 << 16 | 70, True
    FIELDS = (("new_secret", LONGSTR), ("reason", SHORTSTR))


class ConnectionUpdateSecretOk(Method):
    """The server has accepted the new token."""
    NAME, ID, SYNCHRONOUS = "connection.update-secret-ok", 10 << 16 | 71, False


class ChannelOpen(Method):
    """Open the channel whose number is in the frame."""
    NAME, ID, SYNCHRONOUS = "channel.open", 20 << 16 | 10, True
    FIELDS = (("reserved_1", SHORTSTR),)


class ChannelOpenOk(Method):
    """The channel is open."""
    NAME, ID, SYNCHRONOUS = "channel.open-ok", 20 << 16 | 11, False
    FIELDS = (("reserved_1", LONGSTR),)


class ChannelFlow(Method):
    """Request the peer to stop or to restart sending content."""
    NAME, ID, SYNCHRONOUS = "channel.flow", 20 << 16 | 20, True
    FIELDS = (("active", BIT),)


class ChannelFlowOk(Method):
    """The peer has stopped or restarted sending content, as channel.flow requested."""
    NAME, ID, SYNCHRONOUS = "channel.flow-ok", 20 << 16 | 21, False
    FIELDS = (("active", BIT),)


class ChannelClose(Method):
    """End the channel. Contains the reason, and the method that caused it (0, 0: none)."""
    NAME, ID, SYNCHRONOUS = "channel.close", 20 << 16 | 40, True
    FIELDS = (("reply_code", SHORT), ("reply_text", SHORTSTR), ("class_id", SHORT), ("method_id", SHORT))


class ChannelCloseOk(Method):
    """The channel's number is free again."""
    NAME, ID, SYNCHRONOUS = "channel.close-ok", 20 << 16 | 41, False


class AccessRequest(Method):
    """AMQP 0-8: request an access ticket. AMQP 0-9-1 has no tickets; RabbitMQ gives them to old clients."""
    NAME, ID, SYNCHRONOUS = "access.request", 30 << 16 | 10, True
    FIELDS = (
        ("realm", SHORTSTR), ("exclusive", BIT), ("passive", BIT), ("active", BIT), ("write", BIT),
        ("read", BIT),
    )


class AccessRequestOk(Method):
    """The access ticket, which no other method uses."""
    NAME, ID, SYNCHRONOUS = "access.request-ok", 30 << 16 | 11, False
    FIELDS = (("ticket", SHORT),)


class ExchangeDeclare(Method):
    """Create an exchange, or check its properties. With ``passive``, only check that it exists."""
    NAME, ID, SYNCHRONOUS = "exchange.declare", 40 << 16 | 10, True
    FIELDS = (
        ("reserved_1", SHORT), ("exchange", SHORTSTR), ("type", SHORTSTR), ("passive", BIT), ("durable", BIT),
        ("auto_delete", BIT), ("internal", BIT), ("no_wait", BIT), ("arguments", TABLE),
    )


class ExchangeDeclareOk(Method):
    """The exchange exists."""
    NAME, ID, SYNCHRONOUS = "exchange.declare-ok", 40 << 16 | 11, False


class ExchangeDelete(Method):
    """Delete an exchange."""
    NAME, ID, SYNCHRONOUS = "exchange.delete", 40 << 16 | 20, True
    FIELDS = (("reserved_1", SHORT), ("exchange", SHORTSTR), ("if_unused", BIT), ("no_wait", BIT))


class ExchangeDeleteOk(Method):
    """The exchange is deleted."""
    NAME, ID, SYNCHRONOUS = "exchange.delete-ok", 40 << 16 | 21, False


class ExchangeBind(Method):
    """RabbitMQ's extension: bind an exchange to a second exchange."""
    NAME, ID, SYNCHRONOUS = "exchange.bind", 40 << 16 | 30, True
    FIELDS = (
        ("reserved_1", SHORT), ("destination", SHORTSTR), ("source", SHORTSTR), ("routing_key", SHORTSTR),
        ("no_wait", BIT), ("arguments", TABLE),
    )


class ExchangeBindOk(Method):
    """The binding exists."""
    NAME, ID, SYNCHRONOUS = "exchange.bind-ok", 40 << 16 | 31, False


class ExchangeUnbind(Method):
    """RabbitMQ's extension: delete a binding between exchanges."""
    NAME, ID, SYNCHRONOUS = "exchange.unbind", 40 << 16 | 40, True
    FIELDS = (
        ("reserved_1", SHORT), ("destination", SHORTSTR), ("source", SHORTSTR), ("routing_key", SHORTSTR),
        ("no_wait", BIT), ("arguments", TABLE),
    )


class ExchangeUnbindOk(Method):
    """The binding is deleted. Its method id is 51, not 41, as in RabbitMQ."""
    NAME, ID, SYNCHRONOUS = "exchange.unbind-ok", 40 << 16 | 51, False


class QueueDeclare(Method):
    """Create a queue, or check an existing queue's properties. An empty name: the server chooses one."""
    NAME, ID, SYNCHRONOUS = "queue.declare", 50 << 16 | 10, True
    FIELDS = (
        ("reserved_1", SHORT), ("queue", SHORTSTR), ("passive", BIT), ("durable", BIT), ("exclusive", BIT),
        ("auto_delete", BIT), ("no_wait", BIT), ("arguments", TABLE),
    )


class QueueDeclareOk(Method):
    """The queue's name, count of ready messages, and count of consumers."""
    NAME, ID, SYNCHRONOUS = "queue.declare-ok", 50 << 16 | 11, False
    FIELDS = (("queue", SHORTSTR), ("message_count", LONG), ("consumer_count", LONG))


class QueueBind(Method):
    """Bind a queue to an exchange."""
    NAME, ID, SYNCHRONOUS = "queue.bind", 50 << 16 | 20, True
    FIELDS = (
        ("reserved_1", SHORT), ("queue", SHORTSTR), ("exchange", SHORTSTR), ("routing_key", SHORTSTR),
        ("no_wait", BIT), ("arguments", TABLE),
    )


class QueueBindOk(Method):
    """The binding exists."""
    NAME, ID, SYNCHRONOUS = "queue.bind-ok", 50 << 16 | 21, False


class QueueUnbind(Method):
    """Delete a binding of a queue. Has no ``no_wait``."""
    NAME, ID, SYNCHRONOUS = "queue.unbind", 50 << 16 | 50, True
    FIELDS = (
        ("reserved_1", SHORT), ("queue", SHORTSTR), ("exchange", SHORTSTR), ("routing_key", SHORTSTR),
        ("arguments", TABLE),
    )


class QueueUnbindOk(Method):
    """The binding is deleted."""
    NAME, ID, SYNCHRONOUS = "queue.unbind-ok", 50 << 16 | 51, False


class QueuePurge(Method):
    """Drop the ready messages of a queue."""
    NAME, ID, SYNCHRONOUS = "queue.purge", 50 << 16 | 30, True
    FIELDS = (("reserved_1", SHORT), ("queue", SHORTSTR), ("no_wait", BIT))


class QueuePurgeOk(Method):
    """The count of dropped messages."""
    NAME, ID, SYNCHRONOUS = "queue.purge-ok", 50 << 16 | 31, False
    FIELDS = (("message_count", LONG),)


class QueueDelete(Method):
    """Delete a queue."""
    NAME, ID, SYNCHRONOUS = "queue.delete", 50 << 16 | 40, True
    FIELDS = (
        ("reserved_1", SHORT), ("queue", SHORTSTR), ("if_unused", BIT), ("if_empty", BIT), ("no_wait", BIT)
    )


class QueueDeleteOk(Method):
    """The count of ready messages deleted with the queue."""
    NAME, ID, SYNCHRONOUS = "queue.delete-ok", 50 << 16 | 41, False
    FIELDS = (("message_count", LONG),)


class BasicQos(Method):
    """Limit the unacked deliveries of each new consumer or, with ``global_``, of the channel."""
    NAME, ID, SYNCHRONOUS = "basic.qos", 60 << 16 | 10, True
    FIELDS = (("prefetch_size", LONG), ("prefetch_count", SHORT), ("global_", BIT))


class BasicQosOk(Method):
    """The limit of basic.qos is in force."""
    NAME, ID, SYNCHRONOUS = "basic.qos-ok", 60 << 16 | 11, False


class BasicConsume(Method):
    """Start a consumer. With an empty tag, the server chooses one."""
    NAME, ID, SYNCHRONOUS = "basic.consume", 60 << 16 | 20, True
    FIELDS = (
        ("reserved_1", SHORT), ("queue", SHORTSTR), ("consumer_tag", SHORTSTR), ("no_local", BIT),
        ("no_ack", BIT), ("exclusive", BIT), ("no_wait", BIT), ("arguments", TABLE),
    )


class BasicConsumeOk(Method):
    """The consumer's tag. Deliveries follow."""
    NAME, ID, SYNCHRONOUS = "basic.consume-ok", 60 << 16 | 21, False
    FIELDS = (("consumer_tag", SHORTSTR),)


class BasicCancel(Method):
    """End a consumer. RabbitMQ also sends it to the client when the queue goes away."""
    NAME, ID, SYNCHRONOUS = "basic.cancel", 60 << 16 | 30, True
    FIELDS = (("consumer_tag", SHORTSTR), ("no_wait", BIT))


class BasicCancelOk(Method):
    """The consumer has ended."""
    NAME, ID, SYNCHRONOUS = "basic.cancel-ok", 60 << 16 | 31, False
    FIELDS = (("consumer_tag", SHORTSTR),)


class BasicPublish(Method):
    """Publish a message, whose header and body frames follow."""
    NAME, ID, SYNCHRONOUS = "basic.publish", 60 << 16 | 40, False
    ANY_OCTETS = True
    FIELDS = (
        ("reserved_1", SHORT), ("exchange", SHORTSTR), ("routing_key", SHORTSTR), ("mandatory", BIT),
        ("immediate", BIT),
    )


class BasicReturn(Method):
    """A message that could not be routed goes back to its publisher. Its header and body frames follow."""
    NAME, ID, SYNCHRONOUS = "basic.return", 60 << 16 | 50, False
    ANY_OCTETS = True
    FIELDS = (
        ("reply_code", SHORT), ("reply_text", SHORTSTR), ("exchange", SHORTSTR), ("routing_key", SHORTSTR)
    )


class BasicDeliver(Method):
    """A message for a consumer. Its header and body frames follow."""
    NAME, ID, SYNCHRONOUS = "basic.deliver", 60 << 16 | 60, False
    ANY_OCTETS = True
    FIELDS = (
        ("consumer_tag", SHORTSTR), ("delivery_tag", LONGLONG), ("redelivered", BIT), ("exchange", SHORTSTR),
        ("routing_key", SHORTSTR),
    )


class BasicGet(Method):
    """Request one message of a queue."""
    NAME, ID, SYNCHRONOUS = "basic.get", 60 << 16 | 70, True
    FIELDS = (("reserved_1", SHORT), ("queue", SHORTSTR), ("no_ack", BIT))


class BasicGetOk(Method):
    """The message requested by basic.get. Its header and body frames follow."""
    NAME, ID, SYNCHRONOUS = "basic.get-ok", 60 << 16 | 71, False
    ANY_OCTETS = True
    FIELDS = (
        ("delivery_tag", LONGLONG), ("redelivered", BIT), ("exchange", SHORTSTR), ("routing_key", SHORTSTR),
        ("message_count", LONG),
    )


class BasicGetEmpty(Method):
    """Answer to basic.get: the queue has no message."""
    NAME, ID, SYNCHRONOUS = "basic.get-empty", 60 << 16 | 72, False
    FIELDS = (("reserved_1", SHORTSTR),)


class BasicAck(Method):
    """Ack one delivery or, with ``multiple``, all up to it. From the server: confirms publishes."""
    NAME, ID, SYNCHRONOUS = "basic.ack", 60 << 16 | 80, False
    FIELDS = (("delivery_tag", LONGLONG), ("multiple", BIT))


class BasicReject(Method):
    """Refuse one delivery."""
    NAME, ID, SYNCHRONOUS = "basic.reject", 60 << 16 | 90, False
    FIELDS = (("delivery_tag", LONGLONG), ("requeue", BIT))


class BasicRecoverAsync(Method):
    """Requeue all unacked deliveries of the channel, without an answer. Deprecated."""
    NAME, ID, SYNCHRONOUS = "basic.recover-async", 60 << 16 | 100, False
    FIELDS = (("requeue", BIT),)


class BasicRecover(Method):
    """Requeue all unacked deliveries of the channel."""
    NAME, ID, SYNCHRONOUS = "basic.recover", 60 << 16 | 110, True
    FIELDS = (("requeue", BIT),)


class BasicRecoverOk(Method):
    """The channel's unacked deliveries are back in their queues."""
    NAME, ID, SYNCHRONOUS = "basic.recover-ok", 60 << 16 | 111, False


class BasicNack(Method):
    """RabbitMQ's extension: refuse deliveries. From the server: publishes were not stored."""
    NAME, ID, SYNCHRONOUS = "basic.nack", 60 << 16 | 120, False
    FIELDS = (("delivery_tag", LONGLONG), ("multiple", BIT), ("requeue", BIT))


class ConfirmSelect(Method):
    """RabbitMQ's extension: put the channel into confirm mode, where the server confirms each publish."""
    NAME, ID, SYNCHRONOUS = "confirm.select", 85 << 16 | 10, True
    FIELDS = (("no_wait", BIT),)


class ConfirmSelectOk(Method):
    """The channel is in confirm mode."""
    NAME, ID, SYNCHRONOUS = "confirm.select-ok", 85 << 16 | 11, False


class TxSelect(Method):
    """Make the channel transactional."""
    NAME, ID, SYNCHRONOUS = "tx.select", 90 << 16 | 10, True


class TxSelectOk(Method):
    """The channel is transactional."""
    NAME, ID, SYNCHRONOUS = "tx.select-ok", 90 << 16 | 11, False


class TxCommit(Method):
    """Carry out the publishes and settlements since the last commit."""
    NAME, ID, SYNCHRONOUS = "tx.commit", 90 << 16 | 20, True


class TxCommitOk(Method):
    """The transaction is carried out, and its durable changes are on disk."""
    NAME, ID, SYNCHRONOUS = "tx.commit-ok", 90 << 16 | 21, False


class TxRollback(Method):
    """Drop the publishes and settlements since the last commit."""
    NAME, ID, SYNCHRONOUS = "tx.rollback", 90 << 16 | 30, True


class TxRollbackOk(Method):
    """The publishes and settlements are dropped."""
    NAME, ID, SYNCHRONOUS = "tx.rollback-ok", 90 << 16 | 31, False


METHODS: dict = {method.ID: method for method in Method.__subclasses__()}
