"""Looking at messages and bringing them elsewhere over HTTP, seen by an AMQP client."""
import base64

import pika
import pytest

from tests.support.waiting import wait_until


def publish(channel, queue, bodies, **properties):
    channel.confirm_delivery()
    for body in bodies:
        channel.basic_publish("", queue, body, pika.BasicProperties(**properties))


def test_peeking_leaves_the_queue_as_it_is(api, channel, name):
    channel.queue_declare(name)
    publish(channel, name, [b"zero", b"one \xff", b"two"], headers={"n": 1})

    seen = api.get(f"queues/%2F/{name}/messages?count=5").json()

    assert [(one["position"], one["payload"], one["payload_encoding"]) for one in seen] == [
        (0, "zero", "string"), (1, base64.b64encode(b"one \xff").decode(), "base64"), (2, "two", "string")]
    assert (seen[0]["redelivered"], seen[0]["delivery_count"], seen[0]["properties"]) == (
        False, 0, {"headers": {"n": 1}}
    )
    assert (seen[0]["exchange"], seen[0]["routing_key"]) == ("", name)
    taken = [channel.basic_get(name, auto_ack=True) for _ in range(3)]
    assert [(method.redelivered, body) for method, _, body in taken] == [
        (False, b"zero"), (False, b"one \xff"), (False, b"two")
    ]


def test_peeking_pages_and_truncates(api, channel, name):
    channel.queue_declare(name)
    publish(channel, name, [b"%d" % number * 10 for number in range(10)])

    page = api.get(f"queues/%2F/{name}/messages?offset=3&count=2&truncate=4&encoding=base64").json()

    assert [(one["position"], base64.b64decode(one["payload"]), one["payload_bytes"]) for one in page] == [
        (3, b"3333", 10), (4, b"4444", 10)
    ]
    assert api.get(f"queues/%2F/{name}/messages?offset=10").json() == []


@pytest.mark.parametrize("query", ["count=1001", "count=-1", "offset=x", "encoding=hex", "truncate=-1"])
def test_peeking_has_bounds(api, channel, name, query):
    channel.queue_declare("bounded")

    assert api.get(f"queues/%2F/bounded/messages?{query}").status_code == 400


def test_moving_takes_what_matches(api, channel, name):
    channel.queue_declare(name)
    channel.queue_declare(f"{name}-to")
    publish(channel, name, [b"a"], headers={"kind": "bad"})
    publish(channel, name, [b"b"], headers={"kind": "good"})
    wanted = {"destination": f"{name}-to", "headers": {"kind": "bad"}}

    would = api.post(f"queues/%2F/{name}/move", {**wanted, "dry_run": True}).json()
    did = api.post(f"queues/%2F/{name}/move", wanted).json()

    assert would == {
        "dry_run": True, "examined": 2, "matched": 1, "moved": 1, "targets": {f"{name}-to": 1}, "stayed": {}
    }
    assert did == {**would, "dry_run": False}
    assert channel.basic_get(f"{name}-to", auto_ack=True)[2] == b"a"
    assert channel.basic_get(name, auto_ack=True)[2] == b"b"


def test_copying_leaves_the_originals(api, channel, name):
    channel.queue_declare(name)
    channel.queue_declare(f"{name}-to")
    publish(channel, name, [b"a"])

    assert api.post(f"queues/%2F/{name}/copy", {"destination": f"{name}-to"}).json()["copied"] == 1
    assert [channel.basic_get(queue, auto_ack=True)[2] for queue in (name, f"{name}-to")] == [b"a", b"a"]


@pytest.mark.parametrize("body, status", [
    ({}, 400), ({"destination": "nobody-made-this"}, 404), ({"destination": 5}, 400),
    ({"destination": "refusals", "count": 0}, 400),
    ({"destination": "refusals", "headers": []}, 400),
    ({"destination": "refusals", "routing_key": "x" * 256}, 400),
])
def test_moves_that_make_no_sense_are_refused(api, channel, name, body, status):
    channel.queue_declare("refusals")
    channel.queue_declare("refused")

    assert api.post("queues/%2F/refused/move", body).status_code == status
    assert api.post("queues/%2F/refused/move", {"destination": "refused"}).status_code == 400


def test_dead_letters_are_replayed(api, channel, name):
    channel.queue_declare(f"{name}-dead")
    channel.queue_declare(
        name, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}-dead"}
    )
    publish(channel, name, [b"job"])
    method, _, _ = channel.basic_get(name)
    channel.basic_reject(method.delivery_tag, requeue=False)
    wait_until(
        lambda: channel.queue_declare(f"{name}-dead", passive=True).method.message_count == 1,
        what="the dead letter",
    )

    answer = api.post(f"queues/%2F/{name}-dead/replay", {"x_death": "clean"}).json()

    assert answer["targets"] == {f"queue '{name}'": 1}
    _, properties, body = channel.basic_get(name, auto_ack=True)
    assert (body, properties.headers) == (b"job", {}) or (body, properties.headers) == (b"job", None)


def test_looking_takes_the_right_to_read_and_moving_that_to_write(api, channel, name):
    channel.queue_declare(name)
    channel.queue_declare("elsewhere")
    api.put("users/reader", {"password": "reader", "tags": "management"})
    api.put("permissions/%2F/reader", {"configure": "", "write": "", "read": ".*"})
    reader = api.as_user("reader", "reader")

    assert reader.get(f"queues/%2F/{name}/messages").status_code == 200
    assert reader.post(f"queues/%2F/{name}/move", {"destination": "elsewhere"}).status_code == 401
    api.put("permissions/%2F/reader", {"configure": "", "write": ".*", "read": "^$"})
    assert reader.get(f"queues/%2F/{name}/messages").status_code == 401
    assert reader.post(f"queues/%2F/{name}/replay", {}).status_code == 401


def test_getting_many_large_messages_takes_no_more_than_an_answer_may_hold(api, channel, name):
    """The rest stays in the queue, where the next request finds it."""
    channel.queue_declare(name)
    for _ in range(4):
        channel.basic_publish("", name, b"x" * 6 * 1024 * 1024)
    channel.queue_declare(name, passive=True)  # what was sent before has been done
    wanted = {"count": 10, "ackmode": "ack_requeue_false", "encoding": "auto", "truncate": 5}

    counts = [len(api.post(f"queues/%2F/{name}/get", wanted).json()) for _ in range(3)]

    assert counts == [3, 1, 0]


def test_queue_tells_how_many_of_its_messages_are_set_aside(api, channel, name):
    channel.queue_declare(name)

    queue = api.get(f"queues/%2F/{name}").json()

    assert (queue["messages_set_aside"], queue["set_aside_reasons"]) == (0, {})
