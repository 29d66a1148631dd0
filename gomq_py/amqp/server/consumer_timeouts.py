"""Consumer timeouts: cancels a quorum queue's consumer that holds a delivery unacked for too long
(``Holder.timeout_ms()``). Closes the channel of any other such consumer. The message is requeued.

A channel is watched from its first delivery with a timeout until a check finds no delivery with a timeout.
Channels wait in buckets of one second, and one timer waits for the first bucket. So messages and idle
channels cost nothing, and an overdue delivery is noticed up to two seconds late, never early.
"""
import heapq
import time

from gomq_py.amqp.wire.errors import PreconditionFailed
from gomq_py.hub.scheduler import Job
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog

QUIET = QuietLog(logger("amqp"))

# Channels checked, after a timeout was changed, before others get their turn: some 5 ms.
SLICE = 1000


class ConsumerTimeouts:
    """Checks the channels of one server for deliveries that stay unacked longer than their queue allows.
    Calls ``channel.consumer_timed_out(holder, error)`` for these. ``timers``: the event loop's timers;
    ``clock()`` returns Unix seconds.
    """

    def __init__(self, timers, clock=time.time):
        self._timers = timers
        self._clock = clock
        self._buckets = {}  # due second: {channel: None}
        self._order = []
        self._due = {}  # channel: its due second
        self._timer = None
        self._is_closed = False

    def watch(self, channel):
        """Schedule a check of the channel for the time when its next unacked delivery becomes overdue."""
        if self._is_closed:
            return
        due_ms = channel.unacked.due_ms()
        if due_ms == 0:
            self.forget(channel)
            return
        second = due_ms // 1000 + 1
        if self._due.get(channel) == second:
            return
        self.forget(channel)
        self._due[channel] = second
        if second not in self._buckets:
            self._buckets[second] = {}
            heapq.heappush(self._order, second)
        self._buckets[second][channel] = None
        self._arm()

    def forget(self, channel):
        second = self._due.pop(channel, None)
        if second in self._buckets:  # else run_due() is processing its bucket
            del self._buckets[second][channel]

    def close(self):
        self._is_closed = True
        self._buckets.clear()
        self._order.clear()
        self._due.clear()
        if self._timer is not None:
            self._timer.stop()
            self._timer = None

    def is_watching(self, channel):
        return channel in self._due

    def run_due(self):
        """Look for overdue deliveries on every channel whose check is due by now."""
        now_s = self._clock()
        while self._order and self._order[0] <= now_s:
            second = heapq.heappop(self._order)
            for channel in self._buckets.pop(second):
                if self._due.get(channel) != second:
                    continue  # the check of another channel has ended this one
                del self._due[channel]
                try:
                    self._look(channel, now_s * 1000)
                except Exception as error:  # one timer serves all channels
                    QUIET.error(
                        None, "channel %s: whether an acknowledgement is overdue cannot be told", channel.id,
                        exc_info=error,
                    )
                    channel.watched = False  # its next delivery starts the watch again

    def _look(self, channel, now_ms):
        due_ms = channel.unacked.due_ms()
        if 0 < due_ms <= now_ms:
            overdue = channel.unacked.overdue(int(now_ms))
            if not channel.consumer_timed_out(overdue, timed_out(channel.id, overdue.timeout_ms())):
                return
        channel.watched = False
        channel.watch_unacked()

    def _arm(self):
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        if self._order:
            self._timer = self._timers.start(1000 * (self._order[0] - self._clock()), self._on_timer)

    def _on_timer(self):
        try:
            self.run_due()
        finally:
            self._arm()


def timed_out(channel_id, timeout_ms):
    """Return the PreconditionFailed for a delivery that was not acked in time, with RabbitMQ's text."""
    return PreconditionFailed(
        f"delivery acknowledgement on channel {channel_id} timed out. Timeout value used: {timeout_ms} ms. "
        "This timeout value can be configured, see consumers doc guide to learn more")


class LookAgain(Job):
    """Checks all channels of ``connections`` after queues' consumer timeouts have changed. One round serves
    all timeouts that change together.
    """

    name = "looking at channels"

    def __init__(self, connections):
        super().__init__()
        self._connections = connections
        self._channels = None

    def begin(self, scheduler):
        """Start to check all channels, because the consumer timeouts of some queues have changed."""
        self._channels = None
        scheduler.start(self)

    def step(self):
        """Check up to SLICE channels. Returns False when all are checked."""
        if self._channels is None:
            self._channels = [
                channel for connection in list(self._connections)
                for channel in connection.channels.values() if channel.unacked.count]
            self._channels.reverse()
            return True
        for _ in range(min(SLICE, len(self._channels))):
            channel = self._channels.pop()
            channel.watched = False
            channel.watch_unacked()
        return bool(self._channels)

    def failed(self, error):
        """Return True, so that an error with one channel does not end the job."""
        return True
