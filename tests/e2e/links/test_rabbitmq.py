"""Links with RabbitMQ on either side."""
import pytest

from gomq_py.content.properties import Properties
from gomq_py.links.ends import SourceEnd, TargetEnd
from tests.support.links import connect, depth, fill, numbers, take_all, until

pytestmark = pytest.mark.needs_program("rabbitmq-server")


@pytest.fixture(scope="module")
def rabbitmq(shared_rabbitmq):
    return shared_rabbitmq.process


@pytest.fixture(params=["source", "destination"])
def sides(request, rabbitmq, pair, name):
    """(a channel at the source, one at the destination, and their URIs); one of them is a RabbitMQ's."""
    brokers = [rabbitmq, pair[0]] if request.param == "source" else [pair[0], rabbitmq]
    channels = []
    for broker in brokers:
        channels.append(connect(broker.amqp_url, heartbeat_s=0).channel())
        channels[-1].queue_declare(name, durable=True)
    yield *channels, *(broker.amqp_url for broker in brokers)
    for channel in channels:
        channel.connection.abort()


@pytest.fixture
def rabbit_target(rabbitmq, pair, name):
    """A channel at our source, one at RabbitMQ, and RabbitMQ's URI."""
    channels = [connect(broker.amqp_url, heartbeat_s=0).channel() for broker in (pair[0], rabbitmq)]
    yield *channels, rabbitmq.amqp_url
    for channel in channels:
        channel.connection.abort()


def test_messages_arrive_in_order_as_they_were_published(sides, make_link, name):
    source, target, source_uri, target_uri = sides
    properties = Properties(
        content_type="text/plain", delivery_mode=2, headers={"a": 1, "b": [True, None, {"c": "d"}]},
        correlation_id="c", message_id="m", timestamp=1700000000, priority=3, app_id="here",
    )
    fill(source, name, 10_000, properties)
    fill(source, name, 5, properties, body=b"%d " + b"x" * 700_000, first=10_000)

    link = make_link(SourceEnd(source_uri, name), TargetEnd(target_uri, "", name))
    link.start()
    until(lambda: link.status.moved == 10_005)

    arrived = take_all(target, name, 10_005)
    assert numbers(arrived) == list(range(10_005))
    assert {delivery.raw_properties for delivery in arrived} == {properties.encode()}
    until(lambda: depth(source, name) == 0)
    assert (link.status.state, link.status.error, link.status.reconnects) == ("running", "", 0)


def test_pause_and_resume(sides, make_link, name):
    source, target, source_uri, target_uri = sides
    link = make_link(SourceEnd(source_uri, name), TargetEnd(target_uri, "", name), paused=True)
    link.start()
    until(lambda: link.status.state == "running")
    fill(source, name, 10)

    for _ in range(10):
        link.resume()
        link.pause()
    until(lambda: source.queue_declare(name, passive=True).consumer_count == 0)
    link.resume()
    until(lambda: link.status.moved == 10)

    assert link.status.reconnects == 0
    assert depth(target, name) == 10


def test_full_queue_of_rabbitmq_refuses_and_order_is_kept(rabbit_target, make_link, pair, name):
    source, target, uri = rabbit_target
    source.queue_declare(name)
    target.queue_declare(name, arguments={"x-max-length": 100, "x-overflow": "reject-publish"})
    fill(source, name, 250)

    link = make_link(target=TargetEnd(uri, "", name))
    link.start()
    for count in (100, 200):
        until(lambda: link.status.moved == count and link.status.error)  # noqa: B023
        target.queue_purge(name)
    until(lambda: link.status.moved == 250)

    assert numbers(take_all(target, name, 50)) == list(range(200, 250))
    assert link.status.refused > 0


def test_message_too_large_for_rabbitmq_is_dead_lettered_after_the_limit(rabbit_target, make_link, name):
    source, target, uri = rabbit_target
    source.queue_declare(name + ".dead")
    source.queue_declare(name, arguments={
        "x-dead-letter-exchange": "", "x-dead-letter-routing-key": name + ".dead"})
    target.queue_declare(name)
    fill(source, name, 20)
    source.publish("", name, b"x" * 1_048_577)
    fill(source, name, 20, first=20)

    link = make_link(target=TargetEnd(uri, "", name), refusals=2)
    link.start()
    until(lambda: link.status.moved == 40)

    assert link.status.set_aside == 1
    until(lambda: depth(source, name + ".dead") == 1)
    assert sorted(set(numbers(take_all(target, name)))) == list(range(40))


@pytest.mark.parametrize("is_edited", [False, True])
def test_headers_nested_deeper_than_this_broker_reads_are_dead_lettered_after_the_limit(
    rabbitmq, pair, make_link, name, is_edited,
):
    """From a quorum queue, which says in the headers how often it has delivered the message."""
    deep = {}
    for _ in range(40):
        deep = {"a": deep}
    target = connect(pair[1].amqp_url, heartbeat_s=0).channel()
    target.queue_declare(name)
    with connect(rabbitmq.amqp_url) as connection:
        source = connection.channel()
        source.queue_declare(name + ".dead")
        source.queue_declare(name, durable=True, arguments={
            "x-queue-type": "quorum", "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": name + ".dead"})
        fill(source, name, 20)
        fill(source, name, 1, Properties(headers=deep), first=20)
        fill(source, name, 20, first=21)

        link = make_link(
            SourceEnd(rabbitmq.amqp_url, name), refusals=3,
            edit=(lambda properties, delivered: properties) if is_edited else None)
        link.start()
        until(lambda: link.status.moved == 40 and link.status.set_aside == 1)

        assert numbers(take_all(source, name + ".dead", 1)) == [20]
        assert sorted(set(numbers(take_all(target, name)))) == [*range(20), *range(21, 41)]
    target.connection.abort()


def test_queue_that_is_deleted_at_rabbitmq_cancels_and_is_waited_for(rabbitmq, pair, make_link, name):
    with connect(rabbitmq.amqp_url) as connection:
        source = connection.channel()
        source.queue_declare(name, durable=True)
        connect(pair[1].amqp_url).channel().queue_declare(name)
        link = make_link(SourceEnd(rabbitmq.amqp_url, name))
        link.start()
        until(lambda: link.status.state == "running")

        source.queue_delete(name)
        until(lambda: link.status.reconnects >= 2)
        error = link.status.error
        source.queue_declare(name, durable=True)
        fill(source, name, 10)
        until(lambda: link.status.moved == 10)

        assert error.startswith("source: 404 NOT_FOUND")
