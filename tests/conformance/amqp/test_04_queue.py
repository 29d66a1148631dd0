"""Queue: declare, bind, unbind, purge and delete, with RabbitMQ's refusals."""
import re
import time

import pytest

from tests.support.cases import cases
from tests.support.waiting import wait_until
from tests.support.wire_encoding import field_value, publish_frames
from tests.support.wire_script import Wire

DEFAULT_REFUSED = "ACCESS_REFUSED - operation not permitted on the default exchange"
NO_PREVIOUS = "NOT_FOUND - no previously declared queue"


def no_queue(name):
    """RabbitMQ's text for a missing queue."""
    return f"NOT_FOUND - no queue '{name}' in vhost '/'"


def locked(name):
    """RabbitMQ's text for somebody else's exclusive queue, and for a declare whose exclusive bit differs."""
    return (
        f"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{name}' in vhost '/'. It could "
        "be originally declared on another connection or the exclusive property value does not match that "
        "of the original declaration."
    )


def inequivalent(argument, queue, received, current):
    """RabbitMQ's text for a declare that differs."""
    return (
        f"PRECONDITION_FAILED - inequivalent arg '{argument}' for queue '{queue}' in vhost '/': received "
        f"{received} but current is {current}"
    )


@pytest.fixture
def shared_queue(channel, open_wire, name):
    """Declares queues under this test's name that are not exclusive, and deletes them afterwards."""
    def declare(suffix="", **values):
        declared.append(name + suffix)
        return channel.declare(name + suffix, exclusive=False, **values)
    declared = []
    yield declare
    cleaner = open_wire().channel()
    for each in declared:
        cleaner.call("queue.delete", queue=each)


@cases("values", {
    "exclusive": {"exclusive": True}, "exclusive-durable": {"exclusive": True, "durable": True}
})
def test_declare_is_answered_with_name_and_counts(channel, name, values):
    channel.send("queue.declare", queue=name, **values)
    channel.expect("queue.declare-ok", queue=name, message_count=0, consumer_count=0)

    channel.publish("", name, b"x")
    channel.expect_count(name, 1)
    channel.send("queue.declare", queue=name, **values)
    channel.expect("queue.declare-ok", queue=name, message_count=1, consumer_count=0)


@cases("values", {
    "transient": {}, "durable": {"durable": True}, "auto-delete": {"auto_delete": True},
    "durable-auto-delete": {"durable": True, "auto_delete": True},
})
def test_declare_may_be_repeated(shared_queue, values):
    """Transient queues that are not exclusive stay allowed:
    Celery's pidbox and event queues are of that kind.
    """
    shared_queue(**values)
    shared_queue(**values)


def test_passive_declare_ignores_everything_but_the_name(channel):
    queue = channel.declare()

    channel.call(
        "queue.declare", queue=queue, passive=True, durable=True, auto_delete=True,
        arguments={"x-expires": "wibble"},
    )


def test_passive_declare_counts_as_use_of_a_queue_that_expires(channel, name):
    """Asked for again and again it outlives its time, unless this process or the broker was held up between
    two questions: then once more.
    """
    def outlived(queue):
        channel.call("queue.declare", queue=queue, arguments={"x-expires": 600})
        asked = began = time.monotonic()
        longest_s = 0.0
        while asked < began + 0.8:
            there, before, asked = channel.has_queue(queue), asked, time.monotonic()
            longest_s = max(longest_s, asked - before)
            if not there:
                assert longest_s > 0.25, "two uses were never as far apart as it lives"
                return False
        return True

    assert any(outlived(f"{name}.{n}") for n in range(20))


def test_passive_declare_of_a_missing_queue_is_404(channel, name):
    channel.send("queue.declare", queue=name, passive=True)

    channel.expect_close(404, no_queue(name), "queue.declare")


def test_empty_name_lets_the_broker_choose(channel):
    names = {channel.declare() for _ in range(20)}

    assert len(names) == 20
    assert all(re.fullmatch("amq\\.gen-[A-Za-z0-9_-]{16,}", name) for name in names)


def test_reserved_prefix_is_403(channel):
    channel.send("queue.declare", queue="amq.mine")

    channel.expect_close(
        403, "ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'", "queue.declare"
    )


def test_reserved_prefix_is_no_obstacle_to_a_passive_declare(channel):
    channel.send("queue.declare", queue="amq.mine", passive=True)

    channel.expect_close(404, no_queue("amq.mine"), "queue.declare")


@cases("first, second, argument, received, current", {
    "durable": ({}, {"durable": True}, "durable", "'true'", "'false'"),
    "auto-delete": ({}, {"auto_delete": True}, "auto_delete", "'true'", "'false'"),
    "ttl-added": (
        {}, {"arguments": {"x-message-ttl": 1000}}, "x-message-ttl", "the value '1000' of type 'signedint'",
        "none",
    ),
    "ttl-dropped": (
        {"arguments": {"x-message-ttl": 1000}}, {}, "x-message-ttl", "none",
        "the value '1000' of type 'signedint'",
    ),
    "ttl-changed": (
        {"arguments": {"x-message-ttl": 1000}}, {"arguments": {"x-message-ttl": 2000}}, "x-message-ttl",
        "'2000'", "'1000'",
    ),
    "dead-letter-exchange": (
        {}, {"arguments": {"x-dead-letter-exchange": "a"}}, "x-dead-letter-exchange",
        "the value 'a' of type 'longstr'", "none",
    ),
    "max-length": (
        {"arguments": {"x-max-length": 1}}, {"arguments": {"x-max-length": 2}}, "x-max-length", "'2'", "'1'"
    ),
    "float": (
        {"arguments": {"x-max-length": 5}}, {"arguments": {"x-max-length": 5.0}}, "x-max-length", "'5.0'",
        "'5'",
    ),
    "max-priority": (
        {}, {"arguments": {"x-max-priority": 5}}, "x-max-priority", "the value '5' of type 'signedint'",
        "none",
    ),
})
def test_declare_with_other_properties_is_406(
    channel, shared_queue, first, second, argument, received, current
):
    name = shared_queue(**first)

    channel.send("queue.declare", queue=name, **second)

    channel.expect_close(406, inequivalent(argument, name, received, current), "queue.declare")


@pytest.mark.parametrize("exclusive", [False, True], ids=["made-exclusive", "made-shared"])
def test_declare_that_changes_exclusiveness_is_405(channel, name, exclusive):
    channel.call("queue.declare", queue=name, exclusive=exclusive)

    channel.send("queue.declare", queue=name, exclusive=not exclusive)

    channel.expect_close(405, locked(name), "queue.declare")
    channel.call("queue.delete", queue=name)


@cases("first, second", {
    "unknown-added": ({}, {"x-colour": "blue"}),
    "unknown-changed": ({"x-colour": "red"}, {"x-colour": "blue"}),
    "width-of-integers": (
        {"x-message-ttl": field_value("I", 5000)}, {"x-message-ttl": field_value("l", 5000)}
    ),
    "classic-is-the-default": ({}, {"x-queue-type": "classic"}),
})
def test_declare_that_does_not_differ_in_what_matters_is_answered(shared_queue, first, second):
    shared_queue(arguments=first)
    shared_queue(arguments=second)


@pytest.mark.parametrize("argument", [
    "x-expires", "x-message-ttl", "x-max-length", "x-max-length-bytes", "x-max-priority"
])
@cases("value, text", {
    "string": ("abc", '"expected integer, got longstr"'),
    "double": (1.5, '"expected integer, got double"'),
    "bool": (True, '"expected integer, got bool"'),
    "timestamp": (field_value("T", 5), '"expected integer, got timestamp"'),
    "void": (None, '"expected integer, got void"'),
    "negative": (-1, "{value_negative,-1}"),
})
def test_numeric_argument_that_is_no_natural_number_is_406(channel, name, argument, value, text):
    channel.send("queue.declare", queue=name, exclusive=True, arguments={argument: value})

    channel.expect_close(
        406, f"PRECONDITION_FAILED - invalid arg '{argument}' for queue '{name}' in vhost '/': {text}",
        "queue.declare",
    )


@pytest.mark.deviates("RabbitMQ 4.3 ignores the mode, whatever it is", of="4.3", cases=("queue-mode",))
@cases("argument, value, text", {
    "expires-0": ("x-expires", 0, "{value_zero,0}"),
    "expires-huge": ("x-expires", 2 ** 40, "{value_too_large,1099511627776}"),
    "ttl-huge": ("x-message-ttl", 2 ** 40, "{value_too_large,1099511627776}"),
    "priority-huge": ("x-max-priority", 2 ** 40, "{max_value_exceeded,1099511627776}"),
    "key-alone": ("x-dead-letter-routing-key", "a", "routing_key_but_no_dlx_defined"),
    "key-integer": ("x-dead-letter-routing-key", 5, "{unacceptable_type,signedint}"),
    "overflow": ("x-overflow", "abc", "invalid_overflow"),
    "overflow-integer": ("x-overflow", 5, "{unacceptable_type,signedint}"),
    "single-active": ("x-single-active-consumer", "yes", "{unacceptable_type,longstr}"),
    "queue-type": ("x-queue-type", "wibble", "\"unsupported queue type 'wibble'\""),
    "queue-mode": ("x-queue-mode", "wibble", "\"unsupported queue mode 'wibble'\""),
})
def test_argument_with_a_bad_value_is_406(channel, name, argument, value, text):
    channel.send("queue.declare", queue=name, exclusive=True, arguments={argument: value})

    channel.expect_close(
        406, f"PRECONDITION_FAILED - invalid arg '{argument}' for queue '{name}' in vhost '/': {text}",
        "queue.declare",
    )


@cases("arguments, text", {
    "values-in-rabbitmqs-order": (
        {"x-max-length": "a", "x-dead-letter-routing-key": "b"},
        "'x-dead-letter-routing-key' for {}: routing_key_but_no_dlx_defined"),
    "values-before-kinds": ({"x-max-age": "1h", "x-expires": 0}, "'x-expires' for {}: {{value_zero,0}}"),
    "kind": (
        {"x-max-age": "nonsense", "x-expires": 1}, "'x-max-age' for {} of queue type rabbit_classic_queue"
    ),
})
def test_of_several_bad_arguments_rabbitmqs_first_is_named(channel, name, arguments, text):
    channel.send("queue.declare", queue=name, exclusive=True, arguments=arguments)

    channel.expect_close(
        406, "PRECONDITION_FAILED - invalid arg " + text.format(f"queue '{name}' in vhost '/'"),
        "queue.declare",
    )


@cases("octets, value, type_", {
    "byte": (b"b\x05", 5, "byte"), "unsignedbyte": (b"B\x05", 5, "unsignedbyte"),
    "short": (b"s\x00\x05", 5, "short"),
    "unsignedshort": (b"u\x00\x05", 5, "unsignedshort"),
    "unsignedint": (b"i\x00\x00\x00\x05", 5, "unsignedint"),
    "long": (b"l" + b"\x00" * 7 + b"\x05", 5, "long"),
})
def test_texts_name_the_type_that_an_integer_came_with(channel, shared_queue, name, octets, value, type_):
    shared_queue(arguments={"x-max-length": octets})
    shared_queue(arguments={"x-max-length": value})

    channel.send("queue.declare", queue=name)

    channel.expect_close(
        406, inequivalent("x-max-length", name, "none", f"the value '{value}' of type '{type_}'"),
        "queue.declare",
    )


def test_dead_letter_exchange_that_is_no_string_is_406(channel, name):
    channel.send("queue.declare", queue=name, exclusive=True, arguments={"x-dead-letter-exchange": 5})

    text = (
        "PRECONDITION_FAILED - invalid type 'signedint' for arg 'x-dead-letter-exchange' in "
        f"queue '{name}' in vhost '/'"
    )
    channel.expect_close(406, text, "queue.declare")


@pytest.mark.deviates("RabbitMQ 4.3 refuses what is deprecated with 541", of="4.3", cases=("locator",))
@cases("arguments", {
    "expires": {"x-expires": 60000}, "ttl": {"x-message-ttl": 0}, "max-length": {"x-max-length": 0},
    "max-bytes": {"x-max-length-bytes": 2 ** 40},
    "priority": {"x-max-priority": 255},
    "dlx": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "k"},
    "drop-head": {"x-overflow": "drop-head"}, "reject": {"x-overflow": "reject-publish"},
    "reject-dlx": {"x-overflow": "reject-publish-dlx"},
    "sac": {"x-single-active-consumer": True},
    "lazy": {"x-queue-mode": "lazy"}, "classic": {"x-queue-type": "classic"},
    "locator": {"x-queue-master-locator": "client-local"},
    "version": {"x-queue-version": 2}, "unknown": {"x-colour": {"nested": [1, None, {"a": 1.5}]}},
})
def test_argument_with_a_good_value_is_taken(channel, arguments):
    assert channel.declare(arguments=arguments)


@pytest.mark.deviates("RabbitMQ 3.10 takes both", of="3.10")
@cases("argument, value, kind, text", {
    "version": ("x-queue-version", 1, "classic", "\"unsupported queue version '1'\""),
    "disconnected": ("x-consumer-disconnected-timeout", -1, "quorum", "{value_negative,-1}"),
})
def test_argument_that_rabbitmq_refuses_since_4_3_is_406(channel, name, argument, value, kind, text):
    channel.send(
        "queue.declare", queue=name, durable=True, arguments={"x-queue-type": kind, argument: value})

    channel.expect_close(
        406, f"PRECONDITION_FAILED - invalid arg '{argument}' for queue '{name}' in vhost '/': {text}",
        "queue.declare",
    )


@pytest.mark.deviates("RabbitMQ refuses it, 3.10 and 4.3")
@pytest.mark.parametrize("arguments", [
    {"x-delayed-retry-type": "all", "x-delayed-retry-min": 1000}, {"x-consumer-timeout": 60_000},
])
def test_arguments_of_4_3s_quorum_queues_are_taken_for_classic_ones(channel, arguments):
    assert channel.declare(arguments=arguments)


@pytest.mark.deviates(
    "RabbitMQ 3.10 knows x-delivery-limit for quorum queues only; LavinMQ and we know it for every queue"
)
def test_delivery_limit_is_taken_for_every_queue(channel):
    assert channel.declare(arguments={"x-delivery-limit": 3})


def test_quorum_type_is_accepted(channel, name):
    """Celery and kombu may be told to declare quorum queues; one node keeps them as durable queues."""
    channel.declare(name, durable=True, arguments={"x-queue-type": "quorum"})
    channel.call("basic.qos", prefetch_count=1, global_=False)

    channel.publish("", name, b"x")

    tag = channel.consume(name)
    channel.expect_content("basic.deliver", b"x")
    channel.call("basic.cancel", consumer_tag=tag)
    channel.call("queue.delete", queue=name)


@pytest.mark.parametrize("spelled", [
    "sp ace", "é中\U0001f40d", "x" * 200, "semi;colon'quote\"", "#.*", "a\x00b", "../../etc/passwd"
])
def test_names_are_any_text(channel, name, spelled):
    queue = name[:30] + spelled

    assert channel.declare(queue) == queue
    channel.publish("", queue, b"x")
    content = channel.get(queue)

    assert content.method.routing_key == queue


def test_longest_name_has_255_octets(channel, name):
    queue = (name + "x" * 255)[:255]

    assert channel.declare(queue) == queue
    assert channel.call("queue.declare", queue=queue, passive=True).queue == queue


def test_line_ends_are_stripped_from_names(channel, name):
    assert channel.declare(f"{name[:4]}\r\n{name[4:]}\n") == name


@pytest.mark.deviates("RabbitMQ 3.10 takes it for UTF-8", of="3.10")
def test_half_of_a_surrogate_pair_closes_the_connection(channel, wire):
    """UTF-8 has no surrogates (RFC 3629), and few clients could read such a name in an answer."""
    channel.send("queue.declare", queue=b"\xed\xa0\x80", exclusive=True)

    wire.expect_connection_close(501, "FRAME_ERROR - Malformed UTF-8 in shortstr")


def test_name_that_is_not_utf8_closes_the_connection(channel, wire):
    channel.send("queue.declare", queue=b"bad\xff\xfe", exclusive=True)

    wire.expect_connection_close(501, "FRAME_ERROR - Malformed UTF-8 in shortstr")


def test_no_wait_is_not_answered(channel, name):
    channel.send("queue.declare", queue=name, exclusive=True, no_wait=True)
    channel.call("queue.declare", queue=name, passive=True)
    channel.send("queue.bind", queue=name, exchange="amq.direct", routing_key=name, no_wait=True)
    channel.send("queue.purge", queue=name, no_wait=True)
    channel.publish("amq.direct", name, b"x")
    assert channel.get(name).body == b"x"

    channel.send("queue.delete", queue=name, no_wait=True)

    channel.send("queue.declare", queue=name, passive=True)
    channel.expect_close(404, no_queue(name), "queue.declare")


def test_no_wait_does_not_keep_errors_quiet(channel):
    channel.send("queue.declare", queue="amq.mine", no_wait=True)

    channel.expect_close(
        403, "ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'", "queue.declare"
    )


@cases("method, values", {
    "purge": ("queue.purge", {}), "bind": ("queue.bind", {"exchange": "amq.direct"}),
    "unbind": ("queue.unbind", {"exchange": "amq.direct"}),
    "delete": ("queue.delete", {}), "consume": ("basic.consume", {}), "get": ("basic.get", {}),
})
def test_empty_name_without_a_declared_queue_is_404(channel, method, values):
    channel.send(method, **values)

    channel.expect_close(404, NO_PREVIOUS, method)


def test_empty_name_means_the_queue_declared_last(channel, name):
    channel.declare()
    channel.declare(name)

    channel.call("queue.bind", exchange="amq.direct", routing_key=f"{name}-key")
    channel.publish("amq.direct", f"{name}-key", b"one")
    assert channel.get("").body == b"one"
    channel.call("queue.unbind", exchange="amq.direct", routing_key=f"{name}-key")
    tag = channel.consume("", no_ack=True)
    channel.publish("", name, b"two")
    channel.expect_content("basic.deliver", b"two")
    channel.call("basic.cancel", consumer_tag=tag)
    channel.call("queue.purge")
    channel.call("queue.delete")

    assert not channel.wire.channel(2).has_queue(name)


def test_empty_name_and_key_bind_with_the_queue_name(channel, name):
    channel.declare(name)

    channel.call("queue.bind", exchange="amq.direct")

    channel.publish("amq.direct", name, b"x")
    assert channel.get(name).body == b"x"


@cases("values, text", {
    "queue": ({"queue": "no.such", "exchange": "amq.direct"}, "NOT_FOUND - no queue 'no.such' in vhost '/'"),
    "both": (
        {"queue": "no.such", "exchange": "no.exchange"}, "NOT_FOUND - no exchange 'no.exchange' in vhost '/'"
    ),
})
def test_bind_of_a_missing_queue_is_404(channel, values, text):
    channel.send("queue.bind", **values)

    channel.expect_close(404, text, "queue.bind")


def test_bind_to_a_missing_exchange_is_404(channel):
    channel.send("queue.bind", queue=channel.declare(), exchange="no.such")

    channel.expect_close(404, "NOT_FOUND - no exchange 'no.such' in vhost '/'", "queue.bind")


@pytest.mark.parametrize("method", ["queue.bind", "queue.unbind"])
def test_default_exchange_cannot_be_bound(channel, method):
    queue = channel.declare()

    channel.send(method, queue=queue, exchange="", routing_key=queue)

    channel.expect_close(403, DEFAULT_REFUSED, method)


def test_bind_twice_delivers_once_and_unbinds_at_once(channel):
    queue = channel.declare()
    for _ in range(2):
        channel.call("queue.bind", queue=queue, exchange="amq.topic", routing_key=queue)

    channel.publish("amq.topic", queue, b"once")
    channel.call("queue.unbind", queue=queue, exchange="amq.topic", routing_key=queue)
    channel.publish("amq.topic", queue, b"too late")

    assert channel.get(queue).body == b"once"
    assert channel.get(queue) is None


@cases("values", {
    "queue": {"queue": "no.such", "exchange": "amq.direct"}, "exchange": {"exchange": "no.such"},
    "binding": {"exchange": "amq.direct", "routing_key": "never"},
})
def test_unbind_of_what_is_missing_is_answered(channel, values):
    channel.call("queue.unbind", **{"queue": channel.declare(), **values})


def test_purge_counts_ready_messages_and_leaves_unacked_ones(channel):
    queue = channel.declare()
    for n in range(5):
        channel.publish("", queue, str(n))
    first = channel.get(queue, no_ack=False)

    channel.send("queue.purge", queue=queue)
    channel.expect("queue.purge-ok", message_count=4)

    channel.send("basic.reject", delivery_tag=first.method.delivery_tag, requeue=True)
    assert channel.get(queue).body == b"0"


def test_purge_of_a_missing_queue_is_404(channel, name):
    channel.send("queue.purge", queue=name)

    channel.expect_close(404, no_queue(name), "queue.purge")


def test_delete_counts_ready_messages(channel):
    queue = channel.declare()
    for n in range(3):
        channel.publish("", queue, str(n))

    channel.send("queue.delete", queue=queue)

    channel.expect("queue.delete-ok", message_count=3)


@pytest.mark.parametrize("queue", ["no.such", "amq.no-such"])
def test_delete_of_a_missing_queue_is_answered(channel, queue):
    channel.send("queue.delete", queue=queue)

    channel.expect("queue.delete-ok", message_count=0)


def test_delete_if_empty_of_a_filled_queue_is_406(channel):
    queue = channel.declare()
    channel.publish("", queue, b"x")

    channel.send("queue.delete", queue=queue, if_empty=True)

    channel.expect_close(406, f"PRECONDITION_FAILED - queue '{queue}' in vhost '/' not empty", "queue.delete")


def test_delete_if_unused_of_a_consumed_queue_is_406(channel):
    queue = channel.declare()
    channel.consume(queue)

    channel.send("queue.delete", queue=queue, if_unused=True)

    channel.expect_close(406, f"PRECONDITION_FAILED - queue '{queue}' in vhost '/' in use", "queue.delete")


def test_queue_that_is_neither_empty_nor_unused_is_not_empty(channel):
    queue = channel.declare()
    channel.call("basic.qos", prefetch_count=1)
    channel.consume(queue)
    channel.wire.send(publish_frames(1, "", queue, b"held") + publish_frames(1, "", queue, b"waits"))
    channel.expect_content("basic.deliver", b"held")
    channel.expect_count(queue, 1)

    channel.send("queue.delete", queue=queue, if_unused=True, if_empty=True)

    channel.expect_close(406, f"PRECONDITION_FAILED - queue '{queue}' in vhost '/' not empty", "queue.delete")


def test_conditional_delete_of_an_idle_queue_deletes(channel, name):
    channel.declare(name)

    channel.call("queue.delete", queue=name, if_empty=True, if_unused=True)

    channel.send("queue.declare", queue=name, passive=True)
    channel.expect_close(404, no_queue(name), "queue.declare")


def test_deleted_queue_is_no_longer_bound(channel, name):
    channel.declare(name)
    channel.call("queue.bind", queue=name, exchange="amq.direct", routing_key=name)
    channel.call("queue.delete", queue=name)

    channel.publish("amq.direct", name, b"x", mandatory=True)

    channel.expect_content("basic.return", b"x", reply_code=312)


@cases("method, values", {
    "declare": ("queue.declare", {}), "declare-exclusive": ("queue.declare", {"exclusive": True}),
    "passive": ("queue.declare", {"passive": True}),
    "bind": ("queue.bind", {"exchange": "amq.direct"}), "purge": ("queue.purge", {}),
    "delete": ("queue.delete", {}),
    "consume": ("basic.consume", {}), "get": ("basic.get", {}),
})
def test_exclusive_queue_of_another_connection_is_405(channel, open_wire, name, method, values):
    channel.declare(name)
    other = open_wire().channel()

    other.send(method, queue=name, **values)

    other.expect_close(405, locked(name), method)


def test_reply_texts_are_cut_at_255_octets(channel, name):
    """A reply text is a short string; names may have 255 octets themselves."""
    queue = channel.declare(name + "x" * 100)

    channel.send("queue.declare", queue=queue, durable=True)

    channel.expect("channel.close", reply_code=405, reply_text=locked(queue)[:252] + "...")


@pytest.mark.deviates(
    "RabbitMQ cuts a reply text in the middle of a character, which some clients cannot decode"
)
@pytest.mark.parametrize("length", [101, 102, 103, 104])
def test_reply_texts_are_cut_between_characters(channel, name, length):
    queue = channel.declare(name + "x" * (length - len(name)) + "中" * 40)

    channel.send("queue.declare", queue=queue, durable=True)

    close = channel.expect("channel.close", reply_code=405)
    assert 250 <= len(close.reply_text.encode()) <= 255


def test_exclusive_queue_takes_messages_from_anyone(channel, open_wire):
    queue = channel.declare()

    other = open_wire().channel()
    other.call("confirm.select")
    other.publish("", queue, b"from elsewhere")
    other.expect("basic.ack")

    assert channel.get(queue).body == b"from elsewhere"


@pytest.mark.parametrize("polite", [True, False], ids=["close", "reset"])
def test_exclusive_queue_goes_with_its_connection(channel, broker_address, name, polite):
    wire = Wire.open(broker_address)
    wire.channel().declare(name, durable=True, exclusive=True)

    (wire.close if polite else wire.abort)()

    wait_until(lambda: not channel.has_queue(name))


def test_auto_delete_queue_goes_with_its_last_consumer(channel, name):
    channel.call("queue.declare", queue=name, auto_delete=True)
    tags = [channel.consume(name) for _ in range(2)]

    channel.call("basic.cancel", consumer_tag=tags[0])
    channel.call("queue.declare", queue=name, passive=True)
    channel.call("basic.cancel", consumer_tag=tags[1])

    channel.send("queue.declare", queue=name, passive=True)
    channel.expect_close(404, no_queue(name), "queue.declare")


def test_auto_delete_queue_that_was_never_consumed_stays(shared_queue, channel):
    name = shared_queue(auto_delete=True)

    channel.publish("", name, b"x")

    assert channel.get(name).body == b"x"
    channel.call("queue.declare", queue=name, passive=True)


def test_counts_in_declare_ok_are_ready_messages_and_consumers(channel):
    queue = channel.declare()
    for n in range(3):
        channel.publish("", queue, str(n))
    channel.get(queue, no_ack=False)
    channel.consume(queue)
    channel.expect_content("basic.deliver")
    channel.expect_content("basic.deliver")

    channel.send("queue.declare", queue=queue, passive=True)

    channel.expect("queue.declare-ok", message_count=0, consumer_count=1)
