"""Destinations whose disk is full: no message's fault, whatever the limit of refusals is."""
import pytest

from gomq_py.broker.transfer import engine
from gomq_py.content.properties import Properties
from gomq_py.links import poison_detection
from gomq_py.links.ends import TargetEnd
from tests.e2e.links.test_refusals import dead_letters
from tests.support.ill_disk import IllDisk, SmallDisk
from tests.support.links import connect, depth, fill, numbers, take_all, until
from tests.support.waiting import in_time

PERSISTENT = Properties(delivery_mode=2)
BODY = b"%d " + b"x" * 20_000


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "gomq.ini"
    path.write_text("[main]\nsegment_size = 1048576\n")
    return path


@pytest.fixture
def fill_source(queues):
    """``fill_source(count)`` publishes so many more to the source; what is dead-lettered there is in
    ``fill_source.dead``.
    """
    queue, source, _ = queues
    published = [0]

    def publish(count):
        fill(source, queue, count, PERSISTENT, BODY, published[0])
        published[0] += count
    publish.dead = dead_letters(source, queue)
    return publish


def destination(broker, queue):
    """A channel at the broker, where there is a durable queue of this name."""
    channel = connect(broker.amqp_url, heartbeat_s=0).channel()
    channel.queue_declare(queue, durable=True)
    return channel


def test_disk_that_fills_up_under_a_link_is_waited_for(
    tmp_path, config, queues, fill_source, make_link, monkeypatch,
):
    """It refuses first, and says that it takes nothing once it has looked."""
    monkeypatch.setattr(poison_detection, "NACKED_S", in_time(60))
    queue, source, _ = queues
    (tmp_path / "small").mkdir()
    with SmallDisk(tmp_path / "small", 24 << 20) as disk:
        if disk is None:
            pytest.skip("this machine does not let us mount a file system of our own (unshare -rm)")
        with disk.broker(config=config) as broker:
            target = destination(broker, queue)
            link = make_link(target=TargetEnd(broker.amqp_url, "", queue), refusals=1)
            link.start()
            fill_source(50)
            until(lambda: link.status.moved == 50)

            disk.fill()
            fill_source(200)
            until(lambda: link.status.blocked)
            disk.free()
            until(lambda: link.status.moved == 250)

            assert (link.status.set_aside, depth(source, fill_source.dead)) == (0, 0)
            assert sorted(set(numbers(take_all(target, queue)))) == list(range(250))


def test_refusals_of_a_disk_that_is_full_for_a_short_time_give_nothing_up(
    tmp_path, config, queues, fill_source, make_link, monkeypatch,
):
    """For shorter than brokers take to say so."""
    monkeypatch.setattr(poison_detection, "NACKED_S", in_time(60))
    queue, source, _ = queues
    with IllDisk(tmp_path, config=config) as broker:
        target = destination(broker, queue)
        link = make_link(target=TargetEnd(broker.amqp_url, "", queue), refusals=1)
        link.start()
        broker.fall_ill("full")

        fill_source(400)
        until(lambda: link.status.refused)
        refused = link.status.refused
        until(lambda: link.status.refused >= refused + 2)  # again and again
        broker.recover("full")
        until(lambda: link.status.moved == 400)

        assert (link.status.set_aside, depth(source, fill_source.dead)) == (0, 0)
        assert sorted(set(numbers(take_all(target, queue)))) == list(range(400))


def test_disk_that_is_full_for_long_and_does_not_say_so_costs_few_messages(
    tmp_path, config, queues, fill_source, make_link, monkeypatch,
):
    """Each message that is given up after some others in a row has been refused twice as often."""
    monkeypatch.setattr(engine, "TRY_AGAIN_MS", 20)
    queue, source, _ = queues
    with IllDisk(tmp_path, config=config) as broker:
        target = destination(broker, queue)
        link = make_link(target=TargetEnd(broker.amqp_url, "", queue), refusals=1)
        link.start()
        broker.fall_ill("full")

        fill_source(400)
        until(lambda: link.status.set_aside > poison_detection.GIVEN_UP_FREELY)
        refused = link.status.refused
        until(lambda: link.status.refused > refused + 100)
        set_aside = link.status.set_aside
        broker.recover("full")
        until(lambda: link.status.moved == 400 - link.status.set_aside)

        assert set_aside <= poison_detection.GIVEN_UP_FREELY + 8
        assert depth(source, fill_source.dead) == link.status.set_aside
        arrived = {*numbers(take_all(target, queue)), *numbers(take_all(source, fill_source.dead))}
        assert sorted(arrived) == list(range(400))
