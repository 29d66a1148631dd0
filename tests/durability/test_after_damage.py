"""After damage: a reader reaches the end, other queues are served, operators are told,
and the next boot is silent.
"""
import pika
import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.streams import STREAM
from tests.support.waiting import wait_until

KINDS = {"queue": {}, "priority": {"x-max-priority": 3}, "stream": STREAM}
COUNT = 10
HIT = {"the last": [9], "the last three": [7, 8, 9], "one in the middle": [4], "all": range(COUNT)}


def connect(broker):
    return pika.BlockingConnection(pika.URLParameters(broker.amqp_url))


def damage(folder, hit):
    """Turn a bit in the bodies of these messages."""
    for path in folder.glob("queues/*/**/msgs.*"):
        content = bytearray(path.read_bytes())
        for number in hit:
            at = content.find(b"body-%d" % number)
            if at >= 0:
                content[at] ^= 1
        path.write_bytes(content)


def read_to_the_end(broker, count, kind):
    """The bodies that a consumer gets, while another client of another queue is served."""
    with connect(broker) as connection, connect(broker) as other:
        channel, others = connection.channel(), other.channel()
        channel.basic_qos(prefetch_count=3)
        found = []

        def take(_channel, method, _properties, body):
            found.append(body.decode())
            channel.basic_ack(method.delivery_tag)
        channel.basic_consume("q", take, arguments={"x-stream-offset": "first"} if kind == "stream" else None)
        wait_until(lambda: (connection.process_data_events(0.05), len(found) >= count)[1])
        others.queue_declare("other", passive=True)
        others.basic_publish("", "other", b"x")
        others.basic_publish("", "q", b"new")
        wait_until(lambda: (connection.process_data_events(0.05), "new" in found)[1])
        channel.queue_declare("q", passive=True)  # an answer: the acks before it have been heard
        return found


CASES = [(kind, hit, ending) for kind in KINDS for hit in HIT for ending in ("stop", "kill")]
# The others are tested where there is time.
QUICK = {
    ("queue", "all", "stop"), ("priority", "the last three", "kill"), ("stream", "the last", "stop"),
    ("stream", "the last three", "kill"),
}


@pytest.mark.parametrize("kind, hit, ending", [
    case if case in QUICK else pytest.param(*case, marks=pytest.mark.long) for case in CASES
])
def test_reader_reaches_the_end_others_are_served_and_the_next_boot_is_silent(tmp_path, kind, hit, ending):
    broker = BrokerProcess(tmp_path / "data")
    with broker:
        with connect(broker) as connection:
            channel = connection.channel()
            channel.queue_declare("q", durable=True, arguments=KINDS[kind])
            channel.queue_declare("other", durable=True)
            channel.confirm_delivery()
            for number in range(COUNT):
                channel.basic_publish("", "q", b"body-%d" % number, pika.BasicProperties(delivery_mode=2))
        getattr(broker, ending)()
        damage(tmp_path / "data", HIT[hit])

        broker.start()
        sound = [f"body-{number}" for number in range(COUNT) if number not in HIT[hit]]
        assert read_to_the_end(broker, len(sound), kind) == [*sound, "new"]
        broker.stop()
        # Heads note now and then how far files were flushed. After a kill the very last record may lie behind
        # that, where a bad record is what the kill has cut short: nothing is said of it.
        assert "damaged: " in broker.log_text or (hit, ending) == ("the last", "kill")
        broker.start()
        if kind == "stream":
            assert read_to_the_end(broker, len(sound) + 1, kind)[:len(sound)] == sound
        broker.stop()

    assert "damaged: " not in broker.log_text
