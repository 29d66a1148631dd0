"""Channel: keeps the state of one channel, takes its frames, and has the table of method handlers.

The connection owns the socket, passes frames to the channel, and turns errors into frames. The handlers are
in topology, publish, consume, settling, confirms and tx. The base class HotChannel (fast_lane) holds the
state that every message needs. Answers leave through ``replies`` only. Never switches greenlets.
"""
from functools import partial
from typing import Any

from gomq_py.amqp.server import confirms, consume, events, publish, settling, topology, tx
from gomq_py.amqp.server.fast_lane import HotChannel
from gomq_py.amqp.server.lifecycle import CLOSING, CLOSING_BOTH, ENDED, OF_CHANNEL, OPEN, RELEASED, moved
from gomq_py.amqp.server.replies import Replies, in_turn
from gomq_py.amqp.wire.errors import (
    ChannelError, CommandInvalid, InternalError, NotImplemented_, UnexpectedFrame,
)
from gomq_py.amqp.wire.frames import FRAME_BODY, FRAME_HEADER, method_frame
from gomq_py.amqp.wire.methods import (
    AccessRequest, AccessRequestOk, BasicAck, BasicCancel, BasicConsume, BasicGet, BasicNack, BasicPublish,
    BasicQos, BasicRecover, BasicRecoverAsync, BasicReject, ChannelClose, ChannelCloseOk, ChannelFlow,
    ChannelFlowOk, ChannelOpen, ChannelOpenOk, ConfirmSelect, ExchangeBind, ExchangeDeclare, ExchangeDelete,
    ExchangeUnbind, QueueBind, QueueDeclare, QueueDelete, QueuePurge, QueueUnbind, TxCommit, TxRollback,
    TxSelect, decode_method,
)
from gomq_py.broker.features.retry import RETURNED
from gomq_py.broker.queues.peeking import count_refusal
from gomq_py.broker.signals import tracing
from gomq_py.broker.signals.events import ACTOR
from gomq_py.broker.verbs.caller import Caller
from gomq_py.broker.verbs.publishing import traced
from gomq_py.net.stream import Hold
from gomq_py.observability.log import logger

LOG = logger("amqp")
# More deliveries than a client gets in its life.
NO_LIMIT = 1 << 62
# Consumers that leave their queues in one step, some 6 us each; consumers of a channel that ends in one step.
AT_ONCE, FEW = 8, 32
# Most messages of a channel that operators may give back: the channel remembers their tags.
RETURNED_MAX = 1000


class Channel(HotChannel):
    """One channel of an AMQP connection.

        content              the message being received, or None
        transaction          the open transaction, or None
        last_queue           name of the queue declared last
        prefetch_is_given    the client has set its prefetch
    """

    __slots__ = (
        "connection", "vhost", "caller", "state", "replies", "content", "transaction",
        "last_queue", "reply_consumer", "method_id", "returned", "got", "got_no_ack", "got_none",
        "held_notices", "prefetch_is_given", "_leaving", "_waiting_queues", "_ended", "_is_refusing",
        "__weakref__",
    )

    def __init__(self, connection, channel_id):
        super().__init__(channel_id)
        self.connection = connection
        self.vhost = connection.vhost
        self.caller = Caller(connection.access, connection.vhost, connection, connection.name, channel_id)
        self.prefetch_count = connection.default_prefetch
        self.max_unacked = connection.server.settings.max_unacked_per_channel or NO_LIMIT
        self.state = OPEN
        self.replies = Replies(
            connection.output.write, connection.durability.when_defined, self._disk_refused)
        self.content = None
        self.transaction = None
        self.returned: Any = ()  # delivery tags that operators gave back, as a set
        self.got = self.got_no_ack = self.got_none = 0  # answers to basic.get: to be acked or not, or empty
        self.last_queue = ""
        self.reply_consumer = None
        self.method_id = 0
        self.held_notices = None
        self.prefetch_is_given = False
        # consumers to detach while the channel ends, the first one last
        self._leaving = None
        self._waiting_queues = ()  # queues that deliver nothing until the channel's unacked messages are back
        self._ended = False
        self._is_refusing = False  # the channel is about to end because its client cannot take a message
        self.choose_lane()
        connection.hub.clients.churn.channel_created += 1
        self.reply(ChannelOpenOk())

    # incoming frames

    def method(self, payload):
        """Handle a method frame's payload. Raises AMQPError."""
        self.method_id = 0
        if self.content is not None:
            self.method_id = BasicPublish.ID
            raise self.content.unexpected_frame()
        method = decode_method(payload)
        self.method_id = method.ID
        tables = self.connection.server.tables
        if len(payload) > tables.safe_octets:
            for name, _ in method.FIELDS:
                value = getattr(method, name)
                if isinstance(value, dict):
                    tables.check(value, len(payload))
        handler = HANDLERS.get(type(method))
        if handler is None:
            raise CommandInvalid("unimplemented method")
        connection = self.connection
        # As events.on_behalf_of(): events caused by the method name the user.
        before = ACTOR.set(connection)
        try:
            handler(self, method)
        finally:
            ACTOR.reset(before)

    def content_frame(self, kind, payload):
        """Handle a header or body frame's payload. Returns False to stop reading. Raises AMQPError."""
        if self.content is None:
            self.method_id = 0
            raise UnexpectedFrame("expected method frame, got non method frame instead")
        self.method_id = BasicPublish.ID
        if kind == FRAME_HEADER:
            return publish.content_header(self, payload)
        assert kind == FRAME_BODY
        return publish.content_body(self, payload)

    # what goes out

    def reply(self, method):
        """Send an answer to the client, after all earlier answers."""
        self.replies.send(method_frame(self.id, method))

    def notify(self, method):
        """Send a method that answers no request. During a queue.delete the method waits for delete-ok."""
        if self.held_notices is None:
            self.reply(method)
        else:
            self.held_notices.append(method)

    def reply_durably(self, method, durable):
        """Send the answer; if ``durable``, only once all earlier changes are on disk."""
        if durable:
            self.replies.send_when_safe(method_frame(self.id, method))
        else:
            self.reply(method)

    def reply_after_purge(self, method, queue):
        """Send the answer once the purge of ``queue`` is on disk."""
        place = self.replies.keep_place(method_frame(self.id, method))
        queue.after_purge(self.connection.durability, partial(self.replies.fill, place))

    def send(self, octets):
        """Send frames that answer no request (returns, deliveries) at once, ahead of waiting answers."""
        self.connection.output.write(octets)

    # modes

    def choose_lane(self):
        """Set ``tracing``, and ``slow``: False if the compiled FastLane may handle publishes and acks."""
        self.tracing = self.vhost.tracing
        self.slow = (
            self.tracing or self.state != OPEN or self.content is not None or self.transaction is not None
            or self.connection.blocked_reason is not None
        )

    def start_confirming(self):
        self.confirming = True
        if self.confirms is None:
            self.confirms = self.connection.server.make_confirms(
                self.id, self.connection.output.write, self.connection.durability.when_safe
            )

    def trace_delivery(self, message, queue_name, added):
        """Report a delivery to the vhost's message tracing. ``added``: headers added by the broker."""
        tracing.delivered(self.vhost, traced(self.caller), message, queue_name, added)

    @property
    def confirmed_count(self):
        return 0 if self.confirms is None else self.confirms.confirmed

    # consumer timeouts

    def watch_unacked(self):
        """Have consumer_timed_out() called for deliveries that stay unacked too long."""
        if self.state == OPEN:
            timeouts = self.connection.server.timeouts
            timeouts.watch(self)
            self.watched = timeouts.is_watching(self)

    def consumer_timed_out(self, holder, error):
        """End the consumer or the channel, because a delivery to ``holder`` was not acked in time. If the
        channel is closed, ``error`` is sent. Returns True if the channel stays open.
        """
        return self.state == OPEN and consume.end_overdue(self, holder, error)

    def cannot_take(self, queue, octets):
        """Close the channel: the next message of the queue has properties too large for a frame to this
        client. ``octets``: size of the properties in bytes.
        """
        # Closed a little later, outside the queue's delivery loop. The message's count of delivery attempts
        # grows by 1 per channel, not per consumer.
        if self._is_refusing:
            return
        self._is_refusing = True
        count_refusal(queue)
        self.connection.hub.call_later(
            0, self._refuse_to_take, consume.header_too_large(self, queue, octets))

    def _refuse_to_take(self, error):
        if self.is_open():
            self.connection.fail_channel(self, error)

    def return_one(self, delivery_tag):
        """Requeue an unacked message for an operator. Returns False, without any effect, if it cannot be
        requeued. The client's later settlement of the message is ignored.
        """
        # Impossible: the channel is closed or transactional, the message is not unacked, or RETURNED_MAX
        # messages requeued in this way still await the client's settlement.
        if not self.may_return(1) or not self.reject(delivery_tag, False, RETURNED):
            return False
        self.returned = self.returned or set()
        self.returned.add(delivery_tag)
        return True

    def may_return(self, count):
        """Return True if ``count`` messages can be requeued by return_one()."""
        return (
            self.state == OPEN and self.transaction is None and len(self.returned) + count <= RETURNED_MAX)

    # very many unacked messages

    def settle_many(self, delivery_tag, how, then=None):
        """Settle all messages up to ``delivery_tag``, in slices if they are many, then call ``then()`` if the
        channel is still open. The connection reads nothing from the client until all are settled. ``how``:
        ACK, REJECT, or a reason to requeue (features.retry).
        """
        hold: Hold = None

        def done():
            try:
                if then is not None and self.is_open():
                    then()
            finally:
                hold.release()

        if self.settle_in_slices(delivery_tag, how, self.connection.scheduler, done):
            hold = self.connection.stream.pause_reading("its settlements to be carried out")
        elif then is not None:
            then()

    def work_off(self, step, then, waits_for):
        """Call ``step()`` until it returns False, in slices, then call ``then()``. An error closes the
        channel or connection. Until the end the client is not read; ``waits_for`` tells operators why.
        """
        # If one slice is enough, reading does not pause. The steps go on even if the channel ends.
        hold: Hold = None
        method_id = self.method_id

        def done():
            try:
                if then is not None:
                    then()
            finally:
                hold.release()

        def failed(error):
            self.connection.failed_later(self, method_id, error)

        if self.settlements(self.connection.scheduler).carry_out(step, done, failed):
            hold = self.connection.stream.pause_reading(waits_for)
        elif then is not None:
            then()

    def go_on_later(self, when, step, waits_for):
        """Call ``when(callback)``, and read nothing from the client until the callback was called. The
        callback calls ``step()`` if the channel is still open. An error of ``step()`` closes the channel or
        connection. ``waits_for``: the reason of the pause, for operators.
        """
        hold = self.connection.stream.pause_reading(waits_for)
        method_id = self.method_id

        def go_on():
            try:
                if self.is_open():
                    self.method_id = method_id
                    self.connection.events.on_behalf_of(self.connection, step)
            except Exception as error:
                self.connection.failed_later(self, method_id, error)
            finally:
                hold.release()

        when(go_on)

    def is_open(self):
        return self.state == OPEN

    @property
    def flow(self):
        """State of the channel for the management API: "running" while it is open, as in RabbitMQ."""
        if self.state == OPEN:
            return "running"
        return CLOSING if self.is_closing() else self.state

    def is_closing(self):
        """Return True if either side has sent channel.close, and close-ok is outstanding."""
        return self.state in (CLOSING, CLOSING_BOTH)

    # the end

    def fail(self, error):
        """Close the channel with ``error``. The client gets channel.close after the waiting answers. The
        client's further frames on this channel are dropped until its close-ok.
        """
        self.send_confirms()

        def released():
            if self.confirms is not None:
                self.confirms.close()
            self.replies.send(method_frame(self.id, ChannelClose(
                reply_code=error.reply_code, reply_text=error.reply_text, class_id=error.class_id,
                method_id=error.method_id,
            )))

        self._release_then(released)

    def agree_to_close(self):
        """Handle the client's channel.close: release the channel, and send close-ok after all outstanding
        answers and confirms.
        """
        self.send_confirms()

        def released():
            self.when_answered(
                lambda: self.connection.forget_channel(self), method_frame(self.id, ChannelCloseOk()))

        self._release_then(released)

    def is_answering(self):
        """Return True if an answer or a confirm waits for the disk."""
        return bool(self.replies.waiting_count or (self.confirms is not None and self.confirms.waiting))

    def when_answered(self, action, last=None):
        """Send the bytes ``last`` and call ``action()`` after all outstanding answers and confirms."""
        if self.confirms is not None and self.confirms.waiting:
            self.replies.send_when_safe(last, action)
            return
        if last is not None:
            self.replies.send(last)
        self.replies.act(action)

    def ends(self, end):
        """Return a list of functions that end the channel when called in order. The last one is ``end``."""
        # For a channel with very many consumers, each function before it detaches some of them.
        return [*[self._detach_some] * (len(self.consumers) // AT_ONCE), end]

    def end(self):
        """End the channel and release all that it holds. Called after close-ok or at the connection's end."""
        self.release()
        moved(self, OF_CHANNEL, ENDED)
        self.replies.close()
        if self.confirms is not None:
            self.confirms.close()

    def release(self):
        """Detach the consumers, requeue unacked messages, and drop unfinished content and transactions."""
        if self._ended:
            return
        if self._leaving is None:
            self._begin_release()
        while self._leaving:
            self._detach_some()
        self._ended = True
        self.vhost.totals.add_channel(self)
        self.connection.hub.clients.churn.channel_closed += 1
        self.close(self.connection.scheduler)
        queues, self._waiting_queues = self._waiting_queues, ()
        for queue in queues:
            queue.resume_deliveries()
        connection = self.connection
        connection.events.emit_for(connection, "channel.closed", events.channel_closed, self)

    def _release_then(self, then):
        """Release the channel, then call ``then()``. Works in slices if there are very many consumers."""
        # Meanwhile the connection reads nothing from the client.
        if len(self.consumers) <= FEW:
            self.release()
            then()
            return
        if self._leaving is None:
            self._begin_release()  # the rest of this read is not handled
        hold = self.connection.stream.pause_reading("its consumers to end")

        def released():
            try:
                then()
            finally:
                hold.release()

        self.connection.hub.endings.give_back(self.ends(self.release), released)

    def _begin_release(self):
        moved(self, OF_CHANNEL, RELEASED)
        self.connection.server.timeouts.forget(self)
        self.choose_lane()
        if self.content is not None:
            publish.drop_content(self)
        if self.transaction is not None:
            self.transaction.clear()
            self.transaction = None
        if self.reply_consumer is not None:
            consume.stop_reply_consumer(self)
        self.confirming = False
        self.lend_nothing()
        self._leaving = list(self.consumers.values())
        self._leaving.reverse()
        if len(self._leaving) > AT_ONCE:
            # Otherwise other consumers would get later messages before the unacked ones are back.
            self._waiting_queues = self.unacked.queues()
            for queue in self._waiting_queues:
                queue.hold_deliveries()

    def _detach_some(self):
        if self._leaving is None:
            self._begin_release()
        for _ in range(min(AT_ONCE, len(self._leaving))):
            consumer = self._leaving.pop()
            if self.consumers.get(consumer.tag) is consumer:  # the queue may have been deleted meanwhile
                del self.consumers[consumer.tag]
                connection = self.connection
                connection.events.emit_for(
                    connection, "consumer.deleted", events.consumer_deleted, consumer)
                consumer.stop()

    def _disk_refused(self, error):
        self.connection.fail(InternalError(f"the disk refused a change: {error}"))


def channel_open(_channel, _method):
    """channel.open on an open channel. Raises ChannelError."""
    raise ChannelError("second 'channel.open' seen")


def channel_close(channel, _method):
    """channel.close: release the channel, and send close-ok. The channel number is free afterwards."""
    channel.agree_to_close()


def channel_flow(channel, method):
    """channel.flow: confirm that deliveries go on. Raises NotImplemented_ for a stop, as RabbitMQ does."""
    if not method.active:
        raise NotImplemented_("active=false")
    channel.reply(ChannelFlowOk(active=True))


def access_request(channel, _method):
    """access.request of AMQP 0-8: send the same ticket to every client, as RabbitMQ does."""
    channel.reply(AccessRequestOk(ticket=1))


HANDLERS = {
    AccessRequest: access_request,
    ChannelOpen: channel_open,
    ChannelClose: channel_close,
    ChannelFlow: channel_flow,
    ExchangeDeclare: topology.exchange_declare,
    ExchangeDelete: topology.exchange_delete,
    ExchangeBind: topology.exchange_bind,
    ExchangeUnbind: topology.exchange_unbind,
    QueueDeclare: topology.queue_declare,
    QueueBind: topology.queue_bind,
    QueueUnbind: topology.queue_unbind,
    QueuePurge: topology.queue_purge,
    QueueDelete: topology.queue_delete,
    BasicQos: consume.basic_qos,
    BasicConsume: consume.basic_consume,
    BasicCancel: consume.basic_cancel,
    BasicGet: in_turn(consume.basic_get),
    BasicRecover: in_turn(consume.basic_recover),
    BasicRecoverAsync: consume.basic_recover_async,
    BasicPublish: publish.basic_publish,
    BasicAck: settling.basic_ack,
    BasicNack: settling.basic_nack,
    BasicReject: settling.basic_reject,
    ConfirmSelect: in_turn(confirms.confirm_select),
    TxSelect: tx.tx_select,
    TxCommit: tx.tx_commit,
    TxRollback: tx.tx_rollback,
}
