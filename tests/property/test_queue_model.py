"""A queue equals a sorted list: any mix of publishing, delivering, settling, requeueing and purging shows
what a list by age shows.

The queue is the plain one on a real store, with up to two consumers of limited credit. The model is a list of
numbers, in order of publishing, and for each holder what it has not settled; a delivery takes the smallest
number there is.
"""
from hypothesis import given, strategies as st

from gomq_py.storage.message import Message
from tests.support.queues import Bench, KeepingConsumer

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 30)),
        st.tuples(
            st.sampled_from([
                "get", "get no ack", "settle", "requeue", "reject", "purge", "attach", "detach", "pause",
                "resume",
            ]),
            st.integers(0, 50)),
    ),
    max_size=50,
)


class Model:
    """The queue as a list.

    ``held`` are (number, location) taken by basic.get, ``consumers`` the attached ones.
    """

    def __init__(self, bench):
        self.bench = bench
        self.queue = bench.queue()
        self.ready = []
        self.held = []
        self.consumers = []
        self.published = 0
        self.redelivered = set()

    def step(self, verb, number):
        getattr(self, verb.replace(" ", "_"))(number)
        self.bench.settle()
        self.note_deliveries()
        unacked = len(self.held) + sum(len(consumer.unacked) for consumer in self.consumers)
        assert (self.queue.ready_count, self.queue.unacked_count) == (len(self.ready), unacked)

    def note_deliveries(self):
        """What consumers were given is the oldest there was, in order, marked where it came back before."""
        given = []
        for consumer in self.consumers:
            for body, location, again in zip(
                consumer.bodies, consumer.unacked[len(consumer.unacked) - len(consumer.bodies):],
                consumer.redelivered, strict=True,
            ):
                given.append((int(body), location))
                assert again == (int(body) in self.redelivered)
            consumer.bodies.clear()
            consumer.redelivered.clear()
        given.sort()
        assert [entry[0] for entry in given] == self.ready[:len(given)]
        del self.ready[:len(given)]
        self.held += given
        for consumer in self.consumers:
            consumer.unacked.clear()
            self.queue.offer(consumer)
        if given:
            self.bench.settle()
            self.note_deliveries()

    def publish(self, count):
        numbers = range(self.published, self.published + count)
        self.published += count
        self.ready += numbers
        self.bench.publish(self.queue, *[b"%d" % each for each in numbers])

    def get(self, _, no_ack=False):
        message = Message()
        found = self.queue.get(message, no_ack)
        assert found == (bool(self.ready) and not self.queue.paused)
        if found:
            assert int(message.get_body()) == self.ready[0]
            assert message.describe()["redelivered"] == (self.ready[0] in self.redelivered)
            if not no_ack:
                self.held.append((self.ready[0], message.describe()["location"]))
            del self.ready[0]

    def get_no_ack(self, number):
        self.get(number, True)

    def take_held(self, number):
        return self.held.pop(number % len(self.held)) if self.held else (None, None)

    def settle(self, number):
        taken, location = self.take_held(number)
        if taken is not None:
            self.queue.ack(location)

    def reject(self, number):
        taken, location = self.take_held(number)
        if taken is not None:
            self.queue.reject(location, False)

    def requeue(self, number):
        taken, location = self.take_held(number)
        if taken is not None:
            self.redelivered.add(taken)
            self.ready = sorted([*self.ready, taken])
            self.queue.requeue(location)

    def purge(self, _):
        assert self.queue.purge() == len(self.ready)
        self.ready.clear()

    def attach(self, number):
        if len(self.consumers) < 2:
            consumer = KeepingConsumer(f"c{number}", credit=1 + number % 5)
            self.consumers.append(consumer)
            self.queue.add_consumer(consumer)

    def detach(self, number):
        if self.consumers:
            self.queue.remove_consumer(self.consumers.pop(number % len(self.consumers)))

    def pause(self, _):
        self.queue.paused = True

    def resume(self, _):
        self.queue.paused = False
        self.queue.wake()


@given(STEPS)
def test_a_queue_equals_a_sorted_list(tmp_path_factory, steps):
    model = Model(Bench(tmp_path_factory.mktemp("queue")))

    for verb, number in steps:
        model.step(verb, number)

    model.resume(0)
    while model.consumers:
        model.detach(0)
    model.bench.settle()
    while model.ready:
        model.get_no_ack(0)
    assert model.queue.ready_count == 0
