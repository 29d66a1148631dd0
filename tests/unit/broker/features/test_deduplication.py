"""Deduplication: what counts as the same id, how many are remembered and for how long,
on queues and on exchanges.
"""
import gevent
import pytest

from gomq_py.amqp.wire.methods import (
    BasicAck, BasicNack, BasicReturn, ConfirmSelect, ConfirmSelectOk, ExchangeDeclare, ExchangeDeclareOk,
    QueueBind, QueueBindOk, QueueDeclare, QueueDeclareOk, TxCommit, TxCommitOk, TxRollback, TxRollbackOk,
    TxSelect, TxSelectOk, decode_method,
)
from gomq_py.broker.features.deduplication import MAX_SIZE, ExchangeIds, SeenIds, deduplication_of, id_of
from gomq_py.broker.policies.policy import POLICY
from gomq_py.content.properties import Properties
from gomq_py.storage.message import Message
from tests.support.door import Door
from tests.support.node import Node
from tests.support.waiting import wait_until

ON = {"x-message-deduplication": True}


def properties(id_=None, name="x-deduplication-header", **headers):
    return Properties(headers={**({} if id_ is None else {name: id_}), **headers}).encode()


# the ids

@pytest.mark.parametrize(("arguments", "policy", "expected"), [
    ({}, {}, None), ({"x-message-deduplication": False}, {}, None),
    (ON, {}, (128, None, "x-deduplication-header")),
    ({**ON, "x-cache-size": 0}, {}, (0, None, "x-deduplication-header")),
    ({**ON, "x-cache-size": 10 * MAX_SIZE}, {}, (MAX_SIZE, None, "x-deduplication-header")),
    ({**ON, "x-cache-size": 3, "x-cache-ttl": 50, "x-deduplication-header": "id"}, {}, (3, 50, "id")),
    ({}, {"message-deduplication": True}, (128, None, "x-deduplication-header")),
    ({"x-message-deduplication": False}, {"message-deduplication": True}, None),
])
def test_arguments_and_policy_say_what_is_deduplicated(arguments, policy, expected):
    assert deduplication_of(arguments, policy) == expected


def test_an_id_that_was_forgotten_and_came_again_does_not_follow_its_first_message():
    asked = []
    ids = ExchangeIds((1, None, "id"), lambda callback, concerns, hurry: asked.append(callback))
    ids.take("a", None, 0)
    ids.until_safe("a", ())
    ids.take("b", None, 0)  # there is room for one
    ids.take("a", None, 0)

    assert ids.queues_of("a") is None
    asked[0](OSError(5, "the disk failed"))
    assert not ids.take("a", None, 0)


def test_oldest_id_goes_when_there_are_too_many():
    seen = SeenIds((2, None, "id"))
    assert [seen.take(id_, None, 0) for id_ in (b"a", b"b", b"a", b"c", b"a")] == [
        True, True, False, True, True
    ]
    assert (len(seen), seen.duplicates) == (2, 1)


def test_id_is_forgotten_after_its_time_which_a_duplicate_does_not_prolong():
    seen = SeenIds((10, 100, "id"))
    seen.take(b"a", None, 1000)

    assert not seen.take(b"a", None, 1099)
    assert seen.take(b"a", None, 1100)
    assert not seen.take(b"a", None, 1150)


@pytest.mark.parametrize(("own", "still_known_ms"), [(50, 49), (None, 99), (200, 199)])
def test_messages_own_time_goes_before_the_queues(own, still_known_ms):
    seen = SeenIds((10, 100, "id"))
    id_, ttl_ms = seen.read(properties("a", "id", **({} if own is None else {"x-cache-ttl": own})))
    seen.take(id_, ttl_ms, 1000)

    assert seen.has(id_, 1000 + still_known_ms) and not seen.has(id_, 1001 + still_known_ms)


@pytest.mark.parametrize("settings", [(0, None, "id"), (10, 0, "id")])
def test_cache_of_no_size_or_no_time_knows_nothing(settings):
    seen = SeenIds(settings)
    assert seen.take(b"a", None, 0) and seen.take(b"a", None, 0)
    assert len(seen) == 0


@pytest.mark.parametrize(("one", "other", "same"), [
    ("a", "a", True), ("a", "b", False), (1, 1.0, True), (1, "1", False), (True, 1, False),
    ([1, "x"], [1, "x"], True), (1 << 40, 1 << 40, True),
    ("x" * 100, "x" * 100, True), ("x" * 100, "x" * 99 + "y", False),
])
def test_ids_are_the_same_when_their_values_are(one, other, same):
    assert (id_of(one) == id_of(other)) is same


def test_long_ids_take_no_more_memory_than_short_ones():
    assert len(id_of("x" * 100_000)) < 40


# over a connection

@pytest.fixture
def door(tmp_path):
    with Door(tmp_path / "data") as door:
        yield door


@pytest.fixture
def client(door):
    return door.client()


def declare(client, name="q", **arguments):
    client.call(QueueDeclare(queue=name, durable=True, arguments=arguments), QueueDeclareOk)


def confirmed(client, *publishes, exchange=""):
    """Publish these properties and wait until each is confirmed; returns the tags that were nacked."""
    client.call(ConfirmSelect(), ConfirmSelectOk)
    for each in publishes:
        client.publish("q", b"x", exchange=exchange, properties=each)
    answered, nacked = 0, []
    while answered < len(publishes):
        method = decode_method(client.frame()[2])
        assert isinstance(method, (BasicAck, BasicNack))
        answered = max(answered, method.delivery_tag)
        if isinstance(method, BasicNack):
            nacked.append(method.delivery_tag)
    return nacked


def test_queue_keeps_the_first_of_equal_ids_and_confirms_them_all(door, client):
    declare(client, **ON)

    assert (
        confirmed(client, properties("a"), properties("b"), properties("a"), properties(), properties()) == []
    )

    assert door.queue("q").ready_count == 4
    assert door.queue("q").limits.seen.duplicates == 1


def test_queue_by_policy_and_back(door, client):
    declare(client)
    door.broker.parameters.set(
        door.vhost, POLICY, "p", {"pattern": "^q$", "definition": {"message-deduplication": True}}
    )
    confirmed(client, properties("a"), properties("a"))
    assert door.queue("q").ready_count == 1

    door.broker.parameters.clear(door.vhost, POLICY, "p")
    client.publish("q", properties=properties("a"))
    client.expect(BasicAck)
    assert door.queue("q").ready_count == 2


def test_message_that_a_full_queue_refuses_may_come_again(door, client):
    declare(client, **ON, **{"x-max-length": 1, "x-overflow": "reject-publish"})

    assert confirmed(client, properties("a"), properties("b")) == [2]
    door.queue("q").purge()
    client.publish("q", properties=properties("b"))
    client.expect(BasicAck)

    assert door.queue("q").ready_count == 1


def exchange_with(client, **arguments):
    client.call(
        ExchangeDeclare(exchange="x", type="direct", durable=True, arguments=arguments), ExchangeDeclareOk
    )
    client.call(QueueBind(queue="q", exchange="x", routing_key="q"), QueueBindOk)


def test_exchange_routes_the_first_of_equal_ids(door, client):
    declare(client)
    exchange_with(client, **ON, **{"x-deduplication-header": "id"})

    assert (
        confirmed(client, properties("a", "id"), properties("a", "id"), properties("a"), exchange="x") == []
    )

    assert door.queue("q").ready_count == 2
    assert (door.vhost.exchange("x").deduplication.duplicates, door.vhost.exchange("x").state.unroutable) == (
        1, 1
    )


def test_duplicate_that_is_mandatory_comes_back(door, client):
    declare(client)
    exchange_with(client, **ON)
    client.publish("q", b"x", exchange="x", properties=properties("a"), mandatory=True)
    client.publish("q", b"y", exchange="x", properties=properties("a"), mandatory=True)

    method, _, body = client.expect_message(BasicReturn)
    assert (method.reply_code, body) == (312, b"y")


def test_message_that_a_queue_behind_the_exchange_refuses_may_come_again(door, client):
    """Its publisher hears basic.nack and tries again; taking that for a duplicate would lose the message."""
    declare(client, **{"x-max-length": 0, "x-overflow": "reject-publish"})
    exchange_with(client, **ON)
    assert confirmed(client, properties("a"), exchange="x") == [1]

    client.publish("q", b"x", exchange="x", properties=properties("a"))
    assert isinstance(client.expect(BasicNack), BasicNack)


def test_repeat_is_confirmed_when_the_first_is_safe_and_is_new_when_that_was_refused(tmp_path):
    """Whoever refused: here a log, for all queues are well; or a copy elsewhere that is to be kept, too."""
    with Door(tmp_path / "data", manual=True) as door:
        door.vhost.declare_queue("q", durable=True)
        exchange = door.vhost.declare_exchange("x", "direct", durable=True, arguments=ON)
        door.vhost.bindings.bind_queue("q", "x", "q")
        client = door.client()
        client.call(ConfirmSelect(), ConfirmSelectOk)
        message = Properties(delivery_mode=2, headers={"x-deduplication-header": "a"}).encode()

        def publish_twice():
            before = exchange.state.publish_in
            for _ in range(2):
                client.publish("q", exchange="x", properties=message)
            wait_until(lambda: exchange.state.publish_in == before + 2, sleep=gevent.sleep)
            client.expect_silence()

        def expect_all(answer, last):
            while client.expect(answer).delivery_tag < last:
                pass

        publish_twice()
        door.committer.finish(OSError(5, "Input/output error"))
        expect_all(BasicNack, 2)
        publish_twice()
        door.committer.finish()
        expect_all(BasicAck, 4)
        assert (door.queue("q").ready_count, exchange.deduplication.duplicates) == (2, 2)

        client.publish("q", exchange="x", properties=message)
        assert client.expect(BasicAck).delivery_tag == 5, "the first is safe: nothing is waited for"


def test_rolled_back_message_was_never_seen(door, client):
    declare(client)
    exchange_with(client, **ON)
    client.call(TxSelect(), TxSelectOk)
    client.publish("q", b"x", exchange="x", properties=properties("a"))
    client.call(TxRollback(), TxRollbackOk)
    client.publish("q", b"x", exchange="x", properties=properties("a"))
    client.publish("q", b"x", exchange="x", properties=properties("a"))
    client.call(TxCommit(), TxCommitOk)

    assert door.queue("q").ready_count == 1


def test_exchange_by_policy_throws_away_remembered_routes(door, client):
    declare(client)
    exchange_with(client)
    client.publish("q", b"x", exchange="x", properties=properties("a"))
    declare(client)  # a round trip
    door.broker.parameters.set(door.vhost, POLICY, "p", {
        "pattern": "^x$", "apply-to": "exchanges", "definition": {"message-deduplication": True}
    })
    for _ in range(3):
        client.publish("q", b"x", exchange="x", properties=properties("a"))
    declare(client)

    assert door.queue("q").ready_count == 2


def test_message_that_died_in_a_queue_may_come_back_to_it(tmp_path):
    """The retry pattern: rejected, waits in a queue with a TTL, comes back with its id.

    A copy that somebody publishes meanwhile is a duplicate.
    """
    node = Node(tmp_path / "data")
    retry = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "retry"}
    queue, _ = node.vhost.declare_queue("work", durable=True, arguments={**ON, **retry})
    node.vhost.declare_queue("retry", durable=True, arguments={
        "x-message-ttl": 5, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work"})
    node.publish("", "work", b"job", properties("1"))

    for _ in range(3):
        message = Message()
        node.wait(lambda: queue.ready_count)
        queue.get(message, False)
        node.publish("", "work", b"again", properties("1"))
        queue.reject(message.describe()["location"], False)

    node.wait(lambda: queue.ready_count)
    assert node.take("work")[0] == b"job"
    assert queue.ready_count == 0
    node.stop()
