"""Schedules by AMQP: what a client publishes, gets back, and is told."""
import time

import pika
import pika.exceptions
import pytest

from gomq_py.broker.exchanges.schedule import MOST_SCHEDULES
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import TIMEOUT_S, in_time, wait_until


@pytest.fixture
def channel(broker):
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    yield declared(connection.channel())
    if connection.is_open:
        connection.close()


def declared(channel):
    channel.exchange_declare("x", "x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"})
    channel.queue_declare("q", durable=True)
    channel.queue_bind("q", "x", "k")
    channel.confirm_delivery()
    return channel


def put(channel, name, body=b"x", exchange="x", headers=(), delivery_mode=2, **fields):
    channel.basic_publish(exchange, "k", body, pika.BasicProperties(
        delivery_mode=delivery_mode, type="t",
        headers={"x-schedule": {"name": name, **fields}, **dict(headers)}), mandatory=True)


def take(channel, count, queue="q"):
    found = []
    for method, properties, body in channel.consume(queue, inactivity_timeout=in_time(TIMEOUT_S)):
        assert method is not None, f"{len(found)} of {count} came"
        channel.basic_ack(method.delivery_tag)
        found.append((properties, body))
        if len(found) == count:
            channel.cancel()
            return found


def test_message_comes_at_each_time_with_name_and_time_and_what_it_had(channel):
    began_ms = int(time.time() * 1000)
    put(channel, "a", b"body", headers={"mine": 5}, every=1000, delivery_mode=1)

    found = take(channel, 2)

    assert {(properties.type, properties.delivery_mode, body) for properties, body in found} == {
        ("t", 1, b"body")}
    times = [properties.headers.pop("x-schedule-time") for properties, _ in found]
    assert times[1] == times[0] + 1000 and began_ms + 1000 <= times[0]
    assert [properties.headers for properties, _ in found] == [{"mine": 5, "x-schedule-name": "a"}] * 2


def test_empty_message_of_the_name_ends_it(channel):
    put(channel, "gone", b"gone", cron="* * * * * *")
    put(channel, "stays", b"stays", cron="* * * * * *")
    put(channel, "gone", b"")

    assert [body for _, body in take(channel, 2)] == [b"stays"] * 2


def test_one_of_many_workers_gets_it(channel, broker):
    put(channel, "a", every=1000, end=int(time.time() * 1000) + 2500)
    connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
    other, found = connection.channel(), []
    for one in (channel, other):
        one.basic_consume("q", lambda *_: found.append(1), auto_ack=True)
    deadline = time.monotonic() + in_time(TIMEOUT_S)

    while len(found) < 2 and time.monotonic() < deadline:
        channel.connection.process_data_events(0.05)
        connection.process_data_events(0.05)
    left = channel.queue_declare("q", passive=True).method

    assert (len(found), left.message_count) == (2, 0)
    connection.close()


@pytest.mark.parametrize("fields, told", [
    ({"cron": "* * * *"}, "field 'cron' must be a cron line: wrong number of fields"),
    ({"cron": "* " * 2500}, "field 'cron' must be a cron line of 1 to 255 bytes"),
    ({"cron": "0 0 */31 2 MON#5"}, "field 'cron' leaves no time to come"),
    ({"every": 10}, "field 'every' must be an integer from 1000"),
    ({"every": 1000, "until": 5}, "field 'until' is unknown"),
    ({"every": 1000, "headers": {"x-delay": 5}}, "'x-delay': excludes 'x-schedule'"),
    ({"every": 1000, "body": b"x" * 65536}, "larger than 65536 bytes"),
])
def test_channel_is_told_what_is_wrong(channel, fields, told):
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=told) as raised:
        put(channel, "a", **fields)

    assert raised.value.reply_code == 406


def test_flood_of_schedules_ends_at_the_limit(channel):
    """The broker answers all the while, and an existing one can still be replaced and deleted."""
    channel.exchange_declare("flood", "x-delayed-message", arguments={"x-delayed-type": "direct"})
    bare = channel.connection.channel()

    def flood(first, count):
        for number in range(first, first + count):
            put(bare, str(number), exchange="flood", every=1_000_000)

    flood(0, MOST_SCHEDULES)
    bare.queue_declare("q", passive=True)  # answered behind all of them
    put(bare, "0", exchange="flood", every=2_000_000)
    put(bare, "1", b"", exchange="flood")
    flood(MOST_SCHEDULES, 1)
    flood(MOST_SCHEDULES + 1, 1)

    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="10000 schedules, which is the limit"):
        bare.queue_declare("q", passive=True)
    channel.exchange_delete("flood")


def test_transaction_sets_and_deletes_at_its_commit(broker):
    with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
        channel = connection.channel()
        declared(connection.channel())
        channel.tx_select()
        put(channel, "given up", b"given up", every=1000)
        channel.tx_rollback()
        put(channel, "deleted", b"deleted", every=1000)
        channel.tx_commit()
        put(channel, "kept", b"kept", every=1000)
        put(channel, "deleted", b"")
        channel.tx_commit()

        assert [body for _, body in take(connection.channel(), 2) if body != b"deleted"] == [b"kept"] * 2


def test_header_means_nothing_elsewhere(channel):
    """A publisher to another exchange may have no right to write to the delayed one."""
    channel.exchange_declare("before", "fanout")
    channel.exchange_bind("x", "before", "")
    channel.queue_bind("q", "x", "")

    channel.basic_publish("before", "", b"by a binding", pika.BasicProperties(
        headers={"x-schedule": {"name": "a", "every": 1000}}))
    channel.basic_publish("", "q", b"to a queue", pika.BasicProperties(headers={"x-schedule": "nonsense"}))

    assert {body for _, body in take(channel, 2)} == {b"by a binding", b"to a queue"}


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_schedule_outlives_the_broker_and_times_meanwhile_follow_its_rule(tmp_path, end):
    with BrokerProcess(tmp_path / "data") as broker:
        with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
            channel = declared(connection.channel())
            for missed in ("once", "all"):
                put(channel, missed, missed.encode(), every=1000, missed=missed)
            first = {body: properties.headers["x-schedule-time"] for properties, body in take(channel, 2)}
        began_ms = time.time() * 1000
        getattr(broker, end)()
        ended_ms = time.time() * 1000
        wait_until(lambda: time.time() * 1000 > ended_ms + 4000)
    with BrokerProcess(tmp_path / "data") as broker:
        with pika.BlockingConnection(pika.URLParameters(broker.amqp_url)) as connection:
            found = take(connection.channel(), 8)

    came = {name: [
        properties.headers["x-schedule-time"] for properties, body in found if body == name]
        for name in (b"once", b"all")}
    if end == "stop":  # a kill may repeat one
        assert [len(set(times)) for times in came.values()] == [len(times) for times in came.values()]
        assert [first[name] in times for name, times in came.items()] == [False, False]
    all_times = sorted({first[b"all"], *came[b"all"]})
    assert {later - earlier for earlier, later in zip(all_times, all_times[1:])} == {1000}
    once = [first[b"once"], *came[b"once"]]
    till_then = sorted({time_ms for time_ms in once if time_ms <= ended_ms + 4000})
    last_ms = till_then[-1]
    assert till_then == list(range(first[b"once"], last_ms + 1, 1000)) and last_ms <= ended_ms + 1000
    assert last_ms > began_ms or end == "kill" and once.count(last_ms) == 2  # the repeated one was the once
