"""Confirms: answers the publishes of a channel in confirm mode with basic.ack and basic.nack.

Once per read of the socket, published() gets the number of the channel's last publish. Persistent publishes
to durable queues are confirmed when they are on disk, with one basic.ack per flush. Other publishes are
confirmed at once, but never before earlier ones, because a basic.ack with ``multiple`` covers these, too.
"""
from struct import Struct

from gomq_py.amqp.wire.frames import FRAME_END, FRAME_METHOD
from gomq_py.amqp.wire.errors import PreconditionFailed
from gomq_py.amqp.wire.methods import BasicAck, BasicNack, ConfirmSelectOk
from gomq_py.broker.verbs.pending_confirms import Answer, PendingConfirms

# basic.ack and basic.nack as whole frames: type, channel, payload size, class and method, delivery tag, bits
# (1: multiple), frame end. Written by hand, for clients that wait for each confirm and so need one per
# message: 0.7 us for a batch instead of 5.
_CONFIRM = Struct(">BHIIQBB")
assert _CONFIRM.size == 21
_PAYLOAD_SIZE = 13


def confirm_select(channel, method):
    """Enter or stay in confirm mode: number and confirm publishes. Raises PreconditionFailed in tx mode."""
    if channel.transaction is not None:
        raise PreconditionFailed("cannot switch from tx to confirm mode")
    channel.start_confirming()
    if not method.no_wait:
        channel.reply(ConfirmSelectOk())


class Confirms:
    """Sends the publisher confirms of one channel. ``confirmed``: number of the last confirmed publish."""

    __slots__ = ("_channel_id", "_write", "_pending", "confirmed", "_seen")

    def __init__(self, channel_id, write, when_safe):
        self._channel_id = channel_id
        self._write = write
        self._pending = PendingConfirms(write, when_safe)
        self.confirmed = self._seen = 0

    @property
    def waiting(self):
        """True if the confirm of a publish waits for the disk."""
        return self._pending.is_waiting()

    def published(self, last, refused, unsynced):
        """Confirm all publishes up to number ``last``, with basic.nack for those in ``refused``. The confirms
        wait for earlier confirms, and until all queues in ``unsynced`` (tuples of queues) are flushed.
        """
        if last == self._seen:
            return
        self._seen = last
        if unsynced:
            tail = self._pending.last_for(unsynced)
        else:
            tail = self._pending.last() if self._pending.is_waiting() else None
        if tail is not None:
            tail.last = last
            tail.refused.extend(refused)
        elif unsynced:
            self._pending.done(_Batch(self, last, list(refused)), unsynced)
        else:
            self._write(self._answers(last, refused))

    def close(self):
        """Drop the waiting confirms, because the channel has ended."""
        self._pending.close()

    def _answers(self, last, refused):
        """Return the basic.ack and basic.nack frames for the publishes after ``confirmed`` up to number
        ``last``. ``refused``: numbers of the publishes to nack.
        """
        if not refused:
            frame = self._ack(last)
            self.confirmed = last
            return frame
        frames = []
        for number in refused:
            if number - 1 > self.confirmed:
                frames.append(self._ack(number - 1))
            frames.append(self._frame(BasicNack.ID, number, False))
            self.confirmed = number
        if last > self.confirmed:
            frames.append(self._ack(last))
        self.confirmed = last
        return b"".join(frames)

    def _ack(self, number):
        return self._frame(BasicAck.ID, number, number - self.confirmed > 1)

    def _nack_all(self, last):
        """Return the frame that nacks all unconfirmed publishes up to ``last``, because the disk failed."""
        multiple = last - self.confirmed > 1
        self.confirmed = last
        return self._frame(BasicNack.ID, last, multiple)

    def _frame(self, method_id, number, multiple):
        return _CONFIRM.pack(
            FRAME_METHOD, self._channel_id, _PAYLOAD_SIZE, method_id, number, multiple, FRAME_END
        )


class _Batch(Answer):
    """Publishes that wait for the same flush, and are confirmed together."""

    __slots__ = ("confirms", "last", "refused")

    def __init__(self, confirms, last, refused):
        Answer.__init__(self)
        self.confirms = confirms
        self.last = last
        self.refused = refused

    def kept(self):
        return self.confirms._answers(self.last, self.refused)

    def lost(self):
        return self.confirms._nack_all(self.last)
