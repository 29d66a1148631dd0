"""Passage: a link's two connections while they last, and the transfer between them.

Everything here runs in callbacks of the loop and in slices of the hub's jobs, and never switches; the link's
greenlet makes a passage, waits for its end, and calls ``tick``. While no greenlet waits for it, Rest calls
``tick``.
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
from gomq_py.links.inlet import Inlet
from gomq_py.links.outlet import FULL_OCTETS
from gomq_py.links.relay import Relay
from gomq_py.links.stamp import Stamp
from gomq_py.links.wire import Wire
from gomq_py.observability.log import logger

LOG = logger("links")

SOURCE, DESTINATION, OURS = "source", "destination", "link"
FAULTS = (AMQPError, ClientError, Malformed, OSError)
# Messages of a run where nothing is acked, so that no prefetch says how many come at once.
RUN_MOST = 4096
# A run is a part of the prefetch: the source sends the next messages while these are confirmed.
RUNS_OF_PREFETCH = 4
# A source has so long to answer basic.consume. So long may a target confirm nothing of what it has, before
# operators are told.
ANSWER_S, STALL_S = 30.0, 60.0
# More than any run.
UNBOUNDED = 1 << 30
# A broker whose alarm comes and goes sends a few in a second.
MOST, INTERVAL_S = 200, 10.0


class Unsendable(ClientError):
    """A message cannot be sent to this target, whatever happens."""


class Passage:
    """``link`` has what outlasts a passage, and hears ``up``, ``settled``, ``were_refused`` and ``wake``.

    ``failure``: (end, error), what ended it. ``is_done``: as many messages are settled as were to be moved.
    ``careful``: so many messages go through one at a time, for one of them may be what ended the last
    passage.
    """

    def __init__(self, link, hub, buffers, channel, outlet, is_acked, room, careful):
        self.link = link
        self.outlet = outlet
        self.failure = None
        self.is_done = self.is_stopping = self._is_up = False
        self.careful = careful
        self._room = UNBOUNDED if room is None else room  # messages that may be taken
        self._is_held = False  # the source is not read
        self._alone = None  # checksum of the message that is on its way alone
        self._is_rejecting = False
        self._unasked = Unasked(), Unasked()  # methods of the source, and of the target
        self._consume = None
        self._is_asking = False  # basic.consume is not answered yet
        self._asked_s = 0.0  # when it was sent last; 0: it never was
        self._consumer_tag = None  # of the consumer, while there is one
        self._channel_id = channel.id
        source, target = link.source, link.target
        relay = Relay(
            buffers.input, buffers.output, channel.id, outlet.channel, outlet.frame_max,
            _octets(getattr(target, "exchange", None)), _octets(getattr(target, "routing_key", None)),
            target.edit, _octets(source.offset_argument), _stamp_of(target),
            getattr(target, "queue", None) is not None,
        )
        self.wire = Wire(
            channel.connection, partial(self._guard, self._source_readable),
            partial(self.fail, SOURCE), self._turn)
        most = max(1, source.prefetch // RUNS_OF_PREFETCH) if is_acked else RUN_MOST
        if not target.has_lane:
            most = 1
        # A source that sends more than the prefetch is read no further than one run beyond.
        self._most_unsettled = source.prefetch + most if is_acked else UNBOUNDED
        self.inlet = Inlet(self.wire, channel.id, relay, buffers, self, most, is_acked, link.account)
        self.transfer = Transfer(
            f"link {link.name}", self.inlet, outlet, hub.scheduler, hub.timers, outlet.when_safe)

    def start(self, consume):
        """Ask for deliveries, unless the link is paused; ``consume`` is the BasicConsume."""
        self._consume = consume
        self.outlet.start(self)
        if self.failure is None:
            if self.link.is_paused:
                self._up()
            self.consume_or_cancel()
            self.wire.watch()
            self.transfer.start()

    def consume_or_cancel(self):
        """Consume where the link is not paused, and only there. What is asked for is awaited first."""
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
        self.wire.flush()

    def ask_lag(self, queue):
        """Ask the source how many messages are ready in the queue; the link hears it by ``lag_told``."""
        if self._is_up and self.failure is None and not self.is_stopping:
            asking = QueueDeclare(queue=queue, passive=True, arguments={})
            self.wire.write(method_frame(self._channel_id, asking))
            self.wire.flush()

    def tick(self):
        """Signs of life that are due, both ways; seconds until the next, None: never."""
        due = []
        ticks = (
            (SOURCE, partial(self.wire.tick, not self._is_held)), (SOURCE, self._tick_of_answer),
            (DESTINATION, self.outlet.tick), (DESTINATION, self._tick_of_confirms),
        )
        for end, tick in ticks:
            try:
                due.append(tick())
            except FAULTS as error:
                self.fail(end, error)
            except Exception as error:  # of a timer, which would not be set again
                LOG.exception("%s: a fault of ours", self.transfer.name)
                self.fail(OURS, error)
        return min((seconds for seconds in due if seconds is not None), default=None)

    def stop(self):
        """Take nothing more; what is on its way is settled."""
        self.is_stopping = True
        self.consume_or_cancel()
        if not self.inlet.on_its_way():
            self.link.wake()

    def is_over(self):
        """Whether nothing is to be waited for."""
        return self.failure is not None or self.is_done or self.is_stopping and not self.inlet.on_its_way()

    def end(self):
        """Close both connections, in order where that is possible. May switch."""
        self.transfer.close()
        failed = self.failure and self.failure[0]
        try:
            self.wire.flush()
            if failed == SOURCE:
                self.wire.abort()
            else:
                self.wire.part()
            if failed != DESTINATION:
                self.outlet.part()
        finally:
            self.abort()

    def abort(self):
        """Close both connections without a word; once is enough."""
        self.transfer.close()
        self.wire.abort()
        self.outlet.abort()
        self.inlet.close()

    def fail(self, end, error):
        """Something ended it. The first reason counts."""
        if self.failure is None:
            self.failure = end, error.with_traceback(None)  # its frames have us
            self.link.suspicion.alone = self._alone if self.inlet.unsettled <= 1 else None
            self.link.suspicion.unsettled = self.inlet.unsettled
            self.wire.unwatch()
            self.outlet.unwatch()
            self.transfer.close()
            self.link.wake()

    # What the inlet asks and tells.

    def may_send(self):
        """Whether the target may be sent something now."""
        return self.failure is None and not self.is_stopping and self.outlet.can_take()

    def may_take(self):
        """Whether the next message, or the next piece of one, may be taken from the source now."""
        inlet = self.inlet
        may = self.may_send() and not inlet.waits() and self.wire.kept_octets < FULL_OCTETS and (
            inlet.relay.missing > 0
            or inlet.may_keep_more() and self._room > 0
            and inlet.unsettled < self._most_unsettled
            and not (self.careful and inlet.unsettled)
        )
        if not may and not self._is_held:
            self._is_held = True
            self.wire.unwatch()
        return may

    def room(self):
        """How many messages may be taken by the next walk."""
        self.inlet.relay.signs = self.careful > 0
        return 1 if self.careful and self._room else self._room

    def taken(self, run):
        """A run was taken. One that is known as poison is rejected instead of sent. Raises UnexpectedFrame.
        """
        if not self._asked_s:
            raise UnexpectedFrame("a delivery, and nothing is consumed")
        self._room -= run.count
        is_first = run.is_whole or not run.count and run.is_sent and self._alone is None
        if self.careful and run.is_sent and is_first:
            self._alone = self.inlet.relay.checksum
            if self.link.suspicion.is_poison(self._alone):
                run.is_sent, run.is_rejected = False, True
                self._is_rejecting = not run.is_whole
                self.inlet.relay.discards = self._is_rejecting
        if self._is_rejecting:
            run.is_sent, run.is_rejected = False, True
            self._is_rejecting = not run.count

    def unfit(self, error):
        """The next message cannot be sent. Whether it is to be rejected at its source."""
        text, checksum = error.args
        if self.link.suspicion.is_poison(checksum):
            return True
        self._alone = checksum
        self.fail(DESTINATION, Unsendable(text))
        self.link.suspicion.alone = checksum
        return False

    def reject_next(self):
        """The run that is taken next is rejected at its source."""
        self._is_rejecting = True

    def settled(self, run):
        """A run is settled at its source."""
        if self._alone is not None and not run.is_rejected:
            self.link.suspicion.passed(self._alone)
        self._alone = None
        if self.careful:
            self.careful -= 1
        if run.offset >= 0 and not self.inlet.has_held():
            self.link.reached(run.offset)
        self.is_done = self.link.settled(run)
        if self.is_done or self.is_stopping and not self.inlet.on_its_way():
            self.link.wake()

    def refused_numbers(self):
        """Numbers of publishes that the target has refused, for the inlet to take out."""
        return self.outlet.refused

    def refused(self, count, error):
        """So many messages were refused; they are sent again after a pause."""
        self.link.suspicion.refused()
        self.link.were_refused(count, error)
        if self.is_stopping and not self.inlet.on_its_way():
            self.link.wake()

    def large_refused(self, checksum):
        """A message that is not kept was refused. Whether it is to be rejected at its source."""
        return self.link.suspicion.large_refused(checksum)

    def large_settled(self, checksum):
        """It is settled."""
        self.link.suspicion.large_settled(checksum)

    def is_of_stream(self):
        """Whether the source is a stream, which brings nothing back that is requeued."""
        source = self.link.source
        return self.link.stream_offset is not None or source.offset_argument in source.consumer_arguments

    def is_limit(self, refusals):
        """Whether a message was refused often enough to be rejected at its source."""
        return self.link.suspicion.is_limit(refusals)

    def requeued(self, count):
        """A pause is over. So many deliveries went back, and come again."""
        self._room += count
        self.wire.flush()
        self._turn()

    def paused(self):
        """The transfer has taken what it could."""
        self.wire.flush()
        inlet = self.inlet
        if inlet.has_refused() and self.may_send() or (
                self._is_held or inlet.has_unread()) and self.may_take():
            gevent.get_hub().loop.run_callback(self._turn)  # a job cannot start itself

    def source_methods(self, methods):
        """Methods of the source that are no deliveries."""
        for channel, payload in methods:
            method = decode_method(payload)
            if not (self._is_asking and isinstance(method, BasicConsumeOk)):
                self._unasked[0].count()
            if isinstance(method, BasicConsumeOk):
                self._is_asking = False
                self._consumer_tag = method.consumer_tag
                self._up()
                self.consume_or_cancel()
            elif isinstance(method, QueueDeclareOk):
                self.link.lag_told(method.message_count)
            elif isinstance(method, BasicCancel):
                if self._consumer_tag is None:
                    continue  # it was cancelled from here, too
                raise ClientError("the broker cancelled the consumer: its queue was deleted or moved")
            elif not isinstance(method, (ConnectionBlocked, ConnectionUnblocked)):
                self._any_method(self.wire, channel, method)

    # What an outlet tells.

    def target_methods(self, wire, methods):
        """Methods of the target that are no confirms."""
        for channel, payload in methods:
            self._unasked[1].count()
            method = decode_method(payload)
            if isinstance(method, (ConnectionBlocked, ConnectionUnblocked)):
                self.outlet.is_blocked = isinstance(method, ConnectionBlocked)
                self.link.suspicion.has_no_room()
                self.inlet.forget_refusals()
                self.link.changed()
            elif isinstance(method, ChannelFlow):
                self.outlet.is_flowing = method.active
                self.link.changed()
                wire.write(method_frame(channel, ChannelFlowOk(active=method.active)))
                wire.flush()
            else:
                self._any_method(wire, channel, method)

    def target_turn(self, act):
        """Let the outlet act on what has come, then settle and take."""
        self._guard(act, DESTINATION)
        if self.failure is None:
            self.wire.flush()
            self._turn()

    # The rest is private.

    def _tick_of_answer(self):
        """Seconds until basic.consume has to be answered; None: it is. Raises Timeout."""
        if not self._is_asking or self._is_held:
            return None
        left_s = self._asked_s + ANSWER_S - time.monotonic()
        if left_s <= 0:
            raise Timeout(f"no answer to basic.consume within {ANSWER_S:g} s")
        return left_s

    def _tick_of_confirms(self):
        """Say so where the target confirms nothing. It may be slow: so that ends nothing."""
        stalled_s = self.outlet.stalled_s()
        if stalled_s >= STALL_S and not self.is_stopping:
            self.link.has_stalled(
                f"none of {self.outlet.unconfirmed()} messages is confirmed for more than {STALL_S:g} s")

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
        """What kept the transfer may be over."""
        if self._is_held and self.may_take():
            self._is_held = False
            self.wire.watch()
            self.transfer.start()
        elif self.inlet.has_refused() and self.may_send() or self.inlet.has_unread() and self.may_take():
            self.transfer.start()

    def _guard(self, act, end=SOURCE):
        try:
            act()
        except FAULTS as error:
            self.fail(end, error)
        except Exception as error:  # the loop would print it, and call again
            LOG.exception("%s: a fault of ours", self.transfer.name)
            self.fail(OURS, error)


def _octets(text):
    return None if text is None else text.encode("utf-8", "surrogateescape")


def _stamp_of(target):
    """The Stamp of a target, or None."""
    stamp = getattr(target, "stamp", None)
    if stamp is None:
        return None
    name, *values = stamp()
    # flags and the length of the table stand in front
    return Stamp(_shortstr(name), *(Properties(headers={name: value}).encode()[6:] for value in values))


def _shortstr(text):
    text = _octets(text)
    return bytes([len(text)]) + text


class Rest:
    """What a link needs while its passage moves and no greenlet waits for it: signs of life in time, and an
    end with the hub. Runs in callbacks of the loop, and never switches. ``is_on``: the link rests.
    """

    __slots__ = ("is_on", "_hub", "_passage", "_timer")

    def __init__(self, hub):
        self.is_on = False
        self._hub = hub
        self._passage = None
        self._timer = None

    def begin(self, passage):
        """The passage moves by itself until ``end``."""
        self.is_on = True
        self._passage = passage
        self._hub.at_close(self._cut_off)
        self._tick()

    def end(self):
        """Somebody else looks after the passage again."""
        self.is_on = False
        self._passage = None
        self._hub.not_at_close(self._cut_off)
        if self._timer is not None:
            self._timer.stop()
            self._timer = None

    def _tick(self):
        """Signs of life are due. The passage may end by that, and with it the rest."""
        self._timer = None
        due_s = self._passage.tick()
        if self.is_on and due_s is not None:
            self._timer = self._hub.timers.start(due_s * 1000, self._tick)

    def _cut_off(self):
        self._passage.abort()


class Unasked:
    """Methods that the peer of one connection sends to a link without being asked, which are few.

    Brokers say now and then that they take nothing for a while, or ask for a pause. Each such method is dealt
    with in Python, and many are answered: a peer that sends nothing else keeps the loop from everybody.
    """

    __slots__ = ("_count", "_ends_s")

    def __init__(self):
        self._count, self._ends_s = 0, time.monotonic() + INTERVAL_S

    def count(self):
        """One more. Raises UnexpectedFrame where there are too many."""
        self._count += 1
        if self._count > MOST:
            now = time.monotonic()
            if now < self._ends_s:
                raise UnexpectedFrame(
                    f"more than {MOST} methods within {INTERVAL_S:.0f} s that nobody has asked for")
            self._count, self._ends_s = 1, now + INTERVAL_S
