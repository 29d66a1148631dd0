"""A queue with groups equals a list for each group: any mix of publishing, delivering, settling, requeueing,
retrying, picking and purging gives the messages of one group in order, and never to two takers at a time.

The queue is one with groups on a real store of small segments, with up to three consumers of limited credit,
two clients that get, and small limits of what may wait and of how much of a group is out. The model is a list
of ready numbers for each group, the oldest first; key 0 is no group.
"""
from random import Random

import pytest

from gomq_py.broker.queues.consumers import Consumer
from gomq_py.broker.queues.peeking import browse
from gomq_py.storage.message import Message
from gomq_py.storage.segments.pool import FIRST_SEGMENT_BYTES
from tests.support.queues import Bench

KEYS = 4
# Octets of a body: some ten fill a segment.
LENGTH = FIRST_SEGMENT_BYTES // 10
# Weighted, so that much is waiting and held.
VERBS = (
    6 * ("publish",) + 4 * ("settle",) + 3 * ("get", "requeue", "pick")
    + 2 * ("unpick", "attach", "requeue all", "rest", "retry")
    + ("get no ack", "reject", "purge some", "move", "detach", "pause", "resume", "resume")
)
STEPS = 150
RETRY = 1, 1  # its count of failed deliveries, and the Unix second of its end
# What may wait, how far the cursor looks ahead, how much of a group is out.
LIMITS = (1000, 1000, 0), (1000, 1000, 1), (5, 1000, 0), (1000, 3, 0), (2, 2, 2), (1000, 1000, 3)


class ModelConsumer(Consumer):
    """Tells the model what it is given, and has room for ``credit`` messages."""

    def __init__(self, model, credit):
        super().__init__("c")
        self.model = model
        self.credit = credit

    def capacity(self):
        return self.credit - len(self.model.held_by(self))

    def deliver(self, limit):
        message, taken = Message(), 0
        while taken < limit and self.capacity() > 0 and self.queue.peek(message):
            self.queue.take(message, False)
            try:
                self.model.note(self, message)
            except AssertionError as error:  # the queue would only log it
                self.model.fault = error
                raise
            taken += 1
        return taken * 100


class Model:
    """``ready``: {key: numbers}; ``held``, ``picked``, ``resting``: (key, number, location, taker) that
    somebody has, or that wait for a retry.
    """

    def __init__(self, bench, limits):
        self.bench = bench
        waiting_max, look_ahead, self.limit = limits
        self.queue = bench.group_queue(by=b"", segment_bytes=FIRST_SEGMENT_BYTES, limit=self.limit)
        self.queue.groups.waiting_max, self.queue.groups.look_ahead = waiting_max, look_ahead
        self.fault = None
        self.resting = []
        self.getters = object(), object()
        self.ready = {key: [] for key in range(KEYS)}
        self.held = []
        self.picked = []
        self.consumers = []
        self.published = 0
        self.returned = set()
        # Picked and put back: those without a group are marked if the cursor went by, as in a plain store;
        # a returned message of their group may come before the others.
        self.put_back = set()

    def step(self, verb, number, count):
        getattr(self, verb.replace(" ", "_"))(number, count)
        self.settle_down()
        ready = sum(map(len, self.ready.values()))
        assert (self.queue.ready_count, self.queue.unacked_count) == (
            ready, len(self.held) + len(self.resting) + len(self.picked))
        out = [key for key, *_ in self.held + self.resting if key]
        assert (self.queue.groups.groups_out, self.queue.groups.messages_out) == (len(set(out)), len(out))

    def settle_down(self):
        self.bench.settle()
        if self.fault is not None:
            raise self.fault
        # messages that had to wait behind limits may be out of sight
        if not self.queue.paused and not self.queue.groups.is_full:
            for consumer in self.consumers:
                assert consumer.capacity() <= 0 or self.deliverable(consumer) == []

    def held_by(self, taker):
        return [held for held in self.held if held[3] is taker]

    def deliverable(self, taker):
        return [key for key, numbers in self.ready.items() if numbers and self.may_have(taker, key)]

    def may_have(self, taker, key):
        takers = [other for out, _, _, other in self.held + self.resting if out == key]
        return key == 0 or not takers or (
            takers[0] is taker and key not in {resting[0] for resting in self.resting}
            and (not self.limit or len(takers) < self.limit))

    def note(self, taker, message):
        key, number = map(int, message.get_body().split())
        told = message.describe()
        location, redelivered = told["location"], told["redelivered"]
        assert self.may_have(taker, key), "another taker has the group, or it waits"
        first = next(each for each in self.ready[key] if each == number or each not in self.put_back)
        assert first == number, "out of order"
        assert redelivered == (number in self.returned) or number in self.put_back
        self.ready[key].remove(number)
        self.held.append((key, number, location, taker))

    def publish(self, key, count):
        numbers = range(self.published, self.published + count)
        self.published += count
        self.ready[key] += numbers
        self.bench.publish(
            self.queue, *[(b"%d %d" % (key, each)).ljust(LENGTH) for each in numbers],
            routing_key=b"k%d" % key if key else b"")

    def get(self, number, _count, no_ack=False):
        message, taker = Message(), self.getters[number % 2]
        self.queue.turn_to(taker)
        if self.queue.get(message, no_ack):
            self.note(taker, message)
            if no_ack:
                self.held.pop()
        else:
            assert self.queue.paused or self.queue.groups.is_full or self.deliverable(taker) == []

    def get_no_ack(self, number, count):
        self.get(number, count, True)

    def take(self, held, number):
        return held.pop(number % len(held)) if held else (None, None, None, None)

    def settle(self, number, _):
        _, taken, location, taker = self.take(self.held, number)
        if taken is not None:
            self.queue.ack(location)
            self.offer(taker)

    def reject(self, number, _):
        _, taken, location, taker = self.take(self.held, number)
        if taken is not None:
            self.queue.reject(location, False)
            self.offer(taker)

    def requeue(self, number, _):
        key, taken, location, taker = self.take(self.held, number)
        if taken is not None:
            self.come_back(key, taken)
            self.queue.requeue(location)
            self.offer(taker)

    def requeue_all(self, number, _):
        if self.held:
            taker = self.held[number % len(self.held)][3]
            for held in self.held_by(taker):
                self.held.remove(held)
                self.come_back(held[0], held[1])
                self.queue.requeue(held[2])
            self.offer(taker)

    def rest(self, number, _):
        key, taken, location, taker = self.take(self.held, number)
        if taken is not None:
            self.resting.append((key, taken, location, taker))
            self.queue.groups.wait_until(location, *RETRY)
            self.offer(taker)

    def retry(self, number, _):
        key, taken, location, _ = self.take(self.resting, number)
        if taken is not None:
            self.come_back(key, taken)
            self.queue.ready_again(location)

    def offer(self, taker):
        if taker in self.consumers:
            self.queue.offer(taker)

    def come_back(self, key, number):
        self.returned.add(number)
        self.ready[key] = sorted([*self.ready[key], number])

    def browsed(self):
        browser, message, shown = browse(self.queue), Message(), []
        while browser.next(message):
            key, number = map(int, message.get_body().split())
            shown.append((key, number, message.describe()["location"]))
        browser.close()
        assert sorted(number for _, number, _ in shown) == sorted(
            number for numbers in self.ready.values() for number in numbers)
        return shown

    def pick(self, number, _):
        shown = self.browsed()
        if shown:
            key, picked, location = shown[number % len(shown)]
            assert self.queue.store.pick(location)
            self.ready[key].remove(picked)
            self.picked.append((key, picked, location, None))

    def unpick(self, number, _):
        key, picked, location, _ = self.take(self.picked, number)
        if picked is not None:
            self.ready[key] = sorted([*self.ready[key], picked])
            self.put_back.add(picked)
            self.queue.store.unpick(location)
            self.queue.wake()

    def move(self, number, _):
        _, picked, location, _ = self.take(self.picked, number)
        if picked is not None:
            self.queue.drop(location)

    def purge(self, _number, _count):
        assert self.queue.purge() == sum(map(len, self.ready.values()))
        self.ready = {key: [] for key in range(KEYS)}

    def purge_some(self, number, _):
        oldest = sorted(
            (each, key) for key, numbers in self.ready.items() for each in numbers)[:number]
        returned_first = any(each in self.returned for numbers in self.ready.values() for each in numbers)
        dropped = self.queue.purge_some(number)
        assert dropped == len(oldest)
        if not returned_first:
            for each, key in oldest:
                self.ready[key].remove(each)
        else:  # those returned go first where the cursor has not been, as in a plain queue
            for numbers in self.ready.values():
                numbers.clear()
            for key, each, _ in self.shown():
                self.ready[key].append(each)
            for numbers in self.ready.values():
                numbers.sort()

    def shown(self):
        browser, message = browse(self.queue), Message()
        while browser.next(message):
            key, number = map(int, message.get_body().split())
            yield key, number, None
        browser.close()

    def attach(self, number, _):
        if len(self.consumers) < 3:
            consumer = ModelConsumer(self, 1 + number % 5)
            self.consumers.append(consumer)
            self.queue.add_consumer(consumer)

    def detach(self, number, _):
        if self.consumers:
            self.queue.remove_consumer(self.consumers.pop(number % len(self.consumers)))

    def pause(self, _number, _count):
        self.queue.paused = True

    def resume(self, _number, _count):
        self.queue.paused = False
        self.queue.wake()


@pytest.mark.parametrize("seed", range(60))
def test_a_queue_with_groups_equals_a_list_for_each_group(tmp_path, seed):
    random = Random(seed)
    model = Model(Bench(tmp_path), LIMITS[seed % len(LIMITS)])

    for _ in range(STEPS):
        # a purge empties the queue: rarely
        verb = "purge" if random.random() < 0.01 else random.choice(VERBS)
        if verb == "publish":
            model.step(verb, random.randrange(KEYS), random.randint(1, 8))
        else:
            model.step(verb, random.randint(0, 50), 0)

    model.resume(0, 0)
    while model.consumers:
        model.detach(0, 0)
    for held in (model.picked, model.held, model.resting):
        while held:
            model.queue.drop(held.pop()[2])
    model.bench.settle()
    while any(model.ready.values()):
        before = sum(map(len, model.ready.values()))
        model.get_no_ack(0, 0)
        model.bench.settle()
        assert sum(map(len, model.ready.values())) == before - 1, "no message of any group is shown"
    groups = model.queue.groups
    waiting = groups.waiting
    assert (model.queue.ready_count, waiting.count, waiting.group_count, groups.groups_out) == (0, 0, 0, 0)
    assert len(groups.layout()) <= 1, "a segment without messages is left"
