"""Confirms: answers to the publishes of a channel in confirm mode.

Between the channel and its connection's output.

Once per read the connection hands over how far the channel has published. What went to disk is confirmed when
it is safe; what did not, at once, but never past an earlier publish that still waits, because one basic.ack
with ``multiple`` stands for all before it. Never counts or stores.
"""
from collections import deque
from struct import Struct

from gomq_py.amqp.wire.constants import FRAME_END, FRAME_METHOD
from gomq_py.amqp.wire.errors import PreconditionFailed
from gomq_py.amqp.wire.methods import BasicAck, BasicNack, ConfirmSelectOk

# basic.ack and basic.nack as whole frames: type, channel, payload size, class and method, delivery tag, bits
# (1: multiple), frame end. Written by hand, because a client that waits for each confirm costs one per
# message: 0.7 us for a batch instead of 5.
_CONFIRM = Struct(">BHIIQBB")
assert _CONFIRM.size == 21
_PAYLOAD_SIZE = 13
# A flush has succeeded, but one of the queues had failed in an earlier one, while the message went on to the
# others.
NOT_KEPT = Exception("a queue that it went to has failed")


def confirm_select(channel, method):
    """confirm.select: number and confirm the publishes from here on. A second time changes nothing."""
    if channel.transaction is not None:
        raise PreconditionFailed("cannot switch from tx to confirm mode")
    channel.start_confirming()
    if not method.no_wait:
        channel.reply(ConfirmSelectOk())


class Confirms:
    """The confirms of one channel. ``confirmed`` is the last publish that was answered."""

    __slots__ = ("_channel_id", "_write", "_when_safe", "confirmed", "_seen", "_batches")

    def __init__(self, channel_id, write, when_safe):
        self._channel_id = channel_id
        self._write = write
        self._when_safe = when_safe
        self.confirmed = self._seen = 0
        self._batches = deque()

    @property
    def waiting(self):
        """Whether some publish still waits for the disk."""
        return bool(self._batches)

    def published(self, last, refused, unsynced):
        """Publishes up to number ``last`` are done; ``refused`` lists those to be nacked; ``unsynced``:
        tuples of the queues of those that are not on disk yet.
        """
        if last == self._seen:
            return
        self._seen = last
        if not unsynced and not self._batches:
            self._write(self._answers(last, refused))
            return
        if not unsynced:
            tail = self._batches[-1]
            tail.last = last
            tail.refused.extend(refused)
            return
        batch = _Batch(last, list(refused), unsynced)
        self._batches.append(batch)
        self._when_safe(lambda error: self._synced(batch, error), batch.is_lost)

    def close(self):
        """The channel is gone: forget what waits."""
        self._batches.clear()

    def _synced(self, batch, error):
        if batch not in self._batches:
            return
        batch.synced = True
        batch.error = NOT_KEPT if error is None and batch.is_lost() else error
        answers = []
        while self._batches and self._batches[0].synced:
            first = self._batches.popleft()
            if first.error is None:
                answers.append(self._answers(first.last, first.refused))
            else:
                answers.append(self._nack_all(first.last))
        if answers:
            self._write(b"".join(answers))

    def _answers(self, last, refused):
        """Frames that ack everything after ``confirmed`` up to ``last`` except ``refused``, which are nacked
        one by one, in order.
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
        """The disk refused: whether these survive nobody knows, so all of them are refused."""
        multiple = last - self.confirmed > 1
        self.confirmed = last
        return self._frame(BasicNack.ID, last, multiple)

    def _frame(self, method_id, number, multiple):
        return _CONFIRM.pack(
            FRAME_METHOD, self._channel_id, _PAYLOAD_SIZE, method_id, number, multiple, FRAME_END
        )


class _Batch:
    """Publishes that were handed over together and share one sync."""

    __slots__ = ("last", "refused", "synced", "error", "_queues")

    def __init__(self, last, refused, queues):
        self.last = last
        self.refused = refused
        self._queues = queues
        self.synced = False
        self.error = None

    def is_lost(self):
        """Whether a store of one of their queues has failed."""
        for queues in self._queues:
            for queue in queues:
                if queue.failed:
                    return True
        return False
