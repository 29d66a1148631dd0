"""Retry back-off: what comes back waits, longer each time, in order of its time, and over a restart."""
import random
import tracemalloc

import pytest

from gomq_py.broker.features.retry import FAILED, LOST, RETURNED, retry_of
from gomq_py.broker.policies.policy import POLICY
from gomq_py.broker.policies.queue_settings import QueueSettings
from gomq_py.content.fields import decode_table
from gomq_py.content.properties import PropertyEdit
from gomq_py.hub.scheduler import unix_ms
from gomq_py.hub.timers import HubTimers
from gomq_py.storage.message import Message
from tests.support.node import Node
from tests.support.reading import get
from tests.support.stores import StoreBench
from tests.unit.broker.queues.test_limits import LimitedBench

ALL = {"x-delayed-retry-type": "all", "x-delayed-retry-min": 100, "x-delayed-retry-max": 250}


@pytest.fixture
def bench(tmp_path):
    return LimitedBench(tmp_path)


def take(bench, queue):
    """(body, location, headers) of the next message, or None."""
    message = Message()
    bench.scheduler.begin(bench.now_ms)
    found = queue.get(message, False)
    bench.scheduler.finish()
    if not found:
        return None
    headers = decode_table(PropertyEdit(message.get_properties()).headers)[0]
    return message.get_body(), message.describe()["location"], headers


def waited(bench, queue, at_most=400):
    """How many milliseconds pass until a message is ready."""
    for ms in range(at_most):
        if queue.ready_count:
            return ms
        bench.advance(1)
    return None


@pytest.mark.parametrize(("arguments", "policy", "expected"), [
    ({}, {}, None), ({"x-delayed-retry-min": 5}, {}, None),
    ({"x-delayed-retry-type": "disabled", "x-delayed-retry-min": 5}, {}, None),
    ({"x-delayed-retry-type": "all"}, {}, None),
    ({"x-delayed-retry-type": "all", "x-delayed-retry-min": 0}, {}, None),
    ({"x-delayed-retry-type": "all", "x-delayed-retry-min": 5}, {}, (7, 5, 5)),
    (
        {"x-delayed-retry-type": "failed", "x-delayed-retry-min": 5, "x-delayed-retry-max": 9}, {},
        (LOST | FAILED, 5, 9),
    ),
    (
        {}, {"delayed-retry-type": "returned", "delayed-retry-min": 5, "delayed-retry-max": 9},
        (RETURNED, 5, 9),
    ),
    ({"x-delayed-retry-type": "disabled"}, {"delayed-retry-type": "returned", "delayed-retry-min": 5}, None),
    ({"x-delayed-retry-min": 3}, {"delayed-retry-type": "all", "delayed-retry-min": 5}, (7, 3, 3)),
])
def test_arguments_and_policy_say_what_waits(arguments, policy, expected):
    assert retry_of(arguments, policy) == expected
    assert QueueSettings(arguments, policy).retry == expected


def test_each_return_waits_longer_up_to_the_maximum(bench):
    queue = bench.limited(ALL)
    bench.publish(queue, b"a")
    waits = []
    for _ in range(4):
        _, location, _ = take(bench, queue)
        queue.give_back(location, RETURNED)
        bench.settle()
        assert (queue.ready_count, queue.unacked_count, queue.limits.retries.count) == (0, 1, 1)
        waits.append(waited(bench, queue))

    assert waits == pytest.approx([100, 200, 250, 250], abs=2)
    assert take(bench, queue)[2] == {"x-delivery-count": 4}


def test_each_return_waits_as_long_as_the_first_without_a_maximum(bench):
    """As RabbitMQ 4.3.6: 462 411 415 ms with a minimum of 400."""
    queue = bench.limited({"x-delayed-retry-type": "all", "x-delayed-retry-min": 100})
    bench.publish(queue, b"a")
    waits = []
    for _ in range(3):
        queue.give_back(take(bench, queue)[1], FAILED)
        waits.append(waited(bench, queue))

    assert waits == pytest.approx([100, 100, 100], abs=2)


def test_quorum_queues_back_off_does_not_grow_with_what_is_no_failure(bench):
    queue = bench.limited({**ALL, "x-queue-type": "quorum"})
    bench.publish(queue, b"a")
    waits = []
    for how in (RETURNED, RETURNED, FAILED, RETURNED, FAILED, RETURNED):
        _, location, _ = take(bench, queue)
        queue.give_back(location, how)
        waits.append(waited(bench, queue))

    assert waits == pytest.approx([100, 100, 100, 100, 200, 200], abs=2)
    assert take(bench, queue)[2] == {"x-acquired-count": 6, "x-delivery-count": 2}


@pytest.mark.parametrize(("kind", "waiting"), [
    ("failed", {LOST, FAILED}), ("returned", {RETURNED}), ("all", {LOST, RETURNED, FAILED}),
    ("disabled", set()),
])
def test_type_says_which_returns_wait(bench, kind, waiting):
    queue = bench.limited({**ALL, "x-delayed-retry-type": kind, "x-delivery-limit": 50})
    bench.publish(queue, b"a")
    for how in (LOST, RETURNED, FAILED):
        location = take(bench, queue)[1]
        if how == LOST:
            queue.requeue(location)
        else:
            queue.give_back(location, how)
        bench.settle()
        assert (queue.ready_count == 0) is (how in waiting)
        waited(bench, queue)


def test_what_waits_becomes_ready_in_the_order_of_its_time(bench):
    queue = bench.limited({**ALL, "x-delayed-retry-max": 100_000})
    order = list(range(1, 9))
    random.Random(1).shuffle(order)
    bench.publish(queue, *(b"%d" % number for number in order))
    for number in order:  # the message n comes back n times, and so waits n times as long
        queue.limits.retries.wait(take(bench, queue)[1], number, number)
    bench.advance(900)

    assert queue.ready_count == 8
    # Ready again means in its old place: the order of arrival.
    assert [take(bench, queue)[0] for _ in order] == [b"%d" % number for number in order]


def test_other_messages_do_not_wait(bench):
    queue = bench.limited(ALL)
    bench.publish(queue, b"bad", b"good")
    queue.give_back(take(bench, queue)[1], FAILED)

    assert take(bench, queue)[0] == b"good"


def test_delivery_limit_counts_all_the_same(bench):
    queue = bench.limited({**ALL, "x-delivery-limit": 1, "x-dead-letter-exchange": "dead"})
    bench.publish(queue, b"a")
    queue.give_back(take(bench, queue)[1], FAILED)
    assert bench.letters.sent == []
    waited(bench, queue)
    queue.give_back(take(bench, queue)[1], FAILED)

    assert bench.letters.sent == [(b"a", "delivery_limit")]


def test_message_that_expires_while_it_waits_goes_when_it_is_ready(bench):
    queue = bench.limited({**ALL, "x-message-ttl": 50, "x-dead-letter-exchange": "dead"})
    bench.publish(queue, b"a")
    queue.give_back(take(bench, queue)[1], FAILED)
    bench.advance(99)
    assert bench.letters.sent == []
    bench.advance(5)

    assert bench.letters.sent == [(b"a", "expired")]


def test_setting_that_goes_away_lets_go_of_what_waits(bench):
    queue = bench.limited(None, {"delayed-retry-type": "all", "delayed-retry-min": 100})
    bench.publish(queue, b"a", b"b")
    for _ in range(2):
        queue.give_back(take(bench, queue)[1], FAILED)

    bench.limit(queue, QueueSettings({}, {}))
    bench.settle()

    assert queue.ready_count == 2


def test_nothing_fires_in_a_queue_that_is_gone(bench):
    queue = bench.limited(ALL)
    bench.publish(queue, b"a")
    queue.give_back(take(bench, queue)[1], FAILED)

    queue.delete()

    assert bench.timers.pending == []


def test_waiting_message_costs_at_most_24_octets(bench):
    queue = bench.limited(ALL)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(100_000):
        queue.limits.retries.wait_on(number + 1, 100)

    octets = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert queue.limits.retries.count == 100_000
    assert octets <= 24 * 100_000
    queue.limits.retries.stop()


# over a restart

LONG = {"x-delayed-retry-type": "all", "x-delayed-retry-min": 600_000, "x-delayed-retry-max": 60_000_000}


@pytest.mark.parametrize("arguments", [LONG, {**LONG, "x-max-priority": 3}])
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_back_off_holds_over_a_restart(tmp_path, end, arguments, monkeypatch):
    """Ten minutes, of which 100 ms are left to the second life."""
    node = Node(tmp_path / "data")
    node.vhost.declare_queue("q", durable=True, arguments=arguments)
    for body in (b"bad", b"new"):
        node.publish("", "q", body, persistent=True)
    message = Message()
    queue = node.vhost.queue("q")
    queue.get(message, False)
    given_back_ms = unix_ms()
    queue.give_back(message.describe()["location"], FAILED)
    queue.write_out()
    getattr(node, end)()

    monkeypatch.setattr(HubTimers, "now_ms", staticmethod(lambda: given_back_ms + 600_000 - 100))
    again = Node(tmp_path / "data")
    try:
        queue = again.vhost.queue("q")
        assert queue.ready_count + queue.unacked_count == 2
        assert get(queue, message, True) and message.get_body() == b"new"
        assert not get(queue, message, True)
        monkeypatch.setattr(HubTimers, "now_ms", staticmethod(lambda: unix_ms() + 600_000))
        again.wait(lambda: queue.ready_count)
        assert queue.get(message, False) and message.get_body() == b"bad"
        assert message.describe()["delivery_count"] == 1
        queue.give_back(message.describe()["location"], FAILED)
        assert queue.limits.retries.count == 1
    finally:
        again.stop()


@pytest.mark.parametrize("later_s,redelivered,expected", [
    (299, False, b"new"), (602, False, b"bad"), (602, True, b"new")
])
@pytest.mark.parametrize("priority", [{}, {"x-max-priority": 3}])
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_after_a_restart_the_rest_of_the_time_is_waited(
    tmp_path, monkeypatch, end, priority, later_s, redelivered, expected
):
    """A back-off of 600 s: over 602 s later, whenever the broker was started.

    A delivery that was lost with the broker begins a new one.
    """
    node = Node(tmp_path / "data")
    arguments = {"x-delayed-retry-type": "all", "x-delayed-retry-min": 600_000, **priority}
    queue, _ = node.vhost.declare_queue("q", durable=True, arguments=arguments)
    for body in (b"bad", b"new"):
        node.publish("", "q", body, persistent=True)
    message = Message()
    queue.get(message, False)
    queue.give_back(message.describe()["location"], FAILED)
    if redelivered:
        queue.limits.retries.release()
        node.wait(lambda: queue.ready_count == 2)
        queue.get(message, False)
    queue.write_out()
    getattr(node, end)()

    monkeypatch.setattr(HubTimers, "now_ms", staticmethod(lambda: unix_ms() + 1000 * later_s))
    again = Node(tmp_path / "data")
    try:
        queue = again.vhost.queue("q")
        assert get(queue, message, True) and message.get_body() == expected
        assert queue.limits.retries.count == (expected == b"new")
    finally:
        again.stop()


@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("kind, how", [("failed", RETURNED), ("returned", FAILED)])
def test_after_a_restart_waits_what_came_back_in_a_way_that_waits(tmp_path, end, kind, how):
    """Neither a message whose delivery was lost with the broker, nor one that was ready again at once."""
    node = Node(tmp_path / "data")
    arguments = {"x-delayed-retry-type": kind, "x-delayed-retry-min": 600_000}
    queue, _ = node.vhost.declare_queue("q", durable=True, arguments=arguments)
    for body in (b"ready again", b"lost", b"waits"):
        node.publish("", "q", body, persistent=True)
    locations = []
    for _ in range(3):
        message = Message()
        queue.get(message, False)
        locations.append(message.describe()["location"])
    queue.give_back(locations[0], how)
    queue.give_back(locations[2], FAILED if how == RETURNED else RETURNED)
    queue.write_out()
    getattr(node, end)()

    again = Node(tmp_path / "data")
    try:
        queue = again.vhost.queue("q")
        assert [again.take("q")[0] for _ in range(2)] == [b"ready again", b"lost"]
        assert again.take("q") is None and queue.unacked_count == 1
    finally:
        again.stop()


def test_each_return_over_restarts_is_noted_in_the_same_place(tmp_path):
    """The acks file does not grow with a message that comes back again and again."""
    bench = StoreBench(tmp_path, segment_bytes=65536)
    location = bench.push(b"x")
    bench.peek()
    bench.store.shift()
    for count in range(1, 6000):
        bench.store.wait_until(location, count, 1_700_000_000 + count)
        bench.store.requeue(location)
        bench.shift()
    bench.store.wait_until(location, 6000, 1_700_006_000)
    bench.store.write_out()
    size = max(path.stat().st_size for path in (tmp_path / "queue").glob("acks.*"))

    bench.crash()

    assert size <= 65536
    assert bench.peek().delivery_count == 6000
    assert bench.store.peeked_due_s(1_700_000_000) == 1_700_006_000
    bench.close()


def test_policy_sets_it_on_a_queue_that_is_there(tmp_path):
    node = Node(tmp_path / "data")
    queue, _ = node.vhost.declare_queue("q", durable=True)
    definition = {"delayed-retry-type": "returned", "delayed-retry-min": 60_000}
    node.broker.parameters.set(node.vhost, POLICY, "p", {"pattern": "q", "definition": definition})
    node.publish("", "q", b"x")
    message = Message()
    queue.get(message, False)
    queue.give_back(message.describe()["location"], RETURNED)

    assert queue.limits.retries.count == 1
    node.stop()
