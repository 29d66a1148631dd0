"""The judge of queues that expire and are deleted on a condition: what breaks a promise by hand is found."""
from types import SimpleNamespace

import pytest

from gomq_py.amqp.wire import methods
from tests.simulation.amqp_ends import EndingLedger, Sleeper
from tests.simulation.book import Book
from tests.simulation.world import World


class Bench:
    """A channel, whose questions are answered by hand."""

    def __init__(self, is_durable=True):
        self.world = World(1)
        self.ledger = EndingLedger(self.world, "e", Book(self.world), is_durable)
        self.client = SimpleNamespace(
            world=self.world, name="client", book=self.ledger.book, random=self.world.random("client"),
            is_calm=False, is_closing=False, expects=set(), say=lambda what: None, heard=lambda: None,
            waits=lambda: None, tell=lambda number, method: None, stalled_s=lambda: 0.0)
        self.channel = Sleeper(self.client, 1, self.ledger)
        self.channel._is_open = True
        self.channel._has_consumer = False
        self.channel._hand = self.ledger.consumer_connects(SimpleNamespace(
            is_sound=lambda: True, peer=SimpleNamespace(is_closed=False)))

    def wait(self, seconds):
        self.world.run(self.world.now_s + seconds, lambda: False)

    def declare(self, count):
        self.channel._declare_queue(self.ledger)
        self.channel.take(methods.QueueDeclareOk(message_count=count))

    def findings(self):
        return [finding.split(": ", 1)[1].removeprefix("e: ") for finding in self.world.findings]


@pytest.fixture
def bench():
    return Bench()


@pytest.mark.parametrize("rest_s, count, finding", [
    (0.2, 1, []), (0.2, 0, ["0 messages are ready in place of 1, and it was in use"]),
    (0.4, 0, []), (0.4, 1, []),
    (0.6, 0, []), (0.6, 1, ["1 messages are ready, and it has expired"])])
def test_queue_that_goes_in_use_and_one_that_stays_unused_are_found(bench, rest_s, count, finding):
    bench.declare(1)
    bench.wait(rest_s)

    bench.declare(count)

    assert bench.findings() == finding


@pytest.mark.parametrize("happens", [
    lambda bench: bench.ledger.disk_is_ill(True), lambda bench: bench.ledger.disk_is_full(True),
    lambda bench: setattr(bench.ledger.book, "ends", 1),
    lambda bench: setattr(bench.client, "stalled_s", lambda: 0.5)])
def test_queue_may_stay_where_the_disk_fails_the_broker_ends_or_has_no_processor(bench, happens):
    bench.declare(1)
    bench.wait(0.6)
    happens(bench)

    bench.declare(1)

    assert bench.findings() == []


def test_use_by_basic_get_begins_the_time_anew(bench):
    bench.declare(1)
    for _ in range(2):
        bench.wait(0.2)
        bench.channel._get()
        bench.channel.take(methods.BasicGetEmpty())

    assert bench.findings() == ["0 messages are ready in place of 1, and it was in use"]


@pytest.mark.parametrize("if_empty, ready, has_consumer, is_found", [
    (True, 1, False, True), (True, 0, False, False), (False, 0, True, True), (False, 1, False, False)])
def test_deletion_though_it_is_not_empty_or_unused_is_found(bench, if_empty, ready, has_consumer, is_found):
    bench.declare(ready)
    bench.channel._has_consumer = has_consumer
    bench.channel._delete(if_empty)

    bench.channel.take(methods.QueueDeleteOk(message_count=ready))

    finding = f"was deleted, and {ready} messages were ready, or a consumer there"
    assert bench.findings() == [finding] * is_found
    assert bool(bench.client.expects) is is_found  # what else a refusal says is for its client to find


def test_consumer_that_is_cancelled_is_found(bench):
    bench.channel._close_connection = lambda: None

    bench.channel.take(methods.BasicCancel(consumer_tag="tag"))

    assert bench.findings() == ["tag was cancelled, and its queue is in use"]


@pytest.mark.parametrize("is_durable", [True, False])
def test_message_of_a_broker_before_that_comes_from_a_queue_that_is_not_durable_is_found(is_durable):
    bench = Bench(is_durable)
    message = bench.ledger.book.publish(None, [bench.ledger])
    bench.ledger.book.ends += 1
    bench.ledger.process_ended()
    bench.channel._hand = bench.ledger.consumer_connects()

    bench.channel._take_message(methods.BasicGetOk(delivery_tag=1), b"\0\0", message.body)

    assert bench.findings() == ["0 came, and its queue was gone"] * (not is_durable)
