"""Backpressure: reads a publisher less often if it sends more than the consumers of its queues can take.

Each connection measures how fast its client publishes (PublishRate), each queue how fast its consumers take
messages (TakeRate). If both are fast (a flood) and the consumers are behind, reading of the publisher pauses
until one of its queues has caught up. The pause is short: the publisher is slowed down, never stopped.
Without such pauses, RabbitMQ's PerfTest has a median latency of 350 ms instead of 25. No timer runs while all
publishers are read.

A Turn delays one message until a client has read the earlier ones.
"""

# A flood: FLOOD messages in each of FLOOD milliseconds; of a publisher, that many in a read or in LOOK_MS. A
# publisher that waits for each confirm, or sends now and then, brings fewer: it does not wait where others
# have left a backlog.
FLOOD = 16
# Consumers in a flood are behind with more than they take in so many milliseconds; a publisher is held for
# twice as long at most, which leaves it 50 reads of 64 KiB a second, 3 MB/s.
BEHIND_MS = 10
# Between two looks at the publishers that are held: consumers do not run out of messages meanwhile.
LOOK_MS = 2
# How long a subscriber may leave octets unread before publishers at QoS 0 stop waiting for it. In this time a
# subscriber on the same machine that reads 1 MB/s empties a third of the socket's buffers: from then on the
# system reports the socket as writable.
FULL_MS = 1000
# A large message counts as one for each so many octets: fewer make a flood.
WEIGHT_OCTETS = 1024


class PublishRate:
    """Measures whether one client publishes fast: a flood is FLOOD messages within LOOK_MS."""

    __slots__ = ("_count", "_since_ms")

    def __init__(self):
        self._count = self._since_ms = 0

    def is_flood(self, now_ms, count):
        """Count the ``count`` messages of one read. Returns whether FLOOD messages came in LOOK_MS."""
        # Over several reads, because one read of TLS brings only a few messages.
        passed_ms = now_ms - self._since_ms
        if not 0 <= passed_ms < LOOK_MS:
            self._since_ms = now_ms
            self._count = 0
        self._count += count
        return self._count >= FLOOD


class TakeRate:
    """Measures how fast the consumers of one queue take messages. Its methods get ``taken``: the number of
    messages taken since the queue was made, less the requeued ones.
    """

    __slots__ = ("_count", "_passed_ms", "_from", "_from_ms", "_flood_from")

    def __init__(self):
        # of the last time span of at least FLOOD ms: messages and milliseconds
        self._count = self._passed_ms = 0
        # of this one: where it began
        self._from = self._from_ms = self._flood_from = 0

    def quantum(self, now_ms, taken, share, rivals):
        """Return the number of messages for a consumer in one write to its socket: ``share``, or more in a
        flood. ``share``: the consumer's part of the ready messages. ``rivals``: number of the queue's
        consumers that compete.
        """
        # A write costs as much as 20 to 50 small messages. At most its part of the messages taken since the
        # flood began.
        if share >= 4 * FLOOD or not self._is_flood(now_ms, taken, 1):
            return share
        return max(share, min(4 * FLOOD, (taken - self._flood_from) // rivals))

    def is_exceeded(self, now_ms, taken, ready, ready_octets):
        """Whether the consumers take messages fast (in a flood) and yet are behind. False for slow consumers,
        for which publishers do not wait. ``ready``: messages left; ``ready_octets``: their bytes.
        """
        weight = 1 + ready_octets // ready // WEIGHT_OCTETS
        return (
            ready * weight > BEHIND_MS * FLOOD and self._is_flood(now_ms, taken, weight)
            and ready * self._passed_ms > BEHIND_MS * self._count
        )

    def _is_flood(self, now_ms, taken, weight):
        passed_ms = now_ms - self._from_ms
        if not 0 <= passed_ms < FLOOD:
            self._count = taken - self._from
            self._passed_ms = passed_ms
            if passed_ms < 0 or self._count < passed_ms * FLOOD:  # slower, or the clock was set back
                self._flood_from = taken
            self._from = taken
            self._from_ms = now_ms
        return self._passed_ms > 0 and self._count * weight >= self._passed_ms * FLOOD


class Backpressure:
    """Pauses reading of publishers while their consumers are behind. One per event loop."""

    most_looks = 2 * BEHIND_MS // LOOK_MS

    def __init__(self, timers):
        self._timers = timers
        self._waiting = []
        self._timer = None

    def __len__(self):
        return len(self._waiting)

    def pause_reading(self, stream, queues):
        """Stop reading a publisher's Stream until one of its ``queues`` has caught up, at most for 2 *
        BEHIND_MS. ``queues``: a list of Destinations.
        """
        # Of several streams with the same first queue, one at a time goes on, so that they do not flood it
        # together.
        self._waiting.append(Waiting(stream.pause_reading("consumers of its queues to catch up"), queues))
        if self._timer is None:
            self._timer = self._timers.start(LOOK_MS, self._look)

    def _look(self):
        self._timer = None
        waiting, self._waiting = self._waiting, []
        try:
            self._waiting += self._behind(waiting)  # behind streams held meanwhile
        except BaseException:
            for one in waiting:
                one.hold.release()  # a fault holds no publisher
            raise
        if self._waiting and self._timer is None:
            self._timer = self._timers.start(LOOK_MS, self._look)

    def _behind(self, waiting):
        behind = []
        let_on = set()
        for one in waiting:
            one.looks += 1
            queue = one.queues[0]
            if one.looks < self.most_looks and (
                    queue in let_on or all(queue.is_outrun() for queue in one.queues)):
                behind.append(one)
            else:
                let_on.add(queue)
                one.hold.release()
        return behind


class Waiting:
    """A publisher whose reading is paused by ``hold`` until one of its ``queues`` has caught up."""

    __slots__ = ("hold", "queues", "looks")

    def __init__(self, hold, queues):
        self.hold = hold
        self.queues = queues
        self.looks = 0


class Turn:
    """Delays a message until the client that gets it has read the earlier data in ``output``, but at most for
    ``most_ms``. The Message keeps this Turn as its attribute ``lacking``.
    """

    __slots__ = ("_outputs", "_timers", "_most_ms", "_timer", "_callback")

    waits_for = "consumers to take earlier messages"

    def __init__(self, output, timers, most_ms):
        self._outputs = [output]
        self._timers = timers
        self._most_ms = most_ms
        self._timer = self._callback = None

    def join(self, turn):
        """End the delay as soon as the client of this Turn or of ``turn`` has read its data."""
        self._outputs += turn._outputs

    def __call__(self, callback):
        """Start the wait. At its end, call ``callback(None)`` once."""
        self._callback = callback
        self._timer = self._timers.start(self._most_ms, self._come)
        for output in self._outputs:
            output.call_when_drained(self._come)

    def _come(self):
        callback, self._callback = self._callback, None
        if callback is not None:
            self._timer.stop()
            for output in self._outputs:  # a client that reads nothing would collect callbacks
                output.not_when_drained(self._come)
            callback(None)
