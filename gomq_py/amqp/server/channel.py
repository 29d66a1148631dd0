"""Channel: one channel of a connection: its state, the frames that come for it, and the table of which
function handles which method.

Between connection, which owns the socket and turns errors into frames, and the handlers of topology, publish,
consume, settle, confirms and tx. Its base HotChannel (fast_lane) holds what is touched per message. Answers
leave through ``replies`` only. Never switches.
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
from gomq_py.broker.queues.peeking import count_refusal
from gomq_py.broker.signals import tracing
from gomq_py.broker.verbs.caller import Caller
from gomq_py.broker.verbs.publishing import traced
from gomq_py.net.stream import Hold
from gomq_py.observability.log import logger

LOG = logger("amqp")
# More than a client can be delivered in its life.
NO_LIMIT = 1 << 62
# Consumers that leave their queues in one step, some 6 us each, and those a channel has that ends in one.
AT_ONCE, FEW = 8, 32
# Most messages of a channel that operators may give back: their tags are remembered.
RETURNED_MAX = 1000


class Channel(HotChannel):
    """An open channel.

    ``content``: the message being received; ``transaction``: what tx mode holds back; ``last_queue``: the
    queue declared last. ``prefetch_is_given``: the client has set its prefetch, not only the settings.
    """

    __slots__ = (
        "connection", "vhost", "caller", "state", "replies", "content", "transaction",
        "last_queue", "reply_consumer", "method_id", "returned",
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
        self.returned: Any = ()  # a set of delivery tags, once an operator gives messages back
        self.last_queue = ""
        self.reply_consumer = None
        self.method_id = 0
        self.held_notices = None
        self.prefetch_is_given = False
        # consumers that have still to detach, the first one last, once the channel is about to go
        self._leaving = None
        self._waiting_queues = ()  # they deliver nothing until what the channel held of theirs has come back
        self._ended = False
        self._is_refusing = False  # it is about to end because its client cannot take a message
        self.choose_lane()
        connection.hub.clients.churn.channel_created += 1
        self.reply(ChannelOpenOk())

    # what comes in

    def method(self, payload):
        """A method frame. Raises AMQPError."""
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
        # As events.on_behalf_of(): events that the method causes name the user.
        before, connection.events.actor = connection.events.actor, connection.user.name
        try:
            handler(self, method)
        finally:
            connection.events.actor = before

    def content_frame(self, kind, payload):
        """A header or body frame. Returns False when nothing more may be read for now. Raises AMQPError."""
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
        """Answer, behind the answers before it."""
        self.replies.send(method_frame(self.id, method))

    def notify(self, method):
        """Send a method that the client did not ask for; behind the answer of the method that is being
        handled if that is the reason.
        """
        if self.held_notices is None:
            self.reply(method)
        else:
            self.held_notices.append(method)

    def reply_when_safe(self, method, action=None):
        """Answer, and then call ``action()``, once all changes so far are safe."""
        self.replies.send_when_safe(method_frame(self.id, method), action)

    def reply_durably(self, method, durable):
        """Answer at once, or once a ``durable`` change is safe."""
        if durable:
            self.reply_when_safe(method)
        else:
            self.reply(method)

    def reply_after_purge(self, method, queue):
        """Answer once a purge of ``queue`` is safe."""
        place = self.replies.keep_place(method_frame(self.id, method))
        queue.after_purge(self.connection.durability, partial(self.replies.fill, place))

    def send(self, octets):
        """Send frames that are no answer (returns, deliveries) at once, whatever answers wait."""
        self.connection.output.write(octets)

    # modes

    def choose_lane(self):
        """Decide whether the fast lane takes this channel's publishes and acks, or the slow lane everything.
        """
        self.tracing = self.vhost.tracing
        self.slow = (
            self.tracing or self.state != OPEN or self.content is not None or self.transaction is not None
            or self.connection.blocked_reason is not None
        )

    def start_confirming(self):
        """Confirm mode, from the next publish on."""
        self.confirming = True
        if self.confirms is None:
            self.confirms = self.connection.server.make_confirms(
                self.id, self.connection.output.write, self.connection.durability.when_safe
            )

    def trace_delivery(self, message, queue_name, added):
        """A message goes to the client while the vhost is traced, with these headers besides its own."""
        tracing.delivered(self.vhost, traced(self.caller), message, queue_name, added)

    @property
    def confirmed_count(self):
        """Publishes that were answered with a confirm."""
        return 0 if self.confirms is None else self.confirms.confirmed

    # consumer timeouts

    def watch_unacked(self):
        """Watch the channel, so that no message stays unacked for too long."""
        if self.state == OPEN:
            timeouts = self.connection.server.timeouts
            timeouts.watch(self)
            self.watched = timeouts.is_watching(self)

    def consumer_timed_out(self, holder, error):
        """A message of ``holder`` was not acked in time: close the channel, so that the message goes back."""
        if self.state == OPEN:
            consumer = "basic.get" if holder.consumer is None else f"consumer '{holder.consumer.tag}'"
            LOG.warning(
                "connection %s, channel %d: %s on queue '%s' in vhost '%s' has not acknowledged a delivery "
                "in time", self.connection.name, self.id, consumer, holder.queue.name, self.vhost.name,
            )
            self.connection.fail_channel(self, error)

    def cannot_take(self, queue, octets):
        """The next message of ``queue`` has properties of so many octets, which fit into no frame to the
        client: close the channel after the queue's turn. It counts as one offer for all consumers of the
        channel.
        """
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
        """An operator gives a message back to its queue; a later settlement by the client is ignored.

        False: it is not unacknowledged, or RETURNED_MAX messages were given back before.
        """
        if self.state != OPEN or self.transaction is not None or len(self.returned) >= RETURNED_MAX:
            return False
        if not self.reject(delivery_tag, False, settling.RETURNED):
            return False
        self.returned = self.returned or set()
        self.returned.add(delivery_tag)
        return True

    # very many unacked messages

    def settle_many(self, delivery_tag, how, then=None):
        """Settle everything up to this tag, in slices, and then call ``then()``. Meanwhile the client is not
        read, so that its next methods find it settled.
        """
        hold: Hold = None

        def done():
            try:
                if then is not None and self.is_open():
                    then()
            finally:
                hold.release()

        if self.settle_in_slices(delivery_tag, how, self.connection.scheduler, done):
            hold = self.connection.stream.hold("its settlements to be carried out")
        elif then is not None:
            then()

    def work_off(self, step, then, waits_for):
        """Call ``step()`` until it returns False, and then ``then()``.

        If that takes more than one slice, the client is not read meanwhile. All steps are called even if the
        channel ends. If a step raises, the channel or the connection is closed.
        """
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
            hold = self.connection.stream.hold(waits_for)
        elif then is not None:
            then()

    def go_on_later(self, when, step, waits_for):
        """Call ``step()`` when ``when(callback)`` calls back, unless the channel ends before.

        The client is not read meanwhile. What the step raises closes the channel, or the connection.
        """
        hold = self.connection.stream.hold(waits_for)
        method_id = self.method_id

        def go_on():
            try:
                if self.is_open():
                    self.method_id = method_id
                    self.connection.events.on_behalf_of(self.connection.user.name, step)
            except Exception as error:
                self.connection.failed_later(self, method_id, error)
            finally:
                hold.release()

        when(go_on)

    def is_open(self):
        """Whether neither side has closed it."""
        return self.state == OPEN

    @property
    def flow(self):
        """Its state in RabbitMQ's words."""
        if self.state == OPEN:
            return "running"
        return CLOSING if self.is_closing() else self.state

    def is_closing(self):
        """Whether the client has not agreed to its end yet."""
        return self.state in (CLOSING, CLOSING_BOTH)

    # the end

    def fail(self, error):
        """Close with an error, which the client hears behind the answers that wait. Until it agrees, its
        other frames are dropped.
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
        """The client closes the channel: answer behind all other answers and confirms, including those that
        wait for the disk.
        """
        self.send_confirms()

        def released():
            self.when_answered(
                lambda: self.connection.forget_channel(self), method_frame(self.id, ChannelCloseOk()))

        self._release_then(released)

    def is_answering(self):
        """Whether an answer or a confirm waits for the disk."""
        return bool(self.replies.waiting_count or (self.confirms is not None and self.confirms.waiting))

    def when_answered(self, action, last=None):
        """Call ``action()`` when all answers and confirms have left, including those that wait for the disk,
        and behind them the octets ``last``.
        """
        if self.confirms is not None and self.confirms.waiting:
            self.replies.send_when_safe(last, action)
            return
        if last is not None:
            self.replies.send(last)
        self.replies.act(action)

    def ends(self, end):
        """A list of functions that end the channel when they are called in order; the last is ``end``, and
        each before it detaches a few of very many consumers.
        """
        return [*[self._detach_some] * (len(self.consumers) // AT_ONCE), end]

    def end(self):
        """The channel is gone: both sides agree, or the connection is."""
        self.release()
        moved(self, OF_CHANNEL, ENDED)
        self.replies.close()
        if self.confirms is not None:
            self.confirms.close()

    def release(self):
        """Give back consumers, unacked messages, the content and the transaction under way, once."""
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
            queue.release()
        connection = self.connection
        connection.events.emit_for(connection.user.name, "channel.closed", events.channel_closed, self)

    def _release_then(self, then):
        """Release, and then call ``then()``. Very many consumers take several slices, and the client is not
        read meanwhile.
        """
        if len(self.consumers) <= FEW:
            self.release()
            then()
            return
        if self._leaving is None:
            self._begin_release()  # the channel takes nothing more of the same read
        hold = self.connection.stream.hold("its consumers to end")

        def released():
            try:
                then()
            finally:
                hold.release()

        self.connection.hub.endings.give_back(self.ends(self.release), released)

    def _begin_release(self):
        """Stop deliveries, and drop what is under way."""
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
            # Or other consumers would get messages from behind those that go back at the end.
            self._waiting_queues = self.unacked.queues()
            for queue in self._waiting_queues:
                queue.hold()

    def _detach_some(self):
        """Detach a few consumers from their queues; does nothing when all are detached."""
        if self._leaving is None:
            self._begin_release()
        for _ in range(min(AT_ONCE, len(self._leaving))):
            consumer = self._leaving.pop()
            if self.consumers.get(consumer.tag) is consumer:  # its queue may have gone meanwhile
                del self.consumers[consumer.tag]
                connection = self.connection
                connection.events.emit_for(
                    connection.user.name, "consumer.deleted", events.consumer_deleted, consumer)
                consumer.stop()

    def _disk_refused(self, error):
        self.connection.fail(InternalError(f"the disk refused a change: {error}"))


def channel_open(_channel, _method):
    """channel.open on a channel that is open already: an error."""
    raise ChannelError("second 'channel.open' seen")


def channel_close(channel, _method):
    """channel.close: the number is free when the answer has been sent."""
    channel.agree_to_close()


def channel_flow(channel, method):
    """channel.flow: deliveries always flow. As in RabbitMQ a client that wants none sets a prefetch, or
    cancels.
    """
    if not method.active:
        raise NotImplemented_("active=false")
    channel.reply(ChannelFlowOk(active=True))


def access_request(channel, _method):
    """access.request of AMQP 0-8: everybody gets the same ticket, as in RabbitMQ."""
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
