"""Messages that cross from MQTT to AMQP and back, between pika and paho-mqtt: what arrives, by which ways,
and requests whose answers find back.
"""
import json
import time

import paho.mqtt.client as paho
import pika
import pytest
import requests

from gomq_py import Broker
from tests.support.paho_client import PahoClient
from tests.support.waiting import in_time, wait_until


@pytest.fixture(scope="module")
def broker():
    with Broker(mqtt_port=0, http_port=0, event_exchange=True, log_exchange=True) as broker:
        yield broker


@pytest.fixture
def connect(broker):
    made = []

    def connect(client_id, version=paho.MQTTv5):
        made.append(PahoClient(broker, client_id, version))
        return made[-1]

    yield connect
    for client in made:
        client.close()


@pytest.fixture
def queue(channel):
    """A name that is free when the test is over."""
    yield "q"
    channel.queue_delete("q")


@pytest.fixture
def exchange(channel):
    yield "x"
    channel.exchange_delete("x")


def got(channel, queue):
    """The next message: (method, properties, body)."""
    found = []
    wait_until(lambda: found.append(channel.basic_get(queue, auto_ack=True)) or found[-1][0] is not None)
    return found[-1]


def api(broker, method, path, **body):
    answer = requests.request(
        method, f"{broker.http_url}/api/{path}", json=body or None, auth=("guest", "guest"),
        timeout=in_time(30))
    answer.raise_for_status()
    return answer.json() if answer.content else None


# what arrives

@pytest.mark.parametrize("version", [paho.MQTTv311, paho.MQTTv5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_amqp_queue_gets_what_paho_publishes(connect, channel, queue, version, qos):
    channel.queue_declare(queue)
    channel.queue_bind(queue, "amq.topic", "a.#")

    connect("p", version).publish("a/b.c/d", b"body", qos)

    method, properties, body = got(channel, queue)
    assert (method.exchange, method.routing_key, body) == ("amq.topic", "a.b/c.d", b"body")
    assert properties.headers == {"mqtt.topic": "a/b.c/d", "x-mqtt-publish-qos": qos}
    assert properties.delivery_mode == (2 if qos else 1)


def test_paho_gets_what_pika_publishes(connect, channel):
    subscriber = connect("s").subscribe("a/+/#", 2)

    headers = {"text": "ä", "number": 7, "yes": True, "table": {"left": "out"}}
    channel.basic_publish("amq.topic", "a.b/c.d", b"body", pika.BasicProperties(
        content_type="text/plain", correlation_id="id", reply_to="here", expiration="90000", delivery_mode=2,
        message_id="m", timestamp=5, headers=headers))

    message = subscriber.next()
    assert (message.topic, message.payload, message.qos, message.retain) == ("a/b.c/d", b"body", 1, False)
    properties = message.properties
    assert (properties.ContentType, properties.CorrelationData) == ("text/plain", b"id")
    assert properties.ResponseTopic == "$default/here"
    assert 80 <= properties.MessageExpiryInterval <= 90
    assert sorted(properties.UserProperty) == [
        ("amqp.message-id", "m"), ("amqp.timestamp", "5"), ("number", "7"), ("text", "ä"), ("yes", "true")]


@pytest.mark.parametrize("confirm", [False, True])
def test_retained_from_pika_is_there_for_who_subscribes_later(connect, channel, confirm):
    if confirm:
        channel.confirm_delivery()
    retained = pika.BasicProperties(headers={"mqtt.retain": True}, delivery_mode=2)

    channel.basic_publish("amq.topic", f"kept.{confirm}", b"1", retained)

    wait_until(lambda: _is_retained(connect, f"kept/{confirm}", b"1"))


def test_retained_of_a_transaction_reaches_once_who_subscribes_before_the_commit(connect, channel):
    """On b83bb75a it came neither live nor as what is retained."""
    channel.tx_select()
    retained = pika.BasicProperties(headers={"mqtt.retain": True}, delivery_mode=2)
    channel.basic_publish("amq.topic", "kept.tx", b"1", retained)
    channel.queue_declare("", passive=False, exclusive=True)  # it is there
    client = connect("early")
    client.subscribe("kept/tx")

    channel.tx_commit()
    channel.basic_publish("amq.topic", "kept.tx", b"end")
    channel.tx_commit()

    assert [client.next().payload for _ in range(2)] == [b"1", b"end"]


def _is_retained(connect, topic, body):
    client = connect("later")
    client.subscribe(topic)
    client.publish("barrier", b"")
    client.subscribe("barrier").publish("barrier", b"end")
    message = client.next()
    return message.payload == body and message.retain


def test_stream_keeps_what_paho_publishes_and_filters_by_topic(connect, channel, queue):
    channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "stream"})
    channel.queue_bind(queue, "amq.topic", "sensors.#")
    publisher = connect("p")
    for room in ("1", "2", "1"):
        publisher.publish(f"sensors/{room}/t", room.encode(), UserProperty=("x-stream-filter-value", room))

    def read(**arguments):
        channel.basic_qos(prefetch_count=10)
        found = []
        for _, properties, body in channel.consume(
            queue, arguments={"x-stream-offset": "first", **arguments}, inactivity_timeout=in_time(5),
        ):
            found.append((properties.headers["x-stream-offset"], properties.headers["mqtt.topic"], body))
            if len(found) == 2:
                break
        channel.cancel()
        return found

    ones = [(0, "sensors/1/t", b"1"), (2, "sensors/1/t", b"1")]
    assert read(**{"x-stream-filter": "1"}) == ones
    assert read(**{"x-stream-filter": {"mqtt.topic": "sensors/1/t"}}) == ones


# requests and answers

def test_mqtt_requester_talks_to_an_amqp_server(broker, connect, channel, queue):
    """The server is that of every tutorial: it answers over the default exchange to reply_to."""
    channel.queue_declare(queue)
    channel.queue_bind(queue, "amq.topic", "rpc.double")
    requester = connect("requester").subscribe("answers/requester.1")

    requester.publish("rpc/double", b"21", ResponseTopic="answers/requester.1", CorrelationData=b"\xff\x00")
    _, asked, body = got(channel, queue)
    channel.basic_publish("", asked.reply_to, b"%d" % (2 * int(body)), pika.BasicProperties(
        correlation_id=asked.correlation_id,
        headers={"mqtt.correlation-data": asked.headers["mqtt.correlation-data"]}))

    answer = requester.next()
    assert (answer.topic, answer.payload) == ("answers/requester.1", b"42")
    assert answer.properties.CorrelationData == b"\xff\x00"


def test_correlation_that_is_text_needs_no_header(connect, channel, queue):
    channel.queue_declare(queue)
    channel.queue_bind(queue, "amq.topic", "rpc.double")
    requester = connect("requester").subscribe("answers/1")

    requester.publish("rpc/double", b"1", ResponseTopic="answers/1", CorrelationData=b"id-7")
    _, asked, _ = got(channel, queue)
    channel.basic_publish("", asked.reply_to, b"2", pika.BasicProperties(correlation_id=asked.correlation_id))

    assert requester.next().properties.CorrelationData == b"id-7"


def test_answer_to_a_topic_that_nobody_subscribed_to_is_returned(channel):
    channel.confirm_delivery()

    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("", "amq.topic.nobody.here", b"", mandatory=True)


def test_answer_to_a_topic_that_the_responder_may_not_write_to_is_returned(broker, channel, connect, queue):
    """A device chooses the response topic: it must not be able to close the channel of who answers."""
    auth, api = ("guest", "guest"), f"{broker.http_url}/api"
    requests.put(f"{api}/users/rpc", json={"password": "rpc", "tags": ""}, auth=auth)
    rights = {"configure": "", "write": "^amq\\.default$", "read": ".*"}
    requests.put(f"{api}/permissions/%2F/rpc", json=rights, auth=auth)
    requester = connect("requester").subscribe("answers/1")
    answering = pika.BlockingConnection(pika.URLParameters(broker.amqp_url.replace("guest:guest", "rpc:rpc")))
    answers = answering.channel()
    answers.confirm_delivery()

    with pytest.raises(pika.exceptions.UnroutableError):
        answers.basic_publish("", "amq.topic.answers.1", b"no", mandatory=True)
    answers.basic_publish("", "amq.topic.answers.1", b"no")

    assert answers.is_open
    answering.close()
    channel.basic_publish("", "amq.topic.answers.1", b"yes")
    assert requester.next().payload == b"yes"


@pytest.mark.parametrize("how", ["queue", "direct reply-to"])
def test_amqp_requester_talks_to_an_mqtt_responder(connect, channel, how):
    responder = connect("responder").subscribe("rpc/double")
    if how == "queue":
        reply_to = channel.queue_declare("", exclusive=True).method.queue
    else:
        reply_to = "amq.rabbitmq.reply-to"
    answers = []
    channel.basic_consume(reply_to, lambda *answer: answers.append(answer), auto_ack=True)

    channel.basic_publish(
        "amq.topic", "rpc.double", b"21", pika.BasicProperties(reply_to=reply_to, correlation_id="id"))
    asked = responder.next()
    responder.publish(
        asked.properties.ResponseTopic, b"%d" % (2 * int(asked.payload)),
        CorrelationData=asked.properties.CorrelationData, ContentType="text/plain")

    wait_until(lambda: channel.connection.process_data_events(0) or answers)
    (_, method, properties, body), = answers
    assert (method.exchange, body) == ("", b"42")
    assert (properties.correlation_id, properties.content_type) == ("id", "text/plain")


def test_mqtt_responder_answers_an_mqtt_requester_and_amqp_sees_neither_address(connect):
    """Between MQTT clients nothing is translated."""
    responder, requester = connect("responder").subscribe("rpc"), connect("requester").subscribe("answers/+")

    requester.publish(
        "rpc", b"?", ResponseTopic="answers/x", CorrelationData=b"\x00", UserProperty=("k", "v"))
    asked = responder.next()
    responder.publish(
        asked.properties.ResponseTopic, b"!", CorrelationData=asked.properties.CorrelationData)

    assert asked.properties.UserProperty == [("k", "v")]
    answer = requester.next()
    assert (answer.topic, answer.payload, answer.properties.CorrelationData) == ("answers/x", b"!", b"\x00")


@pytest.mark.parametrize("version", [paho.MQTTv311, paho.MQTTv5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_topic_below_default_is_a_queue(connect, channel, queue, version, qos):
    channel.queue_declare(queue)

    connect("p", version).publish("$default/q", b"1", qos)

    method, properties, body = got(channel, queue)
    assert (method.exchange, method.routing_key, body) == ("", "q", b"1")
    assert properties.headers["mqtt.topic"] == "q"


# by other ways than a queue of amq.topic

def test_exchanges_that_look_at_headers_route_what_paho_publishes(connect, channel, queue, exchange):
    channel.exchange_declare(exchange, "headers")
    channel.exchange_bind(exchange, "amq.topic", "#")
    channel.queue_declare(queue)
    channel.queue_bind(queue, exchange, arguments={"x-match": "all", "unit": "C", "mqtt.topic": "t/1"})
    publisher = connect("p")

    publisher.publish("t/1", b"no", UserProperty=("unit", "F"))
    publisher.publish("t/2", b"no", UserProperty=("unit", "C"))
    publisher.publish("t/1", b"yes", UserProperty=("unit", "C"))

    assert got(channel, queue)[2] == b"yes"
    assert channel.basic_get(queue) == (None, None, None)


@pytest.mark.parametrize("arguments", [
    {"hash-header": "device"}, {"hash-property": "correlation_id"}, {"hash-header": "mqtt.topic"}, {}])
def test_consistent_hash_exchange_keeps_what_is_alike_together(connect, channel, exchange, arguments):
    channel.exchange_declare(exchange, "x-consistent-hash", arguments=arguments)
    channel.exchange_bind(exchange, "amq.topic", "h.#")
    names = [channel.queue_declare("", exclusive=True).method.queue for _ in range(2)]
    for name in names:
        channel.queue_bind(name, exchange, "1")
    publisher = connect("p")

    for number in range(40):
        publisher.publish(
            f"h/{number % 10}", b"%d" % (number % 10), UserProperty=("device", str(number % 10)),
            CorrelationData=b"%d" % (number % 10))

    found = []
    for name in names:
        count = channel.queue_declare(name, passive=True).method.message_count
        found.append([got(channel, name)[2] for _ in range(count)])
    assert sorted(map(int, found[0] + found[1])) == sorted(list(range(10)) * 4)
    assert not set(found[0]) & set(found[1])


def test_delayed_exchange_delays_what_paho_publishes(broker, connect, channel, queue, exchange):
    channel.exchange_declare(exchange, "x-delayed-message", arguments={"x-delayed-type": "topic"})
    channel.exchange_bind(exchange, "amq.topic", "later.#")
    channel.queue_declare(queue)
    channel.queue_bind(queue, exchange, "later.#")
    begin = time.monotonic()

    connect("p").publish(
        "later/1", b"1", UserProperty=("x-delay", "300"), CorrelationData=b"\xff", ContentType="t",
        MessageExpiryInterval=60)

    _, properties, body = got(channel, queue)
    assert time.monotonic() - begin >= 0.3 and body == b"1"
    assert properties.headers["mqtt.correlation-data"] == b"\xff"
    assert properties.headers["mqtt.topic"] == "later/1" and properties.headers["x-mqtt-publish-qos"] == 1
    assert (properties.content_type, properties.expiration) == ("t", "60000")


@pytest.mark.parametrize("exchange_type", ["topic", "headers"])
def test_dead_letter_of_what_paho_published_tells_all_of_it(connect, channel, queue, exchange, exchange_type):
    channel.exchange_declare(exchange, exchange_type)
    letters = channel.queue_declare("", exclusive=True).method.queue
    if exchange_type == "topic":
        channel.queue_bind(letters, exchange, "dies.#")
    else:
        channel.queue_bind(letters, exchange, arguments={"x-match": "any", "mqtt.topic": "dies/1.2"})
    channel.queue_declare(queue, arguments={"x-dead-letter-exchange": exchange, "x-max-length": 0})
    channel.queue_bind(queue, "amq.topic", "dies.#")

    connect("p").publish(
        "dies/1.2", b"body", 2, UserProperty=[("k", "1"), ("k", "2")], CorrelationData=b"\xfe",
        ResponseTopic="r", MessageExpiryInterval=100)

    _, properties, body = got(channel, letters)
    headers = properties.headers
    assert body == b"body" and headers["x-death"][0]["queue"] == queue
    assert headers["x-death"][0]["original-expiration"] == "100000" and properties.expiration is None
    assert (headers["mqtt.topic"], headers["x-mqtt-publish-qos"]) == ("dies/1.2", 2)
    assert (headers["mqtt.correlation-data"], properties.reply_to) == (b"\xfe", "amq.topic.r")


def test_dead_letter_reaches_an_mqtt_subscriber_as_it_was_published(connect, channel, queue):
    subscriber = connect("s").subscribe("letters/#", 2)
    channel.queue_declare(queue, arguments={
        "x-dead-letter-exchange": "amq.topic", "x-dead-letter-routing-key": "letters.1", "x-max-length": 0})
    channel.queue_bind(queue, "amq.topic", "dies")

    connect("p").publish(
        "dies", b"body", 2, retain=True, UserProperty=("k", "1"), CorrelationData=b"\xfe", ContentType="t",
        ResponseTopic="r/s")

    message = subscriber.next()
    assert (message.topic, message.payload, message.qos) == ("letters/1", b"body", 2)
    properties = message.properties
    assert (properties.CorrelationData, properties.ContentType) == (b"\xfe", "t")
    assert properties.ResponseTopic == "r/s" and ("k", "1") in properties.UserProperty
    later = connect("later").subscribe("letters/#")
    later.publish("letters/end", b"end")
    assert later.next().payload == b"end", "a dead letter is not retained"


def test_deduplication_knows_user_properties(connect, channel, queue):
    channel.queue_declare(queue, arguments={"x-message-deduplication": True, "x-cache-size": 10})
    channel.queue_bind(queue, "amq.topic", "once")
    publisher = connect("p")

    for body, key in ((b"1", "a"), (b"2", "a"), (b"3", "b")):
        publisher.publish("once", body, UserProperty=("x-deduplication-header", key))

    assert [got(channel, queue)[2] for _ in range(2)] == [b"1", b"3"]
    assert channel.basic_get(queue) == (None, None, None)


def test_transaction_with_what_paho_published(connect, channel, queue):
    """Taken and passed on to a subscriber in one transaction."""
    subscriber = connect("s").subscribe("out/1")
    channel.queue_declare(queue)
    channel.queue_bind(queue, "amq.topic", "in.1")
    connect("p").publish("in/1", b"1", ContentType="t")
    channel.tx_select()

    wait_until(lambda: channel.queue_declare(queue, passive=True).method.message_count)
    method, properties, body = channel.basic_get(queue)
    channel.basic_publish("amq.topic", "out.1", body, properties)
    channel.basic_ack(method.delivery_tag)
    channel.tx_commit()

    message = subscriber.next()
    assert (message.topic, message.payload, message.properties.ContentType) == ("out/1", b"1", "t")
    assert channel.queue_declare(queue, passive=True).method.message_count == 0


def test_events_and_log_lines_reach_mqtt_subscribers(broker, connect, channel):
    channel.exchange_bind("amq.topic", "amq.rabbitmq.event", "queue.*")
    try:
        subscriber = connect("s").subscribe("queue/created")
        channel.queue_declare("", exclusive=True)
        message = subscriber.next()
    finally:
        channel.exchange_unbind("amq.topic", "amq.rabbitmq.event", "queue.*")

    assert message.topic == "queue/created"
    assert dict(message.properties.UserProperty)["vhost"] == "/"


# looked at and moved by an operator

def test_management_shows_takes_moves_and_replays_what_paho_published(broker, connect, channel, queue):
    channel.queue_declare(queue)
    channel.queue_bind(queue, "amq.topic", "shown.#")
    other = channel.queue_declare("", exclusive=False, auto_delete=False).method.queue
    connect("p").publish(
        "shown/1", b"body", 2, CorrelationData=b"\xff", UserProperty=("k", "v"), ContentType="t")
    wait_until(lambda: channel.queue_declare(queue, passive=True).method.message_count)
    expected = {"k": "v", "mqtt.topic": "shown/1", "x-mqtt-publish-qos": 2}

    looked, = api(broker, "GET", f"queues/%2F/{queue}/messages")
    taken, = api(
        broker, "POST", f"queues/%2F/{queue}/get", count=1, ackmode="ack_requeue_true", encoding="auto")
    moved = api(
        broker, "POST", f"queues/%2F/{queue}/move", destination=other, headers={"mqtt.topic": "shown/1"})

    for shown in (looked, taken):
        assert shown["payload"] == "body" and shown["routing_key"] == "shown.1"
        assert {**expected, **shown["properties"]["headers"]} == shown["properties"]["headers"]
        assert shown["properties"]["content_type"] == "t"
    assert moved["moved"] == 1
    _, properties, body = got(channel, other)
    assert properties.headers == {**expected, "mqtt.correlation-data": b"\xff"} and body == b"body"
    channel.queue_delete(other)


def test_clients_of_both_sides_at_once(broker, connect, channel):
    """Numbers go round: paho to pika to paho, in order."""
    subscriber = connect("s").subscribe("round/back", 1)
    requeue = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(requeue, "amq.topic", "round.out")
    publisher = connect("p")
    numbers = [b"%d" % number for number in range(200)]
    for number in numbers:
        publisher.paho.publish("round/out", number, 1)

    for count, (method, properties, body) in enumerate(channel.consume(requeue), start=1):
        channel.basic_publish("amq.topic", "round.back", body, properties)
        channel.basic_ack(method.delivery_tag)
        if count == len(numbers):
            break
    channel.cancel()

    assert [subscriber.next().payload for _ in numbers] == numbers


def test_what_nobody_can_read_is_shown_with_its_reason(broker, channel, queue):
    from tests.support import crossing
    channel.queue_declare(queue)
    unknown = crossing.stored("a")
    unknown.set_kind(77)
    broker.call(crossing.put, queue, unknown)
    other = channel.queue_declare("", exclusive=False).method.queue

    shown, = api(broker, "GET", f"queues/%2F/{queue}/messages")
    by_header = api(broker, "POST", f"queues/%2F/{queue}/move", destination=other, headers={"a": "b"})
    moved = api(broker, "POST", f"queues/%2F/{queue}/move", destination=other)

    assert (shown["properties"], shown["unreadable"]) == ({}, "content of kind 77, which is unknown here")
    assert (by_header["matched"], moved["moved"]) == (0, 1)
    shown, = api(broker, "GET", f"queues/%2F/{other}/messages")
    assert json.dumps(shown["unreadable"]) == '"content of kind 77, which is unknown here"'
    channel.queue_delete(other)
