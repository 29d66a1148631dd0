"""Alarms of a real broker about real memory and a real disk: pika's publishers are blocked and let go, its
consumers go on meanwhile.
"""
import contextlib
import signal

import pika
import pika.exceptions
import pytest
import requests

import gomq_py
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import in_time, wait_until
from tests.support.wire_encoding import BODY, frame, header_frame, method_frame
from tests.support.wire_script import Wire

MIB = 1 << 20


class Watched:
    """A pika connection that notes when it is blocked and when no longer."""

    def __init__(self, url):
        self.told = []
        self.connection = pika.BlockingConnection(pika.URLParameters(url))
        self.connection.add_on_connection_blocked_callback(
            lambda _, frame: self.told.append(frame.method.reason)
        )
        self.connection.add_on_connection_unblocked_callback(lambda *_: self.told.append("unblocked"))
        self.channel = self.connection.channel()

    def wait_told(self, *expected):
        wait_until(
            lambda: self.told == list(expected), what=expected, sleep=self.connection.process_data_events
        )


@pytest.fixture
def watched():
    """A function that connects; the connections are closed afterwards."""
    opened = []

    def connect(url):
        opened.append(Watched(url))
        return opened[-1]

    yield connect
    for one in opened:
        with contextlib.suppress(pika.exceptions.AMQPError):
            one.connection.close()


def change(broker, **settings):
    """Change limits of a broker in this process, as a reload of its configuration does."""
    def apply(launcher):
        for name, value in settings.items():
            launcher.settings.set(name, value, "a test")
        launcher.broker.resource_watch.look_now()

    broker.call(apply)


def test_publisher_is_blocked_while_the_disk_is_low_and_consumers_go_on(tmp_path, watched):
    """Everything an operator can see of it is looked at in the same go: the API's node, health checks,
    metrics, and the state of connections.
    """
    with gomq_py.Broker(tmp_path / "data", http_port=0, metrics_http_port=-1) as broker:
        publisher, consumer, both = (
            watched(broker.amqp_url), watched(broker.amqp_url), watched(broker.amqp_url)
        )
        api = Management(broker.http_url)
        for queue in ("work", "mine"):
            publisher.channel.queue_declare(queue)
        publisher.channel.basic_publish("", "work", b"before")
        got = []
        both.channel.basic_consume("mine", lambda *arguments: got.append(arguments[3]), auto_ack=True)
        assert not api.alarmed()

        change(broker, free_disk_min=1 << 60)
        wait_until(lambda: api.get("health/checks/alarms").status_code == 503)
        publisher.channel.basic_publish("", "work", b"held")
        both.channel.basic_publish("", "work", b"held too")

        publisher.wait_told("low on disk")
        both.wait_told("low on disk")
        assert api.alarmed() == {"disk"} and api.states() == ["blocked", "blocked", "blocking"]
        assert consumer.channel.basic_get("work", auto_ack=True)[2] == b"before"
        assert consumer.channel.basic_get("work")[0] is None and consumer.told == []
        assert api.publish("mine", "by hand") == (
            503, {"error": "service_unavailable", "reason": "publishers are held: low on disk"}
        )

        change(broker, free_disk_min=0)
        publisher.wait_told("low on disk", "unblocked")
        both.wait_told("low on disk", "unblocked")
        wait_until(lambda: consumer.channel.queue_declare("work", passive=True).method.message_count == 2)
        assert not api.alarmed() and api.publish("mine", "by hand")[0] == 200
        wait_until(lambda: got == [b"by hand"], sleep=both.connection.process_data_events)


def test_deliveries_go_on_to_a_connection_that_is_held_as_publisher(tmp_path, watched):
    with gomq_py.Broker(tmp_path / "data") as broker:
        both = watched(broker.amqp_url)
        queue = both.channel.queue_declare("").method.queue
        got = []
        both.channel.basic_consume(queue, lambda *arguments: got.append(arguments[3]), auto_ack=True)
        change(broker, free_disk_min=1 << 60)
        wait_until(lambda: broker.call(lambda launcher: launcher.broker.alarms.is_on()))
        both.channel.basic_publish("", "nowhere", b"held")
        both.wait_told("low on disk")

        deliver_past_the_doors(broker, queue)

        wait_until(lambda: got == [b"from inside"], sleep=both.connection.process_data_events)


def deliver_past_the_doors(broker, queue):
    """Put a message into a queue as a dead letter or an expired delay does, which no alarm holds."""
    from gomq_py.storage.message import Message

    def publish(launcher):
        message = Message()
        message.assign(b"", queue.encode(), b"\0\0", b"from inside", 0)
        launcher.broker.vhosts["/"].queues[queue].publish(message)

    broker.call(publish)


def test_reloaded_limit_blocks_and_lets_go(tmp_path, watched):
    """The broker's process is told with SIGHUP that it needs more room on its disk than there is,
    and then that it does not.
    """
    config = tmp_path / "gomq.ini"
    config.write_text("[main]\nfree_disk_min = 0\n")
    with BrokerProcess(tmp_path / "data", config=config, no_sync=True) as broker:
        publisher = watched(broker.amqp_url)

        config.write_text(f"[main]\nfree_disk_min = {1 << 52}\n")
        broker.signal(signal.SIGHUP)
        broker.wait_for_log(
            r"disk alarm: publishers are held until it is over: "
            r".* free in .*, needed are .* \(free_disk_min\)"
        )
        publisher.channel.basic_publish("", "nowhere", b"held")
        publisher.wait_told("low on disk")

        config.write_text("[main]\nfree_disk_min = 0\n")
        broker.signal(signal.SIGHUP)
        publisher.wait_told("low on disk", "unblocked")


def test_publisher_is_blocked_while_memory_is_high_and_let_go_when_it_is_freed(tmp_path, watched):
    """The memory is taken by a client that sends most of a large message and stops there;
    it is free again when that client goes.
    """
    with BrokerProcess(tmp_path / "probe", http_port=0, no_sync=True) as probe:
        base = Management(f"http://127.0.0.1:{probe.ports['http']}").node()["mem_used"]
    config = tmp_path / "gomq.ini"
    config.write_text(f"[main]\nmemory_high_watermark = {base + 48 * MIB}\n")
    with BrokerProcess(tmp_path / "data", config=config, http_port=0, no_sync=True) as broker:
        api = Management(f"http://127.0.0.1:{broker.ports['http']}")
        publisher, consumer = watched(broker.amqp_url), watched(broker.amqp_url)
        publisher.channel.queue_declare("work")
        publisher.channel.basic_publish("", "work", b"before")

        hog = Wire.open(("127.0.0.1", broker.port))
        begin_large_message(hog, 120 * MIB, 100 * MIB)
        wait_until(lambda: api.get("health/checks/alarms").status_code == 503)
        assert api.alarmed() == {"memory"}
        publisher.channel.basic_publish("", "work", b"held")
        publisher.wait_told("low on memory")
        assert consumer.channel.basic_get("work", auto_ack=True)[2] == b"before"

        hog.close()
        publisher.wait_told("low on memory", "unblocked")
        wait_until(lambda: consumer.channel.queue_declare("work", passive=True).method.message_count == 1)
        assert not api.alarmed()
        broker.wait_for_log(
            "memory alarm: publishers are held until it is over: .* used, memory_high_watermark allows"
        )
        broker.wait_for_log("memory alarm is over")


def begin_large_message(wire, size, sent):
    """Publish ``sent`` octets of a body of ``size``; the rest never comes."""
    wire.channel()
    wire.send(method_frame(1, "basic.publish", routing_key="work") + header_frame(1, size))
    part = frame(BODY, 1, bytes(131064))
    for _ in range(sent // 131064):
        wire.send(part)


class Management:
    """What an operator sees."""

    def __init__(self, url):
        self._url = url

    def get(self, path):
        return requests.get(f"{self._url}/api/{path}", auth=("guest", "guest"), timeout=in_time(60))

    def node(self):
        return self.get("nodes").json()[0]

    def alarmed(self):
        """The resources that are alarmed about; every place that tells has to agree."""
        node = self.node()
        told = {"memory"} if node["mem_alarm"] else set()
        told |= {"disk"} if node["disk_free_alarm"] else set()
        for check, where in (("alarms", "in the cluster"), ("local-alarms", "on the node")):
            answer = self.get(f"health/checks/{check}")
            if not told:
                assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
            else:
                assert answer.status_code == 503
                assert answer.json() == {
                    "status": "failed", "reason": f"There are alarms in effect {where}",
                    "alarms": [{"node": node["name"], "resource": resource} for resource in sorted(told)],
                }
        assert self.get("health/checks/ready-to-serve-clients").status_code == 200
        metrics = requests.get(f"{self._url}/metrics", auth=("guest", "guest"), timeout=in_time(60)).text
        assert f"rabbitmq_alarms_memory_used_watermark {float('memory' in told)}" in metrics
        assert f"rabbitmq_alarms_free_disk_space_watermark {float('disk' in told)}" in metrics
        return told

    def states(self):
        return sorted(one["state"] for one in self.get("connections").json())

    def publish(self, routing_key, payload):
        """(status, answer) of a publish by hand."""
        answer = requests.post(
            f"{self._url}/api/exchanges/%2F/amq.default/publish", auth=("guest", "guest"),
            timeout=in_time(60),
            json={
                "properties": {}, "routing_key": routing_key, "payload": payload,
                "payload_encoding": "string"},
        )
        return answer.status_code, answer.json()
