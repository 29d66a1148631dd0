"""Methods: the table against the specification, literal octets, and every malformed shape of every method."""
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gomq_py.amqp.wire.errors import FrameError, NotImplemented_
from gomq_py.amqp.wire.methods import (
    METHODS, BasicAck, BasicConsume, BasicDeliver, BasicPublish, BasicQos, ConnectionOpen, ConnectionStartOk,
    ConnectionTune, ConnectionUpdateSecret, ExchangeDeclare, QueueDeclare, QueueDeclareOk, decode_method,
)
from tests.support.guarded import GuardedBuffer

GUARDED = GuardedBuffer(1 << 16)

# The machine-readable specification of AMQP 0-9-1 with RabbitMQ's extensions, as published: class, its index,
# method, its index, the answers a sender waits for, and the fields with their elementary types.
SPECIFICATION = [
    (
        "connection", 10, "start", 10, "start-ok",
        "version-major:octet version-minor:octet server-properties:table mechanisms:longstr locales:longstr",
    ),
    (
        "connection", 10, "start-ok", 11, "",
        "client-properties:table mechanism:shortstr response:longstr locale:shortstr",
    ),
    ("connection", 10, "secure", 20, "secure-ok", "challenge:longstr"),
    ("connection", 10, "secure-ok", 21, "", "response:longstr"),
    ("connection", 10, "tune", 30, "tune-ok", "channel-max:short frame-max:long heartbeat:short"),
    ("connection", 10, "tune-ok", 31, "", "channel-max:short frame-max:long heartbeat:short"),
    ("connection", 10, "open", 40, "open-ok", "virtual-host:shortstr reserved-1:shortstr reserved-2:bit"),
    ("connection", 10, "open-ok", 41, "", "reserved-1:shortstr"),
    (
        "connection", 10, "close", 50, "close-ok",
        "reply-code:short reply-text:shortstr class-id:short method-id:short",
    ),
    ("connection", 10, "close-ok", 51, "", ""),
    ("connection", 10, "blocked", 60, "", "reason:shortstr"),
    ("connection", 10, "unblocked", 61, "", ""),
    # RabbitMQ 3.8 and later; not in its published XML.
    ("connection", 10, "update-secret", 70, "update-secret-ok", "new-secret:longstr reason:shortstr"),
    ("connection", 10, "update-secret-ok", 71, "", ""),
    ("channel", 20, "open", 10, "open-ok", "reserved-1:shortstr"),
    ("channel", 20, "open-ok", 11, "", "reserved-1:longstr"),
    ("channel", 20, "flow", 20, "flow-ok", "active:bit"),
    ("channel", 20, "flow-ok", 21, "", "active:bit"),
    (
        "channel", 20, "close", 40, "close-ok",
        "reply-code:short reply-text:shortstr class-id:short method-id:short",
    ),
    ("channel", 20, "close-ok", 41, "", ""),
    # of AMQP 0-8, which RabbitMQ still answers
    (
        "access", 30, "request", 10, "request-ok",
        "realm:shortstr exclusive:bit passive:bit active:bit write:bit read:bit",
    ),
    ("access", 30, "request-ok", 11, "", "ticket:short"),
    (
        "exchange", 40, "declare", 10, "declare-ok",
        (
            "reserved-1:short exchange:shortstr type:shortstr passive:bit durable:bit auto-delete:bit "
            "internal:bit no-wait:bit arguments:table"
        ),
    ),
    ("exchange", 40, "declare-ok", 11, "", ""),
    (
        "exchange", 40, "delete", 20, "delete-ok",
        "reserved-1:short exchange:shortstr if-unused:bit no-wait:bit",
    ),
    ("exchange", 40, "delete-ok", 21, "", ""),
    (
        "exchange", 40, "bind", 30, "bind-ok",
        (
            "reserved-1:short destination:shortstr source:shortstr routing-key:shortstr "
            "no-wait:bit arguments:table"
        ),
    ),
    ("exchange", 40, "bind-ok", 31, "", ""),
    (
        "exchange", 40, "unbind", 40, "unbind-ok",
        (
            "reserved-1:short destination:shortstr source:shortstr routing-key:shortstr "
            "no-wait:bit arguments:table"
        ),
    ),
    ("exchange", 40, "unbind-ok", 51, "", ""),
    (
        "queue", 50, "declare", 10, "declare-ok",
        (
            "reserved-1:short queue:shortstr passive:bit durable:bit exclusive:bit auto-delete:bit "
            "no-wait:bit arguments:table"
        ),
    ),
    ("queue", 50, "declare-ok", 11, "", "queue:shortstr message-count:long consumer-count:long"),
    (
        "queue", 50, "bind", 20, "bind-ok",
        "reserved-1:short queue:shortstr exchange:shortstr routing-key:shortstr no-wait:bit arguments:table",
    ),
    ("queue", 50, "bind-ok", 21, "", ""),
    (
        "queue", 50, "unbind", 50, "unbind-ok",
        "reserved-1:short queue:shortstr exchange:shortstr routing-key:shortstr arguments:table",
    ),
    ("queue", 50, "unbind-ok", 51, "", ""),
    ("queue", 50, "purge", 30, "purge-ok", "reserved-1:short queue:shortstr no-wait:bit"),
    ("queue", 50, "purge-ok", 31, "", "message-count:long"),
    (
        "queue", 50, "delete", 40, "delete-ok",
        "reserved-1:short queue:shortstr if-unused:bit if-empty:bit no-wait:bit",
    ),
    ("queue", 50, "delete-ok", 41, "", "message-count:long"),
    ("basic", 60, "qos", 10, "qos-ok", "prefetch-size:long prefetch-count:short global:bit"),
    ("basic", 60, "qos-ok", 11, "", ""),
    (
        "basic", 60, "consume", 20, "consume-ok",
        (
            "reserved-1:short queue:shortstr consumer-tag:shortstr no-local:bit no-ack:bit exclusive:bit "
            "no-wait:bit arguments:table"
        ),
    ),
    ("basic", 60, "consume-ok", 21, "", "consumer-tag:shortstr"),
    ("basic", 60, "cancel", 30, "cancel-ok", "consumer-tag:shortstr no-wait:bit"),
    ("basic", 60, "cancel-ok", 31, "", "consumer-tag:shortstr"),
    (
        "basic", 60, "publish", 40, "",
        "reserved-1:short exchange:shortstr routing-key:shortstr mandatory:bit immediate:bit",
    ),
    (
        "basic", 60, "return", 50, "",
        "reply-code:short reply-text:shortstr exchange:shortstr routing-key:shortstr",
    ),
    (
        "basic", 60, "deliver", 60, "",
        "consumer-tag:shortstr delivery-tag:longlong redelivered:bit exchange:shortstr routing-key:shortstr",
    ),
    ("basic", 60, "get", 70, "get-ok get-empty", "reserved-1:short queue:shortstr no-ack:bit"),
    (
        "basic", 60, "get-ok", 71, "",
        "delivery-tag:longlong redelivered:bit exchange:shortstr routing-key:shortstr message-count:long",
    ),
    ("basic", 60, "get-empty", 72, "", "reserved-1:shortstr"),
    ("basic", 60, "ack", 80, "", "delivery-tag:longlong multiple:bit"),
    ("basic", 60, "reject", 90, "", "delivery-tag:longlong requeue:bit"),
    ("basic", 60, "recover-async", 100, "", "requeue:bit"),
    ("basic", 60, "recover", 110, "", "requeue:bit"),
    ("basic", 60, "recover-ok", 111, "", ""),
    ("basic", 60, "nack", 120, "", "delivery-tag:longlong multiple:bit requeue:bit"),
    ("tx", 90, "select", 10, "select-ok", ""),
    ("tx", 90, "select-ok", 11, "", ""),
    ("tx", 90, "commit", 20, "commit-ok", ""),
    ("tx", 90, "commit-ok", 21, "", ""),
    ("tx", 90, "rollback", 30, "rollback-ok", ""),
    ("tx", 90, "rollback-ok", 31, "", ""),
    ("confirm", 85, "select", 10, "select-ok", "nowait:bit"),
    ("confirm", 85, "select-ok", 11, "", ""),
]
RENAMED = {"nowait": "no_wait", "global": "global_"}  # one name for one thing; a Python keyword
ANSWERED_THOUGH_UNSAID = {"basic.recover"}  # the XML names no answer, its prose and RabbitMQ send recover-ok

SAMPLES = {
    "octet": 0xA5, "short": 0xBEEF, "long": 0xDEADBEEF, "longlong": 0x0123456789ABCDEF, "bit": True,
    "shortstr": "naïve", "longstr": b"\x00long\xff",
    "table": {"key": "value"},
}


def sample(method_class):
    return method_class(**{name: SAMPLES[kind] for name, kind in method_class.FIELDS})


@pytest.mark.parametrize(("class_name", "class_id", "name", "method_id", "answers", "fields"), SPECIFICATION)
def test_every_method_of_the_specification_is_in_the_table(
    class_name, class_id, name, method_id, answers, fields
):
    method_class = METHODS[class_id << 16 | method_id]
    expected = tuple(tuple(field.split(":")) for field in fields.split())

    assert method_class.NAME == f"{class_name}.{name}"
    assert method_class.__name__ == class_name.capitalize() + name.title().replace("-", "")
    assert method_class.FIELDS == tuple(
        (RENAMED.get(field, field.replace("-", "_")), kind) for field, kind in expected
    )
    assert method_class.SYNCHRONOUS == (bool(answers) or method_class.NAME in ANSWERED_THOUGH_UNSAID)


def test_there_is_no_method_besides_those_of_the_specification():
    assert sorted(METHODS) == sorted(
        class_id << 16 | method_id for _, class_id, _, method_id, _, _ in SPECIFICATION
    )


LITERALS = [
    (
        ConnectionTune(channel_max=2047, frame_max=131072, heartbeat=60),
        b"\x00\x0a\x00\x1e\x07\xff\x00\x02\x00\x00\x00\x3c",
    ),
    (ConnectionOpen(virtual_host="/"), b"\x00\x0a\x00\x28\x01/\x00\x00"),
    (
        ConnectionStartOk(
            client_properties={}, mechanism="PLAIN", response=b"\x00guest\x00guest", locale="en_US"
        ),
        b"\x00\x0a\x00\x0b\x00\x00\x00\x00\x05PLAIN\x00\x00\x00\x0c\x00guest\x00guest\x05en_US",
    ),
    (ConnectionUpdateSecret(new_secret=b"s", reason="r"), b"\x00\x0a\x00\x46\x00\x00\x00\x01s\x01r"),
    (
        ExchangeDeclare(exchange="x", type="topic", durable=True, internal=True),
        b"\x00\x28\x00\x0a\x00\x00\x01x\x05topic\x0a\x00\x00\x00\x00",
    ),
    (QueueDeclare(queue="q", durable=True, auto_delete=True, arguments={"x-max-length": 5}),
     b"\x00\x32\x00\x0a\x00\x00\x01q\x0a\x00\x00\x00\x12\x0cx-max-lengthI\x00\x00\x00\x05"),
    (
        QueueDeclareOk(queue="q", message_count=1, consumer_count=2),
        b"\x00\x32\x00\x0b\x01q\x00\x00\x00\x01\x00\x00\x00\x02",
    ),
    (BasicQos(prefetch_count=100, global_=True), b"\x00\x3c\x00\x0a\x00\x00\x00\x00\x00\x64\x01"),
    (
        BasicConsume(queue="q", consumer_tag="t", no_ack=True),
        b"\x00\x3c\x00\x14\x00\x00\x01q\x01t\x02\x00\x00\x00\x00",
    ),
    (BasicPublish(exchange="", routing_key="q", immediate=True), b"\x00\x3c\x00\x28\x00\x00\x00\x01q\x02"),
    (BasicDeliver(consumer_tag="t", delivery_tag=258, redelivered=True, exchange="x", routing_key="k"),
     b"\x00\x3c\x00\x3c\x01t\x00\x00\x00\x00\x00\x00\x01\x02\x01\x01x\x01k"),
    (BasicAck(delivery_tag=1, multiple=True), b"\x00\x3c\x00\x50" + bytes(7) + b"\x01\x01"),
]


@pytest.mark.parametrize(("method", "octets"), LITERALS)
def test_a_method_encodes_to_the_octets_of_the_specification(method, octets):
    assert method.encode() == octets


@pytest.mark.parametrize(("method", "octets"), LITERALS)
def test_a_method_decodes_from_the_octets_of_the_specification(method, octets):
    assert decode_method(octets) == method


@pytest.mark.parametrize("method_class", METHODS.values(), ids=lambda method_class: method_class.NAME)
def test_every_method_comes_back_from_its_octets(method_class):
    method = sample(method_class)

    assert decode_method(GUARDED.place(method.encode())) == method


@pytest.mark.parametrize("method_class", METHODS.values(), ids=lambda method_class: method_class.NAME)
def test_every_method_cut_anywhere_is_refused_with_its_name(method_class):
    octets = sample(method_class).encode()

    for length in range(4, len(octets)):
        with pytest.raises(FrameError) as caught:
            decode_method(GUARDED.place(octets[:length]))
        assert caught.value.text == f"cannot decode {method_class.NAME}"


@pytest.mark.parametrize("method_class", METHODS.values(), ids=lambda method_class: method_class.NAME)
def test_every_method_with_octets_behind_it_is_refused(method_class):
    with pytest.raises(FrameError):
        decode_method(sample(method_class).encode() + b"\x00")


def test_a_malformed_method_is_named_in_the_error():
    with pytest.raises(FrameError) as caught:
        decode_method(b"\x00\x32\x00\x0a\x00")

    assert (caught.value.class_id, caught.value.method_id, caught.value.text) == (
        50, 10, "cannot decode queue.declare"
    )


@pytest.mark.parametrize("octets", [b"", b"\x00", b"\x00\x3c\x00"])
def test_a_method_frame_without_ids_is_refused(octets):
    with pytest.raises(FrameError):
        decode_method(octets)


@pytest.mark.parametrize("octets", [
    b"\x00\x00\x00\x00", b"\x00\x3c\x00\x29", b"\x00\x1f\x00\x0a", b"\xff\xff\xff\xff"
])
def test_an_unknown_method_is_not_implemented(octets):
    with pytest.raises(NotImplemented_) as caught:
        decode_method(octets)

    assert (caught.value.class_id << 16 | caught.value.method_id) == int.from_bytes(octets, "big")


def test_what_is_not_given_is_empty():
    method = QueueDeclare(queue="q")

    assert (method.reserved_1, method.passive, method.arguments) == (0, False, {})


def test_two_methods_do_not_share_an_empty_table():
    QueueDeclare().arguments["x"] = 1

    assert QueueDeclare().arguments == {}


def test_a_field_the_method_does_not_have_is_refused():
    with pytest.raises(TypeError, match="queue.declare has no field durabel"):
        QueueDeclare(durabel=True)


def test_a_name_that_is_not_utf8_is_refused_in_rabbitmqs_words():
    with pytest.raises(FrameError, match="Malformed UTF-8 in shortstr"):
        decode_method(b"\x00\x3c\x00\x46\x00\x00\x02\xc3\x28\x00")


def test_what_a_publish_names_need_not_be_utf8():
    octets = b"\x00\x3c\x00\x28\x00\x00\x01\xff\x02\xc3\x28\x00"

    method = decode_method(octets)

    assert (method.exchange, method.routing_key) == ("\udcff", "\udcc3(")
    assert method.encode() == octets


def test_a_malformed_table_is_told_with_the_method_that_carries_it():
    with pytest.raises(FrameError, match="cannot decode queue.declare"):
        decode_method(b"\x00\x32\x00\x0a\x00\x00\x01q\x00\x00\x00\x00\x03\x01a?")


def test_unused_bits_of_a_bit_octet_are_ignored():
    assert decode_method(b"\x00\x3c\x00\x28\x00\x00\x00\x01q\xfc") == BasicPublish(routing_key="q")


def test_a_method_prints_its_fields():
    assert repr(BasicAck(delivery_tag=7)) == "BasicAck(delivery_tag=7, multiple=False)"


FIELD_VALUES = {
    "octet": st.integers(0, 255), "short": st.integers(0, 0xFFFF), "long": st.integers(0, 0xFFFFFFFF),
    "longlong": st.integers(0, 2**64 - 1),
    "bit": st.booleans(), "shortstr": st.text(max_size=40), "longstr": st.binary(max_size=300),
    "table": st.dictionaries(st.text(max_size=10), st.integers(-2**63, 2**63 - 1), max_size=3),
}
ANY_METHOD = st.sampled_from(sorted(METHODS.values(), key=lambda method_class: method_class.ID)).flatmap(
    lambda method_class: st.fixed_dictionaries(
        {name: FIELD_VALUES[kind] for name, kind in method_class.FIELDS}
    ).map(
        lambda values: method_class(**values)
    )
)


@given(ANY_METHOD)
def test_any_method_with_any_values_comes_back_from_its_octets(method):
    assert decode_method(GUARDED.place(method.encode())) == method


@settings(max_examples=500)
@given(ANY_METHOD, st.data())
def test_a_method_with_any_octet_changed_decodes_or_is_refused(method, data):
    octets = bytearray(method.encode())
    octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))

    try:
        decode_method(GUARDED.place(octets))
    except (FrameError, NotImplemented_):
        pass
