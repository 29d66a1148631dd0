"""``gomq-py-perf amqp throughput``: publishers and consumers at full speed or a given rate, in processes of
their own.

The parent declares the queues, forks the workers, reads their counters once a second, ends the run and makes
the Result. It touches no message.
"""
import multiprocessing
import os
import time
from dataclasses import dataclass, field

from gomq_py.client.connection import Connection
from gomq_py.client.errors import ChannelClosed, ClientError
from gomq_py.perf import messages, process, shared, worker
from gomq_py.perf.latency import summarize
from gomq_py.perf.roles import Consumer, Publisher
from gomq_py.perf.shared import SharedRegion

_READY_TIMEOUT_S = 60
_LOOK_S = 0.02
_FORK = multiprocessing.get_context("fork")


@dataclass
class Result:
    """Figures of one run; None where they do not apply."""

    elapsed_s: float = 0.0
    published: int = 0
    consumed: int = 0
    confirmed: int = 0
    refused: int = 0
    returned: int = 0
    redelivered: int = 0
    publish_rate: float = 0.0
    consume_rate: float = 0.0
    latency: dict | None = None  # milliseconds, see latency.summarize
    faults: list = field(default_factory=list)  # of --verify and of workers
    broker_cpu_us: float | None = None
    broker_memory: dict | None = None
    generator_cpu_us: float | None = None


class Throughput:
    """One run of the scenario.

    ``progress(published per second, consumed per second)`` is called each second.
    """

    def __init__(self, options, progress):
        self.options = options
        self._progress = progress
        self._plan = [
            (queue, index)
            for index, queue in enumerate(
                queue for queue in options.queues for _ in range(options.publishers)
            )
        ], [(queue, index) for index, queue in enumerate(
            queue for queue in options.queues for _ in range(options.consumers)
        )]
        publishers, consumers = self._plan
        self._publishers = range(len(publishers))
        self._consumers = range(len(publishers), len(publishers) + len(consumers))
        self._region = SharedRegion(
            len(publishers) + len(consumers), max(1, len(publishers)) if options.verify else 0
        )
        self._workers: list = []
        self._pipes: list = []
        self._failures: list = []
        self._interrupted = False

    def run(self):
        """Run to the end; the Result. Raises ClientError or OSError when it cannot begin."""
        self._declare()
        self._fork()
        try:
            self._wait_until_ready()
            return self._measure()
        finally:
            self._region.set_flag(shared.STOP)
            for child in self._workers:
                child.join(10)
                if child.is_alive():
                    child.kill()
                    child.join()

    def interrupt(self):
        """End the run with what has been measured so far."""
        self._interrupted = True

    def _declare(self):
        options = self.options
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
                    # it exists with other arguments, which are the user's business
                    channel = connection.channel()
                    try:
                        channel.queue_declare(queue, passive=True)
                    except ChannelClosed:
                        raise error from None  # it does not: the arguments themselves were refused
                if options.purge:
                    channel.queue_purge(queue)
                if options.exchange:
                    if options.exchange_type:
                        channel.exchange_declare(
                            options.exchange, options.exchange_type, durable=options.durable
                        )
                    for key in messages.binding_keys(options, queue):
                        channel.queue_bind(queue, options.exchange, key)
                channel.close()

    def _fork(self):
        publishers, consumers = self._plan
        jobs = []
        for group, kind in ((publishers, "publishers"), (consumers, "consumers")):
            count = min(len(group), self.options.processes or max(1, (os.cpu_count() or 1) // 2))
            jobs += [(kind, group[number::count]) for number in range(count)]
        for kind, share in jobs:
            receiver, sender = _FORK.Pipe(duplex=False)
            child = _FORK.Process(
                target=worker.run, args=(self._maker(kind, share), self._region, sender, os.getpid()),
                daemon=True,
            )
            child.start()
            sender.close()
            self._workers.append(child)
            self._pipes.append(receiver)

    def _maker(self, kind, share):
        """What a worker calls in its process to connect its share of the publishers or consumers."""
        options, region = self.options, self._region

        def make_roles(roles):
            for queue, index in share:
                if kind == "publishers":
                    quota = _share_of(options.publish_count, index, len(self._publishers))
                    if options.publish_count and not quota:
                        region.counters(index)[shared.READY] = region.counters(index)[shared.DONE] = 1
                        continue
                    roles.append(Publisher(options, region.counters(index), index, queue, quota))
                else:
                    slot = self._consumers[index]
                    quota = options.consume_count if len(self._consumers) == 1 else 0
                    roles.append(
                        Consumer(
                            options, region.counters(slot), index, queue, quota, region.check(slot),
                            region.latencies(slot),
                        )
                    )

        return make_roles

    def _wait_until_ready(self):
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while not self._region.every(shared.READY, (*self._publishers, *self._consumers)):
            if self._worker_failed():
                raise ClientError(self._failures[0])
            if time.monotonic() > deadline:
                raise ClientError(f"not all connections were open within {_READY_TIMEOUT_S} s")
            time.sleep(_LOOK_S)

    def _measure(self):
        options, region = self.options, self._region
        cpu_before_s = process.cpu_seconds(options.broker_pid) if options.broker_pid else 0
        started_ns = time.monotonic_ns()
        region.set_flag(shared.STARTED)
        self._watch(lambda: self._publishing_over(started_ns))
        region.set_flag(shared.STOP_PUBLISHING)
        self._watch(
            lambda: region.every(shared.DONE, self._publishers) or self._worker_failed(), options.drain_s
        )
        if self._publishers and self._consumers and not self._interrupted and not options.consume_count:
            self._drain()
        cpu_after_s = process.cpu_seconds(options.broker_pid) if options.broker_pid else 0
        return self._result(started_ns, cpu_after_s - cpu_before_s)

    def _publishing_over(self, started_ns):
        options, region = self.options, self._region
        if options.seconds and time.monotonic_ns() - started_ns >= options.seconds * 1e9:
            return True
        if options.consume_count and region.total(shared.DELIVERED) >= options.consume_count:
            return True
        published = bool(self._publishers) and region.every(shared.DONE, self._publishers)
        return (
            self._interrupted or self._worker_failed()
            or (published and not (options.consume_count and self._consumers))
        )

    def _drain(self):
        """Wait until consumers have had what was published, for as long as they get on with it."""
        region = self._region
        state = {"delivered": -1, "until": 0.0}

        def over():
            delivered = region.total(shared.DELIVERED)
            lost = region.total(shared.RETURNED) + region.total(shared.REFUSED)
            if delivered >= region.total(shared.PUBLISHED) - lost:
                return True
            if delivered != state["delivered"]:
                state.update(delivered=delivered, until=time.monotonic() + 5)
            return time.monotonic() > state["until"] or self._interrupted or self._worker_failed()

        self._watch(over, self.options.drain_s)

    def _watch(self, over, limit_s=None):
        """Call ``progress`` each second until ``over()``, or ``limit_s`` at the most."""
        ends = None if limit_s is None else time.monotonic() + limit_s
        seen_at, published, consumed = (
            time.monotonic(), self._region.total(shared.PUBLISHED), self._region.total(shared.DELIVERED)
        )
        while not over() and not (ends is not None and time.monotonic() >= ends):
            time.sleep(_LOOK_S)
            passed_s = time.monotonic() - seen_at
            if passed_s >= 1:
                seen_at = time.monotonic()
                last = published, consumed
                published, consumed = (
                    self._region.total(shared.PUBLISHED), self._region.total(shared.DELIVERED)
                )
                self._progress((published - last[0]) / passed_s, (consumed - last[1]) / passed_s)

    def _worker_failed(self):
        for pipe in list(self._pipes):
            if pipe.poll():
                try:
                    self._failures.append(pipe.recv())
                except EOFError:
                    pass
                self._pipes.remove(pipe)
        if not self._failures and any(child.exitcode for child in self._workers):
            self._failures.append("a worker process died")
        return bool(self._failures)

    def _result(self, started_ns, broker_cpu_s):
        options, region = self.options, self._region
        result = Result(
            elapsed_s=(time.monotonic_ns() - started_ns) / 1e9, published=region.total(shared.PUBLISHED),
            consumed=region.total(shared.DELIVERED),
            confirmed=region.total(shared.CONFIRMED), refused=region.total(shared.REFUSED),
            returned=region.total(shared.RETURNED),
            redelivered=region.total(shared.REDELIVERED), faults=list(self._failures),
        )
        result.publish_rate = _rate(
            result.published, region.latest(shared.LAST_NS, self._publishers) - started_ns
        )
        result.consume_rate = _rate(
            result.consumed, region.latest(shared.LAST_NS, self._consumers) - started_ns
        )
        if options.measure_latency:
            result.latency = summarize([region.latencies(slot) for slot in self._consumers])
        handled = result.consumed or result.published
        if handled:
            result.generator_cpu_us = region.total(shared.CPU_NS) / 1e3 / handled
            if options.broker_pid:
                result.broker_cpu_us = broker_cpu_s * 1e6 / handled
        if options.broker_pid:
            result.broker_memory = process.memory_octets(options.broker_pid)
        if options.verify:
            result.faults += self._verify(result)
        return result

    def _verify(self, result):
        """What is wrong with what came, in words."""
        region = self._region
        faults = []
        for counter, text in (
            (shared.MISORDERED, "messages out of order"), (shared.CORRUPT, "bodies that nobody published")
        ):
            if count := region.total(counter):
                faults.append(f"{count} {text}")
        if self._interrupted or not self._publishers or not self._consumers or self.options.consume_count:
            return faults
        if result.returned or result.refused or result.redelivered:
            return faults  # then the numbers need not be complete
        for publisher in self._publishers:
            published = region.counters(publisher)[shared.PUBLISHED]
            checks = [region.check(slot) for slot in self._consumers]
            count = sum(counts[publisher] for _, counts, _ in checks)
            total = sum(sums[publisher] for _, _, sums in checks)
            if count != published:
                faults.append(f"publisher {publisher}: {published} messages published, {count} consumed")
            elif total != published * (published - 1) // 2:
                faults.append(
                    f"publisher {publisher}: as many messages consumed as published, but not the same ones"
                )
        return faults


def _share_of(total, index, count):
    """A fair share of a total: the first ones get one more."""
    return total // count + (index < total % count)


def _rate(count, duration_ns):
    return count / (duration_ns / 1e9) if count and duration_ns > 0 else 0.0
