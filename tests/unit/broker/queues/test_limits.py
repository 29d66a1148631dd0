"""Limits: what expires, what does not fit, what comes back too often, and queues that nobody uses."""
import pytest

from gomq_py.broker.features.retry import FAILED, RETURNED
from gomq_py.broker.policies.queue_settings import PLAIN, QueueSettings
from gomq_py.broker.queues import limits
from gomq_py.broker.queues.limits import QueueLimits
from gomq_py.broker.queues.queue import Queue
from gomq_py.content.properties import Properties
from gomq_py.storage.message import Message
from tests.support.no_switch import no_switch
from tests.support.queues import Bench, KeepingConsumer


class Letters:
    """Dead letters that are noted, and dropped from their queue when the test says so."""

    def __init__(self):
        self.sent = []
        self.refused = []
        self.locations = []

    def send(self, queue, location, reason):
        message = Message()
        assert queue.read(location, message)
        self.sent.append((message.get_body(), reason))
        self.locations.append((queue, location))

    def send_refused(self, queue, message, reason):
        self.refused.append((message.get_body(), reason))

    def arrive(self):
        while self.locations:
            queue, location = self.locations.pop(0)
            queue.drop(location)


class LimitedBench(Bench):
    """A bench whose queues get limits."""

    def __init__(self, folder):
        super().__init__(folder)
        self.letters = Letters()
        self.idle = []

    def limited(self, arguments=None, policy=None, **options):
        queue = self.queue(arguments=arguments, **options)
        queue.on_expiring = lambda queue: self.limit(queue, PLAIN)
        if arguments or policy:
            self.limit(queue, QueueSettings(arguments, policy))
        self.settle()
        return queue

    def limit(self, queue, settings):
        if queue.limits is None:
            queue.limits = QueueLimits(queue, self.letters, self.timers, self.idle.append)
        queue.limits.configure(settings)


@pytest.fixture
def bench(tmp_path):
    return LimitedBench(tmp_path)


def bodies(bench, queue):
    """All that basic.get gives, in one read of a door."""
    got, each = [], Message()
    bench.scheduler.begin(bench.now_ms)
    while queue.get(each, True):
        got.append(each.get_body())
    bench.scheduler.finish()
    return got


def numbered(count):
    return [b"%d" % number for number in range(count)]


# expiry

class Promising(Queue):
    """Has promised messages to a client: ``kept``, their bodies. ``asked``: of which ones it was asked."""

    kept, asked = (), ()

    def may_go(self, message):
        self.asked = [*self.asked, message.get_body()]
        return message.get_body() not in self.kept


@pytest.mark.parametrize("settings, letters", [
    ({}, []),
    ({"x-dead-letter-exchange": "dlx"}, [(b"2", "maxlen"), (b"3", "maxlen"), (b"4", "maxlen")]),
])
def test_limit_throws_away_the_newest_where_the_oldest_may_not_go(bench, settings, letters):
    """What comes behind the one that may not go, and is too much. Publishers are not told, as of others."""
    queue = bench.limited({"x-max-length": 1, **settings}, kind=Promising)
    queue.kept = b"0"

    bench.publish(queue, *numbered(5))

    assert queue.ready_count == 2 and bench.letters.refused == letters
    queue.kept = ()
    assert bodies(bench, queue) == [b"0", b"1"]


def test_only_what_is_too_old_is_asked_about(bench):
    """It may be dear to answer: once for each message that is delivered is too often."""
    queue = bench.limited({"x-message-ttl": 100}, kind=Promising)
    consumer = KeepingConsumer(no_ack=True)
    bench.publish(queue, *numbered(5))

    queue.add_consumer(consumer)
    bench.settle()

    assert (consumer.bodies, queue.asked) == (numbered(5), ())


def test_message_that_was_promised_stays_and_wakes_nobody(bench):
    queue = bench.limited({"x-message-ttl": 100}, kind=Promising)
    queue.kept = [b"1"]
    bench.publish(queue, *numbered(3))

    bench.advance(102)
    started = bench.timers.started
    bench.advance(50)

    assert bench.timers.started == started and queue.ready_count == 2
    assert bodies(bench, queue) == [b"1"]


def test_message_older_than_the_queues_ttl_is_gone(bench):
    queue = bench.limited({"x-message-ttl": 100})
    bench.publish(queue, b"a")
    bench.advance(50)
    bench.publish(queue, b"b")

    bench.advance(60)

    assert queue.ready_count == 1
    assert bodies(bench, queue) == [b"b"]


def test_expired_message_goes_by_itself_within_a_few_milliseconds(bench):
    queue = bench.limited({"x-message-ttl": 100})
    bench.publish(queue, b"a")

    bench.advance(100)
    assert queue.ready_count == 1
    bench.advance(5)
    assert (queue.ready_count, queue.unacked_count) == (0, 0)


def test_shorter_of_the_queues_and_the_messages_time_counts(bench):
    queue = bench.limited({"x-message-ttl": 100})
    bench.publish(queue, b"short", expires_at_ms=bench.now_ms + 20)

    bench.advance(30)

    assert queue.ready_count == 0


def test_ttl_that_a_policy_brings_counts_for_messages_that_are_there(bench):
    """As in LavinMQ: RabbitMQ looks at the TTL when a message comes,
    so that a policy does not empty a queue.
    """
    queue = bench.limited()
    bench.publish(queue, b"old")
    bench.advance(200)
    bench.publish(queue, b"new")

    bench.limit(queue, QueueSettings({}, {"message-ttl": 100}))
    bench.advance(50)

    assert bodies(bench, queue) == [b"new"]


def test_ttl_that_goes_with_its_policy_spares_messages_that_are_there(bench):
    """RabbitMQ notes on a message when it ends, and looks at that when the policy is gone."""
    queue = bench.limited()
    bench.limit(queue, QueueSettings({}, {"message-ttl": 100}))
    bench.publish(queue, b"old")

    bench.limit(queue, QueueSettings({}, {}))
    bench.advance(200)

    assert bodies(bench, queue) == [b"old"]


def test_message_with_its_own_time_expires_in_a_plain_queue(bench):
    queue = bench.limited()
    bench.publish(queue, b"a", expires_at_ms=bench.now_ms + 20)
    bench.publish(queue, b"b")
    assert queue.limits is not None

    bench.advance(30)

    assert bodies(bench, queue) == [b"b"]


def test_plain_queue_is_without_limits_again_when_the_last_such_message_has_gone(bench):
    queue = bench.limited()
    bench.publish(queue, b"a", expires_at_ms=bench.now_ms + 20)

    bench.advance(30)

    assert queue.limits is None
    assert bench.timers.pending == []


def test_count_leaves_out_what_may_not_wait_in_the_very_millisecond_in_which_it_came(bench):
    queue = bench.limited()
    bench.publish(queue, b"stays")
    bench.publish(queue, b"goes", expires_at_ms=bench.now_ms)
    assert queue.ready_count == 2
    bench.scheduler.begin(bench.now_ms)

    assert queue.get(Message(), True)

    assert queue.count_ready() == 0
    bench.scheduler.finish()


def test_message_behind_a_longer_lived_one_waits_for_its_turn(bench):
    """RabbitMQ's rule: only the head is looked at."""
    queue = bench.limited({"x-dead-letter-exchange": "x"})
    bench.publish(queue, b"long", expires_at_ms=bench.now_ms + 1000)
    bench.publish(queue, b"short", expires_at_ms=bench.now_ms + 10)

    bench.advance(50)
    assert queue.ready_count == 2

    assert bodies(bench, queue) == [b"long"]
    assert bench.letters.sent == [(b"short", "expired")]


def test_ttl_of_zero_lets_a_message_through_to_a_waiting_consumer_only(bench):
    queue = bench.limited({"x-message-ttl": 0})
    bench.publish(queue, b"nobody waits")
    bench.advance(2)
    assert queue.ready_count == 0

    consumer = KeepingConsumer()
    queue.add_consumer(consumer)
    bench.publish(queue, b"taken")

    assert consumer.bodies == [b"taken"]


def test_consumer_gets_no_expired_message(bench):
    queue = bench.limited({"x-message-ttl": 100})
    bench.publish(queue, b"old")
    bench.now_ms += 200  # the timer has not had its turn yet
    consumer = KeepingConsumer(no_ack=True)

    queue.add_consumer(consumer)
    bench.publish(queue, b"new")

    assert consumer.bodies == [b"new"]


def test_requeued_message_that_is_too_old_expires(bench):
    queue = bench.limited({"x-message-ttl": 100, "x-dead-letter-exchange": "x"})
    bench.publish(queue, b"a")
    message = Message()
    queue.get(message, False)
    location = message.describe()["location"]
    bench.advance(200)
    assert queue.unacked_count == 1

    queue.requeue(location)
    bench.settle()

    assert bench.letters.sent == [(b"a", "expired")]


def test_unacked_message_does_not_expire(bench):
    queue = bench.limited({"x-message-ttl": 10})
    bench.publish(queue, b"a")
    queue.get(Message(), False)

    bench.advance(50)

    assert queue.unacked_count == 1


def test_many_expired_messages_go_in_slices(bench, monkeypatch):
    queue = bench.limited({"x-message-ttl": 10})
    count = 3 * limits.SLICE + 1
    bench.publish(queue, *numbered(count))
    bench.now_ms += 100

    bench.publish(queue, b"new")
    assert queue.ready_count > limits.SLICE  # one slice has gone, others have their turn first
    assert not queue.get(Message(), False)
    bench.settle()

    assert bodies(bench, queue) == [b"new"]


def test_one_timer_serves_many_messages(bench):
    queue = bench.limited({"x-message-ttl": 100})

    for _ in range(50):
        bench.publish(queue, b"a")
        bench.advance(1)

    assert bench.timers.started == 1


def test_idle_queue_with_limits_has_no_timer(bench):
    queue = bench.limited({"x-message-ttl": 100, "x-max-length": 5})
    bench.publish(queue, b"a")
    bodies(bench, queue)
    bench.advance(300)

    assert bench.timers.pending == []


# length

def test_oldest_go_where_there_is_too_much(bench):
    queue = bench.limited({"x-max-length": 3, "x-dead-letter-exchange": "x"})

    assert bench.publish(queue, *numbered(5)) == [1] * 5

    assert bench.letters.sent == [(b"0", "maxlen"), (b"1", "maxlen")]
    assert bodies(bench, queue) == [b"2", b"3", b"4"]


def test_oldest_go_where_there_are_too_many_octets(bench):
    queue = bench.limited({"x-max-length-bytes": 10})

    bench.publish(queue, b"aaaa", b"bbbb", b"cc", b"d")
    assert bodies(bench, queue) == [b"bbbb", b"cc", b"d"]

    bench.publish(queue, b"longer than ten")
    assert bodies(bench, queue) == []


def test_unacked_messages_do_not_count(bench):
    queue = bench.limited({"x-max-length": 1})
    bench.publish(queue, b"a")
    queue.get(Message(), False)

    bench.publish(queue, b"b")

    assert (queue.ready_count, queue.unacked_count) == (1, 1)


def test_length_of_zero_hands_over_to_a_waiting_consumer_only(bench):
    queue = bench.limited({"x-max-length": 0})
    bench.publish(queue, b"nobody waits")
    assert queue.ready_count == 0

    consumer = KeepingConsumer(credit=2)
    queue.add_consumer(consumer)
    bench.publish(queue, b"a", b"b", b"c")

    assert consumer.bodies == [b"a", b"b"]
    assert queue.ready_count == 0


def test_queue_that_refuses_keeps_what_it_has(bench):
    queue = bench.limited({"x-max-length": 2, "x-overflow": "reject-publish", "x-dead-letter-exchange": "x"})

    assert bench.publish(queue, b"a", b"b", b"c") == [1, 1, 0]

    assert bodies(bench, queue) == [b"a", b"b"]
    assert bench.letters.sent == bench.letters.refused == []


def test_maximum_that_comes_with_refusals_drops_nothing(bench):
    """RabbitMQ applies the maximum before the overflow, and so drops the oldest though
    it was told to drop none.
    """
    queue = bench.limited()
    bench.publish(queue, b"a", b"b", b"c")

    bench.limit(queue, QueueSettings({}, {"max-length": 2, "overflow": "reject-publish"}))

    assert bench.publish(queue, b"d") == [0]
    assert bodies(bench, queue) == [b"a", b"b", b"c"]


def test_refused_messages_can_be_dead_letters_too(bench):
    queue = bench.limited(
        {"x-max-length-bytes": 3, "x-overflow": "reject-publish-dlx", "x-dead-letter-exchange": "x"}
    )

    assert bench.publish(queue, b"aa", b"bb", b"c") == [1, 0, 1]

    assert bench.letters.refused == [(b"bb", "maxlen")]


def test_limit_that_comes_later_cuts_what_is_there(bench):
    queue = bench.limited()
    count = 2 * limits.SLICE + 10
    bench.publish(queue, *numbered(count))

    bench.limit(queue, QueueSettings({}, {"max-length": 4}))
    bench.settle()

    assert bodies(bench, queue) == numbered(count)[-4:]


# coming back

def test_message_that_came_back_too_often_is_a_dead_letter(bench):
    queue = bench.limited({"x-delivery-limit": 2, "x-dead-letter-exchange": "x"})
    bench.publish(queue, b"a")
    message = Message()

    for _ in range(3):
        assert queue.get(message, False)
        queue.requeue(message.describe()["location"])

    assert not queue.get(message, False)
    assert bench.letters.sent == [(b"a", "delivery_limit")]
    bench.letters.arrive()
    assert (queue.ready_count, queue.unacked_count) == (0, 0)


def test_redelivery_says_how_often_the_message_came_back_where_that_is_limited(bench):
    """Not on the first delivery; the other headers stay, also where there were none, and a value of the
    publisher's own is replaced.
    """
    for headers in (None, {"a": 1}, {"x-delivery-count": 77, "a": 1}):
        queue = bench.limited({"x-delivery-limit": 5}, name=f"q {headers}")
        bench.publish(queue, b"body", properties=Properties(headers=headers, message_id="m").encode())
        message = Message()

        assert queue.get(message, False) and Properties.decode(message.get_properties()).headers == headers
        for count in (1, 2):
            queue.requeue(message.describe()["location"])
            assert queue.get(message, False)
            properties = Properties.decode(message.get_properties())
            assert (
                properties.headers == {**(headers or {}), "x-delivery-count": count}
                and properties.message_id == "m"
            )
            assert message.get_body() == b"body" and message.describe()["redelivered"]


def test_quorum_queue_counts_failures_alone_and_tells_all_deliveries(bench):
    queue = bench.limited({"x-queue-type": "quorum", "x-dead-letter-exchange": "x"})
    bench.publish(queue, b"a")
    message = Message()
    failures = 0
    for acquired in range(70):
        assert queue.get(message, False)
        assert Properties.decode(message.get_properties()).headers == ({
            **({"x-acquired-count": acquired} if acquired else {}),
            **({"x-delivery-count": failures} if failures else {}),
        } or None)
        is_failure = acquired % 5 == 0
        failures += is_failure
        location = message.describe()["location"]
        queue.requeue(location) if acquired % 10 == 0 else queue.give_back(
            location, FAILED if is_failure else RETURNED)

    assert failures == 14 and bench.letters.sent == []
    for _ in range(7):
        assert queue.get(message, False)
        queue.give_back(message.describe()["location"], FAILED)
    assert bench.letters.sent == [(b"a", "delivery_limit")]


def test_quorum_queue_without_a_limit_counts_all_the_same(bench):
    queue = bench.limited({"x-queue-type": "quorum", "x-delivery-limit": -1})
    bench.publish(queue, b"a")
    message = Message()
    for _ in range(30):
        assert queue.get(message, False)
        queue.give_back(message.describe()["location"], FAILED)

    assert queue.get(message, False)
    assert Properties.decode(message.get_properties()).headers == {
        "x-acquired-count": 30, "x-delivery-count": 30}


def test_queue_without_a_limit_does_not_say_how_often(bench):
    queue = bench.limited()
    bench.publish(queue, b"body")
    message = Message()
    queue.get(message, False)

    queue.requeue(message.describe()["location"])

    assert queue.get(message, False) and message.get_properties() == b"\0\0"


def test_rejected_message_is_a_dead_letter(bench):
    queue = bench.limited({"x-dead-letter-exchange": "x"})
    bench.publish(queue, b"a", b"b")
    message = Message()
    queue.get(message, False)

    queue.reject(message.describe()["location"], False)

    assert bench.letters.sent == [(b"a", "rejected")]
    assert queue.unacked_count == 1  # until its copies are on disk
    bench.letters.arrive()
    assert (queue.ready_count, queue.unacked_count) == (1, 0)


def test_rejected_message_is_gone_where_there_is_no_exchange_for_it(bench):
    queue = bench.limited({"x-max-length": 5})
    bench.publish(queue, b"a")
    message = Message()
    queue.get(message, False)

    queue.reject(message.describe()["location"], False)

    assert (queue.ready_count, queue.unacked_count) == (0, 0)


# idleness

def test_queue_that_nobody_uses_is_idle_after_its_time(bench):
    queue = bench.limited({"x-expires": 100})

    bench.advance(99)
    assert bench.idle == []
    bench.advance(2)

    assert bench.idle == [queue]


@pytest.mark.parametrize("set_ms", [-3_600_000, 3_600_000])
def test_clock_that_is_set_makes_no_queue_idle_sooner_or_later(bench, set_ms):
    queue = bench.limited({"x-expires": 100})
    bench.advance(50)
    queue.limits.used()

    bench.timers.set_ms = set_ms
    bench.advance(99)
    assert bench.idle == []
    bench.advance(2)

    assert bench.idle == [queue]


@pytest.mark.parametrize("use", [
    lambda queue: queue.get(Message(), False), lambda queue: queue.limits.used()
])
def test_use_makes_the_time_begin_anew(bench, use):
    queue = bench.limited({"x-expires": 100})
    bench.advance(80)

    use(queue)
    bench.advance(80)
    assert bench.idle == []
    bench.advance(30)

    assert bench.idle == [queue]


def test_queue_with_a_consumer_is_never_idle(bench):
    queue = bench.limited({"x-expires": 100})
    consumer = KeepingConsumer()
    queue.add_consumer(consumer)
    bench.advance(500)
    assert bench.idle == []

    queue.remove_consumer(consumer)
    bench.advance(90)
    assert bench.idle == []
    bench.advance(20)

    assert bench.idle == [queue]


@pytest.mark.parametrize("before, after", [(100_000, 100), (50, 100)])
def test_time_that_a_policy_changes_begins_anew(bench, before, after):
    queue = bench.limited({"x-expires": before})
    bench.advance(40)

    queue.limits.configure(QueueSettings({"x-expires": after}))
    bench.advance(90)
    assert bench.idle == []
    bench.advance(20)

    assert bench.idle == [queue]


def test_queue_that_no_policy_lets_expire_any_more_stays(bench):
    queue = bench.limited({"x-expires": 100})

    queue.limits.configure(PLAIN)
    bench.advance(500)

    assert bench.idle == [] and bench.timers.pending == []


def test_publishing_is_no_use(bench):
    queue = bench.limited({"x-expires": 100})

    for _ in range(11):
        bench.publish(queue, b"a")
        bench.advance(10)

    assert bench.idle == [queue]


def test_closed_queue_leaves_no_timer(bench):
    queue = bench.limited({"x-expires": 100, "x-message-ttl": 50})
    bench.publish(queue, b"a")

    queue.close()

    assert bench.timers.pending == []


def test_nothing_of_this_switches(bench):
    queue = bench.limited(
        {"x-message-ttl": 10, "x-max-length": 3, "x-delivery-limit": 1, "x-dead-letter-exchange": "x"}
    )

    with no_switch():
        bench.publish(queue, *numbered(10))
        bench.advance(20)
        bench.letters.arrive()

    assert queue.ready_count == 0
