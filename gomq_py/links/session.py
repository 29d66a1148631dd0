"""Link session: runs the transfer between a link's two connections until one of them ends.

Runs in callbacks of the event loop and in slices of its jobs, which never switch greenlets. The link's
greenlet makes a session. That greenlet, or the Keepalive while the link has no greenlet, calls ``tick`` until
the session's end.
"""
import time
from functools import partial

import gevent

from gomq_py.amqp.wire.errors import AMQPError, UnexpectedFrame
from gomq_py.amqp.wire.frames import method_frame
from gomq_py.amqp.wire.methods import (
    BasicCancel, BasicConsumeOk, ChannelClose, ChannelFlow, ChannelFlowOk, ConnectionBlocked, ConnectionClose,
    ConnectionUnblocked, QueueDeclare, QueueDeclareOk, decode_method,
)
from gomq_py.broker.transfer.engine import Transfer
from gomq_py.client.errors import ChannelClosed, ClientError, ConnectionClosed, Timeout
from gomq_py.content.properties import Properties
from gomq_py.errors import Malformed
from gomq_py.links.source_reader import SourceReader
from gomq_py.links.target_writer import FULL_OCTETS
from gomq_py.links.relay import HeaderStamp, Relay
from gomq_py.links.wire import Wire
from gomq_py.observability.log import logger

LOG = logger("links")

SOURCE, DESTINATION, OURS = "source", "destination", "link"
FAULTS = (AMQPError, ClientError, Malformed, OSError)
# Most messages of a batch without acks, where no prefetch limits them.
RUN_MOST = 4096
# A batch is this part of the prefetch: the source sends the next messages while these are confirmed.
RUNS_OF_PREFETCH = 4
# Time for the source to answer basic.consume; time without a confirm after which operators are told.
ANSWER_S, STALL_S = 30.0, 60.0
UNBOUNDED = 1 << 30
# Most unsolicited methods per interval; a broker with a flapping alarm sends a few per second.
MOST, INTERVAL_S = 200, 10.0


class Unsendable(ClientError):
    """The message can never be sent to this target."""


class LinkSession:
    """Moves messages over two connections. ``link``: the Link, which outlives the session and gets its
    reports.

    ``failure``: (end, error) that ended the session, or None. ``is_done``: all messages to move are settled.
    ``room``: number of messages to move, or None for all. ``careful``: number of messages to send one at a
    time, because one of them may have ended the last session.
    """

    def __init__(self, link, hub, buffers, channel, writer, is_acked, room, careful):
        self.link = link
        self.writer = writer
        self.failure = None
        self.is_done = self.is_stopping = self._is_up = False
        self.careful = careful
        self._room = UNBOUNDED if room is None else room  # messages left to take
        self._is_held = False  # the source is not read
        self._alone = None  # checksum of the message being sent alone
        self._is_rejecting = False
        self._unsolicited = UnsolicitedLimit(), UnsolicitedLimit()  # unsolicited methods of source and target
        self._consume = None
        self._is_asking = False  # waiting for the answer to basic.consume
        self._asked_s = 0.0  # when basic.consume was last sent; 0: never
        self._consumer_tag = None  # None without a consumer
        self._channel_id = channel.id
        source, target = link.source, link.target
        relay = Relay(
            buffers.input, buffers.output, channel.id, writer.channel, writer.frame_max,
            _octets(getattr(target, "exchange", None)), _octets(getattr(target, "routing_key", None)),
            target.edit, _octets(source.offset_argument), _header_stamp_of(target),
            getattr(target, "queue", None) is not None,
        )
        self.wire = Wire(
            channel.connection, partial(self._guard, self._source_readable),
            partial(self.fail, SOURCE), self._turn)
        most = max(1, source.prefetch // RUNS_OF_PREFETCH) if is_acked else RUN_MOST
        if not target.has_lane:
            most = 1
        # A source that ignores the prefetch is read at most one batch beyond it.
        self._most_unsettled = source.prefetch + most if is_acked else UNBOUNDED
        self.reader = SourceReader(self.wire, channel.id, relay, buffers, self, most, is_acked, link.account)
        self.transfer = Transfer(
            f"link {link.name}", self.reader, writer, hub.scheduler, hub.timers, writer.when_safe)

    def start(self, consume):
        """Begin the transfer. Sends ``consume``, a BasicConsume, unless the link is paused."""
        self._consume = consume
        self.writer.start(self)
        if self.failure is None:
            if self.link.is_paused:
                self._up()
            self.consume_or_cancel()
            self.wire.watch()
            self.transfer.start()

    def consume_or_cancel(self):
        """Send basic.consume, or basic.cancel if the link is paused or stopping. Does nothing if the consumer
        is as wanted, or while an answer to basic.consume is awaited.
        """
        is_wanted = not (self.link.is_paused or self.is_stopping)
        if self._consume is None or self._is_asking or self.failure is not None or (
            is_wanted == (self._consumer_tag is not None)
        ):
            return
        if is_wanted:
            self._is_asking = True
            self._asked_s = time.monotonic()
            method = self._consume
        else:
            method = BasicCancel(consumer_tag=self._consumer_tag, no_wait=True)
            self._consumer_tag = None
        self.wire.write(method_frame(self._channel_id, method))
        self.wire.send_queued()

    def ask_lag(self, queue):
        """Ask the source for the queue's number of ready messages. The answer goes to ``link.lag_told``."""
        if self._is_up and self.failure is None and not self.is_stopping:
            asking = QueueDeclare(queue=queue, passive=True, arguments={})
            self.wire.write(method_frame(self._channel_id, asking))
            self.wire.send_queued()

    def tick(self):
        """Send due heartbeats, and fail the session if a broker has been silent for too long or does not
        answer basic.consume. Returns the seconds until the next call, or None.
        """
        due = []
        ticks = (
            (SOURCE, partial(self.wire.tick, not self._is_held)), (SOURCE, self._tick_of_answer),
            (DESTINATION, self.writer.tick), (DESTINATION, self._tick_of_confirms),
        )
        for end, tick in ticks:
            try:
                due.append(tick())
            except FAULTS as error:
                self.fail(end, error)
            except Exception as error:  # an error in a timer would not set it again
                LOG.exception("%s: a fault of ours", self.transfer.name)
                self.fail(OURS, error)
        return min((seconds for seconds in due if seconds is not None), default=None)

    def stop(self):
        """Take no more messages, and settle the messages in flight. Returns at once; see ``is_over``."""
        self.is_stopping = True
        self.consume_or_cancel()
        if not self.reader.on_its_way():
            self.link.wake()

    def is_over(self):
        """True if the session has failed or has no more messages to settle."""
        return self.failure is not None or self.is_done or self.is_stopping and not self.reader.on_its_way()

    def end(self):
        """Close both connections, by a handshake where possible. May switch greenlets."""
        self.transfer.close()
        failed = self.failure and self.failure[0]
        try:
            self.wire.send_queued()
            if failed == SOURCE:
                self.wire.abort()
            else:
                self.wire.part()
            if failed != DESTINATION:
                self.writer.part()
        finally:
            self.abort()

    def abort(self):
        """Close both connections without a handshake. May be called again."""
        self.transfer.close()
        self.wire.abort()
        self.writer.abort()
        self.reader.close()

    def fail(self, end, error):
        """End the session because of ``error`` at SOURCE, DESTINATION or OURS. Only the first call counts."""
        if self.failure is None:
            self.failure = end, error.with_traceback(None)  # its traceback refers to this object
            self.link.poison_detection.alone = self._alone if self.reader.unsettled <= 1 else None
            self.link.poison_detection.unsettled = self.reader.unsettled
            self.wire.unwatch()
            self.writer.unwatch()
            self.transfer.close()
            self.link.wake()

    # called by the reader

    def may_send(self):
        """True if the target accepts more messages now."""
        return self.failure is None and not self.is_stopping and self.writer.can_take()

    def may_take(self):
        """True if a message, or a piece of a large one, may be read from the source now."""
        reader = self.reader
        may = self.may_send() and not reader.waits() and self.wire.kept_octets < FULL_OCTETS and (
            reader.relay.missing > 0
            or reader.may_keep_more() and self._room > 0
            and reader.unsettled < self._most_unsettled
            and not (self.careful and reader.unsettled)
        )
        if not may and not self._is_held:
            self._is_held = True
            self.wire.unwatch()
        return may

    def room(self):
        """Return how many messages the relay's next ``walk`` may read; tell it whether to make checksums."""
        self.reader.relay.signs = self.careful > 0
        return 1 if self.careful and self._room else self._room

    def taken(self, batch):
        """Count a read LinkBatch; mark a poison message to be rejected unsent. Raises UnexpectedFrame."""
        if not self._asked_s:
            raise UnexpectedFrame("a delivery, and nothing is consumed")
        self._room -= batch.count
        is_first = batch.is_whole or not batch.count and batch.is_sent and self._alone is None
        if self.careful and batch.is_sent and is_first:
            self._alone = self.reader.relay.checksum
            if self.link.poison_detection.is_poison(self._alone):
                batch.is_sent, batch.is_rejected = False, True
                self._is_rejecting = not batch.is_whole
                self.reader.relay.discards = self._is_rejecting
        if self._is_rejecting:
            batch.is_sent, batch.is_rejected = False, True
            self._is_rejecting = not batch.count

    def unfit(self, error):
        """Handle a message that can never be sent (``error``: an Unfit). Returns True if the caller must
        reject the message at its source. Otherwise ends the session and returns False.
        """
        text, checksum = error.args
        if self.link.poison_detection.is_poison(checksum):
            return True
        self._alone = checksum
        self.fail(DESTINATION, Unsendable(text))
        self.link.poison_detection.alone = checksum
        return False

    def reject_next(self):
        self._is_rejecting = True

    def settled(self, batch):
        """Report to the link that a LinkBatch is settled at its source."""
        if self._alone is not None and not batch.is_rejected:
            self.link.poison_detection.passed(self._alone)
        self._alone = None
        if self.careful:
            self.careful -= 1
        if batch.offset >= 0 and not self.reader.has_held():
            self.link.reached(batch.offset)
        self.is_done = self.link.settled(batch)
        if self.is_done or self.is_stopping and not self.reader.on_its_way():
            self.link.wake()

    def refused(self, count, error):
        """Report to the link that the target has refused ``count`` messages, which are sent again later."""
        self.link.poison_detection.refused()
        self.link.were_refused(count, error)
        if self.is_stopping and not self.reader.on_its_way():
            self.link.wake()

    def is_of_stream(self):
        """True if the source is a stream, to which messages cannot be requeued."""
        source = self.link.source
        return self.link.stream_offset is not None or source.offset_argument in source.consumer_arguments

    def requeued(self, count):
        """Continue after a pause. ``count`` messages were requeued, and will be delivered again."""
        self._room += count
        self.wire.send_queued()
        self._turn()

    def paused(self):
        """The transfer has paused: write queued output to the source, and go on if a message can be read."""
        # If a message can be taken by now, resume soon.
        self.wire.send_queued()
        reader = self.reader
        if reader.has_refused() and self.may_send() or (
                self._is_held or reader.has_unread()) and self.may_take():
            gevent.get_hub().loop.run_callback(self._turn)  # a job cannot start itself

    def source_methods(self, methods):
        """Handle non-delivery methods of the source: [(channel, payload)]. Raises ClientError, AMQPError."""
        for channel, payload in methods:
            method = decode_method(payload)
            if not (self._is_asking and isinstance(method, BasicConsumeOk)):
                self._unsolicited[0].count()
            if isinstance(method, BasicConsumeOk):
                self._is_asking = False
                self._consumer_tag = method.consumer_tag
                self._up()
                self.consume_or_cancel()
            elif isinstance(method, QueueDeclareOk):
                self.link.lag_told(method.message_count)
            elif isinstance(method, BasicCancel):
                if self._consumer_tag is None:
                    continue  # crossed with our own cancel
                raise ClientError("the broker cancelled the consumer: its queue was deleted or moved")
            elif not isinstance(method, (ConnectionBlocked, ConnectionUnblocked)):
                self._any_method(self.wire, channel, method)

    # called by the writer

    def target_methods(self, wire, methods):
        """Handle non-confirm methods of the target: [(channel, payload)]. Raises ClientError, AMQPError."""
        for channel, payload in methods:
            self._unsolicited[1].count()
            method = decode_method(payload)
            if isinstance(method, (ConnectionBlocked, ConnectionUnblocked)):
                self.writer.is_blocked = isinstance(method, ConnectionBlocked)
                self.link.poison_detection.has_no_room()
                self.reader.forget_refusals()
                self.link.changed()
            elif isinstance(method, ChannelFlow):
                self.writer.is_flowing = method.active
                self.link.changed()
                wire.write(method_frame(channel, ChannelFlowOk(active=method.active)))
                wire.send_queued()
            else:
                self._any_method(wire, channel, method)

    def target_turn(self, act):
        """Let ``act()`` handle the writer's input, then continue the transfer. Its error ends the session."""
        self._guard(act, DESTINATION)
        if self.failure is None:
            self.wire.send_queued()
            self._turn()

    # private from here on

    def _tick_of_answer(self):
        """Return the seconds left for the answer to basic.consume; None if not awaited. Raises Timeout."""
        if not self._is_asking or self._is_held:
            return None
        left_s = self._asked_s + ANSWER_S - time.monotonic()
        if left_s <= 0:
            raise Timeout(f"no answer to basic.consume within {ANSWER_S:g} s")
        return left_s

    def _tick_of_confirms(self):
        """Report a target without a confirm for STALL_S, but go on: the target may just be slow."""
        stalled_s = self.writer.stalled_s()
        if stalled_s >= STALL_S and not self.is_stopping:
            self.link.has_stalled(
                f"none of {self.writer.unconfirmed()} messages is confirmed for more than {STALL_S:g} s")

    def _up(self):
        if not self._is_up:
            self._is_up = True
            self.link.up()

    def _any_method(self, wire, channel, method):
        if isinstance(method, ChannelClose):
            raise ChannelClosed(method.reply_code, method.reply_text, method.class_id, method.method_id)
        if isinstance(method, ConnectionClose):
            raise ConnectionClosed(method.reply_code, method.reply_text, method.class_id, method.method_id)
        if not isinstance(method, ChannelFlow):
            raise UnexpectedFrame(f"{method.NAME} on channel {channel}")
        wire.write(method_frame(channel, ChannelFlowOk(active=method.active)))

    def _source_readable(self):
        if self.may_take():
            self.transfer.start()

    def _turn(self):
        if self._is_held and self.may_take():
            self._is_held = False
            self.wire.watch()
            self.transfer.start()
        elif self.reader.has_refused() and self.may_send() or self.reader.has_unread() and self.may_take():
            self.transfer.start()

    def _guard(self, act, end=SOURCE):
        try:
            act()
        except FAULTS as error:
            self.fail(end, error)
        except Exception as error:  # the loop would print the error and call again
            LOG.exception("%s: a fault of ours", self.transfer.name)
            self.fail(OURS, error)


def _octets(text):
    return None if text is None else text.encode("utf-8", "surrogateescape")


def _header_stamp_of(target):
    header_stamp = getattr(target, "header_stamp", None)
    if header_stamp is None:
        return None
    name, *values = header_stamp()
    # [6:]: without the flags and the length of the table
    return HeaderStamp(_shortstr(name), *(Properties(headers={name: value}).encode()[6:] for value in values))


def _shortstr(text):
    text = _octets(text)
    return bytes([len(text)]) + text


class Keepalive:
    """Sends a session's heartbeats while the link has no greenlet, and aborts the session at shutdown. Runs
    in callbacks of the event loop and never switches greenlets. ``is_on``: True from ``begin`` to ``end``.
    """

    __slots__ = ("is_on", "_hub", "_session", "_timer")

    def __init__(self, hub):
        self.is_on = False
        self._hub = hub
        self._session = None
        self._timer = None

    def begin(self, session):
        """Send the heartbeats of ``session`` until ``end``."""
        self.is_on = True
        self._session = session
        self._hub.at_close(self._cut_off)
        self._tick()

    def end(self):
        """Stop, because a greenlet uses the session from now on."""
        self.is_on = False
        self._session = None
        self._hub.not_at_close(self._cut_off)
        if self._timer is not None:
            self._timer.stop()
            self._timer = None

    def _tick(self):
        """Send due heartbeats, and fail the session if one of its brokers has sent nothing for too long."""
        self._timer = None
        due_s = self._session.tick()
        if self.is_on and due_s is not None:
            self._timer = self._hub.timers.start(due_s * 1000, self._tick)

    def _cut_off(self):
        self._session.abort()


class UnsolicitedLimit:
    """Limits how often a connection's peer sends methods that are no answers."""

    __slots__ = ("_count", "_ends_s")

    # Brokers block, unblock or pause now and then. Each such method is handled in Python and many are
    # answered, so a peer that sends only such methods would starve the loop.
    def __init__(self):
        self._count, self._ends_s = 0, time.monotonic() + INTERVAL_S

    def count(self):
        """Count an unsolicited method. Raises UnexpectedFrame for more than MOST within INTERVAL_S."""
        self._count += 1
        if self._count > MOST:
            now = time.monotonic()
            if now < self._ends_s:
                raise UnexpectedFrame(
                    f"more than {MOST} methods within {INTERVAL_S:.0f} s that nobody has asked for")
            self._count, self._ends_s = 1, now + INTERVAL_S
