"""AMQP's part of ``gomq-py-perf amqp throughput``: queues, and each message to one consumer."""
from gomq_py.client.connection import Connection
from gomq_py.client.errors import ChannelClosed
from gomq_py.perf import messages, shared
from gomq_py.perf.load import Load
from gomq_py.perf.roles import Consumer, Publisher


class Throughput(Load):
    """One run over the queues of ``options``."""

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
        """Messages published and neither returned nor refused."""
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
                    f"publisher {publisher}: as many messages consumed as published, but not the same ones"
                )
        return faults
