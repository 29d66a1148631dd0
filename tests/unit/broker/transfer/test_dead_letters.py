"""Dead letters: where they go, what their headers say, and where they do not go again."""
import tracemalloc
from datetime import datetime, timezone
from functools import partial, reduce
from pathlib import Path

import pytest

from gomq_py.broker.policies.queue_settings import QueueSettings
from gomq_py.broker.routing.route import Destination
from gomq_py.broker.topology.bindings import Binding
from gomq_py.broker.transfer import engine
from gomq_py.broker.transfer.dead_letters import Death
from gomq_py.content.fields import Int64
from gomq_py.content.properties import Properties
from gomq_py.errors import PreconditionFailed
from gomq_py.hub.scheduler import SliceClock
from gomq_py.storage.message import Message
from tests.support.clocks import StepClock
from tests.support.node import Node

NOW_MS = 1_700_000_000_123
NOW = datetime.fromtimestamp(1_700_000_000, timezone.utc)


def message(exchange=b"x", routing_key=b"k", **properties):
    made = Message()
    made.assign(exchange, routing_key, Properties(**properties).encode(), b"body", NOW_MS)
    return made


def letter(dead=None, queue="q", reason="rejected", routing_key=None):
    return Death(dead or message(), queue, reason, routing_key, NOW_MS)


def again(previous, queue, reason="expired", routing_key=None):
    """The letter of a message that was a letter before."""
    dead = Message()
    dead.assign(b"dlx", previous.keys[0].encode(), previous.properties, b"body", NOW_MS)
    return letter(dead, queue, reason, routing_key)


def headers(of):
    return Properties.decode(of.properties).headers


# the headers

def test_first_death_is_told_three_times():
    assert headers(letter()) == {
        "x-first-death-reason": "rejected", "x-first-death-queue": "q", "x-first-death-exchange": "x",
        "x-last-death-reason": "rejected", "x-last-death-queue": "q", "x-last-death-exchange": "x",
        "x-death": [
            {
                "count": 1, "reason": "rejected", "queue": "q", "time": NOW, "exchange": "x",
                "routing-keys": ["k"],
            },
        ],
    }


def test_other_properties_stay_as_they_were():
    properties = {
        "content_type": "text/plain", "content_encoding": "utf-8", "delivery_mode": 2, "priority": 7,
        "correlation_id": "c", "reply_to": "r", "message_id": "m", "timestamp": 5, "type": "t",
        "user_id": "u", "app_id": "a",
    }

    result = Properties.decode(
        letter(message(expiration="1000", headers={"mine": [1, None]}, **properties)).properties
    ).as_dict()

    assert result.pop("headers")["mine"] == [1, None]
    assert result == properties


@pytest.mark.parametrize("properties", [
    {}, {"content_type": "t"}, {"content_encoding": "e"},
    {"content_type": "t", "content_encoding": "e", "type": "x"}, {"expiration": "5"},
    {"expiration": "5", "headers": {}}, {"correlation_id": "c", "expiration": "5", "app_id": "a"},
])
def test_headers_and_expiration_are_edited_wherever_they_stand(properties):
    result = Properties.decode(letter(message(**properties)).properties).as_dict()

    assert result.pop("headers")["x-first-death-queue"] == "q"
    assert result == {
        name: value for name, value in properties.items() if name not in ("expiration", "headers")
    }


def test_expiration_moves_into_the_entry():
    entry = headers(letter(message(expiration="1000"), reason="expired"))["x-death"][0]

    assert entry["original-expiration"] == "1000"


def test_deaths_are_listed_latest_first_and_counted_by_queue_and_reason():
    third = again(again(again(letter(queue="a"), "b"), "a"), "b")

    deaths = headers(third)["x-death"]

    assert [(death["queue"], death["reason"], death["count"]) for death in deaths] == [
        ("b", "expired", 2), ("a", "expired", 1), ("a", "rejected", 1)
    ]
    assert headers(third)["x-first-death-reason"] == "rejected"
    assert (headers(third)["x-last-death-reason"], headers(third)["x-last-death-queue"]) == ("expired", "b")


def test_copies_to_other_keys_stay_in_force_without_a_key_for_dead_letters():
    copied = message(headers={"CC": ["c1", "c2"], "x": 1})

    assert letter(copied).keys == ["k", "c1", "c2"]
    assert headers(letter(copied))["CC"] == ["c1", "c2"]
    assert headers(letter(copied))["x-death"][0]["routing-keys"] == ["k", "c1", "c2"]


def test_key_for_dead_letters_replaces_all_keys():
    one = letter(message(headers={"CC": ["c1"], "x": 1}), routing_key="dead")

    assert one.keys == ["dead"]
    assert "CC" not in headers(one) and headers(one)["x"] == 1
    assert headers(one)["x-death"][0]["routing-keys"] == ["k", "c1"]


@pytest.mark.parametrize("rubbish", [
    5, "text", [1, "two"], [{"count": "many"}], [{"queue": "q", "reason": "expired", "count": None}]
])
def test_rubbish_in_the_publishers_x_death_does_no_harm(rubbish):
    one = letter(message(headers={"x-death": rubbish}), reason="expired")

    assert (headers(one)["x-death"][0]["queue"], headers(one)["x-death"][0]["count"]) == ("q", 1)


@pytest.mark.parametrize("properties", [
    {}, {"headers": {}}, {"headers": {"a": 1, "b": ["x"]}, "expiration": "7", "priority": 3},
    {"headers": {"CC": ["c"]}}, {"headers": {"note": "CC"}},
    {"headers": {"BCC": ["c"]}}, {"headers": {"x-death": [], "a": 1}},
    {"headers": {"x-first-death-reason": "mine"}}, {"headers": {"a": "x-death"}},
])
@pytest.mark.parametrize("key", [None, "dead"])
def test_letters_of_one_slice_are_as_each_by_itself(properties, key):
    """What several of them have in common is made once; the second finds it."""
    common = {}
    one = letter(message(**properties), routing_key=key)
    first, second = (Death(message(**properties), "q", "rejected", key, NOW_MS, common) for _ in range(2))
    other = Death(message(b"y", **properties), "q", "rejected", key, NOW_MS, common)

    assert (one.properties, one.keys) == (first.properties, first.keys) == (second.properties, second.keys)
    assert headers(other)["x-death"][0]["exchange"] == "y"
    assert [each.has_come_round("q") for each in (first, second)] == [False, False]


# the rule against cycles

def test_letter_does_not_come_round_by_itself():
    second = again(letter(queue="a", reason="expired"), "b", "maxlen")

    assert second.has_come_round("a") and second.has_come_round("b")
    assert not second.has_come_round("c")


def test_letter_may_come_round_when_a_consumer_rejected_it():
    assert not letter(queue="a", reason="rejected").has_come_round("a")
    assert not again(letter(queue="a", reason="rejected"), "b", "expired").has_come_round("a")
    assert again(again(letter(queue="a", reason="rejected"), "b"), "c").has_come_round("b")


def test_equal_entries_that_a_publisher_has_written_are_merged_into_the_first():
    """As RabbitMQ does: the first keeps its count, one without gets the number of its like.

    Ours are of a queue that the message was not in.
    """
    entries = [
        {"queue": "b", "reason": "maxlen", "note": "first"}, {"queue": "q", "reason": "rejected", "count": 7},
        {"queue": "b", "reason": "maxlen", "count": 5}, {"queue": "q", "reason": "rejected", "count": 100},
        {"queue": "q", "reason": "expired"}, "no table", {"queue": ["no", "name"], "reason": {}},
    ]

    deaths = headers(letter(message(headers={"x-death": entries})))["x-death"]

    assert [(death["queue"], death["reason"], death.get("count")) for death in deaths] == [
        ("q", "rejected", 8), ("b", "maxlen", 2), ("q", "expired", None), (["no", "name"], {}, None)]
    assert deaths[1]["note"] == "first"


@pytest.mark.parametrize("count", [2 ** 63 - 1, 2 ** 63 - 2])
def test_count_of_deaths_stops_at_what_its_field_holds(count):
    entries = [{"queue": "q", "reason": "rejected", "count": Int64(count)}]

    assert headers(letter(message(headers={"x-death": entries})))["x-death"][0]["count"] == 2 ** 63 - 1


# on their way

@pytest.fixture
def node(tmp_path):
    node = Node(tmp_path / "data")
    yield node
    node.stop()


def declare(node, name, **arguments):
    queue, _ = node.vhost.declare_queue(
        name, durable=True,
        arguments={f"x-{key.replace('_', '-')}": value for key, value in arguments.items()},
    )
    return queue


def test_dead_letter_reaches_the_exchange_and_leaves_its_queue(node):
    node.vhost.declare_exchange("dlx", "topic")
    declare(node, "dead")
    node.vhost.bindings.bind_queue("dead", "dlx", "k.#")
    queue = declare(node, "q", dead_letter_exchange="dlx", dead_letter_routing_key="k.dead", message_ttl=20)

    node.publish("", "q", b"one", persistent=True)

    node.wait(lambda: node.vhost.queue("dead").ready_count == 1 and queue.unacked_count == 0)
    message = Message()
    node.vhost.queue("dead").get(message, True)
    assert (message.get_body(), message.get_exchange(), message.get_routing_key()) == (
        b"one", b"dlx", b"k.dead"
    )
    assert queue.ready_count == 0


def test_letter_that_has_gone_is_kept_by_nobody(node):
    """A broker at rest held the body of the last one."""
    body, traced = b"x" * 1_000_000, []
    queue = declare(node, "q", dead_letter_exchange="", dead_letter_routing_key="dead", max_length=0)
    declare(node, "dead")
    tracemalloc.start()
    try:
        for _ in range(2):  # what the first one makes for all is no matter
            node.publish("", "q", body)
            node.wait(lambda: node.vhost.queue("dead").ready_count and not queue.unacked_count)
            node.take("dead")
            traced.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()

    assert max(traced) < len(body) / 2


def test_letters_keep_their_order(node):
    declare(node, "dead")
    queue = declare(node, "q", dead_letter_exchange="", dead_letter_routing_key="dead", max_length=0)

    for number in range(500):
        node.publish("", "q", b"%d" % number)
    node.wait(lambda: node.vhost.queue("dead").ready_count == 500)

    assert [node.take("dead")[0] for _ in range(500)] == [b"%d" % number for number in range(500)]
    node.wait(lambda: (queue.ready_count, queue.unacked_count) == (0, 0))


def test_letters_of_one_slice_go_on_each_as_it_is_whatever_those_before_it_were(node):
    """What letters that are alike have in common is written once, and each copied behind it into one buffer,
    but for bodies that it does not hold.
    """
    declare(node, "dead")
    declare(node, "q", dead_letter_exchange="", dead_letter_routing_key="dead", max_length=0)
    kinds = [
        Properties(headers={"kind": 1}), Properties(headers={"kind": 2}),
        Properties(expiration="5000", type="t"),
        Properties(headers={"kind": 1}, delivery_mode=2, priority=3),
        Properties(headers={"x-death": [{"n": 1}]}),
    ]
    sent = []
    for number in range(120):
        kind = kinds[number // 3 % len(kinds)] if number % 2 else kinds[0]
        body = b"%d " % number + b"." * (70_000 if number % 11 == 5 else 9000 if number % 7 == 3 else 0)
        sent.append((body, kind))
        node.publish("", "q", body, kind.encode(), persistent=kind.delivery_mode == 2)

    node.wait(lambda: node.vhost.queue("dead").ready_count == len(sent))

    for body, kind in sent:
        came, properties = node.take("dead")
        properties = Properties.decode(properties)
        assert came == body and properties.headers.get("kind") == (kind.headers or {}).get("kind")
        assert [properties.type, properties.delivery_mode, properties.priority, properties.expiration] == [
            kind.type, kind.delivery_mode, kind.priority, None]
        first = properties.headers["x-death"][0]
        assert (first["queue"], first["reason"], first["count"], first.get("original-expiration")) == (
            "q", "maxlen", 1, kind.expiration)
    node.wait(lambda: node.vhost.queue("q").unacked_count == 0)


@pytest.mark.parametrize("target", ["missing", "amq.fanout"])
def test_letter_that_goes_nowhere_is_gone(node, target):
    queue = declare(node, "q", dead_letter_exchange=target, max_length=1)

    node.publish("", "q", b"one")
    node.publish("", "q", b"two")

    node.wait(lambda: queue.unacked_count == 0)
    assert queue.ready_count == 1


def test_cycle_of_expiring_queues_ends(node):
    declare(node, "a", message_ttl=10, dead_letter_exchange="", dead_letter_routing_key="b")
    declare(node, "b", message_ttl=10, dead_letter_exchange="", dead_letter_routing_key="a")

    node.publish("", "a")

    node.wait(
        lambda: all(queue.ready_count + queue.unacked_count == 0 for queue in node.vhost.queues.values())
    )


@pytest.mark.parametrize("exchange", ["", "amq.headers"])
def test_letter_that_a_cycle_ends_leaves_no_copy_in_a_tee(node, exchange):
    """The tee of a queue gets what the queue gets: not a dead letter that would come round."""
    declare(node, "copies", queue_type="stream")
    first = declare(node, "a", message_ttl=10, dead_letter_exchange="", dead_letter_routing_key="b")
    second = declare(node, "b", message_ttl=10, dead_letter_exchange=exchange, dead_letter_routing_key="a")
    node.vhost.bindings.bind_queue("a", "amq.headers", "", {"x-match": "all"})
    node.vhost.set_tee(first, "copies")

    node.publish("", "a")

    node.wait(lambda: not any(
        queue.ready_count + queue.unacked_count + queue.dead_letter_count for queue in (first, second)))
    assert second.limits.settings.dead_letter_exchange == exchange
    assert node.vhost.queue("copies").ready_count == 1


def test_long_chain_of_overflowing_queues_ends(node):
    """300 queues of length 0, each the next one's dead letter queue:
    a recursion would be 300 publishes deep.
    """
    for number in range(300):
        declare(
            node, f"q{number}", max_length=0, dead_letter_exchange="",
            dead_letter_routing_key=f"q{number + 1}",
        )
    declare(node, "q300")

    node.publish("", "q0", b"traveller")

    node.wait(lambda: node.vhost.queue("q300").ready_count == 1)
    assert node.take("q300")[0] == b"traveller"


def test_rejected_message_may_go_round_through_a_retry_queue(node):
    """The retry pattern: rejected, waits in a queue with a TTL, comes back, any number of times."""
    queue = declare(node, "work", dead_letter_exchange="", dead_letter_routing_key="retry")
    declare(node, "retry", message_ttl=5, dead_letter_exchange="", dead_letter_routing_key="work")
    node.publish("", "work", b"job")

    for _ in range(4):
        message = Message()
        node.wait(lambda: queue.ready_count)
        queue.get(message, False)
        queue.reject(message.describe()["location"], False)

    node.wait(lambda: queue.ready_count)
    deaths = Properties.decode(node.take("work")[1]).headers["x-death"]
    assert [(death["queue"], death["count"]) for death in deaths] == [("retry", 4), ("work", 4)]


def test_letter_to_a_headers_exchange_is_routed_by_its_new_headers(node):
    declare(node, "dead")
    node.vhost.bindings.bind_queue(
        "dead", "amq.headers", "", {"x-match": "all-with-x", "x-first-death-reason": "maxlen"}
    )
    declare(node, "q", max_length=0, dead_letter_exchange="amq.headers")

    node.publish("", "q")

    node.wait(lambda: node.vhost.queue("dead").ready_count == 1)


def test_message_refused_by_a_full_queue_can_be_a_letter(node):
    declare(node, "dead")
    declare(
        node, "q", max_length=1, overflow="reject-publish-dlx", dead_letter_exchange="",
        dead_letter_routing_key="dead",
    )

    assert node.publish("", "q", b"one") + node.publish("", "q", b"two") == [1, 0]

    node.wait(lambda: node.vhost.queue("dead").ready_count == 1)
    assert node.take("dead")[0] == b"two"


def test_policy_gives_a_queue_its_dead_letter_exchange(node):
    declare(node, "dead")
    declare(node, "q", max_length=0)
    definition = {"dead-letter-exchange": "", "dead-letter-routing-key": "dead"}
    node.broker.parameters.set(node.vhost, "policy", "p", {"pattern": "^q$", "definition": definition})

    node.publish("", "q", b"one")

    node.wait(lambda: node.vhost.queue("dead").ready_count == 1)


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 3}], ids=["plain", "priority"])
@pytest.mark.parametrize("durable", [True, False])
def test_letters_of_a_queue_that_is_deleted_meanwhile_arrive(node, durable, arguments):
    """More than a slice of them; a consumer that rejects and then deletes, or was the last one of an
    auto-delete queue, must not lose any.
    """
    declare(node, "dead")
    arguments = {**arguments, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    queue, _ = node.vhost.declare_queue("q", durable=durable, arguments=arguments)
    message = Message()
    for number in range(500):
        node.publish("", "q", b"%d" % number)
    for _ in range(500):
        queue.get(message, False)
        queue.reject(message.describe()["location"], False)

    node.vhost.delete_queue("q")
    declare(node, "q", max_length=0, dead_letter_exchange="", dead_letter_routing_key="dead")
    node.publish("", "q", b"later")

    node.wait(lambda: node.vhost.queue("dead").ready_count == 501)
    assert {node.take("dead")[0] for _ in range(501)} == {
        b"later", *(b"%d" % number for number in range(500))
    }
    folders = Path(node.data_dir.queues_folder)
    node.wait(lambda: len(list(folders.iterdir())) == 2, what="the files of the deleted queue are removed")


def test_deleted_queue_with_letters_is_let_go_when_the_broker_stops(tmp_path):
    node = Node(tmp_path / "data")
    declare(node, "dead")
    queue = declare(node, "q", max_length=0, dead_letter_exchange="", dead_letter_routing_key="dead")
    node.publish("", "q")
    queue.turn()
    node.vhost.delete_queue("q")

    node.stop()

    node = Node(tmp_path / "data")
    assert list(node.vhost.queues) == ["dead"]
    assert [path.name for path in Path(node.data_dir.queues_folder).iterdir() if "q" in path.name] == []
    node.stop()


def test_letters_on_their_way_arrive_although_their_policy_goes(node):
    declare(node, "dead")
    queue = declare(node, "q")
    definition = {"dead-letter-exchange": "", "dead-letter-routing-key": "dead"}
    node.broker.parameters.set(node.vhost, "policy", "p", {"pattern": "^q$", "definition": definition})
    message = Message()
    for number in range(500):
        node.publish("", "q", b"%d" % number)
        queue.get(message, False)
        queue.reject(message.describe()["location"], False)

    node.broker.parameters.clear(node.vhost, "policy", "p")

    node.wait(lambda: node.vhost.queue("dead").ready_count == 500 and queue.unacked_count == 0)


def test_alike_letters_to_a_random_exchange_are_spread(node):
    node.vhost.declare_exchange("dice", "x-random")
    for name in ("one", "two"):
        declare(node, name)
        node.vhost.bindings.bind_queue(name, "dice", "")
    declare(node, "q", max_length=0, dead_letter_exchange="dice")

    for _ in range(100):
        node.publish("", "q")

    node.wait(lambda: sum(node.vhost.queue(name).ready_count for name in ("one", "two")) == 100)
    assert min(node.vhost.queue(name).ready_count for name in ("one", "two")) > 10


class Full(Destination):
    """Takes messages unless it is ``unable``; ``most`` is how many of them came
    between two polls of the loop.
    """

    def __init__(self, scheduler):
        super().__init__("full")
        self.taken = []
        self.most = self.refused = self._of_poll = 0
        self._scheduler = scheduler

    def publish(self, message):
        if self.unable:
            self.refused += 1
            return 0
        self.taken.append(message.get_body())
        self._of_poll += 1
        self.most = max(self.most, self._of_poll)
        self._scheduler.later(self)
        return 1

    def turn(self):
        self._of_poll = 0
        return 0


@pytest.mark.parametrize("again", [False, True], ids=["the first time", "after they waited for room"])
def test_slice_of_letters_ends_with_its_time(node, monkeypatch, again):
    """Every look at the clock finds that a millisecond has passed, and a slice has five."""
    monkeypatch.setattr(engine, "CLOCK", partial(SliceClock, clock=StepClock()))
    target = Full(node.broker.scheduler)
    target.unable = again
    node.vhost.bindings.add(Binding(node.vhost.exchange("amq.fanout"), target, "", {}))
    declare(node, "q", dead_letter_exchange="amq.fanout", max_length=0)
    monkeypatch.setattr(engine, "TRY_AGAIN_MS", 5)

    for number in range(20):
        node.publish("", "q", b"%d" % number)
    node.wait(lambda: target.most >= 1 or target.refused)
    target.unable = False
    node.wait(lambda: len(target.taken) == 20)

    assert target.taken == [b"%d" % number for number in range(20)] and 1 <= target.most <= 6


# letters that cannot be made

DEEP = b"\x20\x00" + reduce(
    lambda inner, _: (len(inner) + 3).to_bytes(4, "big") + b"\x01aF" + inner, range(40), b"\0\0\0\0"
)


def test_letter_that_cannot_be_made_is_set_aside_and_all_others_go_on_in_order(node, caplog):
    """Headers of 40 levels, which no door lets in any more,
    stand for whatever else is the matter with a message.
    """
    declare(node, "dead")
    queue = declare(node, "q", dead_letter_exchange="", dead_letter_routing_key="dead", max_length=0)
    other = declare(node, "other", dead_letter_exchange="", dead_letter_routing_key="dead", max_length=0)

    for number in range(300):
        node.publish("", "q", b"%d" % number, DEEP if number in (0, 7, 150) else b"\0\0")
    node.publish("", "other", b"of another queue")
    node.wait(lambda: node.vhost.queue("dead").ready_count == 298)

    expected = [b"%d" % number for number in range(300) if number not in (0, 7, 150)] + [b"of another queue"]
    assert [node.take("dead")[0] for _ in range(298)] == expected
    node.wait(lambda: (queue.unacked_count, other.unacked_count, queue.ready_count) == (3, 0, 0))
    assert (
        queue.aside.reasons == {"dead-lettering: malformed basic properties": 3} and queue.aside.count == 3
        and other.aside is None
    )
    lines = [line for line in caplog.messages if "set aside" in line]
    assert len(lines) == 1
    assert lines[0].startswith("queue 'q' in vhost '/': the message in segment ")
    assert lines[0].endswith(
        "is set aside until the next restart: dead-lettering: malformed basic properties"
    )


def test_letter_of_a_kind_that_nobody_reads_is_set_aside_and_those_behind_it_go_on(node):
    declare(node, "dead")
    queue = declare(node, "q", dead_letter_exchange="", dead_letter_routing_key="dead", max_length=0)
    unread = message(routing_key=b"q")
    unread.set_kind(250)

    queue.publish(unread)
    node.publish("", "q", b"sound")

    node.wait(lambda: node.vhost.queue("dead").ready_count == 1 and queue.unacked_count == 1)
    assert queue.aside.reasons == {"dead-lettering: content of kind 250, which is unknown here": 1}


def test_letter_that_was_set_aside_is_tried_again_after_a_restart(tmp_path):
    node = Node(tmp_path / "data")
    declare(node, "dead")
    declare(node, "q", dead_letter_exchange="", dead_letter_routing_key="dead", message_ttl=1)
    node.publish("", "q", b"deep", DEEP, persistent=True)
    node.wait(lambda: node.vhost.queue("q").aside)
    node.stop()

    node = Node(tmp_path / "data")
    queue = node.vhost.queue("q")
    node.publish("", "q", b"sound", persistent=True)

    node.wait(lambda: node.vhost.queue("dead").ready_count == 1 and queue.unacked_count == 1)
    assert node.take("dead")[0] == b"sound" and queue.aside.count == 1
    node.stop()


def test_deleted_queue_is_let_go_although_a_letter_of_it_was_set_aside(node, tmp_path):
    declare(node, "dead")
    queue = declare(node, "q", dead_letter_exchange="", dead_letter_routing_key="dead", max_length=0)
    for body in (b"a", b"b"):
        node.publish("", "q", body, DEEP if body == b"a" else b"\0\0")
    folders = list((tmp_path / "data").rglob("msgs.*"))

    node.vhost.delete_queue("q")

    node.wait(lambda: node.vhost.queue("dead").ready_count == 1 and queue.dead_letter_count == 0)
    node.wait(
        lambda: sum(path.exists() for path in folders) < len(folders), what="the files of the queue have gone"
    )


class IllAtSecondSight(Destination):
    """Has no room for the message ``2`` when it first comes, and fails over it when it comes again."""

    def __init__(self):
        super().__init__("ill")
        self.seen = []
        self.taken = []

    def publish(self, message):
        body = message.get_body()
        self.seen.append(body)
        self.unable = body == b"2"
        if not self.unable:
            self.taken.append(body)
        elif self.seen.count(b"2") > 1:
            raise LookupError("it cannot be found")
        return not self.unable


def test_letter_that_waited_for_room_and_then_cannot_go_is_set_aside_and_those_behind_it_go_on(
    node, monkeypatch
):
    monkeypatch.setattr(engine, "TRY_AGAIN_MS", 5)
    target = IllAtSecondSight()
    node.vhost.bindings.add(Binding(node.vhost.exchange("amq.fanout"), target, "", {}))
    queue = declare(node, "q", dead_letter_exchange="amq.fanout", max_length=0)

    for body in (b"1", b"2", b"3"):
        node.publish("", "q", body)

    node.wait(lambda: target.taken == [b"1", b"3"] and queue.unacked_count == 1)
    assert (
        queue.aside.reasons == {"dead-lettering: LookupError: it cannot be found": 1}
        and queue.dead_letter_count == 0
    )


@pytest.mark.parametrize("through", ["argument", "policy"])
def test_key_for_dead_letters_that_no_message_can_have_is_refused(node, through):
    definition = {"dead-letter-exchange": "", "dead-letter-routing-key": "k" * 256}

    if through == "argument":
        with pytest.raises(PreconditionFailed) as refused:
            declare(node, "q", dead_letter_exchange="", dead_letter_routing_key="k" * 256)
        assert refused.value.text == (
            "invalid arg 'x-dead-letter-routing-key' for queue 'q' in vhost '/': "
            "\"expected a routing key of at most 255 bytes\"")
    else:
        with pytest.raises(
            ValueError,
            match=(
                "is not a valid dead letter routing key: dead-letter-routing-key needs a "
                "routing key of at most 255"
            ),
        ):
            node.broker.parameters.set(
                node.vhost, "policy", "p", {"pattern": "^q$", "definition": definition}
            )


@pytest.mark.parametrize("key", ["k" * 300, "\ud800"])
def test_letters_of_a_queue_whose_key_for_them_is_from_an_older_version_stay_and_others_go(node, key):
    declare(node, "dead")
    queue = declare(node, "q", max_length=0)
    declare(node, "sound", dead_letter_exchange="", dead_letter_routing_key="dead", max_length=0)
    queue.limits.configure(
        QueueSettings({"x-max-length": 0, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": key})
    )

    node.publish("", "q", b"stays")
    node.publish("", "sound", b"goes")

    node.wait(lambda: node.vhost.queue("dead").ready_count == 1 and queue.aside)
    assert queue.unacked_count == 1


def test_letter_of_headers_as_deep_as_the_wire_allows_arrives(node):
    deep = reduce(lambda inner, _: {"a": inner}, range(32), {})
    declare(node, "dead")
    declare(node, "q", dead_letter_exchange="", dead_letter_routing_key="dead", max_length=0)

    node.publish("", "q", b"deep", Properties(headers=deep).encode())

    node.wait(lambda: node.vhost.queue("dead").ready_count == 1)
    assert Properties.decode(node.take("dead")[1]).headers["a"] == deep["a"]
