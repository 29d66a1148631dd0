"""Links between two brokers that are processes of their own; either may be killed while messages move."""
import gevent
import pytest
from gevent import socket as gevent_socket

from gomq_py.client.backoff import Backoff
from gomq_py.client.connection import Connection
from gomq_py.config.settings import Settings
from gomq_py.content.properties import Properties
from gomq_py.hub.context import Hub
from gomq_py.links.ends import Source, Target
from gomq_py.links.link import Link
from tests.support.broker_process import BrokerProcess
from tests.support.ports import reserve
from tests.support.waiting import wait_until

QUICK = Backoff(first_s=0.01, most_s=0.2)


def connect(uri, **options):
    return Connection(uri, socket_module=gevent_socket, **options)


def until(predicate, **options):
    return wait_until(predicate, sleep=gevent.sleep, **options)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two brokers that keep their ports."""
    folder = tmp_path_factory.mktemp("pair")
    with (
        BrokerProcess(folder / "one", port=reserve()) as one,
        BrokerProcess(folder / "two", port=reserve()) as two,
    ):
        yield one, two


@pytest.fixture
def hub():
    hub = Hub(Settings())
    yield hub
    hub.close()
    gevent.sleep(0)


@pytest.fixture
def make_link(hub, pair, request):
    """A link from a queue of the first broker to one of the second, both named after the test."""
    links = []
    name = request.node.name

    def make(source=None, target=None, **options):
        one, two = pair
        options = {"connect": connect, "backoff": QUICK, **options}
        link = Link(
            hub, name, source or Source(one.amqp_url, name), target or Target(two.amqp_url, "", name),
            **options,
        )
        links.append(link)
        return link
    yield make
    for link in links:
        link.stop()
    until(lambda: all(link.has_ended for link in links))


@pytest.fixture
def queues(pair, request):
    """A channel at each broker, the queue of the test declared at both."""
    name = request.node.name
    channels = []
    for broker in pair:
        if not broker.is_running:
            broker.start()
        connection = connect(broker.amqp_url, heartbeat_s=0)
        channels.append(connection.channel())
        channels[-1].queue_declare(name, durable=True)
    yield name, *channels
    for channel in channels:
        channel.connection.abort()


def fill(channel, queue, count, properties=None, body=b"%d", first=0):
    """Publish numbered messages and wait for their confirms."""
    if not channel.confirming:
        channel.confirm_select()
    channel.publish_many(
        ("", queue, body % number, properties) for number in range(first, first + count))
    assert channel.wait_for_confirms()


def depth(channel, queue):
    return channel.queue_declare(queue, passive=True).message_count


def take_all(channel, queue):
    """Every message there is, in order."""
    tag = channel.consume(queue, no_ack=True)
    taken = []
    while (delivery := channel.next_delivery(0.3)) is not None:
        taken.append(delivery)
    channel.cancel(tag)
    return taken


def test_messages_arrive_in_order_as_they_were_published(queues, make_link):
    queue, source, target = queues
    properties = Properties(
        content_type="text/plain", delivery_mode=2, headers={"a": 1, "b": [True, None, {"c": "d"}]},
        correlation_id="c", message_id="m", timestamp=1700000000, priority=3, app_id="here",
    )
    fill(source, queue, 10_000, properties)

    link = make_link()
    link.start()
    until(lambda: link.status.moved == 10_000)

    arrived = take_all(target, queue)
    assert [delivery.body for delivery in arrived] == [b"%d" % number for number in range(10_000)]
    assert {delivery.raw_properties for delivery in arrived} == {properties.encode()}
    assert depth(source, queue) == 0
    assert (link.status.state, link.status.error, link.status.unconfirmed) == ("running", "", 0)


@pytest.mark.parametrize("victim", ["source", "destination"])
def test_nothing_is_lost_when_a_broker_is_killed(queues, make_link, pair, victim):
    queue, source, target = queues
    fill(source, queue, 20_000, Properties(delivery_mode=2))
    broker = pair[0] if victim == "source" else pair[1]
    link = make_link()

    link.start()
    until(lambda: link.status.moved > 1000)
    broker.kill()
    until(lambda: link.status.state == "starting" and link.status.error)
    error = link.status.error
    broker.start()
    until(lambda: link.status.state == "running")
    if victim == "source":
        source = connect(pair[0].amqp_url).channel()
    else:
        target = connect(pair[1].amqp_url).channel()
    until(lambda: depth(source, queue) == 0 and not link.status.unconfirmed)
    link.stop()
    until(lambda: link.status.state == "stopped")

    assert error.startswith(f"{victim}: ")
    assert depth(source, queue) == 0
    numbers = [int(delivery.body) for delivery in take_all(target, queue)]
    assert set(numbers) == set(range(20_000))
    firsts = list(dict.fromkeys(numbers))
    assert firsts == sorted(firsts)


def consumers(channel, queue):
    return channel.queue_declare(queue, passive=True).consumer_count


def test_paused_link_keeps_its_connections_and_consumes_nothing(queues, make_link):
    queue, source, target = queues
    states = []
    link = make_link(on_change=lambda link: states.append(link.status.state))
    link.start()
    until(lambda: link.status.state == "running" and consumers(source, queue) == 1)

    link.pause()
    until(lambda: consumers(source, queue) == 0)
    fill(source, queue, 100)
    paused = link.status
    link.resume()
    until(lambda: link.status.moved == 100)

    assert (paused.state, paused.moved, paused.reconnects) == ("running", 0, 0)
    assert depth(target, queue) == 100
    assert link.status.reconnects == 0
    assert states == ["starting", "running"]


def test_what_has_come_before_a_pause_is_moved_and_acknowledged(queues, make_link, pair):
    queue, source, target = queues

    def pause_at_500(properties, delivered):
        if delivered.delivery_tag == 500:
            link.pause()
        return properties

    fill(source, queue, 20_000)
    link = make_link(target=Target(pair[1].amqp_url, "", queue, edit=pause_at_500))
    link.start()
    until(lambda: link.status.moved >= 500 and consumers(source, queue) == 0)
    until(lambda: depth(source, queue) + link.status.moved == 20_000 and not link.status.unconfirmed)

    moved = link.status.moved
    assert moved < 20_000
    assert depth(target, queue) == moved
    link.resume()
    until(lambda: link.status.moved == 20_000)
    assert [int(delivery.body) for delivery in take_all(target, queue)] == list(range(20_000))


def test_link_begins_paused_and_pauses_and_resumes_at_any_time(queues, make_link):
    queue, source, target = queues
    fill(source, queue, 10)
    link = make_link(paused=True)
    link.start()
    until(lambda: link.status.state == "running")
    assert consumers(source, queue) == 0

    for _ in range(50):  # faster than the broker answers
        link.resume()
        link.pause()
    link.resume()
    until(lambda: link.status.moved == 10)

    assert consumers(source, queue) == 1
    assert link.status.reconnects == 0
