"""Publish: contents frame by frame, routing by exchange type, returns, and what is refused."""
import re

import pytest

from tests.support.cases import cases
from tests.support.wire_encoding import (
    BODY, HEADER, METHOD, frame, header_frame, method_frame, properties, publish_frames, table,
)

PUBLISH = method_frame(1, "basic.publish", routing_key="anywhere")
NOT_A_HEADER = "UNEXPECTED_FRAME - expected content header for class 60, got non content header frame instead"
NOT_A_BODY = "UNEXPECTED_FRAME - expected content body, got non content body frame instead"


@pytest.mark.parametrize("size", [0, 1, 255, 4088, 4089, 131064, 131065, 300000, 2000000])
def test_body_of_any_size_comes_back(channel, size):
    queue = channel.declare()
    body = (bytes(range(256)) * (size // 256 + 1))[:size]

    channel.publish("", queue, body)

    assert channel.get(queue).body == body


@pytest.mark.parametrize("cuts", [[1], [1, 1, 1], [5, 0, 5], [0, 10], [3, 7]], ids=str)
def test_body_may_be_cut_into_frames_anywhere(channel, wire, cuts):
    """Empty body frames are allowed as long as the content is not complete."""
    queue = channel.declare()
    body = b"0123456789"[:sum(cuts)]
    octets, start = method_frame(1, "basic.publish", routing_key=queue) + header_frame(1, len(body)), 0
    for cut in cuts:
        octets += frame(BODY, 1, body[start:start + cut])
        start += cut

    wire.send(octets)

    assert channel.get(queue).body == body


def test_publish_octet_by_octet_is_understood(channel, wire):
    queue = channel.declare()

    wire.send_pieces(publish_frames(
        1, "", queue, b"octets", properties(content_type="text/plain", headers={"a": [1, {"b": None}]})
    ))

    content = channel.get(queue)
    assert (content.body, content.properties) == (
        b"octets", {"content_type": "text/plain", "headers": {"a": [1, {"b": None}]}}
    )


@pytest.mark.parametrize("size", [2, 3, 7, 8, 11, 64, 1000])
def test_publishes_cut_at_any_distance_are_understood(channel, wire, size):
    queue = channel.declare()

    wire.send_pieces(
        b"".join(
            publish_frames(1, "", queue, b"x" * (n * 13), properties(message_id=str(n))) for n in range(20)
        ),
        size,
    )

    channel.expect_count(queue, 20)
    for n in range(20):
        content = channel.get(queue)
        assert (len(content.body), content.properties) == (n * 13, {"message_id": str(n)})


@cases("octets, text", {
    "method-for-header": (PUBLISH + method_frame(1, "queue.declare"), NOT_A_HEADER),
    "publish-for-header": (PUBLISH + PUBLISH, NOT_A_HEADER),
    "body-for-header": (PUBLISH + frame(BODY, 1, b"x"), NOT_A_HEADER),
    "method-for-body": (PUBLISH + header_frame(1, 5) + method_frame(1, "queue.declare"), NOT_A_BODY),
    "method-for-second-body": (
        PUBLISH + header_frame(1, 5) + frame(BODY, 1, b"abc") + method_frame(1, "queue.declare"), NOT_A_BODY
    ),
    "header-for-body": (PUBLISH + header_frame(1, 5) + header_frame(1, 5), NOT_A_BODY),
    "class-50": (
        PUBLISH + header_frame(1, 5, class_id=50),
        "UNEXPECTED_FRAME - expected content header for class 60, got one for class 50 instead",
    ),
    "class-0": (
        PUBLISH + header_frame(1, 5, class_id=0),
        "UNEXPECTED_FRAME - expected content header for class 60, got one for class 0 instead",
    ),
})
def test_content_out_of_order_closes_the_connection(wire, octets, text):
    wire.channel(1)

    wire.send(octets)

    wire.expect_connection_close(505, text, "basic.publish")


def test_content_out_of_order_octet_by_octet_closes_the_connection(wire):
    wire.channel(1)

    wire.send_pieces(PUBLISH + header_frame(1, 5) + method_frame(1, "queue.declare"))

    wire.expect_connection_close(505, NOT_A_BODY, "basic.publish")


def test_weight_that_is_not_zero_closes_the_connection(wire):
    wire.channel(1)

    wire.send(PUBLISH + header_frame(1, 5, weight=1))

    wire.expect_connection_close(505, re.compile("^UNEXPECTED_FRAME - ."), "basic.publish")


def test_body_frame_after_an_empty_body_closes_the_connection(wire):
    """A body of 0 octets is complete with its header."""
    wire.channel(1)

    wire.send(PUBLISH + header_frame(1, 0) + frame(BODY, 1, b""))

    wire.expect_connection_close(
        505, re.compile("^UNEXPECTED_FRAME - expected method frame, got non method frame instead")
    )


@pytest.mark.deviates("RabbitMQ 3.10 goes on waiting for a body that is already too long", of="3.10")
@cases("bodies", {"first": [b"123456"], "second": [b"123", b"456"], "much": [b"x" * 10000]})
def test_body_larger_than_announced_closes_the_connection(wire, bodies):
    wire.channel(1)

    wire.send(PUBLISH + header_frame(1, 5) + b"".join(frame(BODY, 1, body) for body in bodies))

    close = wire.expect(0, "connection.close")
    assert close.reply_code in (501, 505)


@cases("octets", {
    "no-flags": b"",
    "half-flags": b"\x80",
    "continued-flags": b"\x00\x01\x00\x00",
    "all-flags": b"\xff\xff",
    "short-cut": b"\x80\x00\x05ab",
    "octet-missing": b"\x10\x00",
    "timestamp-cut": b"\x00\x40\x00\x00\x00\x00\x00\x00\x00",
    "left-over": b"\x80\x00\x02abXX",
    "left-over-without-flags": b"\x00\x00X",
    "table-cut": b"\x20\x00\x00\x00\x00\x09\x01aI\x00\x00",
    "table-tag": b"\x20\x00\x00\x00\x00\x04\x01aZ\x00",
    "table-value-cut": b"\x20\x00\x00\x00\x00\x05\x01aI\x00\x00",
    "table-name-cut": b"\x20\x00\x00\x00\x00\x02\x09a",
    "table-huge": b"\x20\x00\xff\xff\xff\xff\x01a",
    "array-cut": b"\x20\x00\x00\x00\x00\x08\x01aA\x00\x00\x00\x09t",
    "string-huge": b"\x20\x00\x00\x00\x00\x08\x01aS\xff\xff\xff\xffx",
})
@pytest.mark.parametrize("pieces", [1 << 20, 1], ids=["whole", "bytewise"])
def test_malformed_properties_close_the_connection(channel, wire, octets, pieces):
    """RabbitMQ answers 541 (its reader crashed); we name the syntax error.

    Nothing of the message may be kept.
    """
    queue = channel.declare()

    wire.send_pieces(
        method_frame(1, "basic.publish", routing_key=queue) + header_frame(1, 1, octets) + frame(
            BODY, 1, b"x"
        ),
        pieces,
    )

    close = wire.expect(0, "connection.close")
    assert close.reply_code in (501, 502, 541)


@pytest.mark.deviates(
    "RabbitMQ drops the announcement and passes it on to consumers, whose clients then look for more flags"
)
@cases("octets", {"alone": b"\x00\x01", "with-a-property": b"\x80\x01\x01a"})
def test_flags_that_announce_more_flags_close_the_connection(channel, wire, octets):
    wire.send(method_frame(1, "basic.publish", routing_key="q") + header_frame(1, 0, octets))

    wire.expect_connection_close(502, "SYNTAX_ERROR - malformed basic properties", "basic.publish")


@pytest.mark.parametrize("kind", ["A", "F"])
def test_tables_nested_very_deep_harm_nobody(channel, wire, open_wire, kind):
    """16 000 levels in one frame: RabbitMQ takes them, we may refuse;
    either way the broker lives and answers others.
    """
    nested = b"V"
    for _ in range(16000):
        entry = nested if kind == "A" else b"\x00" + nested
        nested = kind.encode() + len(entry).to_bytes(4, "big") + entry
    deep = table({"a": nested})
    queue = channel.declare()

    channel.publish("", queue, b"deep", b"\x20\x00" + deep)
    channel.send("queue.declare", queue=queue, exclusive=True, arguments=deep)

    type_, number, _ = wire.next_frame()
    assert (type_, number) in ((METHOD, 0), (METHOD, 1))
    assert open_wire().channel().declare()


def test_body_size_that_cannot_be_is_refused_without_waiting_for_it(channel, wire, open_wire):
    """2**63 octets announced: nothing may be allocated for them, and others must not notice."""
    channel.publish("", "anywhere")

    wire.send(PUBLISH + header_frame(1, 2 ** 63))

    assert open_wire().channel().declare()


@pytest.mark.deviates(
    "RabbitMQ takes a body of any announced size (4.3: up to 512 MiB) and looks at it when it is complete; "
    "we refuse by the header"
)
@pytest.mark.parametrize("size", [134217729, 2 ** 32, 2 ** 63, 2 ** 64 - 1])
def test_body_larger_than_the_limit_is_refused_by_its_header(channel, size):
    """134217728 octets is the default of max_message_size."""
    channel.wire.send(PUBLISH + header_frame(1, size))

    channel.expect_close(
        406,
        re.compile(
            f"^PRECONDITION_FAILED - message size {size} is larger than configured max size 134217728"
        ),
        "basic.publish",
    )


def test_unroutable_message_is_dropped_without_a_word(channel):
    channel.publish("", "no.such.queue", b"x")
    channel.publish("amq.topic", "no.such.key", b"x")

    assert channel.declare()


@pytest.mark.parametrize("size", [0, 1, 300000])
def test_mandatory_unroutable_message_is_returned_whole(channel, size):
    octets = properties(content_type="a/b", headers={"k": [1, 2]}, delivery_mode=2, message_id="m")

    channel.publish("amq.direct", "no.such.key", b"x" * size, octets, mandatory=True)

    content = channel.expect_content(
        "basic.return", b"x" * size, reply_code=312, reply_text="NO_ROUTE", exchange="amq.direct",
        routing_key="no.such.key")
    assert content.property_octets == octets


def test_mandatory_routable_message_is_not_returned(channel):
    queue = channel.declare()

    channel.publish("", queue, b"x", mandatory=True)

    assert channel.get(queue).body == b"x"


@pytest.mark.parametrize("exchange", ["", "no.such.exchange"])
def test_immediate_closes_the_connection_with_540(channel, wire, exchange):
    queue = channel.declare()

    channel.publish(exchange, queue, b"now", immediate=True)

    wire.expect_connection_close(540, "NOT_IMPLEMENTED - immediate=true", "basic.publish")


def test_immediate_in_a_transaction_closes_the_connection_before_it_is_committed(channel, wire):
    channel.call("tx.select")

    channel.publish("", channel.declare(), b"now", immediate=True)

    wire.expect_connection_close(540, "NOT_IMPLEMENTED - immediate=true", "basic.publish")


def test_publish_to_a_missing_exchange_is_404(channel):
    channel.publish("no.such.exchange", "key", b"x")

    channel.expect_close(404, "NOT_FOUND - no exchange 'no.such.exchange' in vhost '/'", "basic.publish")


def test_what_a_publish_names_is_not_looked_at_as_text(channel, wire):
    """Routing keys are octets: they route, come with deliveries and go back with returns as they are,
    in either lane.
    """
    queue, key = channel.declare(), b"\xff\xfe.\x80"
    channel.call("queue.bind", queue=queue, exchange="amq.topic", routing_key="#")
    text = key.decode("utf-8", "surrogateescape")

    channel.publish("amq.topic", key, b"one")
    wire.send_pieces(publish_frames(1, "amq.topic", key, b"two"))
    channel.publish("amq.topic", key, b"three", properties(expiration="60000"))
    channel.publish("amq.direct", key, b"four", mandatory=True)

    channel.expect_content("basic.return", b"four", routing_key=text)
    channel.consume(queue)
    for body in (b"one", b"two", b"three"):
        channel.expect_content("basic.deliver", body, routing_key=text)


@pytest.mark.deviates("RabbitMQ 4.3 shows the octets as if they were Latin-1", of="4.3")
def test_name_of_an_exchange_that_is_not_utf8_is_only_not_found(channel):
    channel.publish(b"\xff", "key", b"x")

    channel.expect_close(404, "NOT_FOUND - no exchange '\udcff' in vhost '/'", "basic.publish")


def test_publishes_behind_a_failed_one_are_not_routed(channel, wire):
    queue = channel.declare()
    fine, failing = publish_frames(1, "", queue, b"x"), publish_frames(1, "no.such.exchange", "", b"x" * 5000)

    wire.send(fine + failing + fine * 3)

    channel.expect_close(404, "NOT_FOUND - no exchange 'no.such.exchange' in vhost '/'", "basic.publish")
    channel.expect_count(queue, 1)


def test_user_id_of_somebody_else_is_406(channel):
    channel.publish("", channel.declare(), b"x", properties(user_id="mallory"))

    text = "PRECONDITION_FAILED - user_id property set to 'mallory' but authenticated user was 'guest'"
    channel.expect_close(406, text, "basic.publish")


def test_user_id_of_the_login_is_kept(channel):
    queue = channel.declare()

    channel.publish("", queue, b"x", properties(user_id="guest"))

    assert channel.get(queue).properties == {"user_id": "guest"}


@cases("expiration, text", {
    "text": ("abc", "'abc': no_integer"), "empty": ("", "'': no_integer"),
    "negative": ("-1", "'-1': {value_negative,-1}"),
    "fraction": ("1.5", "'1.5': {leftover_string,\".5\"}"), "space-before": (" 1", "' 1': no_integer"),
    "space-after": ("1 ", "'1 ': {leftover_string,\" \"}"),
    "huge": ("99999999999999", "'99999999999999': {value_too_large,99999999999999}"),
})
def test_expiration_that_is_no_natural_number_is_406(channel, expiration, text):
    channel.publish("", channel.declare(), b"x", properties(expiration=expiration))

    channel.expect_close(406, f"PRECONDITION_FAILED - invalid expiration {text}", "basic.publish")


@pytest.mark.deviates("RabbitMQ 4.3 writes the number that it has read", of="4.3", cases=("060000",))
@pytest.mark.parametrize("expiration", ["60000", "060000", "4294967296"])
def test_expiration_is_kept_as_it_was_written(channel, expiration):
    queue = channel.declare()

    channel.publish("", queue, b"x", properties(expiration=expiration))

    assert channel.get(queue).properties == {"expiration": expiration}


def test_fanout_copies_to_every_queue(channel, name):
    queues = [channel.declare() for _ in range(3)]
    channel.call("exchange.declare", exchange=name, type="fanout", auto_delete=True)
    for queue in queues:
        channel.call("queue.bind", queue=queue, exchange=name, routing_key="ignored")

    channel.publish(name, "another", b"all")

    assert [channel.get(queue).body for queue in queues] == [b"all"] * 3


def test_direct_matches_the_whole_key(channel):
    queue = channel.declare()
    channel.call("queue.bind", queue=queue, exchange="amq.direct", routing_key=queue + ".a")

    for key in ("", queue, queue + ".a", queue + ".A", queue + ".a.b", queue + ".*"):
        channel.publish("amq.direct", key, key)

    assert channel.get(queue).body.decode() == queue + ".a"
    assert channel.get(queue) is None


@cases("pattern, matching, others", {
    "literal": ("a.b", ["a.b"], ["", "a", "a.b.c", "ab", "a.b."]),
    "star": ("a.*.c", ["a.b.c", "a..c", "a.*.c"], ["a.c", "a.b.b.c", "a.b.c."]),
    "star-alone": ("*", ["a", "*", "#"], ["a.b", "."]),
    "hash-alone": ("#", ["", "a", "a.b", "..", "a.b.c.d"], []),
    "hash-behind": ("a.#", ["a", "a.b", "a.b.c", "a."], ["", "b.a", "ab"]),
    "hash-before": ("#.z", ["z", "a.z", "a.b.z"], ["", "z.a", "az"]),
    "hash-between": ("a.#.z", ["a.z", "a.b.z", "a.b.c.z"], ["a", "z", "a.b"]),
    "star-and-hash": ("*.#", ["a", "a.b", "a.b.c"], []),
    "hash-and-star": ("#.*.b", ["a.b", "x.a.b"], ["b"]),
    "empty": ("", [""], ["a", "."]),
    "two-hashes": ("#.a.#", ["a", "b.a", "a.b", "b.a.c"], ["b", "ab", ""]),
})
def test_topic_patterns(channel, name, pattern, matching, others):
    queue = channel.declare()
    channel.call("exchange.declare", exchange=name, type="topic", auto_delete=True)
    channel.call("queue.bind", queue=queue, exchange=name, routing_key=pattern)

    for key in matching + others:
        channel.publish(name, key, key)

    channel.expect_count(queue, len(matching))
    assert [channel.get(queue).body.decode() for _ in matching] == matching


@cases("arguments, matching, others", {
    "all": (
        {"a": 1, "b": "x"}, [{"a": 1, "b": "x"}, {"a": 1, "b": "x", "c": 2}],
        [{"a": 1}, {"a": 2, "b": "x"}, {}],
    ),
    "any": (
        {"x-match": "any", "a": 1, "b": "x"}, [{"a": 1}, {"b": "x"}, {"a": 2, "b": "x"}],
        [{"a": 2}, {"c": 1}, {}],
    ),
    "present": ({"x-match": "all", "a": None}, [{"a": 1}, {"a": "anything"}], [{"b": 1}]),
    "x-ignored": ({"x-match": "all", "x-other": 1, "a": 1}, [{"a": 1}], [{"x-other": 1}]),
    "none-all": ({"x-match": "all"}, [{}, {"a": 1}], []),
    "none-any": ({"x-match": "any"}, [], [{}, {"a": 1}]),
    "all-with-x": ({"x-match": "all-with-x", "x-a": 1}, [{"x-a": 1}], [{"x-a": 2}, {}]),
    "any-with-x": ({"x-match": "any-with-x", "x-a": 1, "b": 1}, [{"x-a": 1}, {"b": 1}], [{"c": 1}]),
    "types": ({"a": True, "b": 1.5}, [{"a": True, "b": 1.5}], [{"a": "true", "b": 1.5}]),
})
def test_headers_bindings(channel, name, arguments, matching, others):
    queue = channel.declare()
    channel.call("exchange.declare", exchange=name, type="headers", auto_delete=True)
    channel.call("queue.bind", queue=queue, exchange=name, arguments=arguments)

    for headers in matching + others:
        channel.publish(name, "", repr(headers), properties(headers=headers))

    channel.expect_count(queue, len(matching))
    assert [channel.get(queue).body.decode() for _ in matching] == [repr(headers) for headers in matching]


def test_headers_exchange_takes_messages_without_headers(channel, name):
    queue = channel.declare()
    channel.call("exchange.declare", exchange=name, type="headers", auto_delete=True)
    channel.call("queue.bind", queue=queue, exchange=name, arguments={"x-match": "all"})

    channel.publish(name, "", b"bare")

    assert channel.get(queue).body == b"bare"


def test_cc_and_bcc_are_more_routing_keys_and_bcc_is_hidden(channel):
    queues = [channel.declare() for _ in range(3)]
    octets = properties(headers={"CC": [queues[1]], "BCC": [queues[2]], "z": 1})

    channel.publish("", queues[0], b"x", octets)

    for queue in queues:
        content = channel.get(queue)
        assert content.properties == {"headers": {"CC": [queues[1]], "z": 1}}
        assert content.method.routing_key == queues[0]


def test_cc_that_names_a_queue_twice_delivers_once(channel):
    queue = channel.declare()

    channel.publish("", queue, b"x", properties(headers={"CC": [queue, queue]}))

    channel.expect_count(queue, 1)


@pytest.mark.parametrize("header", ["CC", "BCC"])
def test_cc_that_is_no_array_is_406(channel, header):
    channel.publish("", channel.declare(), b"x", properties(headers={header: "text"}))

    channel.expect_close(406, re.compile(f"^PRECONDITION_FAILED - .*{header}.*longstr"), "basic.publish")


def test_every_queue_a_key_reaches_gets_one_copy(channel):
    queue = channel.declare()
    for pattern in ("#", "a.#", "a.b"):
        channel.call("queue.bind", queue=queue, exchange="amq.topic", routing_key=f"{queue}.{pattern}")

    channel.publish("amq.topic", f"{queue}.a.b", b"x")

    channel.expect_count(queue, 1)


def test_priority_queue_delivers_by_priority_and_then_in_order(channel):
    """Priorities above the queue's maximum count as the maximum, none as 0; the property itself is kept."""
    queue = channel.declare(arguments={"x-max-priority": 3})
    for n, priority in enumerate((0, 1, 3, None, 200, 2, 3)):
        channel.publish("", queue, str(n), properties(**({} if priority is None else {"priority": priority})))
    channel.expect_count(queue, 7)

    contents = [channel.get(queue) for _ in range(7)]

    assert [content.body for content in contents] == [b"2", b"4", b"6", b"5", b"1", b"0", b"3"]
    assert contents[1].properties == {"priority": 200}


def test_message_for_a_header_frame_of_a_queue_is_of_type_header(channel, wire):
    """The frames of a delivery, one by one: method, header with class 60 and weight 0, body."""
    queue = channel.declare()
    channel.publish("", queue, b"abc")

    channel.send("basic.get", queue=queue, no_ack=True)

    assert [wire.next_frame()[0] for _ in range(3)] == [METHOD, HEADER, BODY]
