"""Queues, exchanges and bindings over HTTP, seen by AMQP clients and the other way round."""
import base64

import pytest

from tests.support.waiting import wait_until


def test_a_declared_queue_can_be_used_over_amqp(api, channel, name):
    created = api.put(f"queues/%2F/{name}", {"durable": True, "arguments": {"x-max-length": 5}})
    again = api.put(f"queues/%2F/{name}", {"durable": True, "arguments": {"x-max-length": 5}})

    channel.basic_publish("", name, b"one")
    method, _, body = channel.basic_get(name, auto_ack=True)

    assert (created.status_code, again.status_code) == (201, 204)
    assert body == b"one"


def test_redeclaring_a_queue_otherwise_says_what_differs(api, name):
    api.put(f"queues/%2F/{name}", {"durable": True})

    refused = api.put(f"queues/%2F/{name}", {"durable": False})

    assert refused.status_code == 400
    assert refused.json() == {
        "error": "bad_request",
        "reason": (
            f"inequivalent arg 'durable' for queue '{name}' in vhost '/': "
            "received 'false' but current is 'true'"
        ),
    }


def test_a_queue_shows_its_messages_and_consumers(api, channel, name):
    channel.queue_declare(name)
    channel.confirm_delivery()
    for number in range(3):
        channel.basic_publish("", name, b"%d" % number)
    channel.basic_qos(prefetch_count=1)
    channel.basic_consume(name, lambda *_: None, consumer_tag="looker")

    wait_until(lambda: api.get(f"queues/%2F/{name}").json()["messages_unacknowledged"], what="a delivery")
    shape = api.get(f"queues/%2F/{name}").json()

    assert (shape["messages"], shape["messages_ready"], shape["messages_unacknowledged"]) == (3, 2, 1)
    assert shape["consumers"] == 1
    assert [consumer["consumer_tag"] for consumer in shape["consumer_details"]] == ["looker"]
    assert shape["message_stats"]["publish"] == 3


def test_a_missing_queue_is_not_found(api):
    missing = api.get("queues/%2F/nobody-made-this")

    assert missing.status_code == 404
    assert missing.json() == {"error": "Object Not Found", "reason": "Not Found"}


def test_an_unknown_vhost_is_not_found_when_declaring(api):
    refused = api.put("queues/nowhere/q")

    assert refused.status_code == 404
    assert refused.json() == {"error": "not_found", "reason": "vhost_not_found"}


@pytest.mark.parametrize("queue", ["a/b", "per%cent", "sp ace", "späti", "?q=1&x", "a%2Fb"])
def test_any_name_can_be_named_in_a_path(api, channel, queue):
    from urllib.parse import quote
    channel.queue_declare(queue)

    shape = api.get(f"queues/%2F/{quote(queue, safe='')}").json()

    assert shape["name"] == queue
    channel.queue_delete(queue)


def test_deleting_only_if_empty_refuses_a_queue_with_messages(api, channel, name):
    channel.queue_declare(name)
    channel.confirm_delivery()
    channel.basic_publish("", name, b"x")

    refused = api.delete(f"queues/%2F/{name}?if-empty=true")
    deleted = api.delete(f"queues/%2F/{name}")

    assert refused.status_code == 400
    assert refused.json()["reason"] == f"queue '{name}' in vhost '/' not empty"
    assert deleted.status_code == 204
    assert api.get(f"queues/%2F/{name}").status_code == 404


def test_purging_empties_a_queue(api, channel, name):
    channel.queue_declare(name)
    channel.confirm_delivery()
    channel.basic_publish("", name, b"x")

    assert api.delete(f"queues/%2F/{name}/contents").status_code == 204
    assert api.get(f"queues/%2F/{name}").json()["messages"] == 0


def test_a_paused_queue_delivers_nothing_until_it_is_resumed(api, channel, name):
    channel.queue_declare(name)
    api.put(f"queues/%2F/{name}/pause")
    channel.confirm_delivery()
    channel.basic_publish("", name, b"later")

    while_paused = channel.basic_get(name, auto_ack=True)
    api.put(f"queues/%2F/{name}/resume")
    afterwards = channel.basic_get(name, auto_ack=True)

    assert while_paused == (None, None, None)
    assert afterwards[2] == b"later"


def test_published_messages_are_routed_and_can_be_got(api, channel, name):
    channel.queue_declare(name)
    message = {
        "properties": {"delivery_mode": 2, "headers": {"n": 7}}, "routing_key": name, "payload": "hällo",
        "payload_encoding": "string",
    }

    routed = api.post("exchanges/%2F/amq.default/publish", message)
    nowhere = api.post("exchanges/%2F/amq.default/publish", message | {"routing_key": "no-such-queue"})
    got = api.post(f"queues/%2F/{name}/get", {"count": 5, "ackmode": "ack_requeue_true", "encoding": "auto"})

    assert (routed.json(), nowhere.json()) == ({"routed": True}, {"routed": False})
    assert [(one["payload"], one["payload_encoding"], one["properties"]) for one in got.json()] == [
        ("hällo", "string", {"delivery_mode": 2, "headers": {"n": 7}})]


@pytest.mark.parametrize("mode, left", [
    ("ack_requeue_true", 1), ("ack_requeue_false", 0), ("reject_requeue_true", 1), ("reject_requeue_false", 0)
])
def test_what_becomes_of_a_message_that_was_got_is_the_callers_choice(api, channel, mode, left):
    queue = f"got-{mode}"
    channel.queue_declare(queue)
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"\xff\x00")

    got = api.post(f"queues/%2F/{queue}/get", {"count": 1, "ackmode": mode, "encoding": "auto"}).json()

    assert base64.b64decode(got[0]["payload"]) == b"\xff\x00"
    assert got[0]["payload_encoding"] == "base64"
    assert api.get(f"queues/%2F/{queue}").json()["messages_ready"] == left


def test_getting_without_saying_how_names_every_missing_key(api, channel, name):
    channel.queue_declare(name)

    refused = api.post(f"queues/%2F/{name}/get", {"count": 1})

    assert refused.status_code == 400
    assert refused.json()["reason"] == "[{key_missing,ackmode},{key_missing,encoding}]"


def test_a_binding_is_made_named_and_removed(api, channel, name):
    channel.queue_declare(name)
    api.put(f"exchanges/%2F/x-{name}", {"type": "topic"})

    made = api.post(f"bindings/%2F/e/x-{name}/q/{name}", {"routing_key": "a.#", "arguments": {"n": 1}})
    place = f"bindings/%2F/e/x-{name}/q/" + made.headers["Location"]
    channel.basic_publish(f"x-{name}", "a.b", b"bound")
    channel.queue_declare(name, passive=True)  # what was sent before has been done
    listed = api.get(f"bindings/%2F/e/x-{name}/q/{name}").json()
    removed = api.delete(place)

    assert made.status_code == 201
    assert [(one["routing_key"], one["arguments"]) for one in listed] == [("a.#", {"n": 1})]
    assert removed.status_code == 204
    assert api.get(f"bindings/%2F/e/x-{name}/q/{name}").json() == []
    assert channel.basic_get(name, auto_ack=True)[2] == b"bound"


def test_an_unknown_exchange_type_is_a_bad_request(api, name):
    refused = api.put(f"exchanges/%2F/{name}", {"type": "nope"})

    assert refused.status_code == 400
    assert refused.json()["reason"] == "unknown exchange type 'nope'"


def test_every_queue_is_bound_to_the_default_exchange(api, channel, name):
    channel.queue_declare(name)

    bindings = api.get(f"queues/%2F/{name}/bindings").json()

    assert bindings == [{
        "source": "", "vhost": "/", "destination": name, "destination_type": "queue", "routing_key": name,
        "arguments": {}, "properties_key": name,
    }]


def test_the_firehose_of_a_vhost_is_switched_with_tracing(api, channel):
    channel.queue_declare("firehose", exclusive=True)
    channel.queue_bind("firehose", "amq.rabbitmq.trace", "publish.#")

    assert api.put("vhosts/%2F", {"tracing": True}).status_code == 204
    assert api.get("vhosts/%2F").json()["tracing"] is True
    channel.basic_publish("amq.fanout", "key", b"traced")
    channel.queue_declare("firehose", passive=True)  # what was sent before has been done
    assert api.put("vhosts/%2F", {"tracing": False}).status_code == 204
    channel.basic_publish("amq.fanout", "key", b"not traced")

    method, _, payload = channel.basic_get("firehose", auto_ack=True)
    assert (method.routing_key, payload) == ("publish.amq.fanout", b"traced")
    assert channel.basic_get("firehose", auto_ack=True) == (None, None, None)
    assert api.get("vhosts/%2F").json()["tracing"] is False


def test_firehose_tells_what_the_api_publishes_and_gets(api, channel, name):
    channel.queue_declare("firehose", exclusive=True)
    channel.queue_declare(name)
    channel.queue_bind("firehose", "amq.rabbitmq.trace", "#")
    api.put("vhosts/%2F", {"tracing": True})
    body = {
        "properties": {"headers": {"a": 1}}, "routing_key": name, "payload": "by hand",
        "payload_encoding": "string",
    }
    assert api.post("exchanges/%2F/amq.default/publish", body).json() == {"routed": True}
    wanted = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
    assert api.post(f"queues/%2F/{name}/get", wanted).json()[0]["payload"] == "by hand"
    api.put("vhosts/%2F", {"tracing": False})

    told = [channel.basic_get("firehose", auto_ack=True) for _ in range(2)]

    assert [(method.routing_key, payload) for method, _, payload in told] == [
        ("publish.", b"by hand"), (f"deliver.{name}", b"by hand")
    ]
    published, delivered = (properties.headers for _, properties, _ in told)
    assert (
        published["user"], published["channel"], published["routed_queues"], published["routing_keys"]
    ) == ("guest", 1, [name], [name])
    assert published["connection"].startswith("HTTP ")
    assert (delivered["redelivered"], delivered["properties"]["headers"]) == (0, {"a": 1})


def test_what_the_api_publishes_expires_and_goes_to_cc_and_bcc(api, channel, name):
    for queue in (name, f"{name}.cc", f"{name}.bcc"):
        channel.queue_declare(queue)
    body = {
        "properties": {"expiration": "3600000", "headers": {"CC": [f"{name}.cc"], "BCC": [f"{name}.bcc"]}},
        "routing_key": name, "payload": "x",
        "payload_encoding": "string"}
    assert api.post("exchanges/%2F/amq.default/publish", body).json() == {"routed": True}
    got = [channel.basic_get(queue, auto_ack=True) for queue in (name, f"{name}.cc", f"{name}.bcc")]
    assert [properties.headers for _, properties, _ in got] == [{"CC": [f"{name}.cc"]}] * 3

    body["properties"] = {"expiration": "0"}
    assert api.post("exchanges/%2F/amq.default/publish", body).json() == {"routed": True}
    assert channel.basic_get(name, auto_ack=True) == (None, None, None)


@pytest.mark.parametrize("properties", [
    {"user_id": "somebody"}, {"delivery_mode": 3}, {"delivery_mode": 999}, {"priority": -1},
    {"priority": True}, {"timestamp": -5},
    {"timestamp": 2**63}, {"app_id": "x" * 256}, {"type": 5}, {"headers": [1]}, {"headers": {"x" * 256: 1}},
    {"expiration": 5}, {"expiration": "soon"}, {"expiration": "-1"}, {"expiration": "315360000001"},
    {"headers": {"CC": "no array"}},
    {"headers": {"BCC": ["." * 1024]}}])
def test_publish_with_properties_that_are_wrong_is_refused(api, channel, name, properties):
    channel.queue_declare(name)
    body = {"properties": properties, "routing_key": name, "payload": "x", "payload_encoding": "string"}

    assert api.post("exchanges/%2F/amq.default/publish", body).status_code == 400
    assert channel.basic_get(name, auto_ack=True) == (None, None, None)


def test_message_that_a_full_queue_refused_may_be_published_again(api, channel, name):
    """Its id does not count as seen: with deduplication,
    whoever tries again would be told for ever that nobody took it.
    """
    channel.exchange_declare(name, "direct", arguments={"x-message-deduplication": True, "x-cache-size": 10})
    channel.queue_declare(name, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.queue_bind(name, name, "k")
    body = {
        "properties": {"headers": {"x-deduplication-header": "one"}}, "routing_key": "k", "payload": "x",
        "payload_encoding": "string",
    }
    channel.confirm_delivery()
    channel.basic_publish("", name, b"fills")

    refused = api.post(f"exchanges/%2F/{name}/publish", body).json()
    channel.queue_purge(name)
    again = api.post(f"exchanges/%2F/{name}/publish", body).json()
    channel.queue_purge(name)
    duplicate = api.post(f"exchanges/%2F/{name}/publish", body).json()

    assert (refused, again, duplicate) == ({"routed": False}, {"routed": True}, {"routed": False})
    channel.exchange_delete(name)


def test_tracing_that_is_no_truth_is_refused(api):
    assert api.put("vhosts/%2F", {"tracing": "yes"}).status_code == 400


@pytest.mark.parametrize("path", ["queues/%2F/{}", "exchanges/%2F/{}", "vhosts/{}"])
@pytest.mark.parametrize("long", ["n" * 256, "%C3%A4" * 128])
def test_names_that_amqp_cannot_hold_are_refused(api, path, long):
    refused = api.put(path.format(long), {"type": "topic"})

    assert refused.status_code == 400 and "longer than 255" in refused.json()["reason"]
    assert api.get(path.format(long)).status_code == 404


def test_a_path_that_is_no_utf_8_is_refused(api):
    """It would be taken for another name."""
    assert api.put("queues/%2F/%ff%fe").status_code == 400


@pytest.mark.parametrize("query", [
    "page=%D9%A3", "page=+1", "page=1_0", "page=" + "9" * 5000, "page=0", "page=-1", "page=1&page_size=501"
])
def test_a_page_that_is_no_number_is_refused(api, query):
    assert api.get(f"queues?{query}").status_code == 400


@pytest.mark.parametrize("number", [
    "--1", "-", "%C2%B2", "%D9%A3", "+1", "1_0", "0" * 5000 + "1", "9" * 5000
])
@pytest.mark.parametrize("path", [
    "queues?page={}", "queues/%2F/numbered/messages?count={}",
    "queues/%2F/numbered?lengths_age={}&lengths_incr=1", "health/checks/port-listener/{}",
])
def test_a_number_that_is_none_is_refused_wherever_there_is_one(api, path, number):
    api.put("queues/%2F/numbered", json={})

    assert api.get(path.format(number)).status_code == 400


@pytest.mark.parametrize("path, fields, reason", [
    ("users", {"tags": ["t"] * 65}, "65 tags are over the limit of 64"),
    ("users", {"tags": ",".join("t" * 65)}, "65 tags are over the limit of 64"),
    ("users", {"tags": ["\u00e4" * 128]}, "a tag is longer than 255 bytes"),
    ("vhosts", {"tags": ["t"] * 65}, "65 tags are over the limit of 64"),
    ("vhosts", {"tags": ["t" * 256]}, "a tag is longer than 255 bytes"),
    ("vhosts", {"description": "d" * 4097}, "description is longer than 4096 bytes"),
])
def test_labels_that_would_make_lists_long_are_refused_for_new_and_old(api, path, fields, reason):
    """Each list of users or virtual hosts shows all of them."""
    fits = {"tags": ["t" * 255] * 64, "description": "d" * 4096, "password": "x"}

    refused = api.put(f"{path}/labelled", {"password": "x", "tags": [], **fields})
    assert (refused.status_code, refused.json()) == (400, {"error": "bad_request", "reason": reason})
    assert api.get(f"{path}/labelled").status_code == 404

    assert api.put(f"{path}/labelled", fits).status_code == 201
    assert api.put(f"{path}/labelled", {"password": "x", "tags": [], **fields}).status_code == 400
    assert api.get(f"{path}/labelled").json()["tags"] == ["t" * 255] * 64
    api.delete(f"{path}/labelled")


def test_user_names_that_no_message_can_name_are_refused(api):
    refused = api.put(f"users/{'n' * 256}", {"password": "x", "tags": ""})

    assert (refused.status_code, refused.json()["reason"]) == (400, "user name is longer than 255 bytes")
    assert api.get(f"users/{'n' * 256}").status_code == 404
