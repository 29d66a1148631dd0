"""Links between two brokers that are processes of their own."""
from functools import partial

import pytest

from gomq_py.content.properties import Properties
from tests.support.links import (
    connect, consumers, depth, ended, fill, numbers, take_all, until,
)


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


def test_what_has_come_before_a_pause_is_moved_and_acknowledged(queues, make_link):
    queue, source, target = queues

    def pause_at_500(properties, delivered):
        if delivered.delivery_tag == 500:
            link.pause()
        return properties

    fill(source, queue, 20_000)
    link = make_link(edit=pause_at_500)
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


@pytest.mark.parametrize("mode", ["on-publish", "no-ack"])
def test_other_ack_modes_move_everything_in_order(queues, make_link, mode):
    queue, source, target = queues
    fill(source, queue, 5000)

    link = make_link(ack_mode=mode)
    link.start()
    until(lambda: depth(target, queue) == 5000)
    until(lambda: link.status.moved == 5000)

    assert numbers(take_all(target, queue, 5000)) == list(range(5000))
    assert depth(source, queue) == 0
    ended(link)
    assert depth(source, queue) == 0


@pytest.mark.parametrize("mode", ["on-confirm", "on-publish", "no-ack"])
@pytest.mark.parametrize("count", [1, 1001])
def test_link_ends_after_so_many_messages_and_takes_no_more(queues, make_link, mode, count):
    queue, source, target = queues
    fill(source, queue, 3000)
    reasons = []

    link = make_link(
        ack_mode=mode, delete_after=count, on_end=lambda link, reason: reasons.append(reason))
    link.start()
    until(lambda: link.has_ended)

    assert reasons == ["terminated"]
    assert (link.status.state, link.status.moved) == ("terminated", count)
    assert numbers(take_all(target, queue, depth(target, queue))) == list(range(count))
    until(lambda: depth(source, queue) == 3000 - count)


def test_queue_length_is_what_waits_when_the_link_first_connects(queues, make_link):
    queue, source, target = queues
    fill(source, queue, 1500)

    def publish_more(properties, delivered):
        if delivered.delivery_tag == 1:
            source.publish_many(("", queue, b"late", None) for _ in range(100))
        return properties

    link = make_link(edit=publish_more, delete_after="queue-length")
    link.start()
    until(lambda: link.has_ended)

    assert (link.status.state, link.status.moved) == ("terminated", 1500)
    assert depth(target, queue) == 1500
    until(lambda: depth(source, queue) == 100)


def test_link_from_an_empty_queue_ends_at_once_where_it_moves_what_is_there(queues, make_link):
    link = make_link(delete_after="queue-length")
    link.start()
    until(lambda: link.has_ended)

    assert (link.status.state, link.status.moved) == ("terminated", 0)


@pytest.mark.parametrize("source_max, target_max", [(131072, 4096), (4096, 131072), (4096, 4096)])
def test_bodies_are_cut_into_frames_that_the_other_side_takes(queues, make_link, source_max, target_max):
    queue, source, target = queues
    sizes = [0, 1, 4087, 4088, 4089, 8176, 8177, 131_064, 131_072, 131_073, 200_000, 1_000_000]
    bodies = [bytes([number]) * size for number, size in enumerate(sizes)]
    properties = Properties(headers={"long": "x" * 3000})
    source.confirm_select()
    source.publish_many(("", queue, body, properties) for body in bodies)
    assert source.wait_for_confirms()

    link = make_link(
        connect=partial(connect, frame_max=source_max), connect_target=partial(connect, frame_max=target_max))
    link.start()
    until(lambda: link.status.moved == len(bodies))

    arrived = take_all(target, queue, len(bodies))
    assert [delivery.body for delivery in arrived] == bodies
    assert {delivery.raw_properties for delivery in arrived} == {properties.encode()}
    assert link.status.reconnects == 0


def test_messages_left_out_by_an_edit_are_settled_and_not_sent(queues, make_link):
    queue, source, target = queues
    fill(source, queue, 2000)

    def drop_odd(properties, delivered):
        properties.headers = {"tag": delivered.delivery_tag}
        return properties if delivered.delivery_tag % 2 else None  # the first has number 0

    link = make_link(edit=drop_odd)
    link.start()
    until(lambda: link.status.moved == 2000)

    arrived = take_all(target, queue, 1000)
    assert numbers(arrived) == list(range(0, 2000, 2))
    assert [delivery.properties.headers["tag"] for delivery in arrived] == list(range(1, 2000, 2))
    assert depth(source, queue) == depth(target, queue) == 0
