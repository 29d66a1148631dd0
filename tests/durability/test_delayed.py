"""Delayed messages under power cuts: what was confirmed waits, or has gone on, however the cut falls."""
import errno
import os
from random import Random

import pytest

from gomq_py.client.connection import Connection
from gomq_py.content.properties import Properties
from gomq_py.hub import timers
from gomq_py.hub.scheduler import unix_ms
from gomq_py.storage.message import Message
from tests.durability.seeds import seeds
from tests.support.broker_process import BrokerProcess
from tests.support.faulty_files import FaultyFiles
from tests.support.node import Node
from tests.support.power_cut import Disk, PowerCutFiles
from tests.support.reading import get
from tests.support.unflushed import Unflushed
from tests.support.waiting import TIMEOUT_S

MESSAGES = 60


def declare(node):
    node.vhost.declare_exchange(
        "x", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"}
    )
    node.vhost.declare_queue("q", durable=True)
    node.vhost.bindings.bind_queue("q", "x", "")


def publish(node, number, delay_ms):
    headers = {"x-delay": delay_ms}
    message = Message()
    message.assign(
        b"x", b"", Properties(headers=headers).encode(), b"%d" % number, unix_ms(), persistent=True
    )
    for destination in node.vhost.route(node.vhost.exchange("x"), "", headers):
        destination.publish(message)


def work(files, folder, random, confirmed, cut):
    """Publish with delays of a few milliseconds, wait for the disk now and then as a confirm does,
    and let some go on meanwhile.
    """
    node = Node(folder, files)
    declare(node)
    node.committer.wait()
    park, queue = node.vhost.exchange("x").delayed_store, node.vhost.queue("q")
    for number in range(MESSAGES):
        publish(node, number, random.randrange(1, 20))
        if random.random() < 0.2:
            park.write_out()
            node.committer.wait()
            confirmed.update(range(number + 1))
        if random.random() < 0.1:
            some = queue.ready_count
            node.wait(lambda some=some: queue.ready_count > some or not park.count)
        cut()
    node.stop()


def survivors(folder):
    """The numbers a boot after a cut finds: those that wait, before any of them goes on,
    and those that have gone on.
    """
    node = Node(folder)
    try:
        if "x" not in node.vhost.exchanges:
            return set()
        node.wait(lambda: node.vhost.exchange("x").delayed_store.count == 0)
        message, found = Message(), set()
        while "q" in node.vhost.queues and get(node.vhost.queue("q"), message, True):
            found.add(int(message.get_body()))
        return found
    finally:
        node.stop()


@pytest.mark.parametrize("seed", seeds(4))
def test_no_confirmed_message_is_lost_while_it_waits(tmp_path, seed):
    random = Random(seed)
    (tmp_path / "data").mkdir()
    confirmed = set()
    cuts = []

    def cut(*_):
        if random.random() < 0.1:
            cuts.append((disk.cut(tmp_path / f"cut{len(cuts)}"), set(confirmed)))

    disk = Disk(tmp_path / "data", random)
    work(PowerCutFiles(disk, on_call=cut), tmp_path / "data", random, confirmed, cut)
    disk.discard()

    assert cuts
    for folder, promised in cuts:
        found = survivors(folder)
        assert promised <= found, f"lost: {sorted(promised - found)}"
    assert survivors(tmp_path / "data") == set(range(MESSAGES))


# One write of a client, so that the broker takes them by its fast lane and releases them in slices.
BATCH = 2000
SOON, LATE = Properties(delivery_mode=2, headers={"x-delay": 5}), Properties(
    delivery_mode=2, headers={"mine": "x", "x-delay": 2500})


def test_confirmed_batches_that_wait_or_go_on_are_there_in_order_after_a_kill(tmp_path):
    """The kill falls while the first of them go on: what is copied and not yet dropped may come twice."""
    with BrokerProcess(tmp_path / "data") as broker:
        with Connection(broker.amqp_url, timeout_s=TIMEOUT_S) as connection:
            channel = connection.channel()
            channel.exchange_declare(
                "x", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"})
            channel.queue_declare("q", durable=True)
            channel.queue_bind("q", "x")
            channel.confirm_select()
            channel.publish_many([
                ("x", "", b"%d" % number, LATE if number % 2 else SOON) for number in range(BATCH)])
            assert channel.wait_for_confirms()
            broker.kill()

    with BrokerProcess(tmp_path / "data") as broker:
        with Connection(broker.amqp_url, timeout_s=TIMEOUT_S) as connection:
            channel = connection.channel()
            channel.consume("q", no_ack=True)
            found = {}
            while len(found) < BATCH:
                delivery = channel.next_delivery(TIMEOUT_S)
                assert delivery is not None, f"{len(found)} of {BATCH} came"
                delay = Properties.decode(delivery.properties.encode()).headers["x-delay"]
                found.setdefault(int(delivery.body), delay)

    for first, delay in ((0, -5), (1, -2500)):
        numbers = range(first, BATCH, 2)
        assert [number for number in found if found[number] == delay] == list(numbers)


# When, which call on its files fails, and how often.
@pytest.mark.parametrize("when, failing, times", [
    ("serving", None, 0), ("at boot", ("open", "msgs"), 1), ("at boot", ("allocate", "acks"), 1),
    ("at boot, and while it is read again", ("allocate", "acks"), 2)])
def test_delayed_exchange_that_a_fault_closes_is_open_again_when_the_disk_takes_it(
    tmp_path, monkeypatch, when, failing, times
):
    """On 6805b4a2 it was closed until a restart, and one that could not be opened at boot was left out, with
    what waited in it set aside. On cd70542c it was closed until a restart where what waits could be found and
    not be read, at boot or while it was opened again.
    """
    monkeypatch.setattr(timers, "FIRST_PAUSE_MS", 1)
    node = Node(tmp_path / "data", Unflushed())
    declare(node)
    publish(node, 1, 10_000_000)
    failed = []
    if times:
        node.stop()
        files = FaultyFiles()

        def about_to(call, subject):
            if (call, os.path.basename(subject).partition(".")[0]) == failing and len(failed) < times:
                failed.append(subject)
                raise OSError(errno.EIO, "Input/output error")

        files.about_to = about_to
        node = Node(tmp_path / "data", files)
        assert failed and node.vhost.exchange("x").delayed_store.closed
        publish(node, 2, 10_000_000)
    else:
        node.vhost.exchange("x").delayed_store.store.fence(OSError(errno.EIO, "Input/output error"))
        assert node.vhost.exchange("x").delayed_store.closed

    node.wait(lambda: len(failed) == times and not node.vhost.exchange("x").delayed_store.closed)

    publish(node, 3, 10_000_000)
    assert node.vhost.exchange("x").delayed_store.count == 2
    node.stop()
    node = Node(tmp_path / "data", Unflushed())
    assert node.vhost.exchange("x").delayed_store.count == 2
    node.stop()
