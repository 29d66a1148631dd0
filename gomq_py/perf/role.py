"""Roles: a role drives one connection of a load run, as a publisher or a consumer, over AMQP or MQTT.

The client of gomq_py.client logs in. Then the loop of the worker process calls the role, which reads and
writes the socket itself, without blocking. A role writes slices of a PublishBatch, parses input with a Walk,
and updates its connection's shared counters.
"""
import ssl
import time
from collections import deque
from select import POLLIN, POLLOUT

from gomq_py.client.errors import ClientError
from gomq_py.perf import messages, shared
from gomq_py.perf.walk import END_OF_RECORD, LatencyHistogram

_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_WRITES_IN_A_ROW = 4  # then other connections of the worker have a turn
_SINGLE_WRITES = 32  # messages per stamp, if each is a system call
_CATCH_UP_S = 0.1  # the most that a delayed publisher makes up in one burst


class Role:
    """Base of publishers and consumers. A role drives one connection.

    The worker's loop calls ``turn`` at the start, when the socket is ready, at the time ``due_ns``, and when
    the parent ends all publishing. ``due_ns``: monotonic time at which the rate limit allows the next
    message, or None.
    """

    def __init__(self, options, counters, connection, quota):
        self.options = options
        self.counters = counters
        self.connection = connection
        self.socket = connection.socket
        self.quota = quota  # messages, 0: none
        self.due_ns = None
        self.started = False
        self.stopping = False
        self.done = False
        self._started_ns = 0
        self._pending = deque()  # memoryviews not yet written

    def attach(self, walk):
        """Take the socket from the client. Bytes that the client has read already are parsed by ``walk``."""
        self.walk = walk
        self._room, self._answers = memoryview(walk.buffer), memoryview(walk.answers)
        ahead = self.connection.take_over()
        self._room[:len(ahead)] = ahead
        walk.walk(len(ahead), time.monotonic_ns())

    def start(self, now_ns):
        """Begin to publish or to consume. ``now_ns``: the monotonic time."""
        self.started = True
        self._started_ns = now_ns

    def read(self, now_ns, limit_octets=131072):
        """Read from the socket once, and parse. Return False if no bytes have arrived.

        Raises ClientError if the broker has closed the connection.
        """
        kept = self.walk.kept
        try:
            count = self.socket.recv_into(self._room[kept:kept + limit_octets])
        except _NOT_NOW:
            return False
        if not count:
            raise ClientError("the broker closed a connection without saying why")
        self.walk.walk(kept + count, now_ns or time.monotonic_ns())
        if self.walk.others:
            for other in self.walk.others:
                self.other(other)
            self.walk.others.clear()
        return True

    def send(self, octets):
        self._pending.append(memoryview(octets))

    def send_answers(self):
        if self.walk.answered:
            self.send(bytes(self._answers[:self.walk.answered]))
            self.walk.answered = 0

    def write(self):
        """Write waiting bytes to the socket. Return whether all are written."""
        while self._pending:
            view = self._pending[0]
            try:
                sent = self.socket.send(view)
            except _NOT_NOW:
                return False
            if sent < len(view):
                self._pending[0] = view[sent:]
                return False
            self._pending.popleft()
        return True

    def close(self):
        """Close the connection with the protocol's handshake, or abort it if bytes are left to write."""
        if self._pending:
            self.connection.abort()
            return
        try:
            self.connection.give_back(bytes(self.walk.buffer[:self.walk.kept]))
            self.connection.close()
        except (ClientError, OSError):
            self.connection.abort()

    def stop_publishing(self):
        """Publish no new messages from now on. Consumers ignore this."""

    # Implemented by a protocol.

    def other(self, what):
        """Handle a frame or packet that is no message and no confirm. Raises ClientError to end the run."""
        raise NotImplementedError

    def finish(self):
        """Send the acks that are due at the end of a run. By default does nothing."""


class PublisherRole(Role):
    """Publishes the messages of ``batch`` again and again, until stopped or until ``quota`` is reached.

    Then it waits for the confirms.

        window     the ConfirmWindow, which counts confirms
        confirm    most unconfirmed messages; 0: publish without confirms
        phase      with a rate, the part of an interval (0 to 1) that passes before the first message, so that
                   many publishers do not all publish at the same moment
    """

    def __init__(self, options, counters, connection, index, quota, batch, window, confirm, phase=1.0):
        super().__init__(options, counters, connection, quota)
        self.published = 0
        self.confirm = confirm
        self.window = window
        self.batch = batch
        self._first_number = index << messages.FIRST_NUMBER_BITS
        self._stamps = messages.Stamps(options.verify, options.measure_latency)
        self._octets = memoryview(batch.buffer)
        self._next = 0  # index in the cycle
        self._phase = phase
        # Every write through TLS is a record, and takes no flags.
        self._singly = options.write_octets == 1 and not isinstance(self.socket, ssl.SSLSocket)
        self._flags = 0 if options.mergeable else END_OF_RECORD

    def interest(self):
        if self._pending or (not self.options.rate and self.allowed() > 0):
            return POLLIN | POLLOUT
        return POLLIN

    def start(self, now_ns):
        rate = self.options.rate
        super().start(now_ns - int((1 - self._phase) / rate * 1e9) if rate else now_ns)

    def stop_publishing(self):
        """Publish no new messages. Messages that wait for the socket are still written and confirmed."""
        self.stopping = True

    def turn(self, now_ns, readable):
        """Read confirms if the socket is ``readable``, write messages, and update the shared counters."""
        if readable:
            while self.read(now_ns):
                self.answer()
        if not self.started:
            return
        for _ in range(_WRITES_IN_A_ROW):
            if not self.write() or not self._publish(now_ns):
                break
        self._count(now_ns)

    # Implemented by a protocol.

    def allowed(self):
        """Return how many messages may be published now, ignoring the rate."""
        if self.stopping:
            return 0
        allowed = self.batch.count
        if self.quota:
            allowed = min(allowed, self.quota - self.published)
        if self.confirm:
            allowed = min(allowed, self.confirm - (self.published - self.window.confirmed))
        return allowed

    def answer(self):
        """Send the answers to packets that were just read, such as PUBREL. By default does nothing."""

    def stamp(self, first, last):
        """Write sequence numbers and times into messages ``first`` to ``last`` (exclusive) of the batch."""
        if self._stamps.end:
            self.batch.stamp(first, last, self._first_number + self.published, time.monotonic_ns())

    def was_published(self, count):
        """Called when ``count`` more messages are written or wait for the socket. Does nothing by default."""

    def is_complete(self):
        """Return whether all published messages were confirmed or refused; True without confirms."""
        return not self.confirm or self.window.confirmed == self.published

    # The rest is private.

    def _publish(self, now_ns):
        allowed = self.allowed()
        self.due_ns = None
        if self.options.rate and allowed > 0:
            allowed = min(allowed, self._by_rate(now_ns))
        if allowed <= 0:
            return False
        first = self._next
        last = (
            first + _SINGLE_WRITES if self._singly
            else self.batch.last_within(first, self.options.write_octets)
        )
        last = min(last, first + allowed, self.batch.count)
        self.stamp(first, last)
        if self._singly:
            last = self._write_singly(first, last)
            if last == first:
                return False
        else:
            self._pending.append(self._octets[self.batch.starts[first]:self.batch.starts[last]])
        self.published += last - first
        self._next = last if last < self.batch.count else 0
        self.was_published(last - first)
        return True

    def _write_singly(self, first, last):
        """Write the messages one by one. Return the index after the last one that was written or begun."""
        count, missing = self.batch.write_singly(self.socket, first, last, self._flags)
        if missing:
            end = self.batch.starts[first + count]
            self.send(bytes(self._octets[end - missing:end]))
        return first + count

    def _by_rate(self, now_ns):
        """Return how many messages the rate allows now. Set ``due_ns`` to the time when it allows more."""
        rate, burst = self.options.rate, self.options.burst
        due = int((now_ns - self._started_ns) * rate / 1e9) - self.published
        if due > rate * _CATCH_UP_S + burst:
            self._started_ns = now_ns - int((self.published + burst) / rate * 1e9)
            due = burst
        due = max(due, 0) // burst * burst
        self.due_ns = self._started_ns + int((self.published + due + burst) / rate * 1e9)
        return due

    def _count(self, now_ns):
        counters = self.counters
        if self.published != counters[shared.PUBLISHED]:
            counters[shared.PUBLISHED] = self.published
            counters[shared.LAST_NS] = now_ns
        counters[shared.CONFIRMED] = self.window.confirmed
        counters[shared.REFUSED] = self.window.refused
        if self.quota and self.published >= self.quota:
            self.stopping = True
        if self.stopping and not self._pending and self.is_complete() and not self._pending:
            self.done = True
            self.due_ns = None
            counters[shared.DONE] = 1


class ConsumerRole(Role):
    """Consumes until stopped, or until it has received ``quota`` messages (0: no limit)."""

    def __init__(self, options, counters, connection, quota):
        super().__init__(options, counters, connection, quota)
        self._held = False  # held back by the rate

    def checks(self, kind, region, latencies):
        """Return the keyword arguments that let a Walk check bodies and measure latencies.

        ``kind``: SequenceCheck or a subclass. ``region``: the check's shared memory. ``latencies``:
        the histogram's.
        """
        options = self.options
        stamps = messages.Stamps(options.verify, options.measure_latency)
        content = b"" if options.random_bodies else messages.filler(options.size[1])
        return {
            "check": kind(*region, content, stamps.end) if options.verify else None,
            "latencies": LatencyHistogram(latencies) if options.measure_latency else None,
            "sequence_at": stamps.sequence_at, "timestamp_at": stamps.timestamp_at,
        }

    def interest(self):
        """Return the poll events to wait for. While acks wait for the socket, no deliveries are read."""
        if self._pending:
            return POLLOUT
        return 0 if self._held or self.done else POLLIN

    def turn(self, now_ns, readable):
        """Write acks, then read deliveries if all acks are written and the rate allows it."""
        if self.done:
            return
        if self.write() and (readable or self._held) and self._may_read(now_ns):
            if self.read(0, 4096 if self.options.consume_rate else 131072):
                self.answer()
        self._count(now_ns)

    def answer(self):
        self.send_answers()
        self.write()

    def _may_read(self, now_ns):
        rate = self.options.consume_rate
        if not rate or not self.started:
            return True
        self.due_ns = self._started_ns + int(self.walk.delivered / rate * 1e9)
        self._held = now_ns < self.due_ns
        return not self._held

    def _count(self, now_ns):
        counters, walk = self.counters, self.walk
        if walk.delivered != counters[shared.DELIVERED]:
            counters[shared.DELIVERED] = walk.delivered
            counters[shared.LAST_NS] = now_ns
        counters[shared.REDELIVERED] = walk.redelivered
        counters[shared.BODY_OCTETS] = walk.body_octets
        if walk.check is not None:
            counters[shared.MISORDERED] = walk.check.misordered
            counters[shared.CORRUPT] = walk.check.corrupt
        if self.quota and walk.delivered >= self.quota:
            self.stopping = True
        if self.stopping and not self._pending:
            self.finish()
            self.done = True
            counters[shared.DONE] = 1
