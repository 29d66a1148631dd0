"""Streams over HTTP: offsets, segments and their octets, positions;
what Spark and other readers of many messages need.
"""
import contextlib
import os
import re
from collections import Counter

import pika
import pytest
import requests

from gomq_py.storage.format.head import HEAD_BYTES, decode
from gomq_py.storage.format.record import RecordScanner
from tests.support.waiting import in_time, wait_until

STREAM = {"x-queue-type": "stream"}


@pytest.fixture
def stream(api, channel, name):
    """The name of a stream with the messages 0 to 9."""
    name = re.sub("\\W", "-", name)
    channel.queue_declare(name, durable=True, arguments=STREAM)
    channel.confirm_delivery()
    for number in range(10):
        channel.basic_publish("", name, b"%d" % number, pika.BasicProperties(delivery_mode=2))
    yield name
    api.delete(f"queues/%2F/{name}")


def test_stream_shows_its_offsets(api, stream):
    shape = api.get(f"streams/%2F/{stream}").json()

    assert {
        key: shape[key] for key in ("first_offset", "next_offset", "synced_offset", "messages", "segments")
    } == {
        "first_offset": 0, "next_offset": 10, "synced_offset": 10, "messages": 10, "segments": 1}
    assert len(shape["epoch"]) == 32
    assert api.get(f"queues/%2F/{stream}").json()["type"] == "stream"


def test_segments_can_be_read_as_they_are_on_disk(api, stream):
    listing = api.get(f"streams/%2F/{stream}/segments").json()
    part, = listing["segments"]

    answer = api.get(f"streams/%2F/{stream}/segments/{part['number']}", params={"epoch": listing["epoch"]})

    octets = answer.content
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert len(octets) == part["bytes"]
    head = decode(octets[:HEAD_BYTES])
    assert (head.first_offset, head.incarnation.hex()) == (0, listing["epoch"])
    scanner = RecordScanner(octets, HEAD_BYTES, len(octets), head.seed, head.begun_ms)
    bodies = []
    while scanner.next():
        start = scanner.routing_at + scanner.routing_length + scanner.properties_length
        bodies.append((head.first_offset + scanner.ordinal, octets[start:start + scanner.body_length]))
    assert bodies == [(number, b"%d" % number) for number in range(10)]


@pytest.mark.parametrize("verb", ["HEAD", "GET"])
def test_read_of_a_segment_leaves_no_descriptor_open(api, stream, managed, verb):
    """The body of an answer to HEAD is never begun."""
    url = f"{api.base}/api/streams/%2F/{stream}/segments/1"

    def opened():
        """How many descriptors the most opened segment has."""
        links = Counter()
        for fd in os.listdir(f"/proc/{managed.pid}/fd"):
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                links[os.readlink(f"/proc/{managed.pid}/fd/{fd}")] += 1
        return max((count for link, count in links.items() if "/msgs." in link), default=0)

    for _ in range(5):
        assert requests.request(verb, url, auth=("guest", "guest"), timeout=in_time(60)).ok

    wait_until(lambda: opened() < 5)


@pytest.mark.parametrize("query, wanted", [
    ("offset=0&length=4", slice(0, 4)), ("offset=10", slice(10, None)), ("length=0", slice(0, 0)),
    ("offset=99999999999", slice(0, 0)),
    ("offset=100&length=99999999999", slice(100, None)),
])
def test_a_range_is_cut_to_what_may_be_read(api, stream, query, wanted):
    whole = api.get(f"streams/%2F/{stream}/segments/1").content

    assert api.get(f"streams/%2F/{stream}/segments/1?{query}").content == whole[wanted]


@pytest.mark.parametrize("path, status", [
    ("segments/2", 404), ("segments/1?epoch=0", 404), ("segments/1?offset=-1", 400),
    ("segments/1?length=x", 400), ("offset", 400),
    ("offset?timestamp=soon", 400), ("segments/x", 404),
])
def test_what_is_not_there_or_makes_no_sense_is_refused(api, stream, path, status):
    assert api.get(f"streams/%2F/{stream}/{path}").status_code == status


def test_a_queue_is_no_stream(api, channel, name):
    channel.queue_declare(name)

    assert api.get(f"streams/%2F/{name}").status_code == 404
    assert api.get("streams/%2F/nowhere").status_code == 404


@pytest.fixture
def reader(api, request):
    """A function that lets a user in with this read permission and no tag, and returns its API."""
    def let_in(read):
        api.put("users/reader", {"password": "reader", "tags": ""})
        api.put("permissions/%2F/reader", {"configure": "", "write": ".*", "read": read})
        return api.as_user("reader", "reader")
    yield let_in
    api.delete("users/reader")


READS = ("", "/segments", "/segments/1", "/offset?timestamp=0", "/messages")


@pytest.mark.parametrize("path", READS)
def test_reading_needs_read_permission(reader, stream, path):
    assert reader("").get(f"streams/%2F/{stream}{path}").status_code == 401


@pytest.mark.parametrize("path", READS)
def test_read_permission_is_enough_without_a_tag(reader, stream, path):
    assert reader(f"^{stream}$").get(f"streams/%2F/{stream}{path}").status_code == 200


def test_positions_are_forgotten_for_users_of_the_api_only(reader, stream):
    assert reader(".*").delete(f"streams/%2F/{stream}/offsets/joe").status_code == 401


def test_the_streams_that_a_user_may_read_are_listed(api, channel, reader, stream):
    channel.queue_declare(f"{stream}-queue")
    channel.queue_declare(f"{stream}-other", durable=True, arguments=STREAM)

    def names(door):
        return [one["name"] for one in door.get("streams/%2F").json()["streams"]]
    try:
        assert names(reader(f"^{stream}$")) == [stream]
        assert names(reader("")) == []
        assert {stream, f"{stream}-other"} <= set(names(api)) and f"{stream}-queue" not in names(api)
        assert api.get("streams/nowhere").status_code == 404
    finally:
        channel.queue_delete(f"{stream}-queue")
        channel.queue_delete(f"{stream}-other")


def test_offset_for_a_timestamp(api, stream):
    first = api.get(f"streams/%2F/{stream}/segments").json()["segments"][0]

    def offset(timestamp_ms):
        return api.get(f"streams/%2F/{stream}/offset?timestamp={timestamp_ms}").json()["offset"]
    assert offset(0) == offset(first["first_timestamp_ms"]) == 0
    assert offset(first["last_timestamp_ms"]) <= 9
    assert offset(first["last_timestamp_ms"] + 1) == 10


def test_recreated_stream_has_another_epoch(api, channel, stream):
    before = api.get(f"streams/%2F/{stream}").json()["epoch"]
    channel.queue_delete(stream)
    channel.queue_declare(stream, durable=True, arguments=STREAM)

    after = api.get(f"streams/%2F/{stream}").json()

    assert after["epoch"] != before
    assert (after["first_offset"], after["next_offset"]) == (0, 0)


def test_consumers_show_their_lag_and_positions_can_be_forgotten(api, channel, stream):
    channel.basic_qos(prefetch_count=4)
    taken = []

    def take(channel_, method, _properties, body):
        taken.append(body)
        if len(taken) <= 2:
            channel_.basic_ack(method.delivery_tag)
    channel.basic_consume(stream, take, consumer_tag="joe", arguments={
        "x-stream-offset": "first", "x-stream-automatic-offset-tracking": True})
    while len(taken) < 6:
        channel.connection.process_data_events(0.1)

    exposed = api.request("GET", "../metrics/per-object").text
    assert f'gomq_stream_consumer_lag{{vhost="/",queue="{stream}",consumer_tag="joe"}} 4\n' in exposed
    shape = api.get(f"streams/%2F/{stream}").json()
    assert shape["consumers"] == [
        {"consumer_tag": "joe", "offset": 6, "position": 2, "lag": 4, "unacknowledged": 4}
    ]
    assert [(kept["consumer_tag"], kept["offset"]) for kept in shape["offsets"]] == [("joe", 2)]
    assert api.delete(f"streams/%2F/{stream}/offsets/joe").status_code == 204
    assert api.delete(f"streams/%2F/{stream}/offsets/joe").status_code == 404
    assert api.get(f"streams/%2F/{stream}").json()["offsets"] == []


def test_purge_over_http_keeps_the_offsets(api, stream):
    assert api.delete(f"queues/%2F/{stream}/contents").status_code == 204

    shape = api.get(f"streams/%2F/{stream}").json()
    assert (shape["first_offset"], shape["next_offset"], shape["messages"]) == (10, 10, 0)


def test_messages_are_looked_at_from_an_offset_on(api, stream):
    answer = api.get(f"streams/%2F/{stream}/messages?offset=7&count=2")

    assert [(one["position"], one["payload"], one["routing_key"]) for one in answer.json()] == [
        (7, "7", stream), (8, "8", stream)]
    assert [one["position"] for one in api.get(f"streams/%2F/{stream}/messages?offset=8").json()] == [8, 9]
    assert api.get(f"streams/%2F/{stream}/messages?offset=10").json() == []
    assert api.get(f"streams/%2F/{stream}/messages?offset={1 << 62}").json() == []
    assert api.get(f"streams/%2F/{stream}").json()["consumers"] == []
