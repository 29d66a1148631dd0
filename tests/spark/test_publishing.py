"""The sink without Spark: rows become confirmed messages, whatever the broker does meanwhile,
and what cannot is said.
"""
import threading

import pytest

from gomq_py.spark.errors import GomqError, OptionError, Refused, Unreachable
from gomq_py.spark.options import Credentials, Options
from gomq_py.spark.publishing import check_cache, Publisher, Target, check_columns
from tests.spark.sessions import PATIENT


def target(broker, password="guest", **given):
    options = Options({
        "amqpUrl": broker.amqp_url, "url": broker.url, "retrySeconds": "0", "timeoutSeconds": PATIENT, **given
    })
    return Target(options, Credentials("guest", password))


@pytest.fixture
def queue(broker, request):
    """A function that declares a queue of this test's own and returns its name."""
    names = []

    def declare(**arguments):
        name = f"{request.node.name}-{len(names)}"
        with broker.connect() as connection:
            connection.channel().queue_declare(name, durable=True, arguments=arguments)
        names.append(name)
        return name
    yield declare
    with broker.connect() as connection:
        for name in names:
            connection.channel().queue_delete(name)


def test_rows_become_messages_with_their_properties_and_headers(broker, queue):
    name = queue()
    rows = [
        {"body": b"one", "queue": "orders", "offset": 7, "properties": None},
        {
            "body": "two",
            "properties": {
                "content_type": "text/plain", "message_id": "m-2", "priority": 3, "user_id": "joe"
            },
            "headers": [("n", "1"), ("text", '"a"'), ("odd", "no json")],
        },
        {"body": None},
    ]

    assert Publisher(target(broker, queue=name), "run").publish(rows) == 3

    first, second, third = broker.take(name)
    assert (
        (first.body, first.properties.message_id, first.properties.delivery_mode) == (b"one", "orders/7", 2)
    )
    assert second.body == b"two" and second.properties.as_dict() == {
        "content_type": "text/plain", "message_id": "m-2", "priority": 3, "delivery_mode": 2,
        "headers": {"n": 1, "text": "a", "odd": "no json"}}
    assert (third.body, third.properties.message_id) == (b"", None)


def test_each_row_goes_to_the_queue_that_its_column_names(broker, queue):
    one, other = queue(), queue()
    rows = [{"body": b"1", "goal": one}, {"body": b"2", "goal": other}, {"body": b"3", "goal": one}]
    where = target(broker, queueColumn="goal")
    where.check()

    assert Publisher(where, "run").publish(rows) == 3

    assert [one.body for one in broker.take(one)] == [b"1", b"3"]
    assert [one.body for one in broker.take(other)] == [b"2"]


@pytest.mark.parametrize("goal, words", [
    (None, "column goal .option queueColumn. names no queue in a row"),
    ("", "column goal .option queueColumn. names no queue in a row"),
    ("nowhere", "returned, the first with exchange '' and routing key 'nowhere'"),
])
def test_a_row_that_names_no_queue_fails_its_batch(broker, goal, words):
    with pytest.raises(GomqError, match=words):
        Publisher(target(broker, queueColumn="goal"), "run").publish([{"body": b"1", "goal": goal}])


def test_ids_of_a_stream_that_was_made_anew_are_different(broker, queue):
    name = queue()

    Publisher(target(broker, queue=name), "run").publish(
        [{"body": b"", "queue": "a", "epoch": epoch, "offset": 1} for epoch in ("e1", "e2", None, 7)])

    assert [one.properties.message_id for one in broker.take(name)] == ["a/e1/1", "a/e2/1", "a/1", "a/1"]


def test_ids_come_from_a_column_or_from_where_the_row_stands(broker, queue):
    name = queue()

    Publisher(target(broker, queue=name, messageIdColumn="key"), "run").publish(
        [{"body": b"", "key": 5, "queue": "a", "offset": 1}]
    )
    Publisher(target(broker, queue=name, rowMessageIds="true"), "q/3/0").publish(
        [{"body": b""}, {"body": b""}]
    )

    assert [one.properties.message_id for one in broker.take(name)] == ["5", "q/3/0/0", "q/3/0/1"]


def test_a_batch_that_is_repeated_gives_no_duplicate_where_the_target_remembers_it(broker, queue):
    name = queue(**{"x-message-deduplication": True, "x-cache-size": 100})
    given = {"queue": name, "deduplicationHeader": "x-deduplication-header", "maxBatchRows": "100"}
    rows = [{"body": b"%d" % number, "queue": "orders", "offset": number} for number in range(100)]
    check_cache(target(broker, **given))

    for _ in range(2):
        Publisher(target(broker, **given), "run").publish(rows)

    assert [one.body for one in broker.take(name)] == [row["body"] for row in rows]


def test_a_batch_that_is_repeated_comes_twice_where_nobody_remembers_it(broker, queue):
    """The other side of the promise: at least once."""
    name = queue()
    rows = [{"body": b"%d" % number, "queue": "orders", "offset": number} for number in range(10)]

    for _ in range(2):
        Publisher(target(broker, queue=name), "run").publish(rows)

    assert [one.body for one in broker.take(name)] == [row["body"] for row in rows] * 2


def test_a_larger_batch_than_the_target_remembers_is_refused_at_the_start(broker, queue):
    small, plain = queue(**{"x-message-deduplication": True, "x-cache-size": 99}), queue()
    given = {"deduplicationHeader": "x-deduplication-header", "maxBatchRows": "100"}

    with pytest.raises(OptionError, match="remembers 99 ids .x-cache-size. and a batch may have 100 rows"):
        check_cache(target(broker, queue=small, **given))
    with pytest.raises(GomqError, match="does not deduplicate: declare it with x-message-deduplication=true"):
        check_cache(target(broker, queue=plain, **given))
    with pytest.raises(OptionError, match="looks at x-deduplication-header"):
        check_cache(
            target(broker, queue=small, **{**given, "deduplicationHeader": "x-id", "maxBatchRows": "9"})
        )
    with pytest.raises(OptionError, match="needs option maxBatchRows"):
        check_cache(target(broker, queue=small, deduplicationHeader="x-deduplication-header"))
    with pytest.raises(GomqError, match="more rows than option maxBatchRows says: 1"):
        Publisher(target(broker, queue=small, maxBatchRows="1"), "run").publish([{"body": b""}] * 2)


def test_where_nothing_is_bound_is_said_and_may_be_accepted(broker):
    row = {"body": b"", "routing_key": "nowhere.at.all"}

    with pytest.raises(
        GomqError,
        match=(
            "1 messages were returned, the first with exchange 'amq.topic' and routing key 'nowhere.at.all'"
        ),
    ):
        Publisher(target(broker, exchange="amq.topic"), "run").publish([row])
    assert Publisher(target(broker, exchange="amq.topic", mandatory="false"), "run").publish([row]) == 1


def test_a_target_that_is_not_there_or_does_not_want_us_is_said_at_the_start(broker):
    with pytest.raises(GomqError, match="there is no queue 'nowhere' in vhost '/'.*declare it first"):
        target(broker, queue="nowhere").check()
    with pytest.raises(GomqError, match="there is no exchange 'nowhere' in vhost '/'"):
        target(broker, exchange="nowhere", routingKey="k").check()
    with pytest.raises(Refused, match="does not let user 'guest' in .*GOMQ_PASSWORD"):
        target(broker, password="wrong", queue="q").check()
    with pytest.raises(Unreachable, match="amqp://127.0.0.1:1 cannot be reached"):
        target(broker, queue="q", amqpUrl="amqp://127.0.0.1:1").check()
    target(broker, exchange="amq.topic", routingKey="k").check()
    target(broker, exchange="", routingKey="k").check()


@pytest.mark.parametrize("columns, given, words", [
    ({"value": "binary"}, {"queue": "q"}, "no column body"),
    ({"body": "int"}, {"queue": "q"}, "column body is int"),
    ({"body": "binary", "headers": "string"}, {"queue": "q"}, "column headers is string"),
    (
        {"body": "binary"}, {"exchange": "e"},
        "option routingKey is missing, and there is no column routing_key",
    ),
    (
        {"body": "binary"}, {"queue": "q", "messageIdColumn": "id"},
        "option messageIdColumn names id, which is no column",
    ),
    ({"body": "binary"}, {"queue": "q", "deduplicationHeader": "x"}, "option deduplicationHeader needs ids"),
    ({"body": "binary"}, {"queueColumn": "goal"}, "option queueColumn names goal, which is no column"),
    (
        {"body": "binary", "goal": "int"}, {"queueColumn": "goal"},
        "option queueColumn names goal, which is int; it is one of type string",
    ),
])
def test_a_schema_that_cannot_be_published_is_said(columns, given, words):
    with pytest.raises(OptionError, match=words):
        check_columns(columns, Options(given))


def test_a_broker_that_is_killed_while_a_batch_is_published_loses_nothing(tmp_path):
    from gomq_py.testing.brokers import ChildBroker
    from tests.spark.conftest import Reached
    with ChildBroker(tmp_path / "data", http_port=0, sync=True) as child:
        reached = Reached(child)
        with reached.connect() as connection:
            connection.channel().queue_declare("q", durable=True)
        restarted = threading.Event()

        def rows():
            for number in range(3000):
                if number == 1500:
                    child.kill()
                    threading.Thread(target=lambda: (child.start(), restarted.set())).start()
                yield {"body": b"%d" % number}

        assert Publisher(
            target(reached, queue="q", retrySeconds=PATIENT, confirmBatch="200"), "run"
        ).publish(rows()) == 3000

        assert restarted.wait(float(PATIENT))
        assert {one.body for one in reached.take("q")} == {b"%d" % number for number in range(3000)}
