"""Queues with settings equal simple models: priority, time to live with dead letters, delivery limit.

Each is the real queue on a real store, with its limits and a hand-driven clock, beside a list that does what
the setting's few rules say.
"""
import os

import pytest
from hypothesis import example, given, settings, strategies as st

from gomq_py.broker.queues.queue import Queue
from gomq_py.storage.message import Message
from gomq_py.storage.stores.priority_store import open_priority_store
from tests.support.queues import quorum_queue
from tests.unit.broker.queues.test_limits import LimitedBench


def take(bench, queue, no_ack):
    """(number, location) of what basic.get gives, or None."""
    message = Message()
    bench.scheduler.begin(bench.now_ms)
    found = queue.get(message, no_ack)
    bench.scheduler.finish()
    bench.settle()
    return (int(message.get_body()), message.describe()["location"]) if found else None


# priority

MAX_PRIORITY = {"classic": 3, "quorum": 31}
UNNAMED = {"classic": 0, "quorum": 4}  # of messages without a priority
PRIORITY_0 = b"\x08\x00\x00"  # properties
PRIORITY_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.sampled_from([None, None, 0, 0, 1, 2, 3, 4, 6, 30, 31, 32, 255])),
        st.tuples(st.sampled_from(["get", "ack", "requeue", "reject"]), st.integers(0, 20)),
        st.tuples(st.just("purge"), st.integers(0, 8)),
    ),
    max_size=60,
)


def queue_with_priorities(bench, kind):
    if kind == "quorum":
        return bench.limited(kind=quorum_queue)
    folder = os.path.join(bench.folder, "q")
    os.makedirs(folder)
    store, _ = open_priority_store(
        folder, bench.files, bench.pool, bench.committer, os.urandom(16), MAX_PRIORITY[kind]
    )
    return Queue("q", "/", store, bench.scheduler)


@pytest.mark.parametrize("kind", list(MAX_PRIORITY))
@settings(max_examples=60)
@given(steps=PRIORITY_STEPS)
def test_priority_queue_equals_a_list_sorted_by_priority_and_age(tmp_path_factory, kind, steps):
    bench = LimitedBench(tmp_path_factory.mktemp("priority"))
    queue = queue_with_priorities(bench, kind)
    ready, held, published = [], [], 0

    for verb, number in steps:
        if verb == "publish":
            properties = PRIORITY_0 if number == 0 else b"\0\0"
            bench.publish(queue, b"%d" % published, priority=number or 0, properties=properties)
            ready.append((-min(UNNAMED[kind] if number is None else number, MAX_PRIORITY[kind]), published))
            ready.sort()
            published += 1
        elif verb == "get":
            taken = take(bench, queue, False)
            assert (taken is None) == (not ready)
            if taken is not None:
                assert taken[0] == ready[0][1]
                held.append((ready.pop(0), taken[1]))
        elif verb == "purge":
            assert queue.purge_some(number) == min(number, len(ready))
            del ready[:number]
        elif held:
            entry, location = held.pop(number % len(held))
            if verb == "requeue":
                queue.requeue(location)
                ready.append(entry)
                ready.sort()
            elif verb == "ack":
                queue.ack(location)
            else:
                queue.reject(location, False)
        bench.settle()
        assert (queue.ready_count, queue.unacked_count) == (len(ready), len(held))

    assert [take(bench, queue, True)[0] for _ in range(len(ready))] == [number for _, number in ready]


# time to live

QUEUE_TTL_MS = 40
TTL_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.one_of(st.just(0), st.integers(1, 90))),
        st.tuples(st.just("wait"), st.integers(1, 50)),
        st.tuples(st.sampled_from(["get", "ack", "requeue", "reject"]), st.integers(0, 20)),
    ),
    max_size=40,
)


class TTLModel:
    """Messages as (number, due_ms) in order of age; only the head expires,
    at the latest when something asks for it.

    The millisecond in which its time ends is a message's last, and for one that came back it is too late.
    """

    def __init__(self, bench):
        self.bench = bench
        self.queue = bench.limited({"x-message-ttl": QUEUE_TTL_MS, "x-dead-letter-exchange": "dead"})
        self.ready, self.held, self.letters, self.published = [], [], [], 0
        self.returned = set()

    def publish(self, expiration_ms):
        now_ms = self.bench.now_ms
        due_ms = now_ms + min(QUEUE_TTL_MS, expiration_ms or QUEUE_TTL_MS)
        self.bench.publish(
            self.queue, b"%d" % self.published, expires_at_ms=now_ms + expiration_ms if expiration_ms else 0
        )
        self.ready.append((self.published, due_ms))
        self.published += 1

    def wait(self, ms):
        for _ in range(ms):
            self.bench.advance(1)
            self.expire()

    def expire(self):
        while self.ready and self.bench.now_ms > self.ready[0][1] - (self.ready[0][0] in self.returned):
            self.letters.append((b"%d" % self.ready.pop(0)[0], "expired"))

    def get(self, _):
        self.expire()
        taken = take(self.bench, self.queue, False)
        assert (taken is None) == (not self.ready)
        if taken is not None:
            entry = self.ready.pop(0)
            assert taken[0] == entry[0]
            self.held.append((entry, taken[1]))
            self.expire()

    def settle(self, verb, number):
        if not self.held:
            return
        entry, location = self.held.pop(number % len(self.held))
        if verb == "ack":
            self.queue.ack(location)
        elif verb == "reject":
            self.queue.reject(location, False)
            self.letters.append((b"%d" % entry[0], "rejected"))
        else:
            self.queue.requeue(location)
            self.returned.add(entry[0])
            self.ready.append(entry)
            self.ready.sort()
        self.bench.settle()
        self.expire()


@settings(max_examples=60)
@given(TTL_STEPS)
@example([("publish", 1), ("wait", 1), ("get", 0), ("requeue", 0)])
@example([("publish", 0), ("publish", 1), ("wait", 2), ("get", 0)])
def test_queue_with_a_ttl_equals_a_list_whose_head_expires(tmp_path_factory, steps):
    """Every message ends in exactly one place: acked, still there, or among the letters with its reason,
    in order.
    """
    model = TTLModel(LimitedBench(tmp_path_factory.mktemp("ttl")))

    for verb, number in steps:
        if verb in ("publish", "wait", "get"):
            getattr(model, verb)(number)
        else:
            model.settle(verb, number)
        model.bench.letters.arrive()
        assert model.bench.letters.sent == model.letters
        assert (model.queue.ready_count, model.queue.unacked_count) == (len(model.ready), len(model.held))

    model.wait(200)
    assert model.queue.ready_count == 0


# delivery limit

LIMIT_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["publish", "get", "get", "ack", "requeue", "requeue", "reject"]), st.integers(0, 20)
    ),
    max_size=60,
)


@settings(max_examples=60)
@given(st.integers(0, 3), LIMIT_STEPS)
def test_delivery_limit_equals_a_count_per_message(tmp_path_factory, limit, steps):
    """A message is delivered at most limit + 1 times, then it is a letter; in between it keeps its place."""
    bench = LimitedBench(tmp_path_factory.mktemp("limit"))
    queue = bench.limited({"x-delivery-limit": limit, "x-dead-letter-exchange": "dead"})
    ready, held, letters, returned, published = [], [], [], {}, 0

    for verb, number in steps:
        if verb == "publish":
            bench.publish(queue, b"%d" % published)
            ready.append(published)
            published += 1
        elif verb == "get":
            taken = take(bench, queue, False)
            assert (None if taken is None else taken[0]) == (ready[0] if ready else None)
            if taken is not None:
                held.append((ready.pop(0), taken[1]))
        elif held:
            which, location = held.pop(number % len(held))
            if verb == "ack":
                queue.ack(location)
            elif verb == "reject":
                queue.reject(location, False)
                letters.append((b"%d" % which, "rejected"))
            else:
                queue.requeue(location)
                returned[which] = returned.get(which, 0) + 1
                if returned[which] > limit:
                    letters.append((b"%d" % which, "delivery_limit"))
                else:
                    ready = sorted([*ready, which])
        bench.settle()
        bench.letters.arrive()
        assert bench.letters.sent == letters
        assert (queue.ready_count, queue.unacked_count) == (len(ready), len(held))
