"""State dump: writes the broker's current work into the log when an operator sends SIGUSR1.

Reads everything and changes nothing. Connections, queues and greenlets get a limited number of lines; one
more gives the number of those left out. The broker goes on working while lines are written, so each line
shows a later moment. The dump has names, but never a password, a client's property or a message. Used by the
launcher.
"""
import gc
import heapq
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gevent
from greenlet import getcurrent, greenlet

from gomq_py.amqp.server.lifecycle import GONE
from gomq_py.hub.turns import give_way
from gomq_py.observability import resources
from gomq_py.observability.log import logger

LOG = logger("dump")
# Most lines of one kind; the whole is then under 200 KB.
CONNECTIONS, QUEUES, GREENLETS = 200, 200, 50
LINE_CHARACTERS = 400
# Objects, lines and queues per turn of the hub: some milliseconds.
OBJECTS_PER_TURN, LINES_PER_TURN, QUEUES_PER_TURN = 20_000, 20, 500
LAG_SAMPLES = 20
PACKAGE = os.sep + "gomq_py" + os.sep
_NUMBERS = re.compile(r"[\[(]?\S*\d\S*")


class StateDump:
    """Writes a broker's state to the log. All but ``listeners`` may be None, while it boots or stops."""

    def __init__(self, broker: Any, hub: Any, durability: Any, listeners: list[Any]):
        self._broker = broker
        self._hub = hub
        self._durability = durability
        self._listeners = listeners

    def write(self) -> None:
        """Write the state to the log, part by part. May switch greenlets."""
        count = 0
        for part in (
            self._process, self._loop, self._resources, self._disk, self._connections, self._queues,
            self._greenlets,
        ):
            try:
                for line in part():
                    LOG.info("%s", line if len(line) <= LINE_CHARACTERS else line[:LINE_CHARACTERS] + "...")
                    count += 1
                    if count % LINES_PER_TURN == 0:
                        give_way()
            except Exception:
                LOG.exception("this part of the dump failed")
        LOG.info("end of the dump, %d lines", count)

    def _process(self) -> Iterator[str]:
        used, system = os.times()[:2]
        descriptors = resources.descriptor_count()
        yield (
            f"process {os.getpid()}: {resources.used_memory() >> 20} MiB of memory, {used:.1f} s user and "
            f"{system:.1f} s system time, {threading.active_count()} threads, {descriptors} descriptors"
        )
        for listener in self._listeners:
            yield f"listening: {listener.protocol} {listener.address}"

    def _loop(self) -> Iterator[str]:
        """Yield a line with the longest of LAG_SAMPLES rounds of the event loop. May switch greenlets."""
        worst_s = 0.0
        for _ in range(LAG_SAMPLES):
            began = time.perf_counter()
            give_way()
            worst_s = max(worst_s, time.perf_counter() - began)
        hub = gevent.get_hub()
        pool = hub.threadpool
        yield (
            f"loop: the slowest of {LAG_SAMPLES} turns took {worst_s * 1000:.1f} ms; {hub.loop.activecnt} "
            "watchers; "
            f"pool of {pool.size} threads, {pool.task_queue.qsize()} jobs waiting"
        )

    def _resources(self) -> Iterator[str]:
        if self._broker is None:
            return
        watch = self._broker.resource_watch
        raised = ", ".join(sorted(self._broker.alarms.resources)) or "none"
        yield (f"alarms: {raised}; memory {watch.used_memory >> 20} of {watch.memory_limit >> 20} MiB, "
               f"disk {watch.free_disk >> 20} MiB free, least {watch.disk_limit >> 20} MiB")

    def _disk(self) -> Iterator[str]:
        if self._durability is not None:
            yield "sync: " + self._durability.describe()
        if self._broker is not None:
            yield "segments: " + self._broker.describe_pool()

    def _connections(self) -> Iterator[str]:
        if self._hub is None:
            return
        yield (
            f"connections: {len(self._hub.clients)}, and {self._hub.admission.pending_count} that have not "
            "logged in yet"
        )
        shown = self._hub.clients.all()
        for connection in shown[:CONNECTIONS]:
            if connection.state != GONE:
                yield describe_connection(connection)
        if len(shown) > CONNECTIONS:
            yield f"... and {len(shown) - CONNECTIONS} more connections"

    def _queues(self) -> Iterator[str]:
        """Yield the number of queues, then a line per queue, the longest first. May switch greenlets."""
        if self._broker is None:
            return
        largest: list[tuple[int, int, Any]] = []
        total = 0
        for vhost in list(self._broker.vhosts.values()):
            for queue in list(vhost.queues.values()):
                total += 1
                heapq.heappush(largest, (queue.ready_count + queue.unacked_count, total, queue))
                if len(largest) > QUEUES:
                    heapq.heappop(largest)
                if total % QUEUES_PER_TURN == 0:
                    give_way()
        yield f"queues: {total}" + (f", the {QUEUES} with the most messages:" if total > QUEUES else "")
        for _, _, queue in sorted(largest, reverse=True):
            yield describe_queue(queue)

    def _greenlets(self) -> Iterator[str]:
        """Yield a line for each place where greenlets wait, the most frequent first. May switch greenlets."""
        kinds: Counter[str] = Counter()
        here = getcurrent()
        gc.unfreeze()  # otherwise objects made at boot would be missing
        found = gc.get_objects()
        gc.freeze()
        while found:
            part = found[-OBJECTS_PER_TURN:]
            del found[-OBJECTS_PER_TURN:]
            for one in part:
                # type() and not isinstance(): some objects run code to answer the latter.
                if issubclass(type(one), greenlet) and one and one is not here:
                    kinds[f"{kind_of(one)} in {where(one)}"] += 1
            part = one = None
            give_way()
        yield f"greenlets: {kinds.total()} of {len(kinds)} kinds"
        for kind, count in kinds.most_common(GREENLETS):
            yield f"greenlets: {count} x {kind}"


def describe_connection(connection: Any) -> str:
    """Return one line about a connection: the client's name, its channels, and what it waits for."""
    channels = list(connection.channels.values())
    consumers = sum(len(channel.consumers) for channel in channels)
    unacked = sum(channel.unacked.count for channel in channels)
    what = (
        f"{connection.protocol} client {connection.client_id!r}" if connection.door == "mqtt"
        else f"{len(channels)} channels, {consumers} consumers, {unacked} unacked"
    )
    return (
        f"connection {connection.name}: {connection.user.name}@{connection.vhost.name}, {connection.state}, "
        f"{what}, {waits_for(connection, channels)}"
    )


def waits_for(connection: Any, channels: list[Any]) -> str:
    """Return the text "waits for ...", with the events for which the connection waits."""
    reasons = []
    if connection.output.pending_octets():
        reasons.append(f"the client to read {connection.output.pending_octets()} bytes")
    confirming = sum(channel.confirms.waiting for channel in channels if channel.confirms is not None)
    if confirming:
        reasons.append(f"the disk to confirm publishes of {confirming} channels")
    if connection.blocked_reason:
        reasons.append(f"an alarm to end ({connection.blocked_reason})")
    reasons += [reason for reason in connection.stream.waits_for if reason not in reasons]
    return "waits for " + (" and ".join(reasons) or "the client")


def describe_queue(queue: Any) -> str:
    """Return one line about a queue: its messages, consumers and state."""
    states = (
        [state for state, holds in (("closed", queue.closed), ("paused", queue.paused)) if holds]
        or ["running"]
    )
    return (
        f"queue {queue.name!r} in {queue.vhost!r}: {queue.ready_count} ready ({queue.ready_bytes} bytes), "
        f"{queue.unacked_count} unacked, {queue.consumer_count} consumers, {', '.join(states)}"
    )


def kind_of(one: Any) -> str:
    """Return a greenlet's name with N in place of each number; the name of its class if it has none."""
    name = getattr(one, "name", "")
    return _NUMBERS.sub("N", name) if name and not name.startswith("Greenlet-") else type(one).__name__


def where(one: Any) -> str:
    """Return "file:line function" of a greenlet's innermost frame, if possible one of this package."""
    innermost = frame = one.gr_frame
    while frame is not None:
        if PACKAGE in frame.f_code.co_filename:
            return _place(frame)
        frame = frame.f_back
    return _place(innermost) if innermost is not None else "the loop"


def _place(frame: Any) -> str:
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}"
