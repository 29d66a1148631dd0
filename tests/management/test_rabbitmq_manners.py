"""Corner cases as a live RabbitMQ 3.10 (or 4.3, where it says so) answered them: who may read, whose queue
it is, keys of bindings, short lists, refusals of policies.
"""
import socket
from urllib.parse import quote

import pika
import pytest

from tests.management.conftest import API
from tests.support.waiting import in_time, wait_until

LOCKED = "cannot obtain exclusive access to locked queue"
GET = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
MESSAGE = {"properties": {}, "payload": "x", "payload_encoding": "string"}


@pytest.mark.parametrize("kind", ["permissions", "topic-permissions"])
@pytest.mark.parametrize("whose", ["%2F/no-user", "nowhere/guest"])
@pytest.mark.parametrize("body", [{"configure": "", "write": "", "read": "", "exchange": "x"}, {}])
def test_rights_for_nobody_or_nowhere_are_a_mistake_of_the_caller(api, kind, whose, body):
    refused = api.put(f"{kind}/{whose}", body)

    assert (refused.status_code, refused.json()) == (
        400, {"error": "bad_request", "reason": "vhost_or_user_not_found"}
    )


def test_whoever_may_use_the_api_may_read_limits_of_users(api):
    api.put("users/limited", {"password": "x", "tags": "management"})
    api.put("user-limits/limited/max-channels", {"value": 4})
    reader = api.as_user("limited", "x")

    assert {"user": "limited", "value": {"max-channels": 4}} in reader.get("user-limits").json()
    assert reader.get("user-limits/limited").json() == [{"user": "limited", "value": {"max-channels": 4}}]
    assert reader.put("user-limits/limited/max-channels", {"value": 5}).status_code == 401


@pytest.mark.parametrize("kind", ["queues", "exchanges"])
def test_what_is_to_be_kept_on_another_node_is_not_kept_here(api, kind, name):
    place = f"{kind}/%2F/{name}"

    refused = api.put(place, {"node": "rabbit@elsewhere"})

    assert (refused.status_code, refused.json()["reason"]) == (
        400, "Node rabbit@elsewhere could not be contacted"
    )
    assert api.get(place).status_code == 404
    assert api.put(place, {"node": api.get("overview").json()["node"]}).status_code == 201


def test_the_queue_of_one_connection_is_nobody_elses(api, channel, name):
    channel.queue_declare(name, exclusive=True)
    channel.basic_publish("", name, b"private")
    place = f"queues/%2F/{name}"

    refused = [
        api.post(f"{place}/get", GET), api.delete(f"{place}/contents"), api.delete(place), api.put(place),
        api.post(f"bindings/%2F/e/amq.topic/q/{name}", {"routing_key": "k"}),
    ]

    assert [answer.status_code for answer in refused] == [400] * 5
    assert all(LOCKED in answer.json()["reason"] for answer in refused)
    assert channel.basic_get(name, auto_ack=True)[2] == b"private"


def test_what_is_not_there_to_publish_to_or_get_from_is_told_as_over_amqp(api):
    """rabbitmqadmin shows the reason of a 400, and of a 404 only the path."""
    nowhere = api.post("exchanges/%2F/no-exchange/publish", {**MESSAGE, "routing_key": "x"})
    nothing = api.post("queues/%2F/no-queue/get", GET)

    reason = "404 NOT_FOUND - no exchange 'no-exchange' in vhost '/'"
    assert (nowhere.status_code, nowhere.json()) == (400, {"error": "bad_request", "reason": reason})
    assert (nothing.status_code, nothing.json()) == (
        404, {"error": "not_found", "reason": "NOT_FOUND - no queue 'no-queue' in vhost '/'"}
    )


@pytest.mark.parametrize("count, got", [(0, 0), (2, 2), (-1, 3)])
def test_a_count_below_zero_gets_all_messages(api, channel, name, count, got):
    channel.queue_declare(name)
    for _ in range(3):
        channel.basic_publish("", name, b"x")
    channel.queue_declare(name, passive=True)  # what was sent before has been done

    assert len(api.post(f"queues/%2F/{name}/get", {**GET, "count": count}).json()) == got


def test_what_is_no_property_is_passed_over(api, channel, name):
    """As is the empty array that PHP makes of an empty object."""
    channel.queue_declare(name)

    sent = api.post("exchanges/%2F/amq.default/publish", {
        **MESSAGE, "routing_key": name, "properties": {"wonder": 1, "type": "t", "headers": []}
    })

    assert sent.json() == {"routed": True}
    assert channel.basic_get(name, auto_ack=True)[1].type == "t"


@pytest.mark.parametrize("routing_key, properties_key", [
    ("", "~"), ("~", "%7E"), ("a~b", "a%7Eb"), ("a b", "a+b"), ("a+b", "a%2Bb"), ("#.*", "%23.%2A"),
    ("a/ä", "a%2F%C3%A4"),
])
def test_a_binding_is_named_by_its_escaped_key(api, channel, routing_key, properties_key):
    channel.queue_declare("keyed")
    channel.exchange_declare("keys", "direct")
    # whose names must not be taken for each other
    channel.queue_bind("keyed", "keys", "~" if routing_key == "" else "")
    channel.queue_bind("keyed", "keys", routing_key)
    place = "bindings/%2F/e/keys/q/keyed"

    listed = {one["routing_key"]: one["properties_key"] for one in api.get(place).json()}
    one = api.get(f"{place}/{quote(properties_key, safe='')}")

    assert listed[routing_key] == properties_key
    assert one.json()["routing_key"] == routing_key
    assert api.delete(f"{place}/{quote(properties_key, safe='')}").status_code == 204
    assert routing_key not in [left["routing_key"] for left in api.get(place).json()]


def test_the_binding_to_the_default_exchange_is_shown_and_stays(api, channel, name):
    queue = f"{name} ~"
    channel.queue_declare(queue)
    place = f"bindings/%2F/e/amq.default/q/{quote(queue)}"
    key = api.get(place).json()[0]["properties_key"]

    assert key == f"{name}+%7E"
    assert api.get(f"{place}/{quote(key)}").json()["destination"] == queue
    assert api.delete(f"{place}/{quote(key)}").status_code == 401


@pytest.mark.parametrize("path, reason", [
    ("%2F/e/nothing/q/nothing", "no exchange 'nothing' in vhost '/'"),
    ("%2F/e/amq.topic/q/nothing", "no queue 'nothing' in vhost '/'"),
    ("nowhere/e/amq.topic/q/nothing", "vhost_not_found"),
])
def test_binding_what_is_not_there_says_what_is_not(api, path, reason):
    refused = api.post(f"bindings/{path}", {"routing_key": "k"})

    assert (refused.status_code, refused.json()) == (404, {"error": "not_found", "reason": reason})


def test_single_things_are_cut_to_columns_as_lists_are(api, name):
    api.put(f"queues/%2F/{name}")

    assert api.get(f"queues/%2F/{name}?columns=name,arguments,nothing").json() == {
        "name": name, "arguments": {}
    }
    assert list(api.get("overview?columns=object_totals.queues,node").json()) == ["object_totals", "node"]
    assert list(api.get("overview?columns=object_totals.queues").json()["object_totals"]) == ["queues"]
    assert [list(node) for node in api.get("nodes?columns=name").json()] == [["name"]]
    assert list(api.get("definitions?columns=queues").json()) == ["queues"]
    assert len(api.get("overview?columns=").json()) > 10


def test_a_password_that_is_null_does_not_take_the_password_away(api):
    api.put("users/keeper", {"password": "kept", "tags": "management"})

    refused = api.put("users/keeper", {"password": None, "tags": "management"})

    assert (refused.status_code, refused.json()["reason"]) == (400, "password must be a string")
    assert api.as_user("keeper", "kept").get("whoami").status_code == 200


def test_tracing_may_be_a_word(api, name):
    """As rabbitmqadmin sends it."""
    vhost = f"vhosts/{name}"

    made = api.put(vhost, {"tracing": "true"})

    assert (made.status_code, api.get(vhost).json()["tracing"]) == (201, True)
    assert api.put(vhost, {"tracing": "false"}).status_code == 204
    assert api.get(vhost).json()["tracing"] is False
    api.delete(vhost)


def test_a_limit_below_zero_is_kept_and_means_none(api, name):
    api.put(f"vhosts/{name}")
    limits = f"vhost-limits/{name}"

    api.put(f"{limits}/max-queues", {"value": -1})
    api.put(f"{limits}/max-connections", {"value": 5})

    assert api.get(limits).json() == [{"vhost": name, "value": {"max-queues": -1, "max-connections": 5}}]
    assert api.put(f"queues/{name}/q").status_code == 201
    assert api.delete(f"{limits}/max-connections").status_code == 204
    assert api.get(limits).json()[0]["value"] == {"max-queues": -1}
    api.delete(f"vhosts/{name}")


def test_limits_that_were_imported_as_an_empty_list_can_be_set(api, name):
    """RabbitMQ exports such a list when the last limit was cleared."""
    api.put(f"vhosts/{name}")
    assert api.put(f"parameters/vhost-limits/{name}/limits", {"value": []}).status_code == 201
    assert api.get(f"vhost-limits/{name}").json() == []

    assert api.put(f"vhost-limits/{name}/max-queues", {"value": 7}).status_code == 204

    assert api.get(f"vhost-limits/{name}").json() == [{"vhost": name, "value": {"max-queues": 7}}]
    api.delete(f"vhosts/{name}")


def test_moving_to_what_is_not_there_says_so(api, channel, name):
    channel.queue_declare(name)

    refused = api.post(f"queues/%2F/{name}/move", {"destination": "nothing"})

    assert (refused.status_code, refused.json()["reason"]) == (404, "no queue 'nothing' in vhost '/'")


def test_lists_of_queues_without_statistics_are_short(api, channel, name):
    channel.queue_declare(name)
    channel.basic_publish("", name, b"x")
    channel.queue_declare(name, passive=True)  # what was sent before has been done
    itself = {"name", "vhost", "type", "node", "state", "durable", "auto_delete", "exclusive", "arguments"}

    def shown(query):
        return api.get(f"queues/%2F?name={name}&disable_stats=true{query}").json()[0]

    assert set(shown("")) == itself
    assert set(shown("&enable_queue_totals=true")) == itself | {
        "messages", "messages_ready", "messages_unacknowledged"
    }
    assert shown("&enable_queue_totals=true&columns=name,messages") == {"name": name, "messages": 1}
    assert "message_stats" in api.get(f"queues?name={name}&enable_queue_totals=true").json()[0]


@pytest.mark.parametrize("change, reason", [
    ({"definition": {}}, "no policy provided"),
    ({"definition": {"max-length": -1}}, "-1 is not a valid maximum length"),
    ({"definition": {"message-ttl": "x"}}, "'x' is not a valid message TTL"),
    ({"definition": {"expires": 0}}, "0 is not a valid queue expiry"),
    ({"definition": {"overflow": "bad"}}, "'bad' is not a valid overflow value"),
    ({"definition": {"nope": 1}}, "nope is not a recognised policy setting"),
    ({"definition": {"dead-letter-exchange": 1}}, "1 is not a valid dead letter exchange name"),
    ({"definition": {"ha-mode": "bad"}}, "'bad' is not a valid ha-mode value"),
    ({"definition": {"queue-mode": "bad"}}, "'bad' is not a valid queue-mode value"),
    ({"pattern": "["}, "pattern should be regular expression but is invalid"),
    ({"priority": "x"}, "priority should be a number, actually was 'x'"),
    ({"apply-to": "bad"}, "apply-to 'bad' unrecognised"),
])
def test_a_policy_is_refused_in_rabbitmqs_words(api, change, reason):
    refused = api.put("policies/%2F/refused", {"pattern": "^zz", "definition": {"max-length": 1}, **change})

    assert refused.status_code == 400
    assert refused.json()["reason"].startswith(f"Validation failed\n\n{reason}")
    assert refused.json()["reason"].endswith("\n")


@pytest.mark.parametrize(("origin", "status"), [("http://127.0.0.1", 204), ("http://elsewhere", 403)])
def test_target_may_be_a_whole_uri_whose_host_counts(managed, origin, status):
    """RFC 9112, 3.2.2. The field Host would be refused: guest logs in at this machine's own names alone."""
    with socket.create_connection(("127.0.0.1", managed.ports["http"]), timeout=in_time(10)) as client:
        client.sendall((
            f"PUT http://127.0.0.1/api/vhosts/%2F HTTP/1.1\r\nHost: elsewhere\r\nOrigin: {origin}\r\n"
            "Authorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\nContent-Length: 0\r\n\r\n").encode())

        assert client.recv(65536).split(b" ")[1] == b"%d" % status


@pytest.mark.parametrize("path", [
    "queues//{}", "queues///{}", "queues/%2F//{}", "/queues//{}", "queues//%2F/{}", "exchanges//amq.direct",
    "bindings//e/amq.direct/q/{}", "exchanges//amq.direct/publish", "vhosts//%2F",
])
def test_doubled_slash_is_no_vhost(api, channel, name, path):
    channel.queue_declare(name)

    assert api.get(path.format(name), allow_redirects=False).status_code in (404, 405)


def test_default_exchange_has_an_empty_name_in_every_path(api, channel, name):
    channel.queue_declare(name)
    place = "exchanges/%2F/"

    sent = api.post(f"{place}/publish", {**MESSAGE, "routing_key": name})

    assert sent.json() == {"routed": True}
    assert channel.basic_get(name, auto_ack=True)[2] == b"x"
    assert name in [one["destination"] for one in api.get(f"{place}/bindings/source").json()]
    assert api.get(f"{place}/bindings/destination").json() == []
    assert [one["routing_key"] for one in api.get(f"bindings/%2F/e//q/{name}").json()] == [name]
    assert api.get(f"bindings/%2F/e//q/{name}/{name}").json()["source"] == ""
    found = api.post(f"{place}/route", {"routing_key": name}).json()
    assert [one["destination"] for one in found["steps"]] == [name]


@pytest.mark.parametrize("place", ["definitions", "definitions/%2F"])
@pytest.mark.parametrize(("asked", "told"), [
    ("mine.json", "attachment; filename=mine.json"), ("a b", 'attachment; filename="a b"'),
    ("a%22%0D%0AX-A: b", 'attachment; filename="a\\"X-A: b"'),
    ("%C3%A4", "attachment; filename*=UTF-8''%C3%A4"), ("", None),
])
def test_definitions_to_be_downloaded_have_a_name(api, place, asked, told):
    assert api.get(f"{place}?download={asked}").headers.get("Content-Disposition") == told


def test_limits_that_rabbitmq_has_emptied_are_none(api, name):
    """Its export has an empty list in place of an object."""
    api.put(f"vhosts/{name}")
    api.put(f"vhost-limits/{name}/max-queues", {"value": 1})

    sent = api.post("definitions", {"parameters": [
        {"component": "vhost-limits", "vhost": name, "name": "limits", "value": []}]})

    assert sent.status_code == 204
    assert api.get(f"vhost-limits/{name}").json() in ([], [{"vhost": name, "value": {}}])
    assert [api.put(f"queues/{name}/{number}").status_code for number in range(2)] == [201, 201]
    api.delete(f"vhosts/{name}")


def test_definitions_say_what_they_are_of(api):
    cluster = api.get("cluster-name").json()["name"]
    for place, told in (
        ("definitions", {"rabbitmq_definition_format": "cluster", "original_cluster_name": cluster}),
        ("definitions/%2F", {
            "rabbitmq_definition_format": "single_virtual_host", "original_vhost_name": "/"}),
    ):
        exported = api.get(place).json()
        assert told.items() <= exported.items()
        assert api.post(place, exported).status_code == 204


def test_queue_tells_its_delivery_limit_what_waits_and_its_consumers_their_timeout(api, channel, name):
    """RabbitMQ 4.3's fields."""
    channel.queue_declare(name, durable=True, arguments={
        "x-queue-type": "quorum", "x-delivery-limit": 7, "x-consumer-timeout": 60_000,
        "x-delayed-retry-type": "all", "x-delayed-retry-min": 600_000})
    channel.queue_declare(f"{name}.plain")
    channel.basic_publish("", name, b"x")
    channel.basic_nack(channel.basic_get(name)[0].delivery_tag, requeue=True)
    channel.basic_consume(name, lambda *_: None, consumer_tag="c")

    wait_until(lambda: api.get(f"queues/%2F/{name}").json()["messages_delayed"] == 1)
    shown, plain = (api.get(f"queues/%2F/{one}").json() for one in (name, f"{name}.plain"))
    assert (shown["delivery_limit"], shown["consumer_details"][0]["consumer_timeout"]) == (7, 60_000)
    assert (plain["messages_delayed"], "delivery_limit" in plain) == (0, False)
    channel.basic_cancel("c")
    channel.queue_delete(name)


def test_queues_are_listed_by_the_user_who_declared_them(api, channel, name):
    """RabbitMQ 4.3's route: of vhosts that the asker sees, and for everybody who may use the API."""
    api.put("users/declarer", {"password": "x", "tags": "management"})
    api.put("users/onlooker", {"password": "x", "tags": "management"})
    api.put("permissions/%2F/declarer", {"configure": ".*", "write": ".*", "read": ".*"})
    declarer = api.as_user("declarer", "x")
    declarer.put(f"queues/%2F/{name}", {"durable": True})
    declarer.put(f"queues/%2F/{name}.transient", {"durable": False})
    channel.queue_declare(name, durable=True)  # it is there already
    channel.queue_declare(f"{name}.guest")

    def listed(who, user):
        return [one["name"] for one in who.get(f"users/{user}/queues?sort=name").json()]

    assert listed(api, "declarer") == listed(declarer, "declarer") == [name, f"{name}.transient"]
    assert f"{name}.guest" in listed(declarer, "guest") and name not in listed(declarer, "guest")
    assert listed(api.as_user("onlooker", "x"), "declarer") == listed(api, "nobody") == []
    for queue in (name, f"{name}.transient", f"{name}.guest"):
        api.delete(f"queues/%2F/{queue}")
    for user in ("declarer", "onlooker"):
        api.delete(f"users/{user}")


def test_the_user_who_declared_a_queue_is_kept_over_a_restart(broker_process):
    process = broker_process(http_port=0).start()
    base = f"http://127.0.0.1:{process.ports['http']}"
    API(base).put("users/declarer", {"password": "x", "tags": "administrator"})
    API(base).put("permissions/%2F/declarer", {"configure": ".*", "write": ".*", "read": ".*"})
    API(base, "declarer", "x").put("queues/%2F/q", {"durable": True})
    API(base).put("queues/%2F/q/pause")

    process.restart()

    again = API(f"http://127.0.0.1:{process.ports['http']}")
    assert [one["name"] for one in again.get("users/declarer/queues").json()] == ["q"]


def test_status_of_a_quorum_queue_tells_its_members(api, name):
    """RabbitMQ 4.3's fields; of other queues it knows none."""
    node = api.get("overview").json()["node"]
    api.put(f"queues/%2F/{name}", {"durable": True, "arguments": {"x-queue-type": "quorum"}})
    api.put(f"queues/%2F/{name}.classic", {"durable": True})

    member, = api.get(f"queues/quorum/%2F/{name}/status").json()
    other = api.get(f"queues/quorum/%2F/{name}.classic/status")

    assert (member["Node Name"], member["Raft State"], member["Membership"]) == (node, "leader", "voter")
    assert (other.status_code, other.json()) == (
        503, {"status": "failed", "reason": "classic_queue_not_supported"})
    assert api.get("queues/quorum/%2F/nothing-of-this-name/status").status_code == 404
    for queue in (name, f"{name}.classic"):
        api.delete(f"queues/%2F/{queue}")


def test_quorum_queue_tells_how_many_messages_of_each_priority_are_ready(api, channel, name):
    """RabbitMQ 4.3's fields; a message without a priority has 4."""
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum"})
    channel.queue_declare(f"{name}.plain")

    def told(one=name):
        shown = api.get(f"queues/%2F/{one}").json()
        return shown.get("messages_by_priority"), shown.get("messages_active_priorities")

    assert (told(), told(f"{name}.plain")) == (({}, 0), (None, None))
    for number, priorities in enumerate(([None], [5, 200, 5, 0])):
        for priority in priorities:
            channel.basic_publish("", name, b"x", pika.BasicProperties(priority=priority))
        wait_until(lambda number=number: told() == [
            ({"4": 1}, 1), ({"0": 1, "4": 1, "5": 2, "31": 1}, 4)][number])
    channel.queue_delete(name)


def test_quorum_queue_tells_its_type_members_and_back_off(api, name):
    """RabbitMQ 4.3's fields."""
    node = api.get("overview").json()["node"]
    retry = {"x-delayed-retry-type": "failed", "x-delayed-retry-min": 1000}
    for queue, arguments in ((name, retry), (f"{name}.plain", {})):
        api.put(f"queues/%2F/{queue}", {
            "durable": True, "arguments": {"x-queue-type": "quorum", **arguments}})

    shown, plain = (api.get(f"queues/%2F/{queue}").json() for queue in (name, f"{name}.plain"))

    assert (shown["type"], shown["leader"], shown["members"], shown["online"]) == (
        "quorum", node, [node], [node])
    assert (shown["delayed_retry"], plain["delayed_retry"]) == (
        "failed (min: 1000ms, max: 1000ms)", "disabled")
    for queue in (name, f"{name}.plain"):
        api.delete(f"queues/%2F/{queue}")


@pytest.mark.parametrize("kind", ["classic", "quorum", "stream"])
def test_definitions_name_the_type_of_each_queue_and_are_imported(api, name, kind):
    """The field of RabbitMQ 4.3; its arguments say the same."""
    arguments = {} if kind == "classic" else {"x-queue-type": kind}
    api.put(f"queues/%2F/{name}", {"durable": True, "arguments": arguments})

    for path in ("definitions", "definitions/%2F"):
        exported, = (one for one in api.get(path).json()["queues"] if one["name"] == name)
        assert exported["type"] == kind
    api.delete(f"queues/%2F/{name}")
    assert api.post("definitions/%2F", {"queues": [exported]}).status_code in (200, 204)

    assert api.get(f"queues/%2F/{name}").json()["type"] == kind
    api.delete(f"queues/%2F/{name}")


@pytest.mark.parametrize("lane", ["fast", "slow"])
def test_channel_tells_what_it_could_not_route(api, channel, name, lane):
    """RabbitMQ's fields: mandatory messages are returned, others dropped."""
    # An expiration leads a message to the slow lane.
    properties = pika.BasicProperties(expiration="1000") if lane == "slow" else None
    for mandatory in (True, False, True, False, False):
        channel.basic_publish("", name, b"x", properties, mandatory)
    channel.basic_qos(prefetch_count=1)  # answered behind the publishes

    def told():
        return [
            (one["message_stats"]["return_unroutable"], one["message_stats"]["drop_unroutable"])
            for one in api.get("channels").json() if one["message_stats"]["publish"] == 5]

    assert told() == [(2, 3)]
