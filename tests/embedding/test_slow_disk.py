"""A disk on which one kind of call hangs: whoever asked for it waits, and clients of other queues are served.

The broker is a real one with a hub in its own thread. The call is held wherever a thread makes it; a call
that the hub makes is not held but noted, so that a test fails at once instead of standing still with the
broker.
"""
import base64
import errno
import json
import os
import threading
import urllib.request

import gevent
import pytest
import requests

import gomq_py
from gomq_py import node
from gomq_py.amqp.wire.frames import method_frame
from gomq_py.amqp.wire.methods import BasicGet, BasicGetEmpty
from gomq_py.broker.verbs import blocked_publish
from gomq_py.client.connection import Connection
from gomq_py.client.delivery import Delivery
from gomq_py.client.errors import ChannelClosed, ConnectionClosed
from gomq_py.client.mqtt import MQTTClient
from gomq_py.content.properties import Properties
from gomq_py.hub.scheduler import unix_ms
from tests.support.hub_calls import HubCalls
from tests.support.waiting import in_time, wait_until

PERSISTENT = Properties(delivery_mode=2)
LONGEST_HOLD_S = in_time(60.0)  # a test that forgets to let go ends all the same

IN_THREADS = frozenset({
    "unlink", "rename", "make_folder", "remove_folder", "sync", "sync_folder", "make", "make_log", "reserve",
    "write_accepted", "open", "read_through",
})
# What the hub still asks of the system while it serves: what streams, and queues that grow, write of a batch,
# which is a copy to the system's pages as an append through the mapping is. Moves from the middle
# of a queue and a stream's search for a time, which are not among this work, still open closed segments
# there; for messages that nobody can wait for (dead letters and the like, transactions) it makes the files of
# a new segment.
STILL_IN_HUB = {"write", "put"}
READS = {"open", "read_through", "allocate"}
BACKLOG = 24  # two to a segment
FILLED = {
    "durable": {"durable": True}, "transient": {"durable": False},
    "stream": {"durable": True, "arguments": {"x-queue-type": "stream"}},
    "priority": {"durable": True, "arguments": {"x-max-priority": 3}},
    "transient priority": {"durable": False, "arguments": {"x-max-priority": 3}},
}
IN_HUB_AT_A_ROLL = {"create", "create_unnamed", "make_folder"}


class HeldFiles(HubCalls):
    """``hold(call)``: from here on it hangs in every thread that makes it, until ``let_go``.

    ``full``: nothing gets more room.
    """

    full = False

    def __init__(self, listeners=()):
        super().__init__(listeners)
        self.held = None
        self.error = None  # what the call ends with then
        self.is_held = threading.Event()
        self.gone_on = threading.Event()

    def hold(self, call):
        self.held = call

    def let_go(self):
        self.held = None
        self.gone_on.set()

    def about_to(self, call, subject):
        super().about_to(call, subject)
        if call == self.held and not self.is_hub():
            self.is_held.set()
            assert self.gone_on.wait(LONGEST_HOLD_S)
            if self.error is not None:
                raise self.error
        if self.full and call in {"make", "make_unnamed", "create", "create_unnamed"}:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), subject)


@pytest.fixture
def files(monkeypatch):
    made = []
    monkeypatch.setattr(node, "Files", lambda listeners: made.append(HeldFiles(listeners)) or made[-1])
    return made


@pytest.fixture
def broker(files):
    with gomq_py.Broker(max_deleted_definitions=1, segment_size=65536) as broker:
        broker.call(lambda _: files[0].begin())
        yield broker
        files[0].let_go()


def connect(broker):
    return Connection(broker.amqp_url, heartbeat_s=0, timeout_s=LONGEST_HOLD_S)


def fill(channel, name, count, **options):
    channel.queue_declare(name, durable=True, **options)
    for _ in range(count):
        channel.publish("", name, bytes(30_000), PERSISTENT)
    channel.wait_for_confirms()


def work(broker):
    """Everything that changes files while a broker serves: segments that are filled, emptied, purged and
    dropped by retention, queues and definitions that come and go, acks.
    """
    with connect(broker) as connection:
        channel = connection.channel()
        channel.confirm_select()
        fill(channel, "acked", 12)
        for _ in range(12):
            channel.ack(channel.get("acked").delivery_tag)
        fill(channel, "purged", 12)
        channel.queue_purge("purged")
        fill(channel, "stream", 12, arguments={"x-queue-type": "stream", "x-max-length-bytes": 100_000})
        for number in range(30):
            channel.queue_declare(f"definition{number % 3}", durable=True)
            channel.queue_delete(f"definition{number % 3}")
        for name in ("acked", "purged", "stream"):
            channel.queue_delete(name)


def round_trips(channel, count):
    """Of a client of another queue."""
    for number in range(count):
        channel.publish("", "other", b"%d" % number)
        assert bytes(channel.get("other", no_ack=True).body) == b"%d" % number


@pytest.mark.parametrize("call", sorted(IN_THREADS))
def test_call_that_hangs_holds_nobody_but_who_asked_for_it(broker, files, call):
    with connect(broker) as other:
        channel = other.channel()
        channel.queue_declare("other")
        round_trips(channel, 1)
        files[0].hold(call)
        worker = threading.Thread(target=work, args=(broker,))
        worker.start()
        wait_until(files[0].is_held.is_set, in_time(60), call)

        round_trips(channel, 20)

        assert not files[0].gone_on.is_set()
        files[0].let_go()
        worker.join(in_time(60))
        assert not worker.is_alive()


def test_definition_is_answered_when_it_has_been_written_and_flushed(broker, files):
    """Everybody else goes on meanwhile."""
    answered = []

    def declare():
        with connect(broker) as connection:
            connection.channel().queue_declare("slow", durable=True)
        answered.append("slow")

    with connect(broker) as other:
        channel = other.channel()
        channel.queue_declare("other")
        files[0].hold("write_accepted")
        worker = threading.Thread(target=declare)
        worker.start()
        wait_until(files[0].is_held.is_set, in_time(60))

        round_trips(channel, 20)

        assert not answered
        files[0].let_go()
        worker.join(in_time(60))
        assert answered


def test_what_is_in_a_segment_without_its_name_is_delivered_and_not_confirmed(broker, files):
    """A segment that was ready is written to at once;
    the names are changed before the flush that confirms.
    """
    with connect(broker) as connection:
        channel = connection.channel()
        channel.confirm_select()
        fill(channel, "rolling", 6)
        wait_until(
            lambda: broker.call(lambda launched: "1 pairs" in launched.broker.describe_pool()), in_time(60)
        )
        files[0].hold("rename")

        while not files[0].is_held.is_set():
            channel.publish("", "rolling", bytes(30_000), PERSISTENT)
            channel.queue_declare("rolling", passive=True)
        channel.publish("", "rolling", b"the last one", PERSISTENT)
        waiting = threading.Thread(target=channel.wait_for_confirms)
        waiting.start()

        with connect(broker) as other:
            reader = other.channel()
            while bytes(reader.get("rolling", no_ack=True).body) != b"the last one":
                pass
        assert waiting.is_alive()
        files[0].let_go()
        waiting.join(in_time(60))
        assert not waiting.is_alive()


def test_hub_asks_the_disk_for_nothing_but_what_is_said_here(broker, files):
    work(broker)
    wait_until(lambda: IN_THREADS <= set(files[0].elsewhere), in_time(60))

    assert set(files[0].in_hub) <= STILL_IN_HUB


def test_clients_at_qos_0_go_on_while_a_flush_hangs_and_ask_the_disk_for_nothing(files):
    """A session that ends with its connection, and what goes to it, comes to no call at all; what is kept or
    retained, to those of its store (docs/operations.md, A disk that is slow).
    """
    def publish(client, topic, count=200, **options):
        for _ in range(count):
            client.publish(topic, bytes(1000), **options)

    with gomq_py.Broker(mqtt_port=0, segment_size=65536) as broker, connect(broker) as durable:
        channel = durable.channel()
        channel.confirm_select()
        channel.queue_declare("durable", durable=True)
        with MQTTClient(broker.mqtt_url, client_identifier="kept", clean_start=False) as kept:
            kept.subscribe("kept/#")
        broker.call(lambda _: files[0].begin())
        files[0].hold("sync")
        channel.publish("", "durable", b"", PERSISTENT)
        wait_until(files[0].is_held.is_set, in_time(60))
        broker.call(lambda _: files[0].begin())

        with MQTTClient(broker.mqtt_url, client_identifier="clean", timeout_s=in_time(60)) as client:
            client.subscribe("a/#")
            publish(client, "a/b")
            client.publish("a/b", bytes(1 << 20))
            assert [len(client.next_message(in_time(60)).payload) for _ in range(201)][-1] == 1 << 20
            client.unsubscribe("a/#")
            assert not files[0].in_hub
            publish(client, "kept/b")
            publish(client, "retained", retain=True)
            assert not files[0].gone_on.is_set()
            files[0].let_go()
            client.unsubscribe("kept/#")  # answered when what it has published is stored

        assert set(files[0].in_hub) <= STILL_IN_HUB | {"rename"}


class Publisher:
    """A client in a thread that declares a queue of a kind and fills it; ``error`` is how it ended."""

    def __init__(self, broker, kind, count=200, size=3000):
        self.broker, self.kind, self.count, self.size = broker, kind, count, size
        self.error = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        try:
            with connect(self.broker) as connection:
                channel = connection.channel()
                channel.confirm_select()
                channel.queue_declare("filled", **FILLED[self.kind])
                for number in range(self.count):
                    channel.publish(
                        "", "filled", (b"%06d" % number).ljust(self.size),
                        Properties(delivery_mode=2, priority=number % 4),
                    )
                channel.wait_for_confirms()
        except Exception as error:
            self.error = error

    def is_held(self):
        return self.broker.call(is_held)

    def end(self):
        self.thread.join(in_time(60))
        assert not self.thread.is_alive()
        return self.error


def is_held(launched):
    """Whether a publisher waits for files."""
    return bool(held_publishers(launched))


def numbers_in(broker, kind):
    """Of the messages in the queue that a Publisher filled, in order."""
    with connect(broker) as connection:
        channel = connection.channel()
        if kind == "stream":
            channel.qos(500)
            channel.consume("filled", arguments={"x-stream-offset": "first"})
            found = [
                channel.next_delivery(60)
                for _ in range(channel.queue_declare("filled", passive=True).message_count)
            ]
        else:
            found = iter(lambda: channel.get("filled", no_ack=True), None)
        return sorted(int(bytes(delivery.body)[:6]) for delivery in found)


MAKES = {kind: "make" if options["durable"] else "make_unnamed" for kind, options in FILLED.items()}


@pytest.mark.parametrize("kind, call", [
    *MAKES.items(), *[(kind, "rename") for kind in MAKES if MAKES[kind] == "make"],
    ("priority", "make_folder"),
])
def test_publisher_waits_for_the_files_of_its_queue_and_others_do_not(broker, files, kind, call):
    with connect(broker) as other:
        channel = other.channel()
        channel.queue_declare("other", durable=FILLED[kind]["durable"])
        round_trips(channel, 1)
        files[0].hold(call)
        publisher = Publisher(broker, kind)
        wait_until(files[0].is_held.is_set, in_time(60))
        if call == MAKES[kind]:
            wait_until(publisher.is_held, in_time(60))

        round_trips(channel, 20)

        assert publisher.thread.is_alive()
        files[0].let_go()
        assert publisher.end() is None
    assert not IN_HUB_AT_A_ROLL & set(files[0].in_hub), files[0].paths_in_hub
    assert numbers_in(broker, kind) == list(range(200))


def test_message_to_several_queues_waits_at_each_that_needs_files_and_comes_once_to_all(broker, files):
    names = [f"fan{number}" for number in range(8)]
    with connect(broker) as connection:
        channel = connection.channel()
        channel.confirm_select()
        for name in names:
            channel.queue_declare(name, durable=True)
            channel.queue_bind(name, "amq.fanout")
        for options in ({}, {"mandatory": True}):  # one lane, and the other
            for _ in range(30):
                channel.publish("amq.fanout", "", bytes(3000), PERSISTENT, **options)
        channel.wait_for_confirms()
        counts = [channel.queue_declare(name, passive=True).message_count for name in names]
    assert counts == [60] * 8
    assert not IN_HUB_AT_A_ROLL & set(files[0].in_hub), files[0].paths_in_hub


def test_message_of_a_size_of_its_own_has_its_files_made_by_a_thread(broker, files):
    with connect(broker) as connection:
        channel = connection.channel()
        channel.confirm_select()
        channel.queue_declare("large", durable=True)
        for size in (1 << 20, 100, 3 << 20):
            channel.publish("", "large", bytes(size), PERSISTENT)
        channel.wait_for_confirms()
        assert [len(channel.get("large", no_ack=True).body) for _ in range(3)] == [1 << 20, 100, 3 << 20]
    assert not IN_HUB_AT_A_ROLL & set(files[0].in_hub), files[0].paths_in_hub


def test_message_that_waits_counts_in_the_budget_for_bodies(broker, files):
    def held(launched):
        return launched.hub.bodies.held

    files[0].hold("make")
    publisher = Publisher(broker, "durable", 1, 2 << 20)
    wait_until(publisher.is_held, in_time(60))
    assert broker.call(held) == 2 << 20

    files[0].let_go()

    assert publisher.end() is None
    assert broker.call(held) == 0


@pytest.mark.parametrize("kind", ["durable", "transient"])
def test_publisher_that_goes_while_it_waits_leaves_its_messages_and_nothing_else(broker, files, kind):
    files[0].hold(MAKES[kind])
    connection = connect(broker)
    channel = connection.channel()
    channel.queue_declare("filled", **FILLED[kind])
    channel.publish("", "filled", b"000000", PERSISTENT)
    wait_until(lambda: broker.call(is_held), in_time(60))
    connection.socket.close()

    files[0].let_go()

    wait_until(lambda: not broker.call(lambda launched: len(launched.hub.clients)), in_time(60))
    assert numbers_in(broker, kind) == [0]


@pytest.mark.parametrize("call", ["make_folder", "make"])
def test_publisher_goes_on_when_its_queue_is_deleted_while_it_waits(broker, files, call):
    files[0].hold(call)
    publisher = Publisher(broker, "durable", 5)
    wait_until(publisher.is_held, in_time(60))
    with connect(broker) as other:
        deleting = threading.Thread(target=other.channel().queue_delete, args=("filled",))
        deleting.start()
        wait_until(
            lambda: broker.call(lambda launched: "filled" not in launched.broker.vhosts["/"].queues),
            in_time(60),
        )
        files[0].let_go()
        deleting.join(in_time(60))
        assert publisher.end() is None
    wait_until(lambda: not os.listdir(os.path.join(broker.data_dir, "queues")), in_time(60))


def test_message_over_http_waits_for_files_too(files):
    answers = []
    with gomq_py.Broker(http_port=0) as broker, connect(broker) as other:
        broker.call(lambda _: files[0].begin())
        channel = other.channel()
        for name in ("filled", "other"):
            channel.queue_declare(name, durable=True)
        round_trips(channel, 1)
        files[0].hold("make")
        posting = threading.Thread(target=lambda: answers.append(published_over_http(broker, "filled")))
        posting.start()
        wait_until(files[0].is_held.is_set, in_time(60))

        round_trips(channel, 20)

        assert answers == []
        files[0].let_go()
        posting.join(in_time(60))
        assert answers == [{"routed": True}]
        assert not IN_HUB_AT_A_ROLL & set(files[0].in_hub), files[0].paths_in_hub


def published_over_http(broker, queue, **properties):
    request = urllib.request.Request(
        broker.http_url + "/api/exchanges/%2F/amq.default/publish",
        json.dumps(
            {
                "properties": properties, "routing_key": queue, "payload": "x", "payload_encoding": "string"
            }).encode(),
        {
            "Authorization": "Basic " + base64.b64encode(b"guest:guest").decode(),
            "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=in_time(60)) as answer:
        return json.load(answer)


@pytest.mark.parametrize("door", ["one lane", "the other", "http"])
@pytest.mark.parametrize(
    "arguments, expiration", [({}, "0"), ({"x-message-ttl": 0}, None)], ids=["expiration", "time to live"]
)
def test_message_that_is_delivered_at_once_or_never_is_delivered_though_it_waits_for_files(
    files, arguments, expiration, door
):
    with gomq_py.Broker(http_port=0) as broker, connect(broker) as connection:
        broker.call(lambda _: files[0].begin())
        channel = connection.channel()
        channel.queue_declare("now", durable=True, arguments=arguments)
        channel.consume("now", no_ack=True)
        files[0].hold("make")
        if door == "http":
            options = {"expiration": expiration} if expiration else {}
            publisher = threading.Thread(target=published_over_http, args=(broker, "now"), kwargs=options)
            publisher.start()
        else:
            publisher = None
            with_others = connect(broker)
            with_others.channel().publish(
                "", "now", b"x", Properties(delivery_mode=2, expiration=expiration),
                mandatory=door == "the other")
            wait_until(lambda: broker.call(is_held), in_time(60))
        assert files[0].is_held.wait(in_time(60))
        since = unix_ms()
        wait_until(lambda: unix_ms() > since + 1, in_time(60))

        files[0].let_go()

        assert bytes(channel.next_delivery(60).body) == b"x"
        if publisher is None:
            with_others.close()
        else:
            publisher.join(in_time(60))


@pytest.mark.parametrize("options", [{}, {"mandatory": True}], ids=["one lane", "the other"])
def test_message_is_refused_whose_queue_was_restarted_while_it_waited(broker, files, options):
    with connect(broker) as connection, connect(broker) as other:
        channel = connection.channel()
        channel.confirm_select()
        channel.queue_declare("filled", durable=True)
        files[0].hold("make")
        channel.publish("", "filled", b"x", PERSISTENT, **options)
        wait_until(lambda: broker.call(is_held), in_time(60))
        assert files[0].is_held.wait(in_time(60))
        broker.call(lambda launched: queue_filled(launched).fail(OSError(errno.EIO, "the disk failed")))
        broker.call(
            lambda launched: gevent.spawn(
                launched.broker.vhosts["/"].restart_queue, queue_filled(launched)
            ) and None
        )
        wait_until(lambda: not broker.call(queue_filled).closed, in_time(60))

        files[0].let_go()

        assert not channel.wait_for_confirms()
        assert other.channel().queue_declare("filled", passive=True).message_count == 0


def queue_filled(launched):
    return launched.broker.vhosts["/"].queues["filled"]


def test_folder_of_a_deleted_queue_stays_away_though_others_are_before_its_publisher(broker, files):
    files[0].hold("make_folder")
    with connect(broker) as first, connect(broker) as second, connect(broker) as other:
        channel = other.channel()
        channel.queue_declare("first", durable=True, arguments={"x-queue-type": "stream"})
        channel.queue_declare("second", durable=True)
        first.channel().publish("", "first", b"x", PERSISTENT)
        assert files[0].is_held.wait(in_time(60))
        second.channel().publish("", "second", b"x", PERSISTENT)
        wait_until(lambda: broker.call(held_publishers) == 2, in_time(60))
        channel.queue_delete("second")
        # its publisher's folder, and its removal
        wait_until(
            lambda: broker.call(lambda launched: len(launched.broker.durability.disk.background.short)) == 2,
            in_time(60),
        )

        files[0].let_go()

        wait_until(lambda: not broker.call(held_publishers), in_time(60))
        wait_until(
            lambda: broker.call(lambda launched: launched.broker.durability.disk.background.is_idle),
            in_time(60),
        )
        assert len(os.listdir(os.path.join(broker.data_dir, "queues"))) == 1


def test_hub_takes_no_names_away_where_the_disk_is_full_and_where_files_are_left_over(broker, files):
    with connect(broker) as connection:
        channel = connection.channel()
        channel.confirm_select()
        fill(channel, "emptied", 24)
        for _ in range(24):
            channel.get("emptied", no_ack=True)
        wait_until(lambda: os.listdir(os.path.join(broker.data_dir, "pool")), in_time(60))
        wait_until(lambda: not broker.call(lambda launched: launched.broker._pool._retiring), in_time(60))
        broker.call(lambda _: files[0].begin())
        files[0].full = True
        channel.queue_declare("filled", durable=True)
        channel.publish("", "filled", bytes(500_000), PERSISTENT)
        assert not channel.wait_for_confirms()
        assert not os.listdir(os.path.join(broker.data_dir, "pool"))
        files[0].full = False
        files[0].hold("make")
        channel.publish("", "filled", bytes(500_000), PERSISTENT)
        wait_until(lambda: broker.call(is_held), in_time(60))
        with connect(broker) as other:
            other.channel().queue_delete("filled")
        files[0].let_go()
        channel.wait_for_confirms()
        wait_until(lambda: not os.listdir(os.path.join(broker.data_dir, "pool")), in_time(60))
    assert "unlink" not in files[0].in_hub, files[0].paths_in_hub


def held_publishers(launched):
    """How many connections wait for files."""
    return sum(
        blocked_publish.WAITS_FOR in connection.stream.waits_for for connection in launched.hub.clients)


def test_broker_stops_while_a_publisher_waits(files):
    with gomq_py.Broker(segment_size=65536) as broker:
        broker.call(lambda _: files[0].begin())
        files[0].hold("make")
        publisher = Publisher(broker, "durable")
        wait_until(publisher.is_held, in_time(60))
        threading.Thread(target=lambda: (publisher.thread.join(in_time(60)), files[0].let_go())).start()
    assert isinstance(publisher.error, ConnectionClosed)


def test_publisher_that_waits_for_a_full_disk_hears_the_refusal(broker, files):
    files[0].hold("make")
    with connect(broker) as connection:
        channel = connection.channel()
        channel.confirm_select()
        channel.queue_declare("filled", durable=True)
        channel.publish("", "filled", b"000000", PERSISTENT)
        wait_until(lambda: broker.call(is_held), in_time(60))
        files[0].full = True
        files[0].let_go()

        assert not channel.wait_for_confirms()
        files[0].full = False
        channel.publish("", "filled", b"000001", PERSISTENT)
        assert channel.wait_for_confirms()
    assert numbers_in(broker, "durable") == [1]


@pytest.mark.parametrize("options", [{}, {"mandatory": True}], ids=["one lane", "the other"])
def test_queue_whose_files_cannot_be_made_refuses_and_the_other_queues_of_the_message_have_it(
    broker, files, options
):
    names = ["fan0", "fan1", "fan2"]
    with connect(broker) as connection:
        channel = connection.channel()
        channel.confirm_select()
        for name in names:
            channel.queue_declare(name, durable=True)
            channel.queue_bind(name, "amq.fanout")
        files[0].error = OSError(errno.EIO, "the disk failed")
        files[0].hold("make")
        channel.publish("amq.fanout", "", b"x", PERSISTENT, **options)
        wait_until(lambda: broker.call(is_held), in_time(60))
        assert files[0].is_held.wait(in_time(60))  # its thread has got there

        files[0].let_go()

        assert not channel.wait_for_confirms()
        assert sorted(channel.queue_declare(name, passive=True).message_count for name in names) == [0, 1, 1]
        channel.publish("amq.fanout", "", b"x", PERSISTENT, **options)
        assert channel.wait_for_confirms()
    assert not IN_HUB_AT_A_ROLL & set(files[0].in_hub), files[0].paths_in_hub


@pytest.mark.parametrize("kind", ["durable", "transient", "stream"])
def test_message_over_http_with_a_size_of_its_own_is_stored(files, kind):
    with gomq_py.Broker(http_port=0, segment_size=65536) as broker, connect(broker) as connection:
        connection.channel().queue_declare("filled", **FILLED[kind])
        message = {
            "properties": {}, "routing_key": "filled", "payload": "x" * 200_000, "payload_encoding": "string"
        }
        url = f"{broker.http_url}/api/exchanges/%2F/amq.default/publish"

        assert requests.post(url, json=message, auth=("guest", "guest"), timeout=in_time(60)).json() == {
            "routed": True
        }
        assert connection.channel().queue_declare("filled", passive=True).message_count == 1


@pytest.mark.parametrize("door", ["amqp", "http"])
def test_repeat_is_not_confirmed_before_what_it_repeats_is_stored(files, door):
    """An exchange notes an id as seen when the message comes to it:
    that message does not wait for a thread.
    """
    with gomq_py.Broker(http_port=0) as broker, connect(broker) as connection:
        channel = connection.channel()
        channel.confirm_select()
        channel.exchange_declare("once", "direct", arguments={"x-message-deduplication": True})
        channel.queue_declare("filled", durable=True)
        channel.queue_bind("filled", "once", "k")
        files[0].hold("make")
        if door == "amqp":
            for _ in range(2):
                channel.publish(
                    "once", "k", b"x", Properties(delivery_mode=2, headers={"x-deduplication-header": "a"})
                )
            assert channel.wait_for_confirms()
        else:
            properties = {"delivery_mode": 2, "headers": {"x-deduplication-header": "a"}}
            for _ in range(2):
                requests.post(
                    f"{broker.http_url}/api/exchanges/%2F/once/publish", auth=("guest", "guest"),
                    timeout=in_time(60),
                    json={
                        "properties": properties, "routing_key": "k", "payload": "x",
                        "payload_encoding": "string"},
                ).raise_for_status()
        assert not files[0].is_held.is_set()
        assert channel.queue_declare("filled", passive=True).message_count == 1


def test_queue_that_is_opened_again_is_read_by_a_thread(broker, files):
    def restart(launched):
        vhost = launched.broker.vhosts["/"]
        queue = vhost.queues["closed"]
        queue.store.fence(OSError(5, "the disk failed"))
        gevent.spawn(vhost.restart_queue, queue)

    with connect(broker) as connection:
        channel = connection.channel()
        channel.confirm_select()
        fill(channel, "closed", 3)
        channel.queue_declare("other")
        round_trips(channel, 1)
        files[0].hold("read_through")

        broker.call(restart)
        wait_until(files[0].is_held.is_set, in_time(60))
        round_trips(channel, 20)
        assert not {"open", "read_through"} & set(files[0].in_hub)
        files[0].let_go()

        wait_until(
            lambda: broker.call(
                lambda launched: launched.broker.vhosts["/"].queues["closed"].ready_count
            ) == 3,
            in_time(60),
        )


# Readers of a backlog.

STREAM = {"x-queue-type": "stream"}
KINDS = {
    "classic": {}, "priority": {"x-max-priority": 3}, "expiring": {"x-message-ttl": 3_600_000},
    "stream": STREAM,
}


def put(channel, name, arguments=None, first=0, count=BACKLOG):
    """Numbered messages, two to a segment."""
    channel.queue_declare(name, durable=True, arguments=arguments)
    for number in range(first, first + count):
        channel.publish("", name, b"%08d" % number + bytes(29_000), PERSISTENT)
    channel.wait_for_confirms()


def wait_for_closed_segments(broker, name, count):
    """Until the flush has closed so many segments between writer and reader."""
    def closed(launched):
        stores = launched.broker.vhosts["/"].queues[name].store.browsed()
        return sum(not segment.is_open for store in stores for segment in store._segments.values())

    wait_until(lambda: broker.call(closed) >= count, in_time(60))


def number_of(message):
    return int(bytes(message.body[:8]))


class Reader(threading.Thread):
    """Does something in a connection of its own; ``result`` is there once it ends."""

    def __init__(self, broker, read):
        super().__init__()
        self.broker, self.read, self.result, self.error = broker, read, None, None
        self.start()

    def run(self):
        try:
            with connect(self.broker) as connection:
                self.result = self.read(connection.channel())
        except Exception as error:
            self.error = error

    def ended(self):
        self.join(in_time(60))
        assert not self.is_alive()
        if self.error is not None:
            raise self.error
        return self.result


def consume_all(name, count=BACKLOG, arguments=None):
    def read(channel):
        channel.qos(3)
        channel.consume(name, arguments=arguments)
        numbers = []
        while len(numbers) < count:
            delivery = channel.next_delivery(60)
            numbers.append(number_of(delivery))
            channel.ack(delivery.delivery_tag)
        channel.connection.drain(0.05)
        assert not channel.deliveries
        return numbers

    return read


def get_all(name, numbers):
    """Until the queue is empty."""
    def read(channel):
        while (message := channel.get(name, no_ack=True)) is not None:
            numbers.append(number_of(message))
        return numbers

    return read


def somebody_waits_for_files(launched):
    """Of the queue "backlog", whose next message cannot be given before they are open."""
    return launched.broker.vhosts["/"].queues["backlog"]._waiting_for_files is not None


@pytest.fixture
def left_over(files, tmp_path):
    """A broker that has a backlog of an earlier run in the queue "backlog" of each kind asked for,
    one after the other.
    """
    def start(arguments, is_restarted=True, **settings):
        settings = {"data_dir": tmp_path / "data", "segment_size": 65536, **settings}
        broker = gomq_py.Broker(**settings).start()
        started.append(broker)
        with connect(broker) as connection:
            channel = connection.channel()
            channel.confirm_select()
            put(channel, "backlog", arguments)
            channel.queue_declare("other", durable=True)
        if is_restarted:
            broker.close()
            broker = gomq_py.Broker(**settings).start()
            started.append(broker)
        else:
            wait_for_closed_segments(broker, "backlog", BACKLOG // 2 - 3)
        broker.call(lambda _: files[-1].begin())
        return broker, files[-1]

    started = []
    yield start
    for one in files:
        one.let_go()
    for broker in started:
        broker.close()


@pytest.mark.parametrize("is_restarted", [False, True], ids=["of this run", "of an earlier run"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("call", ["open", "read_through"])
def test_consumer_waits_for_files_and_gets_everything_in_order_once(left_over, call, kind, is_restarted):
    broker, files = left_over(KINDS[kind], is_restarted)
    files.hold(call)
    reader = Reader(
        broker, consume_all("backlog", arguments={"x-stream-offset": "first"} if kind == "stream" else None)
    )
    wait_until(files.is_held.is_set, in_time(60))

    with connect(broker) as other:
        round_trips(other.channel(), 20)
    assert not files.gone_on.is_set() and reader.is_alive()
    files.let_go()

    assert reader.ended() == list(range(BACKLOG))
    assert not READS & set(files.in_hub)


@pytest.mark.parametrize("is_restarted", [False, True], ids=["of this run", "of an earlier run"])
@pytest.mark.parametrize("kind", ["classic", "priority", "expiring"])
def test_get_waits_for_files_and_what_follows_it_in_its_connection_too(left_over, kind, is_restarted):
    broker, files = left_over(KINDS[kind], is_restarted)
    files.hold("open")
    reader = Reader(broker, get_all("backlog", []))
    wait_until(files.is_held.is_set, in_time(60))

    with connect(broker) as other:
        round_trips(other.channel(), 20)
    assert reader.is_alive()
    files.let_go()

    assert reader.ended() == list(range(BACKLOG))
    assert not READS & set(files.in_hub)


def test_gets_that_are_sent_together_are_answered_in_order(left_over):
    broker, files = left_over(None)

    def read(channel):
        channel.connection.send(b"".join(
            method_frame(channel.id, BasicGet(queue="backlog", no_ack=True)) for _ in range(BACKLOG + 1)
        ))
        answers = [channel.await_reply((Delivery, BasicGetEmpty)) for _ in range(BACKLOG + 1)]
        assert isinstance(answers.pop(), BasicGetEmpty)
        return [number_of(answer) for answer in answers]

    assert Reader(broker, read).ended() == list(range(BACKLOG))
    assert not READS & set(files.in_hub)


def consume_and_start(broker, name):
    """A thread that takes all but one of the backlog, and where it stands: a list of numbers."""
    numbers = []

    def read(channel):
        channel.consume(name, no_ack=True)
        while len(numbers) < BACKLOG - 1:
            numbers.append(number_of(channel.next_delivery(60)))
        channel.connection.drain(0.05)
        assert not channel.deliveries

    return Reader(broker, read), numbers


@pytest.mark.parametrize("kind", ["classic", "priority", "expiring"])
@pytest.mark.parametrize("door", ["amqp", "http"])
def test_get_beside_a_consumer_is_answered_when_the_files_that_it_waits_for_are_open(left_over, door, kind):
    broker, files = left_over(KINDS[kind], http_port=0)
    files.hold("open")
    consumer, consumed = consume_and_start(broker, "backlog")
    wait_until(files.is_held.is_set, in_time(60))
    taken = []

    def get(channel):
        if door == "amqp":
            taken.append(number_of(channel.get("backlog", no_ack=True)))
        else:
            wanted = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto", "truncate": 8}
            url = f"{broker.http_url}/api/queues/%2F/backlog/get"
            taken.extend(
                int(message["payload"])
                for message in requests.post(
                    url, json=wanted, auth=("guest", "guest"), timeout=in_time(60)
                ).json()
            )

    getter = Reader(broker, get)
    waits = lambda launched: launched.broker.vhosts["/"].queues["backlog"]._waiting_for_files  # noqa: E731
    wait_until(lambda: broker.call(lambda launched: waits(launched) is not None), in_time(60))
    files.let_go()
    getter.ended()
    consumer.ended()

    assert sorted(consumed + taken) == list(range(BACKLOG))
    assert consumed == sorted(consumed) and taken[0] < BACKLOG - 2


@pytest.mark.parametrize("kind, ready", [("classic", "came back"), ("priority", "is of a higher level")])
def test_get_that_waits_for_files_is_given_what_is_ready_without_them(left_over, kind, ready):
    broker, files = left_over(KINDS[kind], False)
    with connect(broker) as holder:
        channel = holder.channel()
        first = channel.get("backlog")
        files.hold("open")
        taken = []
        getter = Reader(broker, get_all("backlog", taken))
        wait_until(files.is_held.is_set, in_time(60))
        wait_until(lambda: broker.call(somebody_waits_for_files), in_time(60))
        before = list(taken)

        if ready == "came back":
            channel.nack(first.delivery_tag, requeue=True)
        else:
            channel.publish("", "backlog", b"%08d" % 99, Properties(delivery_mode=2, priority=3))

        wait_until(lambda: len(taken) > len(before), in_time(60))
        assert taken[len(before)] == (0 if ready == "came back" else 99) and not files.gone_on.is_set()
        files.let_go()
        getter.ended()


def test_management_api_waits_for_files(left_over):
    broker, files = left_over(None, http_port=0)
    files.hold("open")
    url = f"{broker.http_url}/api/queues/%2F/backlog"
    answers = []

    def ask():
        wanted = {"count": BACKLOG + 5, "ackmode": "ack_requeue_true", "encoding": "auto", "truncate": 8}
        answers.append(
            requests.post(f"{url}/get", json=wanted, auth=("guest", "guest"), timeout=in_time(60)).json()
        )
        answers.append(
            requests.delete(
                f"{url}/contents?count=20", auth=("guest", "guest"), timeout=in_time(60)
            ).status_code
        )

    asking = threading.Thread(target=ask)
    asking.start()
    wait_until(files.is_held.is_set, in_time(60))
    with connect(broker) as other:
        round_trips(other.channel(), 20)
    assert not answers
    files.let_go()
    asking.join(in_time(60))

    assert [int(message["payload"]) for message in answers[0]] == list(range(BACKLOG))
    assert answers[1] == 204
    assert Reader(broker, get_all("backlog", [])).ended() == list(range(20, BACKLOG))


def test_purge_and_new_messages_do_not_wait_for_the_files_of_what_is_purged(left_over):
    broker, files = left_over(None)
    files.hold("open")
    taken = []
    getter = Reader(broker, get_all("backlog", taken))
    wait_until(files.is_held.is_set, in_time(60))

    with connect(broker) as other:
        channel = other.channel()
        channel.confirm_select()
        purged = channel.queue_purge("backlog")
        assert getter.ended() == list(range(BACKLOG - purged))
        put(channel, "backlog", first=100, count=3)
        assert Reader(broker, get_all("backlog", [])).ended() == [100, 101, 102]
    assert not files.gone_on.is_set()
    files.let_go()

    wait_until(
        lambda: broker.call(
            lambda launched: launched.broker.vhosts["/"].queues["backlog"].store.committer.background.is_idle
        ),
        in_time(60),
    )
    assert not READS & set(files.in_hub)


def test_queue_can_be_deleted_while_its_files_are_being_opened(left_over):
    broker, files = left_over(None)
    files.hold("open")
    taken = []
    getter = Reader(broker, get_all("backlog", taken))
    wait_until(files.is_held.is_set, in_time(60))

    with connect(broker) as other:
        channel = other.channel()
        left = channel.queue_delete("backlog")
        with pytest.raises(ChannelClosed, match="no queue 'backlog'"):
            getter.ended()
        assert taken == list(range(BACKLOG - left))
        assert not files.gone_on.is_set()
        files.let_go()

        channel.confirm_select()
        put(channel, "backlog", first=7, count=1)
        assert number_of(channel.get("backlog", no_ack=True)) == 7


def test_broker_that_stops_while_files_are_being_opened_keeps_the_messages(left_over):
    broker, files = left_over(None)
    files.hold("open")
    taken = []
    getter = Reader(broker, get_all("backlog", taken))
    wait_until(files.is_held.is_set, in_time(60))
    # what a client is given without acks while the broker stops may be lost with its connection
    wait_until(lambda: broker.call(somebody_waits_for_files), in_time(60))
    stopping = threading.Thread(target=broker.close)
    stopping.start()
    getter.join(in_time(60))
    files.let_go()
    stopping.join(in_time(60))
    assert not stopping.is_alive() and getter.error is not None

    with gomq_py.Broker(data_dir=broker.data_dir, segment_size=65536) as again:
        assert Reader(again, get_all("backlog", [])).ended() == list(range(len(taken), BACKLOG))


@pytest.mark.parametrize("call", ["open", "read_through"])
@pytest.mark.parametrize("is_restarted", [False, True], ids=["of this run", "of an earlier run"])
def test_disk_that_refuses_a_reader_closes_the_queue_and_nothing_else(left_over, call, is_restarted):
    broker, files = left_over(None, is_restarted)
    files.error = OSError(5, "the disk failed")
    files.hold(call)
    reader = Reader(broker, get_all("backlog", []))
    wait_until(files.is_held.is_set, in_time(60))
    # it has come there
    wait_until(
        lambda: broker.call(lambda launched: launched.broker.vhosts["/"].queues["backlog"].is_opening()),
        in_time(60),
    )

    files.let_go()

    with pytest.raises(ChannelClosed, match="backlog"):
        reader.ended()
    assert broker.call(lambda launched: launched.broker.vhosts["/"].queues["backlog"].closed)
    with connect(broker) as other:
        round_trips(other.channel(), 20)
