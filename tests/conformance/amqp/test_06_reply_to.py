"""Basic: direct reply-to, RabbitMQ's queue that is none (https://www.rabbitmq.com/docs/direct-reply-to)."""
import pytest

from tests.support.wire_encoding import properties

REPLY_TO = "amq.rabbitmq.reply-to"
ASKING = properties(reply_to=REPLY_TO, correlation_id="1")


@pytest.fixture
def responder(wire):
    """A second channel with a queue for requests: (channel, queue)."""
    channel = wire.channel(2)
    return channel, channel.declare()


def ask(channel, responder):
    """Publish a request; returns the reply-to name the responder sees."""
    server, queue = responder
    channel.publish("", queue, b"question", ASKING)
    server.expect_count(queue, 1)
    content = server.get(queue)
    assert content.properties["correlation_id"] == "1"
    return content.properties["reply_to"]


def test_reply_comes_straight_to_the_channel(channel, responder):
    channel.consume(REPLY_TO, no_ack=True, consumer_tag="replies")

    name = ask(channel, responder)
    responder[0].publish("", name, b"answer", properties(correlation_id="1"))

    assert name.startswith("amq.rabbitmq.reply-to.") and len(name) > len(REPLY_TO) + 8
    content = channel.expect_content(
        "basic.deliver", b"answer", consumer_tag="replies", exchange="", routing_key=name, redelivered=False
    )
    assert content.properties == {"correlation_id": "1"}


def test_reply_crosses_connections(channel, open_wire):
    server = open_wire().channel()
    queue = server.declare()
    channel.consume(REPLY_TO, no_ack=True)

    channel.publish("", queue, b"question", ASKING)
    server.consume(queue, no_ack=True)
    name = server.expect_content("basic.deliver", b"question").properties["reply_to"]
    server.publish("", name, b"answer", mandatory=True)

    channel.expect_content("basic.deliver", b"answer")


def test_many_replies_arrive_in_order(channel, responder):
    channel.consume(REPLY_TO, no_ack=True)
    name = ask(channel, responder)

    for n in range(100):
        responder[0].publish("", name, str(n))

    for n in range(100):
        channel.expect_content("basic.deliver", str(n))


def test_name_stays_the_same_for_the_consumer(channel, responder):
    channel.consume(REPLY_TO, no_ack=True)

    assert ask(channel, responder) == ask(channel, responder)


def test_consumer_must_not_ack(channel):
    channel.send("basic.consume", queue=REPLY_TO)

    channel.expect_close(406, "PRECONDITION_FAILED - reply consumer cannot acknowledge", "basic.consume")


def test_second_consumer_on_a_channel_is_406(channel):
    channel.consume(REPLY_TO, no_ack=True)

    channel.send("basic.consume", queue=REPLY_TO, no_ack=True)

    channel.expect_close(406, "PRECONDITION_FAILED - reply consumer already set", "basic.consume")


def test_consumer_may_be_cancelled_and_started_again(channel, responder):
    tag = channel.consume(REPLY_TO, no_ack=True)
    channel.call("basic.cancel", consumer_tag=tag)

    channel.consume(REPLY_TO, no_ack=True)

    responder[0].publish("", ask(channel, responder), b"answer")
    channel.expect_content("basic.deliver", b"answer")


def test_asking_without_a_consumer_is_406(channel):
    channel.publish("", "anywhere", b"question", ASKING)

    channel.expect_close(406, "PRECONDITION_FAILED - fast reply consumer does not exist", "basic.publish")


@pytest.mark.deviates("RabbitMQ 4.3 takes a reply for routed while the connection is there", of="4.3")
def test_reply_to_nobody_is_unroutable(channel, responder):
    tag = channel.consume(REPLY_TO, no_ack=True)
    name = ask(channel, responder)
    channel.call("basic.cancel", consumer_tag=tag)

    channel.publish("", name, b"too late", mandatory=True)

    channel.expect_content("basic.return", b"too late", reply_code=312)


@pytest.mark.parametrize("name", ["amq.rabbitmq.reply-to.made-up", "amq.rabbitmq.reply-to."])
def test_made_up_name_is_unroutable(channel, name):
    channel.publish("", name, b"x", mandatory=True)

    channel.expect_content("basic.return", b"x", reply_code=312)


@pytest.mark.parametrize("passive", [False, True])
def test_declaring_the_name_is_a_formality(channel, passive):
    channel.send("queue.declare", queue=REPLY_TO, passive=passive)

    channel.expect("queue.declare-ok", queue=REPLY_TO, message_count=0)


def test_declaring_a_reply_name_tells_whether_somebody_waits(channel, responder):
    """For responders that want to know before a long calculation."""
    tag = channel.consume(REPLY_TO, no_ack=True)
    name = ask(channel, responder)

    assert responder[0].call("queue.declare", queue=name, passive=True).queue == name

    channel.call("basic.cancel", consumer_tag=tag)
    responder[0].send("queue.declare", queue=name, passive=True)
    responder[0].expect_close(404, f"NOT_FOUND - no queue '{name}' in vhost '/'", "queue.declare")


@pytest.mark.parametrize(("method", "values"), [
    ("basic.get", {}), ("queue.purge", {}), ("queue.bind", {"exchange": "amq.direct"}),
], ids=["get", "purge", "bind"])
def test_name_is_no_queue_for_anything_else(channel, method, values):
    channel.send(method, queue=REPLY_TO, **values)

    channel.expect_close(404, f"NOT_FOUND - no queue '{REPLY_TO}' in vhost '/'", method)


@pytest.mark.deviates("RabbitMQ 4.3 takes a reply for routed while the connection is there", of="4.3")
def test_replies_of_a_closed_channel_go_nowhere(channel, wire, responder):
    channel.consume(REPLY_TO, no_ack=True)
    name = ask(channel, responder)
    channel.send("channel.close", reply_code=200)
    channel.expect("channel.close-ok")

    responder[0].publish("", name, b"too late", mandatory=True)

    responder[0].expect_content("basic.return", b"too late", reply_code=312)
