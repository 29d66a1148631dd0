"""A disk on which one kind of call hangs: whoever asked for it waits, and clients of other queues are served.

The broker is a real one with a hub in its own thread. The call is held wherever a thread makes it; a call that the hub makes is not held but noted,
so that a test fails at once instead of standing still with the broker.
"""
import threading

import gevent
import pytest
import requests

import gomq_py
from gomq_py import launcher
from gomq_py.amqp.wire.frames import method_frame
from gomq_py.amqp.wire.methods import BasicGet, BasicGetEmpty
from gomq_py.client.connection import Connection
from gomq_py.client.delivery import Delivery
from gomq_py.client.errors import ChannelClosed
from gomq_py.content.properties import Properties
from tests.support.hub_calls import HubCalls
from tests.support.waiting import wait_until

PERSISTENT = Properties(delivery_mode=2)
LONGEST_HOLD_S = 60.0  # a test that forgets to let go ends all the same

IN_THREADS = frozenset({
    "unlink", "rename", "remove_folder", "sync", "sync_folder", "make_log", "reserve", "write_accepted", "open", "read_through",
})
# What the hub still asks of the system while it serves: a new segment's files where none were ready, what streams write
# of a batch. Moves from the middle of a queue and a stream's search for a time, which are not among this work, still open closed segments there.
STILL_IN_HUB = {"create", "create_unnamed", "make_folder", "write"}
READS = {"open", "read_through", "allocate"}
BACKLOG = 24  # two to a segment


class HeldFiles(HubCalls):
    """``hold(call)``: from here on it hangs in every thread that makes it, until ``let_go``."""

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


# Readers of a backlog.

STREAM = {"x-queue-type": "stream"}
KINDS = {"classic": {}, "priority": {"x-max-priority": 3}, "expiring": {"x-message-ttl": 3_600_000}, "stream": STREAM}


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

    wait_until(lambda: broker.call(closed) >= count, 60)


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
        self.join(60)
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


@pytest.fixture
def left_over(files, tmp_path):
    """A broker that has a backlog of an earlier run in the queue "backlog" of each kind asked for, one after the other."""
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
    reader = Reader(broker, consume_all("backlog", arguments={"x-stream-offset": "first"} if kind == "stream" else None))
    wait_until(files.is_held.is_set, 60)

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
    wait_until(files.is_held.is_set, 60)

    with connect(broker) as other:
        round_trips(other.channel(), 20)
    assert reader.is_alive()
    files.let_go()

    assert reader.ended() == list(range(BACKLOG))
    assert not READS & set(files.in_hub)


def test_gets_that_are_sent_together_are_answered_in_order(left_over):
    broker, files = left_over(None)

    def read(channel):
        channel.connection.send(b"".join(method_frame(channel.id, BasicGet(queue="backlog", no_ack=True)) for _ in range(BACKLOG + 1)))
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
    wait_until(files.is_held.is_set, 60)
    taken = []

    def get(channel):
        if door == "amqp":
            taken.append(number_of(channel.get("backlog", no_ack=True)))
        else:
            wanted = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto", "truncate": 8}
            url = f"{broker.http_url}/api/queues/%2F/backlog/get"
            taken.extend(int(message["payload"]) for message in requests.post(url, json=wanted, auth=("guest", "guest"), timeout=60).json())

    getter = Reader(broker, get)
    waits = lambda launched: launched.broker.vhosts["/"].queues["backlog"]._waiting_for_files  # noqa: E731
    wait_until(lambda: broker.call(lambda launched: waits(launched) is not None), 60)
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
        wait_until(files.is_held.is_set, 60)
        wait_until(lambda: broker.call(lambda launched: launched.broker.vhosts["/"].queues["backlog"]._waiting_for_files) is not None, 60)
        before = list(taken)

        if ready == "came back":
            channel.nack(first.delivery_tag, requeue=True)
        else:
            channel.publish("", "backlog", b"%08d" % 99, Properties(delivery_mode=2, priority=3))

        wait_until(lambda: len(taken) > len(before), 60)
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
        answers.append(requests.post(f"{url}/get", json=wanted, auth=("guest", "guest"), timeout=60).json())
        answers.append(requests.delete(f"{url}/contents?count=20", auth=("guest", "guest"), timeout=60).status_code)

    asking = threading.Thread(target=ask)
    asking.start()
    wait_until(files.is_held.is_set, 60)
    with connect(broker) as other:
        round_trips(other.channel(), 20)
    assert not answers
    files.let_go()
    asking.join(60)

    assert [int(message["payload"]) for message in answers[0]] == list(range(BACKLOG))
    assert answers[1] == 204
    assert Reader(broker, get_all("backlog", [])).ended() == list(range(20, BACKLOG))


def test_purge_and_new_messages_do_not_wait_for_the_files_of_what_is_purged(left_over):
    broker, files = left_over(None)
    files.hold("open")
    taken = []
    getter = Reader(broker, get_all("backlog", taken))
    wait_until(files.is_held.is_set, 60)

    with connect(broker) as other:
        channel = other.channel()
        channel.confirm_select()
        purged = channel.queue_purge("backlog")
        assert getter.ended() == list(range(BACKLOG - purged))
        put(channel, "backlog", first=100, count=3)
        assert Reader(broker, get_all("backlog", [])).ended() == [100, 101, 102]
    assert not files.gone_on.is_set()
    files.let_go()

    wait_until(lambda: broker.call(lambda launched: launched.broker.vhosts["/"].queues["backlog"].store.committer.is_done_aside), 60)
    assert not READS & set(files.in_hub)


def test_queue_can_be_deleted_while_its_files_are_being_opened(left_over):
    broker, files = left_over(None)
    files.hold("open")
    taken = []
    getter = Reader(broker, get_all("backlog", taken))
    wait_until(files.is_held.is_set, 60)

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
    wait_until(files.is_held.is_set, 60)
    stopping = threading.Thread(target=broker.close)
    stopping.start()
    getter.join(60)
    files.let_go()
    stopping.join(60)
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
    wait_until(files.is_held.is_set, 60)
    wait_until(lambda: broker.call(lambda launched: launched.broker.vhosts["/"].queues["backlog"].is_opening()), 60)  # it has come there

    files.let_go()

    with pytest.raises(ChannelClosed, match="backlog"):
        reader.ended()
    assert broker.call(lambda launched: launched.broker.vhosts["/"].queues["backlog"].closed)
    with connect(broker) as other:
        round_trips(other.channel(), 20)
