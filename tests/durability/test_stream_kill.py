"""A real broker with a stream is killed: what was confirmed is there under its offset,
and a named consumer goes on where it was.
"""
import pika
import requests

from tests.support.broker_process import BrokerProcess
from tests.support.streams import STREAM
from tests.support.waiting import TIMEOUT_S

TRACKED = {"x-stream-offset": "first", "x-stream-automatic-offset-tracking": True}


def connect(broker):
    return pika.BlockingConnection(pika.URLParameters(broker.amqp_url))


def read(broker, count, tag, arguments):
    """The bodies of ``count`` messages, each acknowledged."""
    with connect(broker) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=10)
        found = []

        def take(_channel, method, properties, body):
            if len(found) < count:
                assert properties.headers["x-stream-offset"] == int(body)
                found.append(int(body))
                channel.basic_ack(method.delivery_tag)
        channel.basic_consume("s", take, consumer_tag=tag, arguments=arguments)
        while len(found) < count:
            connection.process_data_events(0.1)
        channel.queue_declare("s", passive=True)  # an answer: the acks before it have been heard
    return found


def test_confirmed_messages_and_positions_survive_sigkill_twice(tmp_path):
    published = 0
    for life in range(3):
        with BrokerProcess(tmp_path / "data") as broker:
            with connect(broker) as connection:
                channel = connection.channel()
                channel.queue_declare("s", durable=True, arguments=STREAM)
                channel.confirm_delivery()
                for _ in range(50):
                    channel.basic_publish("", "s", b"%d" % published, pika.BasicProperties(delivery_mode=2))
                    published += 1
            assert read(broker, published, "", {"x-stream-offset": "first"}) == list(range(published))
            assert read(broker, 30, "joe", TRACKED) == list(range(30 * life, 30 * life + 30))
            broker.kill()


def test_what_was_confirmed_is_in_the_queue_and_in_its_tee_whenever_the_broker_is_killed(tmp_path):
    published = []
    for life in range(2):
        with BrokerProcess(tmp_path / "data", http_port=0) as broker:
            if not life:
                requests.put(
                    f"http://127.0.0.1:{broker.ports['http']}/api/policies/%2F/tee", auth=("guest", "guest"),
                    json={
                        "pattern": "^q$", "definition": {"tee-to-stream": "s"}},
                    timeout=TIMEOUT_S,
                ).raise_for_status()
            with connect(broker) as connection:
                channel = connection.channel()
                channel.queue_declare("q", durable=True)
                channel.queue_declare("s", durable=True, arguments=STREAM)
                channel.confirm_delivery()
                for number in range(len(published), len(published) + 50):
                    channel.basic_publish("", "q", b"%d" % number, pika.BasicProperties(delivery_mode=2))
                    published.append(number)
            assert read(broker, len(published), "", {"x-stream-offset": "first"}) == published
            broker.kill()

    with BrokerProcess(tmp_path / "data") as broker, connect(broker) as connection:
        assert connection.channel().queue_declare("q", passive=True).method.message_count == len(published)
        assert connection.channel().queue_declare("s", passive=True).method.message_count == len(published)
