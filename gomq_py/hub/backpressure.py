"""Backpressure: reads a publisher less eagerly if it brings more than the live consumers of its queues take.

A lane measures how fast its client publishes (PublishRate), a queue how fast its consumers take (TakeRate).
If both are floods and the consumers are behind, Backpressure holds the publisher's stream until one of its
queues has caught up, but not for long: a publisher is slowed down, never stopped. Its later messages wait in
the buffers of its socket, and then in the client. Without this, RabbitMQ's PerfTest has a median latency of
350 ms instead of 25. No timer runs while no stream is held.
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
# A large message counts as one for each so many octets: fewer make a flood.
WEIGHT_OCTETS = 1024


class PublishRate:
    """Measures how fast one client publishes."""

    __slots__ = ("_count", "_since_ms")

    def __init__(self):
        self._count = self._since_ms = 0

    def is_flood(self, now_ms, count):
        """Whether a read that brought ``count`` messages makes a flood, by itself or with the reads of the
        last LOOK_MS: one read of TLS brings only a few messages.
        """
        passed_ms = now_ms - self._since_ms
        if not 0 <= passed_ms < LOOK_MS:
            self._since_ms = now_ms
            self._count = 0
        self._count += count
        return self._count >= FLOOD


class TakeRate:
    """Measures how fast the consumers of one queue take messages. ``taken`` in its methods: how many messages
    they have taken and not given back, in the life of the queue.
    """

    __slots__ = ("_count", "_passed_ms", "_from", "_from_ms", "_flood_from")

    def __init__(self):
        # of the last time span of at least FLOOD ms: messages and milliseconds
        self._count = self._passed_ms = 0
        # of this one: where it began
        self._from = self._from_ms = self._flood_from = 0

    def quantum(self, now_ms, taken, share, rivals):
        """Messages that a consumer gets at a time: its ``share`` of what is ready. In a flood it gets more,
        because a write to a socket costs as much as 20 to 50 small messages, but never more than each of its
        ``rivals`` had on average since the flood began: no consumer gets twice as much as its rivals.
        """
        if share >= 4 * FLOOD or not self._is_flood(now_ms, taken, 1):
            return share
        return max(share, min(4 * FLOOD, (taken - self._flood_from) // rivals))

    def is_exceeded(self, now_ms, taken, ready, ready_octets):
        """Whether the consumers take messages in a flood and are still behind, with so many messages
        ``ready``. False if they take few messages or none: publishers do not wait for such consumers.
        """
        weight = 1 + ready_octets // ready // WEIGHT_OCTETS
        return (
            ready * weight > BEHIND_MS * FLOOD and self._is_flood(now_ms, taken, weight)
            and ready * self._passed_ms > BEHIND_MS * self._count
        )

    def _is_flood(self, now_ms, taken, weight):
        """Whether messages, each of which counts as ``weight``, were taken in a flood lately."""
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
    """Holds the streams of publishers. One per hub, whose ``timers`` it uses."""

    most_looks = 2 * BEHIND_MS // LOOK_MS

    def __init__(self, timers):
        self._timers = timers
        self._waiting = []
        self._timer = None

    def __len__(self):
        return len(self._waiting)

    def pause_reading(self, stream, queues):
        """Hold a stream while all of its queues (Destinations, at least one) are outrun, for a limited time.
        Each look lets only one of the streams go on that wait for the same queue.
        """
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
        """Release the streams that need not wait any more; return the others."""
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
    """A publisher that is held, and the queues that it waits for."""

    __slots__ = ("hold", "queues", "looks")

    def __init__(self, hold, queues):
        self.hold = hold
        self.queues = queues
        self.looks = 0
