"""One connection under load: a publisher or a consumer, driven by its worker's loop, never waiting for
anything.

After the client has shaken hands and opened channel 1, the socket is read and written here: whole slices of a
PublishBatch out, whole buffers through a FrameWalk in. The counters of the connection's slot are brought up
to date after each.
"""
import ssl
import time
from collections import deque
from select import POLLIN, POLLOUT

from gomq_py.amqp.wire.frames import method_frame
from gomq_py.amqp.wire.methods import (
    BasicCancel, BasicConsume, BasicConsumeOk, BasicGet, ChannelClose, ConnectionBlocked, ConnectionClose,
    ConnectionUnblocked, TxCommit, TxCommitOk, decode_method,
)
from gomq_py.client.connection import Connection
from gomq_py.client.errors import ClientError
from gomq_py.perf import messages, shared
from gomq_py.perf.latency import LatencyHistogram
from gomq_py.perf.walk import ConfirmWindow, FrameWalk, SequenceCheck

_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_WRITES_IN_A_ROW = 4  # then the worker's other connections have their turn
_SINGLE_WRITES = 32  # one stamp for so many, when each is a system call
_CATCH_UP_S = 0.1  # a publisher that was held back longer does not make up for it in one burst
_COMMIT = method_frame(1, TxCommit())


class Role:
    """What publishers and consumers have in common.

    ``due_ns`` is when a rate limit lets it go on, 0: at once, None: only the socket decides.
    """

    def __init__(self, options, counters, name):
        self.options = options
        self.counters = counters
        self.connection = Connection(options.uri, heartbeat_s=0, name=name, timeout_s=options.timeout_s)
        self.channel = self.connection.channel(1)
        self.socket = self.connection.socket
        self.due_ns = None
        self.started = False
        self.done = False
        self._pending = deque()  # memoryviews not yet written

    def attach(self, walk):
        """From here on the socket is this role's: what the client has read ahead goes through the walk first.
        """
        self.walk = walk
        self._room = memoryview(walk.buffer)
        ahead = self.connection.take_over()
        self._room[:len(ahead)] = ahead
        walk.walk(len(ahead), time.monotonic_ns())

    def read(self, now_ns, limit_octets=131072):
        """One read and walk; False when there was nothing. Raises ClientError when the broker ends it."""
        kept = self.walk.kept
        try:
            count = self.socket.recv_into(self._room[kept:kept + limit_octets])
        except _NOT_NOW:
            return False
        if not count:
            raise ClientError("the broker closed a connection without saying why")
        self.walk.walk(kept + count, now_ns or time.monotonic_ns())
        if self.walk.others:
            for payload in self.walk.others:
                self._other(decode_method(payload))
            self.walk.others.clear()
        return True

    def write(self):
        """Write what is pending; True when all is written."""
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
        """Part from the broker, in peace where it is still there."""
        try:
            self.connection.give_back(bytes(self.walk.buffer[:self.walk.kept]))
            self.connection.close()
        except (ClientError, OSError):
            self.connection.abort()

    def _other(self, method):
        if isinstance(method, (ChannelClose, ConnectionClose)):
            raise ClientError(f"{method.reply_code} {method.reply_text}")
        if isinstance(method, BasicCancel):
            raise ClientError(f"the broker cancelled the consumer {method.consumer_tag}")
        if not isinstance(method, (ConnectionBlocked, ConnectionUnblocked)):
            self.answered(method)

    def answered(self, method):
        """A method that is no error has come."""

    def stop_publishing(self):
        """No new messages from now on."""

    def finish(self):
        """The run is over."""


class Publisher(Role):
    """Publishes its cycle until it is told to stop or ``quota`` (0: none) is reached, and then until all is
    confirmed.
    """

    def __init__(self, options, counters, index, queue, quota):
        super().__init__(options, counters, f"perf publisher {index}")
        self.quota = quota
        self.published = 0
        self.stopping = False
        self._first_number = index << messages.FIRST_NUMBER_BITS
        self._stamps = messages.Stamps(options.verify, options.measure_latency)
        self._batch = messages.make_batch(options, self.channel, queue, self._stamps)
        self._octets = memoryview(self._batch.buffer)
        self._next = 0  # of the cycle
        self._in_transaction = 0
        self._committing = False
        self._started_ns = 0
        self._write_octets = options.write_octets
        # A write through TLS is a record of its own anyway, and takes no flags.
        self._singly = options.write_octets == 1 and not isinstance(self.socket, ssl.SSLSocket)
        if options.confirm:
            self.channel.confirm_select()
        if options.publish_transaction:
            self.channel.tx_select()
        self._window = ConfirmWindow(options.confirm or 1)
        self.attach(FrameWalk(self.connection.frame_max, window=self._window))
        counters[shared.READY] = 1

    def interest(self):
        """What to wait for on the socket."""
        if self._pending or (not self.options.rate and self._allowed() > 0):
            return POLLIN | POLLOUT
        return POLLIN

    def start(self, now_ns):
        """The run begins."""
        self.started = True
        self._started_ns = now_ns

    def stop_publishing(self):
        """No new messages from now on; what is pending is written and confirmed."""
        self.stopping = True

    def turn(self, now_ns, readable):
        """Read confirms, write slices, count."""
        if readable:
            while self.read(now_ns):
                pass
        if not self.started:
            return
        for _ in range(_WRITES_IN_A_ROW):
            if not self.write() or not self._publish(now_ns):
                break
        self._count(now_ns)

    def _allowed(self):
        """How many messages may be published now, the rate aside."""
        if self.stopping or self._committing:
            return 0
        allowed = self._batch.count
        if self.quota:
            allowed = min(allowed, self.quota - self.published)
        if self.options.confirm:
            allowed = min(allowed, self.options.confirm - (self.published - self._window.confirmed))
        if self.options.publish_transaction:
            allowed = min(allowed, self.options.publish_transaction - self._in_transaction)
        return allowed

    def _publish(self, now_ns):
        """Make the next slice pending, or write its messages one by one; False when nothing may be published
        now.
        """
        allowed = self._allowed()
        self.due_ns = None
        if self.options.rate and allowed > 0:
            allowed = min(allowed, self._by_rate(now_ns))
        if allowed <= 0:
            return False
        first = self._next
        last = first + _SINGLE_WRITES if self._singly else self._batch.last_within(first, self._write_octets)
        last = min(last, first + allowed, self._batch.count)
        if self._stamps.end:
            self._batch.stamp(first, last, self._first_number + self.published, time.monotonic_ns())
        if self._singly:
            last = self._write_singly(first, last)
            if last == first:
                return False
        else:
            self._pending.append(self._octets[self._batch.starts[first]:self._batch.starts[last]])
        self.published += last - first
        self._next = last if last < self._batch.count else 0
        if self.options.publish_transaction:
            self._in_transaction += last - first
            if self._in_transaction == self.options.publish_transaction:
                self._commit()
        return True

    def _write_singly(self, first, last):
        """Where the messages end that were begun."""
        count, missing = self._batch.write_singly(self.socket, first, last)
        if missing:
            end = self._batch.starts[first + count]
            self._pending.append(memoryview(bytes(self._octets[end - missing:end])))
        return first + count

    def _commit(self):
        self._pending.append(memoryview(_COMMIT))
        self._in_transaction = 0
        self._committing = True

    def _by_rate(self, now_ns):
        """How many messages are due, and when the next one will be."""
        rate = self.options.rate
        due = int((now_ns - self._started_ns) * rate / 1e9) - self.published
        if due > rate * _CATCH_UP_S + 1:
            self._started_ns = now_ns - int((self.published + 1) / rate * 1e9)
            due = 1
        self.due_ns = self._started_ns + int((self.published + max(due, 0) + 1) / rate * 1e9)
        return due

    def _count(self, now_ns):
        counters = self.counters
        if self.published != counters[shared.PUBLISHED]:
            counters[shared.PUBLISHED] = self.published
            counters[shared.LAST_NS] = now_ns
        counters[shared.CONFIRMED] = self._window.confirmed
        counters[shared.REFUSED] = self._window.refused
        counters[shared.RETURNED] = self.walk.returned
        if self.quota and self.published >= self.quota:
            self.stopping = True
        if not self.stopping or self._pending or self._committing:
            return
        if self._in_transaction:
            self._commit()
        elif not self.options.confirm or self._window.confirmed == self.published:
            self.done = True
            self.due_ns = None
            counters[shared.DONE] = 1

    def answered(self, method):
        """tx.commit-ok lets the next transaction begin."""
        if isinstance(method, TxCommitOk):
            self._committing = False


class Consumer(Role):
    """Consumes until it is told to stop or has had ``quota`` (0: none) messages."""

    def __init__(self, options, counters, index, queue, quota, check, latencies):
        super().__init__(options, counters, f"perf consumer {index}")
        self.quota = quota
        self.stopping = False
        self._started_ns = 0
        self._uncommitted = 0
        stamps = messages.Stamps(options.verify, options.measure_latency)
        if options.prefetch:
            self.channel.qos(options.prefetch)
        if options.ack_transaction:
            self.channel.tx_select()
        sequence_check = None
        if options.verify:
            content = b"" if options.random_bodies else messages.filler(options.size[1])
            following, counts, sums = check
            sequence_check = SequenceCheck(following, counts, sums, content, stamps.end)
        self.attach(FrameWalk(
            self.connection.frame_max, ack_every=options.ack,
            check=sequence_check,
            latencies=LatencyHistogram(latencies) if options.measure_latency else None,
            sequence_at=stamps.sequence_at, timestamp_at=stamps.timestamp_at,
        ))
        self._answers = memoryview(self.walk.answers)
        self._get = memoryview(method_frame(1, BasicGet(queue=queue, no_ack=not options.ack)))
        self._gets_answered = 0
        self._held = False  # by the rate
        if options.poll:
            counters[shared.READY] = 1
        else:
            # Not through the client: deliveries may follow the answer in the same read, and they must be
            # counted.
            consume = BasicConsume(
                queue=queue, consumer_tag=f"perf-{index}", no_ack=not options.ack,
                arguments=options.consumer_args,
            )
            self._pending.append(memoryview(method_frame(1, consume)))
            self.write()

    def interest(self):
        """What to wait for on the socket: while acks are stuck nothing more is read."""
        if self._pending:
            return POLLOUT
        return 0 if self._held or self.done else POLLIN

    def start(self, now_ns):
        """The run begins."""
        self.started = True
        self._started_ns = now_ns
        if self.options.poll:
            self._pending.append(self._get)
            self.write()

    def turn(self, now_ns, readable):
        """Read deliveries unless acks are stuck or the rate forbids it, write acks, count."""
        if self.done:
            return
        if self.write() and (readable or self._held) and self._may_read(now_ns):
            if self.read(0, 4096 if self.options.consume_rate else 131072):
                self._acknowledge()
        self._count(now_ns)

    def _may_read(self, now_ns):
        rate = self.options.consume_rate
        if not rate or not self.started:
            return True
        self.due_ns = self._started_ns + int(self.walk.delivered / rate * 1e9)
        self._held = now_ns < self.due_ns
        return not self._held

    def answered(self, method):
        """basic.consume-ok: the run may begin."""
        if isinstance(method, BasicConsumeOk):
            self.counters[shared.READY] = 1

    def _acknowledge(self):
        walk = self.walk
        if self.options.ack_transaction and walk.answered:
            self._uncommitted += walk.answered // 21 * self.options.ack
        if walk.answered:
            self._pending.append(memoryview(bytes(self._answers[:walk.answered])))
            walk.answered = 0
        if self.options.ack_transaction and self._uncommitted >= self.options.ack_transaction:
            self._uncommitted = 0
            self._pending.append(memoryview(_COMMIT))
        if self.options.poll and walk.delivered + walk.empty_gets > self._gets_answered:
            self._gets_answered = walk.delivered + walk.empty_gets
            self._pending.append(self._get)
        self.write()

    def finish(self):
        """Ack what is left, so that the queue is as empty as the load made it."""
        self.walk.ack_rest()
        self._acknowledge()
        if self.options.ack_transaction:
            self._pending.append(memoryview(_COMMIT))
        self.write()

    def _count(self, now_ns):
        counters, walk = self.counters, self.walk
        if walk.delivered != counters[shared.DELIVERED]:
            counters[shared.DELIVERED] = walk.delivered
            counters[shared.LAST_NS] = now_ns
        counters[shared.REDELIVERED] = walk.redelivered
        counters[shared.BODY_OCTETS] = walk.body_octets
        counters[shared.EMPTY_GETS] = walk.empty_gets
        if walk.check is not None:
            counters[shared.MISORDERED] = walk.check.misordered
            counters[shared.CORRUPT] = walk.check.corrupt
        if self.quota and walk.delivered >= self.quota:
            self.stopping = True
        if self.stopping and not self._pending:
            self.finish()
            self.done = True
            counters[shared.DONE] = 1
