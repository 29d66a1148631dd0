"""Runs publishers and consumers in separate processes, at full speed or a given rate, over AMQP or MQTT.

The parent prepares the broker, forks the workers, reads their counters once a second, ends the run and makes
the Result. It handles no message.
"""
import multiprocessing
import os
import time
from dataclasses import dataclass, field

from gomq_py.client.errors import ClientError
from gomq_py.perf import process, shared, worker
from gomq_py.perf.shared import SharedRegion
from gomq_py.perf.walk import summarize

# Base time, and time per connection: thousands log in one after the other.
_READY_TIMEOUT_S, _READY_EACH_S = 60, 0.02
_LOOK_S = 0.02
_FORK = multiprocessing.get_context("fork")


@dataclass
class Result:
    """The results of one run. None means that this run does not measure the value."""

    elapsed_s: float = 0.0
    published: int = 0
    consumed: int = 0
    confirmed: int = 0
    refused: int = 0
    returned: int = 0
    redelivered: int = 0
    lost: int | None = None
    doubled: int | None = None
    publish_rate: float = 0.0
    consume_rate: float = 0.0
    # Share of expected deliveries that had arrived when publishing ended.
    delivered_share: float | None = None
    latency: dict | None = None  # milliseconds, see walk.summarize
    confirm_latency: dict | None = None
    faults: list = field(default_factory=list)  # from --verify and workers
    broker_cpu_us: float | None = None
    # process.memory_octets at the end, and "most_anonymous", the peak
    broker_memory: dict | None = None
    generator_cpu_us: float | None = None


class Load:
    """Base of a load run over AMQP or MQTT.

    ``groups`` are names of queues or topics. Each gets as many publishers and consumers as the options say.
    ``progress(published per s, consumed per s)`` is called each second. A subclass prepares the broker,
    connects the publishers and computes how many deliveries to expect.
    """

    def __init__(self, options, groups, progress):
        self.options = options
        self._progress = progress
        self.plan = [
            [(group, index) for index, group in enumerate(group for group in groups for _ in range(count))]
            for count in (options.publishers, options.consumers)
        ]
        publishers, consumers = self.plan
        self.publishers = range(len(publishers))
        self.consumers = range(len(publishers), len(publishers) + len(consumers))
        self.region = SharedRegion(
            len(publishers), len(consumers), max(1, len(publishers)) if options.verify else 0)
        self._workers: list = []
        self._pipes: list = []
        self._failures: list = []
        self._delivered_share = None
        self._most_anonymous = 0
        self.interrupted = False

    def run(self):
        """Run the load to its end and return the Result. Raises ClientError or OSError if it cannot begin."""
        process.raise_descriptor_limit()
        self.prepare()
        self._fork()
        try:
            self._wait_until_ready()
            result = self._measure()
        finally:
            self.region.set_flag(shared.STOP)
            for child in self._workers:
                child.join(10)
                if child.is_alive():
                    child.kill()
                    child.join()
        self.clean_up()
        return result

    def interrupt(self):
        """End the run early. ``run`` then returns the results so far. For signal handlers."""
        self.interrupted = True

    # Implemented by a protocol.

    consumer_kind: type  # of ConsumerRole

    def prepare(self):
        """Prepare the broker, before the worker processes are forked: for example, declare queues."""
        raise NotImplementedError

    def clean_up(self):
        """Remove objects that the run left on the broker. Called after a normal end."""

    def publisher(self, group, index, quota):
        """In a worker process: connect a publisher of the queue or topic ``group``. Return its PublisherRole.

        ``index``: number of the publisher. ``quota``: messages to publish; 0: no limit.
        """
        raise NotImplementedError

    def expected(self):
        """Return how many deliveries all consumers together should have received by now."""
        raise NotImplementedError

    def judge(self, result):
        """Check the deliveries, and append each fault as a text to ``result.faults``."""
        raise NotImplementedError

    # The rest is private.

    def _fork(self):
        publishers, consumers = self.plan
        jobs = []
        for group, kind in ((publishers, "publishers"), (consumers, "consumers")):
            count = min(len(group), self.options.processes or max(1, (os.cpu_count() or 1) // 2))
            jobs += [(kind, group[number::count]) for number in range(count)]
        for kind, share in jobs:
            receiver, sender = _FORK.Pipe(duplex=False)
            child = _FORK.Process(
                target=worker.run, args=(self._maker(kind, share), self.region, sender, os.getpid()),
                daemon=True,
            )
            child.start()
            sender.close()
            self._workers.append(child)
            self._pipes.append(receiver)

    def _maker(self, kind, connections):
        """Return ``make_roles(list)``, which connects publishers or consumers and appends their Roles.

        ``kind``: "publishers" or "consumers". ``connections``: [(queue or topic, number)]. For a worker
        process.
        """
        options, region = self.options, self.region

        def make_roles(roles):
            for group, index in connections:
                if kind == "publishers":
                    # the first publishers have one message more
                    share, more = divmod(options.publish_count, len(self.publishers))
                    quota = share + (index < more)
                    if options.publish_count and not quota:
                        region.counters(index)[shared.READY] = region.counters(index)[shared.DONE] = 1
                        continue
                    roles.append(self.publisher(group, index, quota))
                else:
                    quota = options.consume_count if len(self.consumers) == 1 else 0
                    slot = self.consumers[index]
                    roles.append(self.consumer_kind(
                        options, region.counters(slot), index, group, quota, region.check(slot),
                        region.latencies(slot)))

        return make_roles

    def _wait_until_ready(self):
        connections = range(self.consumers.stop)
        patience_s = _READY_TIMEOUT_S + _READY_EACH_S * len(connections)
        deadline = time.monotonic() + patience_s
        while not self.region.every(shared.READY, connections):
            if self._worker_failed():
                raise ClientError(self._failures[0])
            if time.monotonic() > deadline:
                raise ClientError(f"not all connections were open within {patience_s:.0f} s")
            time.sleep(_LOOK_S)

    def _measure(self):
        options, region = self.options, self.region
        cpu_before_s = process.cpu_seconds(options.broker_pid) if options.broker_pid else 0
        started_ns = time.monotonic_ns()
        region.set_flag(shared.STARTED)
        self._watch(lambda: self._publishing_over(started_ns))
        region.set_flag(shared.STOP_PUBLISHING)
        if published := region.total(shared.PUBLISHED):
            self._delivered_share = region.total(shared.DELIVERED) / published
        self._watch(
            lambda: region.every(shared.DONE, self.publishers) or self._worker_failed(), options.drain_s)
        if self.publishers and self.consumers and not self.interrupted and not options.consume_count:
            self._drain()
        cpu_after_s = process.cpu_seconds(options.broker_pid) if options.broker_pid else 0
        return self._result(started_ns, cpu_after_s - cpu_before_s)

    def _publishing_over(self, started_ns):
        options, region = self.options, self.region
        if options.seconds and time.monotonic_ns() - started_ns >= options.seconds * 1e9:
            return True
        if options.consume_count and region.total(shared.DELIVERED) >= options.consume_count:
            return True
        published = bool(self.publishers) and region.every(shared.DONE, self.publishers)
        return (
            self.interrupted or self._worker_failed()
            or (published and not (options.consume_count and self.consumers))
        )

    def _drain(self):
        """Wait for all expected deliveries, but no longer than 5 s for the next, and ``drain_s`` in all."""
        region = self.region
        state = {"delivered": -1, "until": 0.0}

        def over():
            delivered = region.total(shared.DELIVERED)
            if delivered >= self.expected():
                return True
            if delivered != state["delivered"]:
                state.update(delivered=delivered, until=time.monotonic() + 5)
            return time.monotonic() > state["until"] or self.interrupted or self._worker_failed()

        self._watch(over, self.options.drain_s)

    def _watch(self, over, limit_s=None):
        """Wait until ``over()`` is True, or for ``limit_s`` seconds. Call ``progress`` each second."""
        ends = None if limit_s is None else time.monotonic() + limit_s
        seen_at, published, consumed = (
            time.monotonic(), self.region.total(shared.PUBLISHED), self.region.total(shared.DELIVERED)
        )
        while not over() and not (ends is not None and time.monotonic() >= ends):
            time.sleep(_LOOK_S)
            passed_s = time.monotonic() - seen_at
            if passed_s >= 1:
                seen_at = time.monotonic()
                last = published, consumed
                published, consumed = (
                    self.region.total(shared.PUBLISHED), self.region.total(shared.DELIVERED)
                )
                self._progress((published - last[0]) / passed_s, (consumed - last[1]) / passed_s)
                self._look_at_memory()

    def _look_at_memory(self):
        """Return the broker's memory in bytes: {"rss", "anonymous", "most_anonymous" (the peak)}.

        None if the broker's process id is not given.
        """
        if not self.options.broker_pid:
            return None
        memory = process.memory_octets(self.options.broker_pid)
        self._most_anonymous = max(self._most_anonymous, memory["anonymous"])
        return {**memory, "most_anonymous": self._most_anonymous}

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
        options, region = self.options, self.region
        result = Result(
            elapsed_s=(time.monotonic_ns() - started_ns) / 1e9, published=region.total(shared.PUBLISHED),
            consumed=region.total(shared.DELIVERED),
            confirmed=region.total(shared.CONFIRMED), refused=region.total(shared.REFUSED),
            returned=region.total(shared.RETURNED),
            redelivered=region.total(shared.REDELIVERED), faults=list(self._failures),
        )
        result.publish_rate = _rate(
            result.published, region.latest(shared.LAST_NS, self.publishers) - started_ns)
        result.consume_rate = _rate(
            result.consumed, region.latest(shared.LAST_NS, self.consumers) - started_ns)
        if options.measure_latency:
            result.latency = summarize([region.latencies(slot) for slot in self.consumers])
            confirms = summarize([region.confirm_latencies(slot) for slot in self.publishers])
            result.confirm_latency = confirms if confirms["count"] else None
        handled = result.consumed or result.published
        if handled:
            result.generator_cpu_us = region.total(shared.CPU_NS) / 1e3 / handled
            if options.broker_pid:
                result.broker_cpu_us = broker_cpu_s * 1e6 / handled
        result.delivered_share = self._delivered_share
        result.broker_memory = self._look_at_memory()
        self.judge(result)
        return result


def _rate(count, duration_ns):
    return count / (duration_ns / 1e9) if count and duration_ns > 0 else 0.0
