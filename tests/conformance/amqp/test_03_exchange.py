"""Exchange: declare, delete, bind and unbind, with RabbitMQ's refusals."""
import re

import pytest

from tests.support.cases import cases
from tests.support.wire_encoding import field_value, properties

DEFAULT_REFUSED = "ACCESS_REFUSED - operation not permitted on the default exchange"
TYPES = ("direct", "fanout", "topic", "headers")


def no_exchange(name):
    """RabbitMQ's text for a missing exchange."""
    return f"NOT_FOUND - no exchange '{name}' in vhost '/'"


def inequivalent(argument, exchange, received, current):
    """RabbitMQ's text for a declare that differs."""
    return (
        f"PRECONDITION_FAILED - inequivalent arg '{argument}' for exchange '{exchange}' in vhost '/': "
        f"received {received} but current is {current}"
    )


@pytest.fixture
def exchange(channel, name):
    """Declares exchanges under this test's name, and deletes them afterwards."""
    channel.wire.send_method(99, "channel.open")
    channel.wire.expect(99, "channel.open-ok")

    def declare(type_="direct", suffix="", **values):
        channel.call("exchange.declare", exchange=name + suffix, type=type_, **values)
        declared.append(name + suffix)
        return name + suffix
    declared = []
    yield declare
    for each in declared:
        channel.wire.send_method(99, "exchange.delete", exchange=each)
        channel.wire.expect(99, "exchange.delete-ok")


@pytest.mark.parametrize("type_", TYPES)
@cases("values", {
    "transient": {}, "durable": {"durable": True}, "internal": {"internal": True},
    "auto-delete": {"auto_delete": True},
})
def test_declare_is_answered_and_may_be_repeated(exchange, type_, values):
    exchange(type_, **values)
    exchange(type_, **values)


@pytest.mark.parametrize("predeclared", ["amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match"])
def test_predeclared_exchanges_exist(channel, predeclared):
    type_ = predeclared.removeprefix("amq.").replace("match", "headers")

    channel.call("exchange.declare", exchange=predeclared, passive=True)
    channel.call("exchange.declare", exchange=predeclared, type=type_, durable=True)


def test_passive_declare_ignores_everything_but_the_name(exchange, channel):
    name = exchange("topic", durable=True)

    channel.call(
        "exchange.declare", exchange=name, type="wibble", passive=True, auto_delete=True,
        arguments={"alternate-exchange": "x"},
    )


def test_passive_declare_of_a_missing_exchange_is_404(channel, name):
    channel.send("exchange.declare", exchange=name, passive=True)

    channel.expect_close(404, no_exchange(name), "exchange.declare")


@cases("second, argument, received, current", {
    "type": ({"type": "fanout"}, "type", "'fanout'", "'direct'"),
    "durable": ({"durable": True}, "durable", "'true'", "'false'"),
    "auto-delete": ({"auto_delete": True}, "auto_delete", "'true'", "'false'"),
    "internal": ({"internal": True}, "internal", "'true'", "'false'"),
    "alternate": (
        {"arguments": {"alternate-exchange": "a"}}, "alternate-exchange", "the value 'a' of type 'longstr'",
        "none",
    ),
})
def test_declare_with_other_properties_is_406(exchange, channel, second, argument, received, current):
    name = exchange("direct")

    channel.send("exchange.declare", **{"exchange": name, "type": "direct", **second})

    channel.expect_close(406, inequivalent(argument, name, received, current), "exchange.declare")


def test_declare_with_another_alternate_exchange_is_406(exchange, channel):
    name = exchange("direct", arguments={"alternate-exchange": "one"})

    channel.send("exchange.declare", exchange=name, type="direct", arguments={"alternate-exchange": "two"})

    channel.expect_close(406, inequivalent("alternate-exchange", name, "'two'", "'one'"), "exchange.declare")


def test_unknown_arguments_do_not_make_a_declare_differ(exchange):
    exchange("direct", arguments={"x-colour": "blue"})
    exchange("direct", arguments={"x-colour": "red"})
    exchange("direct")


def test_predeclared_exchange_declared_differently_is_406(channel):
    channel.send("exchange.declare", exchange="amq.direct", type="fanout", durable=True)

    channel.expect_close(406, inequivalent("type", "amq.direct", "'fanout'", "'direct'"), "exchange.declare")


@pytest.mark.parametrize("passive", [False, True])
def test_default_exchange_cannot_be_declared(channel, passive):
    channel.send("exchange.declare", type="direct", passive=passive)

    channel.expect_close(403, DEFAULT_REFUSED, "exchange.declare")


def test_reserved_prefix_is_403(channel):
    channel.send("exchange.declare", exchange="amq.mine", type="direct")

    channel.expect_close(
        403, "ACCESS_REFUSED - exchange name 'amq.mine' contains reserved prefix 'amq.*'", "exchange.declare"
    )


@pytest.mark.deviates("RabbitMQ 3.10 closes the connection with 503", of="3.10")
@cases("type_, what", {"unknown": ("wibble", "unknown"), "empty": ("", "invalid")})
def test_unknown_type_is_406(channel, name, type_, what):
    for exchange in (name, ""):  # the type is looked at before the name
        channel.send("exchange.declare", exchange=exchange, type=type_)

        text = f"PRECONDITION_FAILED - {what} exchange type '{type_}'"
        channel.expect_close(406, text, "exchange.declare")
        channel = channel.wire.channel(channel.number + 1)


@pytest.mark.deviates("RabbitMQ 3.10 has no such exchange without a plugin", of="3.10")
def test_modulus_hash_gives_equal_keys_to_one_queue(channel, name):
    """The keys of its bindings have no meaning."""
    channel.call("exchange.declare", exchange=name, type="x-modulus-hash")
    queues = [channel.declare() for _ in range(3)]
    for number, queue in enumerate((*queues, *queues)):
        channel.call("queue.bind", queue=queue, exchange=name, routing_key=str(number))

    for number in range(60):
        for _ in range(2):
            channel.publish(name, f"key {number}", str(number).encode())

    counts = [channel.call("queue.purge", queue=queue).message_count for queue in queues]
    assert sum(counts) == 120 and all(count and count % 2 == 0 for count in counts)
    channel.call("exchange.delete", exchange=name)


@pytest.mark.deviates("RabbitMQ 3.10 has no such exchange", of="3.10")
def test_local_random_gives_each_message_to_one_queue_and_wants_empty_keys(channel, name):
    channel.call("exchange.declare", exchange=name, type="x-local-random")
    queues = [channel.declare() for _ in range(2)]
    for queue in queues:
        channel.call("queue.bind", queue=queue, exchange=name)

    for _ in range(100):
        channel.publish(name, "any", b"x")

    counts = [channel.call("queue.purge", queue=queue).message_count for queue in queues]
    assert sum(counts) == 100 and all(counts)
    channel.send("queue.bind", queue=queues[0], exchange=name, routing_key="key")
    channel.expect_close(406, "PRECONDITION_FAILED - Non empty binding 'key' key not permitted", "queue.bind")


@cases("value, type_", {
    "integer": (5, "signedint"), "bool": (True, "bool"), "table": ({}, "table"), "void": (None, "void")
})
def test_alternate_exchange_that_is_no_string_is_406(channel, name, value, type_):
    channel.send("exchange.declare", exchange=name, type="direct", arguments={"alternate-exchange": value})

    text = (
        f"PRECONDITION_FAILED - invalid type '{type_}' for arg 'alternate-exchange' in "
        f"exchange '{name}' in vhost '/'"
    )
    channel.expect_close(406, text, "exchange.declare")


@pytest.mark.parametrize("spelled", [
    "sp ace", "é中\U0001f40d", "x" * 200, "semi;colon'quote\"", "#.*", "a\x00b"
])
def test_names_are_any_text(channel, name, spelled):
    channel.call("exchange.declare", exchange=name[:30] + spelled, type="direct", auto_delete=True)
    channel.call("exchange.declare", exchange=name[:30] + spelled, passive=True)
    channel.call("exchange.delete", exchange=name[:30] + spelled)


def test_line_ends_are_stripped_from_names(channel, name):
    channel.call("exchange.declare", exchange=f"\r{name[:4]}\n{name[4:]}\r\n", type="direct")

    channel.call("exchange.declare", exchange=name, passive=True)
    channel.call("exchange.delete", exchange=name)


def test_name_that_is_not_utf8_closes_the_connection(channel, wire):
    channel.send("exchange.declare", exchange=b"bad\xff\xfe", type="direct")

    wire.expect_connection_close(501, "FRAME_ERROR - Malformed UTF-8 in shortstr")


def test_no_wait_is_not_answered(channel, name):
    channel.send("exchange.declare", exchange=name, type="direct", no_wait=True)
    channel.call("exchange.declare", exchange=name, passive=True)
    channel.send("exchange.bind", source="amq.fanout", destination=name, no_wait=True)
    channel.send("exchange.unbind", source="amq.fanout", destination=name, no_wait=True)
    channel.send("exchange.delete", exchange=name, no_wait=True)

    channel.send("exchange.declare", exchange=name, passive=True)
    channel.expect_close(404, no_exchange(name), "exchange.declare")


def test_no_wait_does_not_keep_errors_quiet(channel, name):
    channel.send("exchange.declare", exchange=name, passive=True, no_wait=True)

    channel.expect_close(404, no_exchange(name), "exchange.declare")


def test_delete_of_a_missing_exchange_is_answered(channel, name):
    channel.call("exchange.delete", exchange=name)


def test_deleted_exchange_is_gone(channel, exchange, name):
    exchange("fanout")

    channel.call("exchange.delete", exchange=name)

    channel.publish(name, "", b"x")
    channel.expect_close(404, no_exchange(name), "basic.publish")


def test_default_exchange_cannot_be_deleted(channel):
    channel.send("exchange.delete")

    channel.expect_close(403, DEFAULT_REFUSED, "exchange.delete")


@pytest.mark.parametrize("system", ["amq.direct", "amq.no-such"])
def test_system_exchanges_cannot_be_deleted(channel, system):
    channel.send("exchange.delete", exchange=system)

    channel.expect_close(
        403, f"ACCESS_REFUSED - deletion of system exchange '{system}' in vhost '/' not allowed",
        "exchange.delete",
    )


@pytest.mark.parametrize("destination", ["queue", "exchange"])
def test_delete_if_unused_of_a_used_exchange_is_406(channel, exchange, destination):
    name = exchange("fanout")
    if destination == "queue":
        channel.call("queue.bind", queue=channel.declare(), exchange=name)
    else:
        channel.call("exchange.bind", source=name, destination=exchange("fanout", "-destination"))

    channel.send("exchange.delete", exchange=name, if_unused=True)

    channel.expect_close(
        406, f"PRECONDITION_FAILED - exchange '{name}' in vhost '/' in use", "exchange.delete"
    )


def test_delete_if_unused_counts_only_bindings_from_the_exchange(channel, exchange):
    source, destination = exchange("fanout"), exchange("fanout", "-destination")
    channel.call("exchange.bind", source=source, destination=destination)

    channel.call("exchange.delete", exchange=destination, if_unused=True)
    channel.call("exchange.delete", exchange=source, if_unused=True)


def test_auto_delete_exchange_goes_with_its_last_binding(channel, exchange):
    name, queue = exchange("direct", auto_delete=True), channel.declare()
    for key in ("one", "two"):
        channel.call("queue.bind", queue=queue, exchange=name, routing_key=key)

    channel.call("queue.unbind", queue=queue, exchange=name, routing_key="one")
    channel.call("exchange.declare", exchange=name, passive=True)
    channel.call("queue.unbind", queue=queue, exchange=name, routing_key="two")

    channel.send("exchange.declare", exchange=name, passive=True)
    channel.expect_close(404, no_exchange(name), "exchange.declare")


def test_auto_delete_exchange_goes_with_its_last_queue(channel, exchange):
    name, queue = exchange("fanout", auto_delete=True), channel.declare()
    channel.call("queue.bind", queue=queue, exchange=name)

    channel.call("queue.delete", queue=queue)

    channel.send("exchange.declare", exchange=name, passive=True)
    channel.expect_close(404, no_exchange(name), "exchange.declare")


def test_auto_delete_exchange_goes_with_its_last_destination_exchange(channel, exchange):
    source, destination = exchange("fanout", auto_delete=True), exchange("fanout", "-destination")
    channel.call("exchange.bind", source=source, destination=destination)

    channel.call("exchange.delete", exchange=destination)

    channel.send("exchange.declare", exchange=source, passive=True)
    channel.expect_close(404, no_exchange(source), "exchange.declare")


def test_auto_delete_exchange_that_was_never_bound_stays(channel, exchange):
    name = exchange("direct", auto_delete=True)

    channel.call("exchange.declare", exchange=name, passive=True)


@pytest.mark.parametrize("method", ["exchange.bind", "exchange.unbind"])
@cases("values", {
    "source": {"source": "", "destination": "amq.fanout"},
    "destination": {"source": "amq.fanout", "destination": ""},
})
def test_default_exchange_cannot_be_bound(channel, method, values):
    channel.send(method, **values)

    channel.expect_close(403, DEFAULT_REFUSED, method)


@cases("values, missing", {
    "source": ({"source": "no.such", "destination": "amq.fanout"}, "no.such"),
    "destination": ({"source": "amq.fanout", "destination": "no.such"}, "no.such"),
    "both": ({"source": "no.such.1", "destination": "no.such.2"}, "no.such.1"),
})
def test_bind_of_a_missing_exchange_is_404(channel, values, missing):
    channel.send("exchange.bind", **values)

    channel.expect_close(404, no_exchange(missing), "exchange.bind")


@cases("values", {
    "binding": {"source": "amq.direct", "destination": "amq.fanout", "routing_key": "never bound"},
    "source": {"source": "no.such", "destination": "amq.fanout"},
    "destination": {"source": "amq.fanout", "destination": "no.such"},
})
def test_unbind_of_what_is_missing_is_answered(channel, values):
    channel.call("exchange.unbind", **values)


def test_bound_exchange_passes_messages_on_until_it_is_unbound(channel, exchange):
    source, destination, queue = exchange("direct"), exchange("fanout", "-destination"), channel.declare()
    channel.call("queue.bind", queue=queue, exchange=destination)
    channel.call("exchange.bind", source=source, destination=destination, routing_key="key")

    channel.publish(source, "key", b"passed on")
    channel.publish(source, "other", b"not passed on")

    content = channel.get(queue)
    assert (content.body, content.method.exchange, content.method.routing_key) == (
        b"passed on", source, "key"
    )
    assert channel.get(queue) is None
    channel.call("exchange.unbind", source=source, destination=destination, routing_key="key")
    channel.publish(source, "key", b"too late")
    assert channel.get(queue) is None


@pytest.mark.parametrize("first", ["topic", "direct", "fanout"])
@pytest.mark.parametrize("way", ["bound", "alternate"])
def test_headers_exchange_behind_another_sees_the_headers_of_each_message(channel, exchange, first, way):
    """What an exchange routes may be remembered by key, but not when an exchange behind it looks further."""
    headers, queue = exchange("headers", "-headers"), channel.declare()
    source = exchange(first, arguments={"alternate-exchange": headers} if way == "alternate" else {})
    if way == "bound":
        channel.call("exchange.bind", source=source, destination=headers, routing_key="key")
    channel.call("queue.bind", queue=queue, exchange=headers, arguments={"colour": "red"})

    for n, colour in enumerate(("blue", "red", "blue", "red")):
        channel.publish(source, "key", str(n), properties(headers={"colour": colour}))

    assert [channel.get(queue).body for _ in range(2)] == [b"1", b"3"]
    assert channel.get(queue) is None


def test_exchanges_bound_in_a_circle_deliver_once(channel, exchange):
    one, two, queue = exchange("fanout"), exchange("fanout", "-2"), channel.declare()
    channel.call("exchange.bind", source=one, destination=two)
    channel.call("exchange.bind", source=two, destination=one)
    channel.call("exchange.bind", source=one, destination=one)
    for each in (one, two):
        channel.call("queue.bind", queue=queue, exchange=each)

    channel.publish(one, "", b"once")

    assert channel.get(queue).body == b"once"
    assert channel.get(queue) is None


def test_alternate_exchange_gets_what_was_not_routed(channel, exchange):
    alternate, queue = exchange("fanout", "-alternate"), channel.declare()
    name = exchange("direct", arguments={"alternate-exchange": alternate})
    channel.call("queue.bind", queue=queue, exchange=alternate)

    channel.publish(name, "nowhere", b"left over", mandatory=True)

    content = channel.get(queue)
    assert (content.body, content.method.exchange, content.method.routing_key) == (
        b"left over", name, "nowhere"
    )


def test_alternate_exchange_that_is_missing_is_ignored(channel, exchange):
    name = exchange("direct", arguments={"alternate-exchange": "no.such"})

    channel.publish(name, "nowhere", b"x", mandatory=True)

    channel.expect_content("basic.return", b"x", reply_code=312)


def test_alternate_exchanges_in_a_circle_end(channel, exchange, name):
    exchange("direct", arguments={"alternate-exchange": name + "-2"})
    exchange("direct", "-2", arguments={"alternate-exchange": name})

    channel.publish(name, "nowhere", b"x", mandatory=True)

    channel.expect_content("basic.return", b"x", reply_code=312, exchange=name)


def test_internal_exchange_refuses_publishes_and_takes_bindings(channel, exchange):
    internal, queue = exchange("fanout", internal=True), channel.declare()
    channel.call("queue.bind", queue=queue, exchange=internal)
    channel.call("exchange.bind", source="amq.topic", destination=internal, routing_key=queue)

    channel.publish("amq.topic", queue, b"through")
    assert channel.get(queue).body == b"through"

    channel.publish(internal, "", b"straight")
    channel.expect_close(
        403, f"ACCESS_REFUSED - cannot publish to internal exchange '{internal}' in vhost '/'",
        "basic.publish",
    )


@cases("arguments, text", {
    "value": ({"x-match": "some"}, r"x-match field value .*some"),
    "type": ({"x-match": 5}, r"x-match field type signedint .*5"),
})
def test_headers_binding_with_a_bad_x_match_is_406(channel, arguments, text):
    queue = channel.declare()

    channel.send("queue.bind", queue=queue, exchange="amq.headers", arguments=arguments)

    channel.expect_close(406, re.compile(f"^PRECONDITION_FAILED - Invalid {text}"), "queue.bind")


def test_arguments_of_bindings_tell_them_apart(channel, exchange):
    """A binding is source, destination, key and arguments: unbind must name the same arguments."""
    name, queue = exchange("headers"), channel.declare()
    for value in (1, 2):
        channel.call("queue.bind", queue=queue, exchange=name, arguments={"a": field_value("I", value)})

    channel.call("queue.unbind", queue=queue, exchange=name, arguments={"a": field_value("I", 1)})

    channel.send("exchange.delete", exchange=name, if_unused=True)
    channel.expect_close(
        406, f"PRECONDITION_FAILED - exchange '{name}' in vhost '/' in use", "exchange.delete"
    )
