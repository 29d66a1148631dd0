"""A flush that fails fails those it concerns: the publishers of the queue whose files they are,
and nobody else.
"""
import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import gevent
import pika
import pytest

import gomq_py
from gomq_py import node
from gomq_py.amqp.wire.methods import (
    BasicAck, BasicNack, ConfirmSelect, ConfirmSelectOk, ConnectionClose, ExchangeDeclare, ExchangeDeclareOk,
    QueueBind, QueueBindOk, QueueDeclare, QueueDeclareOk, QueuePurge, QueuePurgeOk, TxCommit, TxCommitOk,
    TxSelect, TxSelectOk,
)
from gomq_py.content.properties import Properties
from gomq_py.hub import turns
from gomq_py.mqtt.wire.constants import MQTT_5
from gomq_py.mqtt.wire.packets import ConnectPacket, Will
from gomq_py.storage.disk.files import Files
from gomq_py.storage.flush import batch
from tests.support.door import Door, publish_frames
from tests.support.waiting import TIMEOUT_S, wait_until
from tests.unit.mqtt.server.conftest import CONNACK_5, MQTTDoor

PERSISTENT = Properties(delivery_mode=2).encode()


class SickFiles(Files):
    """Flushes wait until they may go on; those of files whose path has ``sick`` in it fail."""

    def __init__(self, listeners=()):
        super().__init__(listeners)
        self.go_on = threading.Event()
        self.go_on.set()
        self.sick = None
        self.is_held = False

    def sync(self, file):
        self.is_held = True
        self.go_on.wait(TIMEOUT_S)
        self.is_held = False
        if self.sick is not None and self.sick in file.path:
            raise OSError(errno.EIO, "Input/output error", file.path)
        super().sync(file)


@pytest.fixture
def files():
    files = SickFiles()
    yield files
    files.go_on.set()


@pytest.fixture
def door(tmp_path, files):
    with Door(tmp_path / "data", sync=True, files=files) as door:
        client = door.client()
        for name in ("sick", "sound", "other"):
            client.call(QueueDeclare(queue=name, durable=True), QueueDeclareOk)
        client.call(QueueBind(queue="sick", exchange="amq.fanout"), QueueBindOk)
        client.call(QueueBind(queue="sound", exchange="amq.fanout"), QueueBindOk)
        yield door


def publisher(door):
    client = door.client()
    client.call(ConfirmSelect(), ConfirmSelectOk)
    return client


def fail_together(door, files, work):
    """Let one flush cover all that ``work()`` does, and the files of the queue ``sick`` fail in it.

    They are there before, so that nothing waits for them to be made.
    """
    wait_until(lambda: door.committer.is_idle and door.committer.background.is_idle, sleep=gevent.sleep)
    files.go_on.clear()
    opener = publisher(door)
    opener.publish("other", properties=PERSISTENT)  # its flush holds back the one that all others are in
    wait_until(lambda: files.is_held, sleep=gevent.sleep)
    begun = door.committer.begun
    work()
    files.sick = door.queue("sick").store.folder
    files.go_on.set()
    wait_until(lambda: door.queue("sick").closed and not door.committer._in_flight, sleep=gevent.sleep)
    assert door.committer.begun == begun + 1


def fill(door):
    """Each queue has a file that was flushed."""
    client = publisher(door)
    for number, name in enumerate(("sick", "sound", "other")):
        client.publish(name, properties=PERSISTENT)
        assert client.expect(BasicAck).delivery_tag == number + 1


def wait_for_messages(door, **counts):
    wait_until(
        lambda: all(door.queue(name).ready_count == count for name, count in counts.items()),
        sleep=gevent.sleep,
    )


def test_publishers_of_the_queue_are_nacked_and_others_confirmed(door, files):
    fill(door)
    unlucky, lucky = publisher(door), publisher(door)

    def work():
        unlucky.publish("sick", properties=PERSISTENT)
        lucky.publish("sound", properties=PERSISTENT)
        wait_for_messages(door, sick=2, sound=2)

    fail_together(door, files, work)

    assert unlucky.expect(BasicNack).delivery_tag == 1
    assert lucky.expect(BasicAck).delivery_tag == 1
    lucky.publish("sound", properties=PERSISTENT)
    assert lucky.expect(BasicAck).delivery_tag == 2
    unlucky.publish("sick", properties=PERSISTENT)
    assert unlucky.expect(BasicNack).delivery_tag == 2


def test_publish_that_went_to_the_queue_and_to_others_is_nacked(door, files):
    fill(door)
    client, lucky = publisher(door), publisher(door)

    def work():
        client.publish("", exchange="amq.fanout", properties=PERSISTENT)
        lucky.publish("sound", properties=PERSISTENT)
        wait_for_messages(door, sick=2, sound=3)

    fail_together(door, files, work)

    assert client.expect(BasicNack).delivery_tag == 1
    assert lucky.expect(BasicAck).delivery_tag == 1


def test_delayed_message_whose_flush_fails_is_nacked(door, files):
    client = publisher(door)
    client.call(
        ExchangeDeclare(
            exchange="later", type="x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"}
        ),
        ExchangeDeclareOk)
    files.sick = door.broker.vhosts["/"].exchanges["later"].delayed_store.store.folder

    for number in (1, 2):
        client.publish(
            "k", exchange="later",
            properties=Properties(delivery_mode=2, headers={"x-delay": 10_000_000}).encode(),
        )
        assert client.expect(BasicNack).delivery_tag == number


def once(delivery_mode=2):
    return Properties(delivery_mode=delivery_mode, headers={"x-deduplication-header": "1"}).encode()


def declare_once(client):
    """An exchange that deduplicates, before the queue ``sick``."""
    client.call(
        ExchangeDeclare(
            exchange="once", type="fanout", durable=True,
            arguments={"x-message-deduplication": True, "x-cache-size": 10},
        ),
        ExchangeDeclareOk,
    )
    client.call(QueueBind(queue="sick", exchange="once"), QueueBindOk)


@pytest.mark.parametrize("how", ["as it was", "transient", "unroutable"])
def test_repeat_of_a_message_whose_flush_fails_is_nacked_too(door, files, how):
    """Whatever the repeat itself would wait for: it is thrown away for the sake of the first."""
    fill(door)
    first, second = publisher(door), publisher(door)
    declare_once(first)

    def work():
        first.publish("", exchange="once", properties=once())
        wait_for_messages(door, sick=2)
        if how == "unroutable":
            door.vhost.bindings.unbind_queue("sick", "once", "")
        second.publish("", exchange="once", properties=once(1 if how == "transient" else 2))
        wait_until(
            lambda: door.broker.vhosts["/"].exchanges["once"].state.publish_in == 2, sleep=gevent.sleep
        )

    fail_together(door, files, work)

    assert first.expect(BasicNack).delivery_tag == second.expect(BasicNack).delivery_tag == 1


@pytest.mark.parametrize("how", ["confirmed", "in a transaction", "neither"])
def test_message_whose_flush_fails_is_no_duplicate_when_it_is_published_again(door, files, how):
    """Its id stood for something that nobody keeps: a repeat would be confirmed and be nowhere."""
    fill(door)
    declare_once(door.client())
    first = publisher(door) if how == "confirmed" else door.client()
    if how == "in a transaction":
        first.call(TxSelect(), TxSelectOk)

    def work():
        first.publish("", exchange="once", properties=once())
        if how == "in a transaction":
            first.send_method(TxCommit())
        wait_for_messages(door, sick=2)

    fail_together(door, files, work)
    files.sick = None
    door.vhost.restart_queue(door.queue("sick"))
    found = door.queue("sick").ready_count
    again = publisher(door)
    for tag in (1, 2):  # the second is a duplicate of the first, which is kept
        again.publish("", exchange="once", properties=once())
        assert again.expect(BasicAck).delivery_tag == tag

    assert door.queue("sick").ready_count == found + 1
    assert door.vhost.exchange("once").deduplication.duplicates == 1


def test_queue_that_remembers_ids_takes_again_what_its_disk_refused(door, files):
    client = publisher(door)
    client.call(
        QueueDeclare(queue="once", durable=True, arguments={"x-message-deduplication": True}), QueueDeclareOk
    )
    client.publish("once", properties=PERSISTENT)
    client.expect(BasicAck)
    files.sick = door.queue("once").store.folder
    client.publish("once", properties=once())
    client.expect(BasicNack)

    files.sick = None
    door.vhost.restart_queue(door.queue("once"))
    found = door.queue("once").ready_count
    client.publish("once", properties=once())
    client.expect(BasicAck)

    assert door.queue("once").ready_count == found + 1


def test_publishes_of_one_read_are_refused_together(door, files, monkeypatch):
    """They share an answer: which of them are on the disk is not asked for one by one."""
    monkeypatch.setattr(turns, "WALK_S", TIMEOUT_S)  # on a slow machine, too, one read is one turn
    fill(door)
    client, lucky = publisher(door), publisher(door)

    def work():
        client.send(
            *[publish_frames(name, properties=PERSISTENT) for name in ("sound", "sick", "sound", "sound")]
        )
        lucky.publish("sound", properties=PERSISTENT)
        wait_for_messages(door, sick=2, sound=5)

    fail_together(door, files, work)

    nack = client.expect(BasicNack)
    assert (nack.delivery_tag, nack.multiple) == (4, True)
    assert lucky.expect(BasicAck).delivery_tag == 1


@pytest.mark.parametrize("fails", [False, True], ids=["kept", "lost"])
def test_a_flush_answers_the_reads_before_it_together_and_none_that_came_later(door, files, fails):
    fill(door)
    client = publisher(door)
    wait_until(lambda: door.committer.is_idle and door.committer.background.is_idle, sleep=gevent.sleep)
    files.go_on.clear()
    client.publish("sick", properties=PERSISTENT)
    wait_until(lambda: files.is_held, sleep=gevent.sleep)
    for count in (3, 4, 5):  # each in a read of its own, behind the begin of the flush
        client.publish("sick", properties=PERSISTENT)
        wait_for_messages(door, sick=count)
    began = door.committer.begun

    if fails:
        files.sick = door.queue("sick").store.folder
    files.go_on.set()

    answer = BasicNack if fails else BasicAck
    first, others = client.expect(answer), client.expect(answer)
    assert (first.delivery_tag, first.multiple, others.delivery_tag, others.multiple) == (1, False, 4, True)
    assert door.committer.begun == began + 1


def test_definition_that_is_in_the_same_flush_is_answered(door, files):
    fill(door)
    client, declaring = publisher(door), door.client()

    def work():
        client.publish("sick", properties=PERSISTENT)
        wait_for_messages(door, sick=2)
        declaring.send_method(QueueDeclare(queue="new", durable=True))
        wait_until(lambda: "new" in door.vhost.queues, sleep=gevent.sleep)

    fail_together(door, files, work)

    declaring.expect(QueueDeclareOk)
    assert client.expect(BasicNack).delivery_tag == 1


@pytest.mark.parametrize("kind", ["classic", "stream"])
def test_purge_of_another_queue_in_the_same_flush_is_answered(door, files, kind):
    """On 7675f4c1 the connection ends: the disk refused a change."""
    fill(door)
    client, purging = publisher(door), door.client()
    purging.call(
        QueueDeclare(queue="purged", durable=True, arguments={"x-queue-type": kind}), QueueDeclareOk)
    client.publish("purged", properties=PERSISTENT)
    assert client.expect(BasicAck).delivery_tag == 1

    def work():
        client.publish("sick", properties=PERSISTENT)
        wait_for_messages(door, sick=2)
        purging.send_method(QueuePurge(queue="purged"))
        wait_until(lambda: not door.queue("purged").ready_count, sleep=gevent.sleep)

    fail_together(door, files, work)

    assert purging.expect(QueuePurgeOk).message_count == 1
    assert client.expect(BasicNack).delivery_tag == 2


@pytest.mark.parametrize("will", [None, Will("gone", b"")])
def test_session_of_mqtt_that_begins_in_the_same_flush_is_answered(door, files, will):
    """On 7675f4c1 it is refused: the session is not kept."""
    fill(door)
    client, mqtt = publisher(door), MQTTDoor(door)

    def connect(client_id):
        return ConnectPacket(
            version=MQTT_5, client_identifier=client_id, properties={"session_expiry_interval": 60},
            will=will, user_name="guest", password=b"guest").encode(MQTT_5)

    mqtt.client(connect("a"), CONNACK_5)  # so that what MQTT keeps is there
    other = mqtt.stranger()

    def work():
        client.publish("sick", properties=PERSISTENT)
        wait_for_messages(door, sick=2)
        other.send(connect("b"))
        wait_until(lambda: "mqtt.b" in door.vhost.queues, sleep=gevent.sleep)

    fail_together(door, files, work)

    other.expect(CONNACK_5)
    assert client.expect(BasicNack).delivery_tag == 1
    for one in mqtt.clients:
        one.socket.close()
    gevent.joinall(mqtt.greenlets, timeout=TIMEOUT_S)


@pytest.mark.parametrize("queue", ["sick", "sound"])
def test_transaction_is_refused_only_where_it_published_to_the_queue(door, files, queue):
    fill(door)
    client, publishing = door.client(), publisher(door)
    client.call(TxSelect(), TxSelectOk)
    client.publish(queue, properties=PERSISTENT)

    def work():
        publishing.publish("sick", properties=PERSISTENT)
        client.send_method(TxCommit())
        wait_for_messages(door, **({"sick": 3} if queue == "sick" else {"sick": 2, "sound": 2}))

    fail_together(door, files, work)

    if queue == "sick":
        client.expect(ConnectionClose, 0)
    else:
        client.expect(TxCommitOk)


def fail_log(door, files, log, client, declaring):
    """A flush of the log fails in which a publish by ``client`` to the queue ``sound`` is, and the declare of
    the queue ``new`` by ``declaring``.
    """
    wait_until(lambda: door.committer.is_idle and door.committer.background.is_idle, sleep=gevent.sleep)
    files.go_on.clear()
    opener = publisher(door)
    opener.publish("other", properties=PERSISTENT)
    wait_until(lambda: files.is_held, sleep=gevent.sleep)
    client.publish("sound", properties=PERSISTENT)
    declaring.send_method(QueueDeclare(queue="new", durable=True))
    wait_until(
        lambda: "new" in door.vhost.queues and door.queue("sound").ready_count == 2, sleep=gevent.sleep
    )
    if log == "users":
        door.broker.users.set_user("somebody")
    files.sick = log
    files.go_on.set()


def wait_for_compaction(door):
    """Of the definitions or the users."""
    logs = door.broker._log, door.broker.users._log
    wait_until(
        lambda: door.committer.is_idle and door.committer.background.is_idle
        and not any(log.is_compacting for log in logs),
        sleep=gevent.sleep)


@pytest.fixture(autouse=True)
def no_second_attempt(monkeypatch):
    """What a failed log is replaced by is written at once, and later when a test has a definition change."""
    monkeypatch.setattr(batch, "REPLACE_AGAIN_S", 1e9)


@pytest.mark.parametrize("log", ["definitions", "users"])
def test_log_whose_flush_fails_is_everybodys_and_definitions_later_too(door, files, log):
    """A queue whose definition is not on the disk would be gone after a restart, with what was confirmed."""
    fill(door)
    client, declaring = publisher(door), door.client()

    fail_log(door, files, log, client, declaring)

    assert client.expect(BasicNack).delivery_tag == 1
    declaring.expect(ConnectionClose, 0)
    wait_for_compaction(door)
    files.sick = None
    client.publish("new", properties=PERSISTENT)
    assert client.expect(BasicNack if log == "definitions" else BasicAck).delivery_tag == 2
    assert not door.queue("sound").closed


def test_failed_log_is_written_anew_while_publishers_ask(door, files):
    fill(door)
    client, declaring = publisher(door), door.client()
    fail_log(door, files, "definitions", client, declaring)
    client.expect(BasicNack)
    wait_for_compaction(door)
    files.sick = None
    door.committer._failures._replace_at_s = 0.0  # it is time again

    client.publish("new", properties=PERSISTENT)
    client.expect(BasicNack)
    wait_for_compaction(door)

    client.publish("new", properties=PERSISTENT)
    assert client.expect(BasicAck).delivery_tag == 3


def test_queue_whose_declare_was_refused_takes_messages_when_the_definitions_are_written_anew(door, files):
    fill(door)
    client, declaring = publisher(door), door.client()
    fail_log(door, files, "definitions", client, declaring)
    client.expect(BasicNack)
    wait_for_compaction(door)
    files.sick = None

    door.vhost.declare_queue("later", durable=True)  # each change tries to write them anew
    wait_for_compaction(door)

    client.publish("new", properties=PERSISTENT)
    assert client.expect(BasicAck).delivery_tag == 2


def test_dead_letters_are_not_copied_while_a_log_has_failed_but_for_those_that_showed_it(door, files, caplog):
    """Their originals are kept, so that each copy would be a second one. These are copied again when that can be
    safe: on 3a1b338e they stayed unacked until the next boot.
    """
    fill(door)
    client, declaring = publisher(door), door.client()
    client.call(
        QueueDeclare(queue="full", durable=True, arguments={
            "x-max-length": 0, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "other"}),
        QueueDeclareOk)
    fail_log(door, files, "definitions", client, declaring)
    client.expect(BasicNack)
    wait_for_compaction(door)
    files.sick = None
    before = door.queue("other").ready_count
    client.publish("full", properties=PERSISTENT)
    client.expect(BasicNack)
    wait_until(lambda: "1 dead letters stay in their queues" in caplog.text, sleep=gevent.sleep)

    for tag in (3, 4):
        client.publish("full", properties=PERSISTENT)
        assert client.expect(BasicNack).delivery_tag == tag

    assert (door.queue("other").ready_count, door.queue("full").unacked_count) == (before + 1, 3)
    door.vhost.declare_queue("later", durable=True)
    wait_until(lambda: door.queue("full").unacked_count == 0, sleep=gevent.sleep)
    assert door.queue("other").ready_count == before + 4


def test_delayed_message_whose_copy_a_failed_log_kept_from_being_safe_is_copied_again(door, files, caplog):
    """On 3a1b338e it stayed until the next boot, when it came again."""
    fill(door)
    client, declaring = publisher(door), door.client()
    client.call(
        ExchangeDeclare(
            exchange="later", type="x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"}
        ),
        ExchangeDeclareOk)
    client.call(QueueBind(queue="other", exchange="later", routing_key="k"), QueueBindOk)
    fail_log(door, files, "definitions", client, declaring)
    client.expect(BasicNack)
    wait_for_compaction(door)
    files.sick = None
    before = door.queue("other").ready_count
    client.publish(
        "k", exchange="later", properties=Properties(delivery_mode=2, headers={"x-delay": 1}).encode())
    client.expect(BasicNack)
    wait_until(lambda: "1 messages that were due stay" in caplog.text, sleep=gevent.sleep)
    store = door.vhost.exchanges["later"].delayed_store.store
    assert (store.unacked_count, door.queue("other").ready_count) == (1, before + 1)

    door.vhost.declare_queue("later", durable=True)

    wait_until(lambda: store.unacked_count == 0, sleep=gevent.sleep)
    assert door.queue("other").ready_count == before + 2


def test_emptied_segments_go_while_a_log_has_failed(door, files):
    fill(door)
    client, declaring = publisher(door), door.client()
    fail_log(door, files, "definitions", client, declaring)
    client.expect(BasicNack)
    wait_for_compaction(door)
    files.sick = None
    folder = door.queue("sound").store.folder
    for tag in range(2, 8):  # more than the first segment holds
        client.publish("sound", body=bytes(20_000), properties=PERSISTENT)
        assert client.expect(BasicNack).delivery_tag == tag
    first = min(os.listdir(folder))

    door.queue("sound").purge()

    wait_until(lambda: first not in os.listdir(folder), sleep=gevent.sleep)


class Publisher:
    """A publisher as programs have one, with a connection of its own: ``publish`` waits for the confirm."""

    def __init__(self, broker):
        self.connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()

    def publish(self, exchange, routing_key):
        """Whether it was confirmed."""
        try:
            self.channel.basic_publish(exchange, routing_key, b"x", pika.BasicProperties(delivery_mode=2))
        except pika.exceptions.NackError:
            return False
        return True


def test_client_hears_of_the_publish_that_went_to_two_queues_of_which_one_failed_and_of_no_other(
    tmp_path, monkeypatch
):
    """A broker as it runs, in a thread of its own, and a client that somebody else wrote."""
    made = []
    monkeypatch.setattr(node, "Files", lambda listeners: made.append(SickFiles(listeners)) or made[-1])
    with gomq_py.Broker(tmp_path / "data") as broker, ThreadPoolExecutor(3) as threads:
        (files,) = made
        opener, unlucky, lucky = publishers = [Publisher(broker) for _ in range(3)]
        for name in ("sick", "sound", "other"):
            opener.channel.queue_declare(name, durable=True)
            if name != "other":
                opener.channel.queue_bind(name, "amq.fanout")
            assert opener.publish("", name)  # its file is there, so that no publish waits for one to be made

        def asked(question):
            return broker.call(lambda launcher: question(launcher.broker))

        wait_until(
            lambda: asked(lambda model: model.durability.disk.is_idle and model.durability.disk.background.is_idle)
        )
        files.go_on.clear()
        try:
            # its flush holds back the one that both others are in
            first = threads.submit(opener.publish, "", "other")
            wait_until(lambda: files.is_held)
            begun = asked(lambda model: model.durability.disk.begun)
            to_both, to_sound = (
                threads.submit(unlucky.publish, "amq.fanout", ""), threads.submit(lucky.publish, "", "sound")
            )
            wait_until(lambda: asked(lambda model: counts(model) == (2, 3)))
            files.sick = asked(lambda model: model.vhosts["/"].queues["sick"].store.folder)
        finally:
            files.go_on.set()

        assert (first.result(TIMEOUT_S), to_both.result(TIMEOUT_S), to_sound.result(TIMEOUT_S)) == (
            True, False, True
        )
        assert asked(lambda model: model.durability.disk.begun) == begun + 1
        assert (lucky.publish("", "sound"), unlucky.publish("amq.fanout", "")) == (True, False)
        for one in publishers:
            one.connection.close()


def counts(model):
    """Messages in the queue that is to fail and in the sound one."""
    queues = model.vhosts["/"].queues
    return queues["sick"].ready_count, queues["sound"].ready_count
