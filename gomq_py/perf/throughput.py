"""Runs ``gomq-py-perf amqp throughput`` over queues: the broker delivers each message to one consumer.

Each publisher and each consumer has its own connection, and uses channel 1 only.
"""
import time

from gomq_py.amqp.wire.frames import method_frame
from gomq_py.amqp.wire.methods import (
    BasicCancel, BasicConsume, BasicConsumeOk, BasicGet, ChannelClose, ConnectionBlocked, ConnectionClose,
    ConnectionUnblocked, TxCommit, TxCommitOk, decode_method,
)
from gomq_py.client.connection import Connection
from gomq_py.client.errors import ChannelClosed, ClientError
from gomq_py.perf import messages, shared
from gomq_py.perf.load import Load
from gomq_py.perf.role import ConsumerRole, PublisherRole
from gomq_py.perf.walk import ConfirmWindow, FrameWalk, LatencyHistogram, SequenceCheck

_COMMIT = method_frame(1, TxCommit())


def _connect(options, name):
    """Log in. Return (connection, its channel 1), both open."""
    connection = Connection(options.uri, heartbeat_s=0, name=name, timeout_s=options.timeout_s)
    return connection, connection.channel(1)


def _method(payload):
    """Return the decoded method; None for connection.blocked and unblocked.

    Raises ClientError if the broker closes channel or connection, or cancels the consumer.
    """
    method = decode_method(payload)
    if isinstance(method, (ChannelClose, ConnectionClose)):
        raise ClientError(f"{method.reply_code} {method.reply_text}")
    if isinstance(method, BasicCancel):
        raise ClientError(f"the broker cancelled the consumer {method.consumer_tag}")
    return None if isinstance(method, (ConnectionBlocked, ConnectionUnblocked)) else method


class Publisher(PublisherRole):
    """Publishes to one queue: with confirms, in transactions, or with neither."""

    def __init__(self, options, counters, index, queue, quota, latencies):
        """``latencies``: shared memory for a histogram of confirm times."""
        connection, channel = _connect(options, f"perf publisher {index}")
        batch = messages.make_amqp_batch(options, channel, queue)
        self._is_timed = options.measure_latency and options.confirm > 0
        window = ConfirmWindow(options.confirm or 1, LatencyHistogram(latencies) if self._is_timed else None)
        super().__init__(options, counters, connection, index, quota, batch, window, options.confirm)
        self._in_transaction = 0
        self._committing = False
        if options.confirm:
            channel.confirm_select()
        if options.publish_transaction:
            channel.tx_select()
        self.attach(FrameWalk(connection.frame_max, window=window))
        counters[shared.READY] = 1

    def allowed(self):
        """Return how many messages may be published now: up to a full transaction; 0 during tx.commit."""
        if self._committing:
            return 0
        allowed = super().allowed()
        if self.options.publish_transaction:
            allowed = min(allowed, self.options.publish_transaction - self._in_transaction)
        return allowed

    def was_published(self, count):
        """Note when the messages were sent, to time their confirms. Commit the transaction if it is full."""
        if self._is_timed:
            self.window.note_sent(self.published - count + 1, self.published, time.monotonic_ns())
        if self.options.publish_transaction:
            self._in_transaction += count
            if self._in_transaction == self.options.publish_transaction:
                self._commit()

    def is_complete(self):
        """Commit an unfinished transaction. Return whether the broker has answered everything."""
        if self._in_transaction and not self._committing:
            self._commit()
        return not self._committing and super().is_complete()

    def other(self, what):
        """Handle tx.commit-ok, after which the next transaction may begin."""
        if isinstance(_method(what), TxCommitOk):
            self._committing = False

    def answer(self):
        """Update the counter of returned messages. (An AMQP publisher has no answers to send.)"""
        self.counters[shared.RETURNED] = self.walk.returned

    def _commit(self):
        self.send(_COMMIT)
        self._in_transaction = 0
        self._committing = True


class Consumer(ConsumerRole):
    """Consumes from one queue, with or without acks, by basic.consume or basic.get."""

    def __init__(self, options, counters, index, queue, quota, check, latencies):
        connection, channel = _connect(options, f"perf consumer {index}")
        super().__init__(options, counters, connection, quota)
        self._uncommitted = 0
        if options.prefetch:
            channel.qos(options.prefetch)
        if options.ack_transaction:
            channel.tx_select()
        self.attach(FrameWalk(
            connection.frame_max, ack_every=options.ack, **self.checks(SequenceCheck, check, latencies)))
        self._get = memoryview(method_frame(1, BasicGet(queue=queue, no_ack=not options.ack)))
        self._gets_answered = 0
        if options.poll:
            counters[shared.READY] = 1
        else:
            # Read here, not by the client: deliveries behind the answer in the same read must be counted.
            consume = BasicConsume(
                queue=queue, consumer_tag=f"perf-{index}", no_ack=not options.ack,
                arguments=options.consumer_args,
            )
            self.send(method_frame(1, consume))
            self.write()

    def start(self, now_ns):
        super().start(now_ns)
        if self.options.poll:
            self.send(self._get)
            self.write()

    def other(self, what):
        """Handle basic.consume-ok: mark this consumer as ready for the run."""
        if isinstance(_method(what), BasicConsumeOk):
            self.counters[shared.READY] = 1

    def answer(self):
        """Send acks, commit a full transaction of acks, and with option ``poll`` send the next basic.get."""
        walk = self.walk
        self.counters[shared.EMPTY_GETS] = walk.empty_gets
        if self.options.ack_transaction and walk.answered:
            self._uncommitted += walk.answered // 21 * self.options.ack
        self.send_answers()
        if self.options.ack_transaction and self._uncommitted >= self.options.ack_transaction:
            self._uncommitted = 0
            self.send(_COMMIT)
        if self.options.poll and walk.delivered + walk.empty_gets > self._gets_answered:
            self._gets_answered = walk.delivered + walk.empty_gets
            self.send(self._get)
        self.write()

    def finish(self):
        """Ack all unacked deliveries, so that the queue keeps no message of the run."""
        self.walk.ack_rest()
        self.answer()
        if self.options.ack_transaction:
            self.send(_COMMIT)
        self.write()


class Throughput(Load):
    """A run of AMQP publishers and consumers over the queues in ``options``."""

    consumer_kind = Consumer

    def __init__(self, options, progress):
        super().__init__(options, options.queues, progress)

    def prepare(self):
        options = self.options
        if options.predeclared:
            return
        with Connection(options.uri, name="perf", timeout_s=options.timeout_s) as connection:
            for queue in options.queues:
                channel = connection.channel()
                try:
                    channel.queue_declare(
                        queue, durable=options.durable, auto_delete=options.auto_delete,
                        arguments=options.queue_args,
                    )
                except ChannelClosed as error:
                    if error.reply_code != 406:
                        raise
                    # an existing queue with other arguments is the user's
                    channel = connection.channel()
                    try:
                        channel.queue_declare(queue, passive=True)
                    except ChannelClosed:
                        raise error from None  # it does not exist: the arguments were refused
                if options.purge:
                    channel.queue_purge(queue)
                if options.exchange:
                    if options.exchange_type:
                        channel.exchange_declare(
                            options.exchange, options.exchange_type, durable=options.durable,
                            arguments=options.exchange_args,
                        )
                    for key in messages.binding_keys(options, queue):
                        channel.queue_bind(queue, options.exchange, key)
                channel.close()

    def publisher(self, group, index, quota):
        region = self.region
        return Publisher(
            self.options, region.counters(index), index, group, quota, region.confirm_latencies(index))

    def expected(self):
        """Return how many deliveries to expect: published messages less returned and refused ones."""
        total = self.region.total
        return total(shared.PUBLISHED) - total(shared.RETURNED) - total(shared.REFUSED)

    def judge(self, result):
        if self.options.verify:
            result.faults += self._faults(result)

    def _faults(self, result):
        region = self.region
        faults = []
        for counter, text in (
            (shared.MISORDERED, "messages out of order"), (shared.CORRUPT, "bodies that nobody published")
        ):
            if count := region.total(counter):
                faults.append(f"{count} {text}")
        if self.interrupted or not self.publishers or not self.consumers or self.options.consume_count:
            return faults
        if result.returned or result.refused or result.redelivered:
            return faults  # the numbers need not be complete then
        for publisher in self.publishers:
            published = region.counters(publisher)[shared.PUBLISHED]
            checks = [region.check(slot) for slot in self.consumers]
            count = sum(counts[publisher] for _, counts, _ in checks)
            total = sum(sums[publisher] for _, _, sums in checks)
            if count != published:
                faults.append(f"publisher {publisher}: {published} messages published, {count} consumed")
            elif total != published * (published - 1) // 2:
                faults.append(
                    f"publisher {publisher}: as many messages consumed as published, but not the same ones")
        return faults
