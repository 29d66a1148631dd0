"""A disk on which one kind of call hangs: whoever asked for it waits, and clients of other queues are served.

The broker is a real one with a hub in its own thread. The call is held wherever a thread makes it; a call that the hub makes is not held but noted,
so that a test fails at once instead of standing still with the broker.
"""
import threading

import gevent
import pytest

import gomq_py
from gomq_py import launcher
from gomq_py.amqp.wire.properties import Properties
from gomq_py.client.connection import Connection
from tests.support.hub_calls import HubCalls
from tests.support.waiting import wait_until

PERSISTENT = Properties(delivery_mode=2)
LONGEST_HOLD_S = 60.0  # a test that forgets to let go ends all the same

IN_THREADS = frozenset({
    "unlink", "rename", "remove_folder", "sync", "sync_folder", "make_log", "reserve", "write_accepted",
})
# What the hub still asks of the system while it serves: a new segment's files where none were ready, what streams write
# of a batch, and, for whoever reads a backlog, the files of a closed segment.
STILL_IN_HUB = {"create", "create_unnamed", "make_folder", "write", "open", "read_through"}


class HeldFiles(HubCalls):
    """``hold(call)``: from here on it hangs in every thread that makes it, until ``let_go``."""

    def __init__(self, listeners=()):
        super().__init__(listeners)
        self.held = None
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


@pytest.fixture
def files(monkeypatch):
    made = []
    monkeypatch.setattr(launcher, "Files", lambda listeners: made.append(HeldFiles(listeners)) or made[-1])
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
    """Everything that changes files while a broker serves: segments that are filled, emptied, purged and dropped by retention, queues and definitions
    that come and go, acks.
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


@pytest.mark.parametrize("call", sorted(IN_THREADS | {"make"}))
def test_call_that_hangs_holds_nobody_but_who_asked_for_it(broker, files, call):
    with connect(broker) as other:
        channel = other.channel()
        channel.queue_declare("other")
        round_trips(channel, 1)
        files[0].hold(call)
        worker = threading.Thread(target=work, args=(broker,))
        worker.start()
        wait_until(files[0].is_held.is_set, 60, call)

        round_trips(channel, 20)

        assert not files[0].gone_on.is_set()
        files[0].let_go()
        worker.join(60)
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
        wait_until(files[0].is_held.is_set, 60)

        round_trips(channel, 20)

        assert not answered
        files[0].let_go()
        worker.join(60)
        assert answered


def test_what_is_in_a_segment_without_its_name_is_delivered_and_not_confirmed(broker, files):
    """A segment that was ready is written to at once; the names are changed before the flush that confirms."""
    with connect(broker) as connection:
        channel = connection.channel()
        channel.confirm_select()
        fill(channel, "rolling", 6)
        wait_until(lambda: broker.call(lambda launched: "1 pairs" in launched.broker.describe_pool()), 60)
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
        waiting.join(60)
        assert not waiting.is_alive()


def test_hub_asks_the_disk_for_nothing_but_what_is_said_here(broker, files):
    work(broker)
    wait_until(lambda: IN_THREADS <= set(files[0].elsewhere), 60)

    assert set(files[0].in_hub) <= STILL_IN_HUB


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
        wait_until(files[0].is_held.is_set, 60)
        round_trips(channel, 20)
        assert not {"open", "read_through"} & set(files[0].in_hub)
        files[0].let_go()

        wait_until(lambda: broker.call(lambda launched: launched.broker.vhosts["/"].queues["closed"].ready_count) == 3, 60)
