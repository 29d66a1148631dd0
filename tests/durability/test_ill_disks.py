"""What clients see of a disk that is full, whose flushes fail or hang, in real brokers;
and what is there when it is well again.
"""
import contextlib
import re

import pytest
import requests

from gomq_py.client.connection import Connection
from gomq_py.client.errors import ChannelClosed, ClientError, ClosedError
from gomq_py.client.mqtt import MQTTClient
from gomq_py.content.properties import Properties
from gomq_py.launcher import EXIT_ABORTED
from tests.support.ill_disk import IllDisk, SmallDisk
from tests.support.waiting import TIMEOUT_S, wait_until

PERSISTENT = Properties(delivery_mode=2)
BODY = bytes(20_000)
SEGMENTS = "[main]\nsegment_size = 1048576\n"
# Messages after which nothing more is expected to happen.
# Many: a disk that is full refuses them as fast as they come.
MOST = 50_000


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "gomq.ini"
    path.write_text(SEGMENTS)
    return path


class Publisher:
    """Publishes numbered messages to a durable queue; ``confirmed`` and ``refused`` are the numbers of
    which the broker said so.
    """

    def __init__(self, url, first=0, queue="q"):
        self.connection = Connection(url, heartbeat_s=0)
        self.channel = self.connection.channel()
        self.channel.queue_declare(queue, durable=True)
        self.channel.confirm_select()
        self.queue = queue
        self.first = self.next = first
        self.confirmed, self.refused = [], []
        self.numbers = {}  # of what is not answered, by sequence number

    def publish(self, timeout_s=TIMEOUT_S):
        """One message; False when it was refused, None when nothing was heard of it in time."""
        number, self.next = self.next, self.next + 1
        self.numbers[self.channel.publish("", self.queue, b"%06d" % number + BODY, PERSISTENT)] = number
        with contextlib.suppress(TimeoutError):
            self.hear(timeout_s)
            return number not in self.refused
        return None

    def hear(self, timeout_s):
        """Wait until everything is answered, and note what was."""
        self.connection.wait_for(lambda: not self.channel.unconfirmed, timeout_s)
        self.refused += [self.numbers.pop(sequence) for sequence in self.channel.nacked]
        self.channel.nacked.clear()
        self.confirmed += self.numbers.values()
        self.numbers.clear()

    def publish_until_held(self):
        """Publish until the broker says that publishers are held. Returns the reason."""
        connection = self.connection
        while not connection.blocked_reason:
            assert self.next < MOST
            self.publish(0.3)
            connection.drain(0)
        return connection.blocked_reason

    def wait_until_let_go(self):
        """And until what it sent meanwhile is answered."""
        self.connection.wait_for(lambda: not self.connection.blocked_reason, TIMEOUT_S)
        self.hear(TIMEOUT_S)


def take(url, count):
    """Get and acknowledge so many; their numbers."""
    with Connection(url, heartbeat_s=0) as connection:
        channel = connection.channel()
        numbers = []
        for _ in range(count):
            delivery = channel.get("q")
            numbers.append(int(delivery.body[:6]))
            delivery.ack()
        channel.queue_declare("q", passive=True, durable=True)  # answered behind the acks
        return numbers


def everything(url):
    """The numbers in the queue, in order."""
    with Connection(url, heartbeat_s=0) as connection:
        channel = connection.channel()
        count = channel.queue_declare("q", passive=True, durable=True).message_count
        return [int(channel.get("q", no_ack=True).body[:6]) for _ in range(count)]


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 24 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    with SmallDisk(folder, 24 << 20) as disk:
        if disk is None:
            pytest.skip("this machine does not let us mount a file system of our own (unshare -rm)")
        yield disk


def test_disk_that_publishers_fill_holds_them_until_consumers_make_room(small_disk, config):
    """As fast as they can: who is faster than the broker looks at its disk is refused, and held in any case;
    nothing else is needed than room.
    """
    with small_disk.broker(config=config) as broker:
        publisher = Publisher(broker.amqp_url)

        assert publisher.publish_until_held() == "low on disk"
        broker.wait_for_log("disk alarm: publishers are held until it is over")
        taken = take(broker.amqp_url, len(publisher.confirmed) * 3 // 4)

        publisher.wait_until_let_go()
        assert publisher.publish()
        assert taken + everything(broker.amqp_url) == publisher.confirmed
        assert sorted(publisher.confirmed + publisher.refused) == list(range(publisher.next))


def test_disk_that_another_program_fills_loses_nothing_that_was_confirmed(small_disk, config):
    """All at once, between two looks of the broker: messages are refused, not lost; acking goes on; a kill
    and a boot on the full disk do, too.
    """
    broker = small_disk.broker(config=config).start()
    publisher = Publisher(broker.amqp_url)
    for _ in range(70):
        assert publisher.publish()

    small_disk.fill()
    assert publisher.publish_until_held() == "low on disk"
    # a segment that was made ahead, and not needed, was given back to find room for a larger one
    wait_until(small_disk.fill)
    taken = take(broker.amqp_url, 40)
    broker.kill()
    broker.start()
    taken += take(broker.amqp_url, 10)
    again = Publisher(broker.amqp_url, publisher.next)
    assert again.publish_until_held() == "low on disk"

    small_disk.free()

    again.wait_until_let_go()
    assert again.publish() and again.publish()
    broker.kill()
    broker.start()
    held = publisher.next - 1
    # sent while publishers were held: nothing was said of it
    left = [number for number in everything(broker.amqp_url) if number != held]
    confirmed = publisher.confirmed + again.confirmed
    assert taken == confirmed[:50] and set(left) >= set(confirmed[50:]) and left == sorted(left)
    assert not set(left) & {*publisher.refused, *again.refused}
    assert broker.stop() == 0


def test_message_that_finds_no_room_is_refused_and_the_next_one_taken_when_there_is(tmp_path, config):
    """A nack, on the same channel, for as long as it takes, and not an end of anything.

    Definitions are taken, and kept, while there is room that was reserved for them.
    """
    with IllDisk(tmp_path, config=config) as broker:
        publisher = Publisher(broker.amqp_url)
        assert publisher.publish()
        broker.fall_ill("full")

        while len(publisher.refused) < 10:
            assert publisher.next < MOST
            publisher.publish()

        # What is made ahead is used up; from then on there is no room.
        assert publisher.confirmed + publisher.refused == list(range(publisher.next))
        channel, declared = publisher.connection.channel(), []
        with pytest.raises(ClosedError, match="No space left on device"):
            while len(declared) < 100:
                channel.queue_declare(
                    f"another{len(declared)}", durable=True, arguments={"x-note": "n" * 50_000}
                )
                declared.append(f"another{len(declared)}")
        broker.recover("full")
        assert publisher.publish()
        publisher.connection.channel().queue_declare("last", durable=True)
        broker.kill()
        broker.start()
        assert everything(broker.amqp_url) == publisher.confirmed
        with Connection(broker.amqp_url, heartbeat_s=0) as connection:
            for name in [*declared, "last"]:
                connection.channel().queue_declare(name, passive=True)


def test_flush_that_fails_confirms_nothing_and_closes_its_queue_until_it_is_restarted(tmp_path, config):
    """Whoever asks for the queue is told, the health check too; others go on.

    What was confirmed before is there after the restart.
    """
    with IllDisk(tmp_path, config=config, http_port=0) as broker:
        publisher = Publisher(broker.amqp_url)
        assert publisher.publish()
        other = Publisher(broker.amqp_url, queue="other")
        broker.fall_ill("broken")

        assert publisher.publish() is False
        broker.recover("broken")

        assert publisher.publish() is False and other.publish()
        broker.wait_for_log("queue 'q' in vhost '/' closed: .*Input/output error")
        for ask in (
            lambda channel: channel.get("q"), lambda channel: channel.consume("q"),
            lambda channel: channel.queue_purge("q"),
            lambda channel: channel.queue_declare("q", durable=True),
            lambda channel: channel.queue_declare("q", passive=True),
        ):
            with pytest.raises(
                ChannelClosed, match="404.*queue 'q' in vhost '/' is closed after a fault of its store"
            ):
                ask(other.connection.channel())
        management = f"http://127.0.0.1:{broker.ports['http']}/api"
        guest = {"auth": ("guest", "guest"), "timeout": TIMEOUT_S}
        assert requests.get(f"{management}/health/checks/virtual-hosts", **guest).json()["queues"] == ["q"]
        assert requests.put(f"{management}/queues/%2F/q/restart", **guest).status_code == 204
        assert publisher.publish()
        assert everything(broker.amqp_url)[0] == 0


def test_shovel_from_a_queue_that_a_fault_has_closed_waits_until_that_is_restarted(tmp_path, config):
    """It was set meanwhile, and has never run. On 3a1b338e it ended for good."""
    with IllDisk(tmp_path, config=config, http_port=0) as broker:
        publisher = Publisher(broker.amqp_url)
        assert publisher.publish()
        broker.fall_ill("broken")
        assert publisher.publish() is False
        broker.recover("broken")
        broker.wait_for_log("queue 'q' in vhost '/' closed: .*Input/output error")
        api = f"http://127.0.0.1:{broker.ports['http']}/api"
        guest = {"auth": ("guest", "guest"), "timeout": TIMEOUT_S}
        value = {"src-uri": "amqp://", "src-queue": "q", "dest-uri": "amqp://", "dest-queue": "there",
                 "reconnect-delay": 1}
        assert requests.put(f"{api}/parameters/shovel/%2F/s", json={"value": value}, **guest).ok

        def shovel():
            return requests.get(f"{api}/shovels/%2F/s", **guest).json()

        wait_until(lambda: shovel().get("error"))
        assert (shovel()["state"], "closed after a fault" in shovel()["error"]) == ("starting", True)
        assert requests.put(f"{api}/queues/%2F/q/restart", **guest).status_code == 204
        wait_until(lambda: shovel()["state"] == "running" and shovel()["moved"])


def test_what_mqtt_retains_is_refused_while_flushes_fail_and_kept_again_without_a_restart(tmp_path, config):
    """Meanwhile the health check and the doctor say so. On 6805b4a2 it was refused until a restart."""
    with IllDisk(tmp_path, config=config, http_port=0, mqtt_port=0) as broker:
        client = MQTTClient(f"mqtt://guest:guest@127.0.0.1:{broker.ports['mqtt']}", version=5)
        client.publish("kept", b"0", 1, retain=True)
        api = f"http://127.0.0.1:{broker.ports['http']}/api"
        guest = {"auth": ("guest", "guest"), "timeout": TIMEOUT_S}

        def health():
            return requests.get(f"{api}/health/checks/virtual-hosts", **guest).json()

        broker.fall_ill("broken")
        with pytest.raises(ClientError, match="0x80|[Uu]nspecified"):
            client.publish("kept", b"1", 1, retain=True)
        wait_until(lambda: health() == {
            "status": "failed", "reason": "stores closed after a fault", "stores": ["mqtt.retained"]})
        subjects = [one["subject"] for one in requests.get(f"{api}/doctor", **guest).json()["findings"]]
        assert "store mqtt.retained" in subjects
        broker.recover("broken")

        broker.wait_for_log("mqtt.retained of vhost '/' is open again")
        wait_until(lambda: health() == {"status": "ok"})
        client.publish("kept", b"2", 1, retain=True)
        client.subscribe("kept", qos=1)
        assert client.next_message(TIMEOUT_S).payload == b"2"
        client.close()


def test_stop_on_a_disk_that_hangs_ends_and_loses_nothing(tmp_path):
    config = tmp_path / "gomq.ini"
    config.write_text(SEGMENTS + "stop_timeout = 1\n")
    with IllDisk(tmp_path, config=config) as broker:
        publisher = Publisher(broker.amqp_url)
        assert publisher.publish()
        broker.fall_ill("stuck")
        assert publisher.publish(0.1) is None

        assert broker.stop() == EXIT_ABORTED

        text = "the stop has not ended after 1 s .*Flushes were syncing.*being flushed: .*msgs.0000000001"
        assert re.search(text, broker.log_text)
        broker.recover("stuck")
        broker.start()
        assert everything(broker.amqp_url)[0] == 0
        assert broker.stop() == 0


def test_flush_that_hangs_holds_confirms_back_and_nothing_else(tmp_path):
    config = tmp_path / "gomq.ini"
    config.write_text(SEGMENTS + "slow_sync_warning = 1\n")
    with IllDisk(tmp_path, config=config) as broker:
        publisher = Publisher(broker.amqp_url)
        assert publisher.publish()
        broker.fall_ill("stuck")

        assert publisher.publish(0.5) is None
        broker.wait_for_log("flushing .* hangs for")
        with Connection(broker.amqp_url, heartbeat_s=0) as other:
            channel = other.channel()
            channel.queue_declare("quick")
            channel.publish("", "quick", b"x")
            assert channel.get("quick", no_ack=True).body == b"x"
        assert publisher.channel.unconfirmed

        broker.recover("stuck")
        publisher.hear(TIMEOUT_S)
        assert publisher.confirmed == [0, 1]
        assert everything(broker.amqp_url) == [0, 1]
