"""exchange.* and queue.* over a connection: what is answered, when, and to whom it is refused."""
import os
import sys

import gevent
import pytest

from gomq_py.amqp.wire.methods import (
    BasicCancel, BasicConsume, BasicConsumeOk, BasicQos, BasicQosOk, ChannelClose, ChannelOpen,
    ChannelOpenOk, ConnectionClose, ExchangeBind, ExchangeBindOk, ExchangeDeclare, ExchangeDeclareOk,
    ExchangeDelete, ExchangeDeleteOk, ExchangeUnbind, ExchangeUnbindOk, QueueBind, QueueBindOk,
    QueueDeclare, QueueDeclareOk, QueueDelete, QueueDeleteOk, QueuePurge, QueuePurgeOk, QueueUnbind,
    QueueUnbindOk,
)
from gomq_py.content.fields import Float32
from gomq_py.content.properties import Properties
from tests.support.waiting import wait_until

LOCKED = (
    "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'mine' in vhost '/'. It could be "
    "originally declared on another connection or the exclusive property value does not match that of "
    "the original declaration."
)


@pytest.fixture
def bob(door):
    """A client whose rights end where names do not begin with bob."""
    door.broker.users.set_user("bob", "secret")
    door.broker.users.set_permission("bob", "/", "^bob", "^bob", "^bob")
    return door.client(username="bob", password="secret")


def refused(client, method, code, text, close_class=ChannelClose):
    client.send_method(method)
    channel = 1 if close_class is ChannelClose else 0
    client.expect_error(close_class, code, text, channel, blamed=type(method))


# exchanges

def test_exchange_is_declared_found_and_deleted(client):
    client.call(ExchangeDeclare(exchange="x", type="topic"), ExchangeDeclareOk)
    client.call(ExchangeDeclare(exchange="x", passive=True), ExchangeDeclareOk)
    client.call(ExchangeDelete(exchange="x"), ExchangeDeleteOk)

    refused(
        client, ExchangeDeclare(exchange="x", passive=True), 404, "NOT_FOUND - no exchange 'x' in vhost '/'"
    )


def test_passive_declare_does_not_look_at_the_type(client):
    client.call(ExchangeDeclare(exchange="amq.direct", type="nonsense", passive=True), ExchangeDeclareOk)


def test_exchange_methods_without_wait_are_not_answered(client, door):
    client.send_method(ExchangeDeclare(exchange="x", type="fanout", no_wait=True))
    client.send_method(ExchangeDeclare(exchange="x", passive=True, no_wait=True))
    client.send_method(ExchangeBind(source="x", destination="amq.fanout", no_wait=True))
    client.send_method(ExchangeUnbind(source="x", destination="amq.fanout", no_wait=True))
    client.send_method(ExchangeDelete(exchange="x", no_wait=True))

    client.call(QueueDeclare(), QueueDeclareOk)
    assert "x" not in door.vhost.exchanges


def test_deleting_a_missing_exchange_is_answered(client):
    client.call(ExchangeDelete(exchange="nope"), ExchangeDeleteOk)


def test_unknown_exchange_type_closes_the_channel(client):
    refused(
        client, ExchangeDeclare(exchange="x", type="wibble"), 406,
        "PRECONDITION_FAILED - unknown exchange type 'wibble'",
    )


@pytest.mark.parametrize("method", [
    ExchangeDeclare(exchange="", type="direct"), ExchangeDeclare(exchange="", passive=True),
    ExchangeDelete(exchange=""),
    ExchangeBind(source="", destination="amq.direct"), ExchangeBind(source="amq.direct", destination=""),
    ExchangeUnbind(source="", destination="amq.direct"),
])
def test_default_exchange_is_not_to_be_changed(client, method):
    refused(client, method, 403, "ACCESS_REFUSED - operation not permitted on the default exchange")


def test_exchanges_are_bound_to_each_other(client, door):
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    client.call(QueueBind(queue="q", exchange="amq.fanout"), QueueBindOk)
    client.call(ExchangeBind(source="amq.direct", destination="amq.fanout", routing_key="k"), ExchangeBindOk)
    client.publish("k", exchange="amq.direct")
    client.call(
        ExchangeUnbind(source="amq.direct", destination="amq.fanout", routing_key="k"), ExchangeUnbindOk
    )
    client.publish("k", exchange="amq.direct")

    assert client.call(QueueDeclare(queue="q"), QueueDeclareOk).message_count == 1


# queues

def test_queue_is_declared_with_its_counts(client):
    first = client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    client.publish("q")
    client.publish("q")
    second = client.call(QueueDeclare(queue="q", passive=True), QueueDeclareOk)

    assert (first.queue, first.message_count, first.consumer_count) == ("q", 0, 0)
    assert (second.queue, second.message_count, second.consumer_count) == ("q", 2, 0)


def test_queue_without_a_name_gets_one(client):
    one = client.call(QueueDeclare(), QueueDeclareOk).queue
    other = client.call(QueueDeclare(), QueueDeclareOk).queue

    assert one.startswith("amq.gen-") and other.startswith("amq.gen-") and one != other


def test_carriage_returns_and_line_feeds_are_dropped_from_names(client):
    assert client.call(QueueDeclare(queue="a\nb\r"), QueueDeclareOk).queue == "ab"


def test_queue_methods_without_wait_are_not_answered(client, door):
    client.send_method(QueueDeclare(queue="q", no_wait=True))
    client.send_method(QueueBind(queue="q", exchange="amq.direct", routing_key="k", no_wait=True))
    client.send_method(QueuePurge(queue="q", no_wait=True))
    client.send_method(QueueDelete(queue="q", no_wait=True))

    client.call(QueueUnbind(queue="q", exchange="amq.direct", routing_key="k"), QueueUnbindOk)
    assert "q" not in door.vhost.queues


def test_missing_queue_is_not_found(client):
    refused(client, QueueDeclare(queue="nope", passive=True), 404, "NOT_FOUND - no queue 'nope' in vhost '/'")


def test_reserved_queue_name_is_refused(client):
    refused(
        client, QueueDeclare(queue="amq.mine"), 403,
        "ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'",
    )


def test_purge_and_delete_tell_how_many_messages_went(client):
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    for _ in range(3):
        client.publish("q")
    assert client.call(QueuePurge(queue="q"), QueuePurgeOk).message_count == 3
    client.publish("q")

    assert client.call(QueueDelete(queue="q"), QueueDeleteOk).message_count == 1
    assert client.call(QueueDelete(queue="q"), QueueDeleteOk).message_count == 0


@pytest.mark.parametrize("method", [
    QueueDelete(queue="q", if_empty=True), QueueDelete(queue="q", if_empty=True, if_unused=True)
])
def test_queue_that_is_not_empty_may_stay(client, method):
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    client.publish("q")

    refused(client, method, 406, "PRECONDITION_FAILED - queue 'q' in vhost '/' not empty")


def test_queue_in_use_may_stay(client):
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    client.call(BasicConsume(queue="q"), BasicConsumeOk)

    refused(
        client, QueueDelete(queue="q", if_unused=True), 406,
        "PRECONDITION_FAILED - queue 'q' in vhost '/' in use",
    )


def test_consumers_of_a_deleted_queue_are_cancelled(client):
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    client.call(BasicConsume(queue="q", consumer_tag="t"), BasicConsumeOk)

    client.call(QueueDelete(queue="q"), QueueDeleteOk)

    cancel = client.expect(BasicCancel)
    assert (cancel.consumer_tag, cancel.no_wait) == ("t", True)


def test_clients_without_the_capability_are_not_told_of_cancelled_consumers(door):
    client = door.client(capabilities={})
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    client.call(BasicConsume(queue="q"), BasicConsumeOk)

    client.call(QueueDelete(queue="q"), QueueDeleteOk)


# the last declared queue

def test_empty_queue_name_means_the_last_declared_one(client, door):
    client.call(QueueDeclare(queue="first"), QueueDeclareOk)
    client.call(QueueDeclare(queue="last"), QueueDeclareOk)

    client.call(QueueBind(queue="", exchange="amq.direct", routing_key="k"), QueueBindOk)
    client.publish("k", exchange="amq.direct")

    assert client.call(QueuePurge(queue=""), QueuePurgeOk).message_count == 1
    client.call(QueueDelete(queue=""), QueueDeleteOk)
    assert list(door.vhost.queues) == ["first"]


def test_empty_queue_name_and_key_bind_the_last_declared_queue_by_its_name(client):
    client.call(QueueDeclare(queue="last"), QueueDeclareOk)
    client.call(QueueBind(queue="", exchange="amq.direct", routing_key=""), QueueBindOk)

    client.publish("last", exchange="amq.direct")

    assert client.call(QueuePurge(queue=""), QueuePurgeOk).message_count == 1


def test_passive_declare_makes_the_queue_the_last_declared_one(client):
    client.call(QueueDeclare(queue="q"), QueueDeclareOk)
    client.call(ChannelOpen(), ChannelOpenOk, channel=2)
    client.call(QueueDeclare(queue="q", passive=True), QueueDeclareOk, channel=2)

    client.call(QueuePurge(queue=""), QueuePurgeOk, channel=2)


@pytest.mark.parametrize("method", [
    QueueBind(exchange="amq.direct"), QueueUnbind(exchange="amq.direct"), QueuePurge(), QueueDelete()
])
def test_empty_queue_name_needs_a_declared_queue(client, method):
    refused(client, method, 404, "NOT_FOUND - no previously declared queue")


# exclusive queues

@pytest.mark.parametrize("method", [
    QueueDeclare(queue="mine"), QueueDeclare(queue="mine", exclusive=True),
    QueueDeclare(queue="mine", passive=True), QueueDelete(queue="mine"),
    QueuePurge(queue="mine"), QueueBind(queue="mine", exchange="amq.direct"), BasicConsume(queue="mine"),
])
def test_exclusive_queue_is_locked_for_other_connections(door, method):
    owner = door.client()
    owner.call(QueueDeclare(queue="mine", exclusive=True), QueueDeclareOk)

    refused(door.client(), method, 405, LOCKED)


def test_exclusive_queue_goes_with_its_connection(door):
    owner = door.client()
    owner.call(QueueDeclare(queue="mine", exclusive=True), QueueDeclareOk)

    owner.send_method(ConnectionClose(reply_code=200), 0)
    owner.frame()

    assert "mine" not in door.vhost.queues


# the disk

@pytest.mark.parametrize(("method", "answer"), [
    (ExchangeDeclare(exchange="x", type="direct", durable=True), ExchangeDeclareOk),
    (QueueDeclare(queue="q", durable=True), QueueDeclareOk),
    (ExchangeBind(source="amq.direct", destination="amq.fanout"), ExchangeBindOk),
])
def test_answer_about_something_durable_waits_for_the_disk(slow_disk_door, method, answer):
    client = slow_disk_door.client()

    client.send_method(method)

    client.expect_silence()
    slow_disk_door.committer.finish()
    client.expect(answer)


@pytest.mark.parametrize(("method", "answer"), [
    (ExchangeDeclare(exchange="x", type="direct"), ExchangeDeclareOk),
    (QueueDeclare(queue="q"), QueueDeclareOk),
    (QueueDeclare(queue="q", durable=True, exclusive=True), QueueDeclareOk),
    (ExchangeDeclare(exchange="amq.direct", passive=True), ExchangeDeclareOk),
])
def test_answer_about_something_transient_does_not_wait(slow_disk_door, method, answer):
    slow_disk_door.client().call(method, answer)


def finish_until_idle(door):
    """End syncs until nobody waits. Returns how many there were."""
    count = 0
    while door.committer.finish():
        count += 1
    return count


@pytest.mark.parametrize(("arguments", "syncs"), [
    ({}, 1), ({"x-max-priority": 3}, 1), ({"x-queue-type": "stream"}, 2)
])
def test_purge_is_answered_when_it_is_on_the_disk(slow_disk_door, arguments, syncs):
    """The files of a stream go after one sync, their names with the next."""
    client = slow_disk_door.client()
    client.send_method(QueueDeclare(queue="q", durable=True, arguments=arguments))
    client.publish("q", properties=Properties(delivery_mode=2).encode())
    client.expect_silence()
    finish_until_idle(slow_disk_door)
    client.expect(QueueDeclareOk)

    client.send_method(QueuePurge(queue="q"))

    for _ in range(syncs):
        client.expect_silence()
        slow_disk_door.committer.finish()
    assert client.expect(QueuePurgeOk).message_count == 1


def test_second_declare_of_a_durable_queue_waits_for_the_first(slow_disk_door):
    one, other = slow_disk_door.client(), slow_disk_door.client()
    one.send_method(QueueDeclare(queue="q", durable=True))
    one.expect_silence()

    other.send_method(QueueDeclare(queue="q", durable=True))

    other.expect_silence()
    slow_disk_door.committer.finish()
    other.expect(QueueDeclareOk)


@pytest.mark.parametrize(("method", "answer"), [
    (QueueDelete(queue="q"), QueueDeleteOk), (QueueUnbind(queue="q", exchange="x"), QueueUnbindOk),
    (ExchangeDelete(exchange="x"), ExchangeDeleteOk),
    (ExchangeUnbind(source="x", destination="amq.fanout"), ExchangeUnbindOk),
])
def test_deletion_of_what_another_has_just_deleted_waits_for_the_disk_too(slow_disk_door, method, answer):
    one, other = slow_disk_door.client(), slow_disk_door.client()
    for declare in (
        QueueDeclare(queue="q", durable=True), ExchangeDeclare(exchange="x", type="direct", durable=True)
    ):
        one.send_method(declare)
    one.expect_silence()
    finish_until_idle(slow_disk_door)
    one.send_method(QueueDelete(queue="q", no_wait=True))
    one.send_method(ExchangeDelete(exchange="x", no_wait=True))
    wait_until(
        lambda: "q" not in slow_disk_door.vhost.queues and "x" not in slow_disk_door.vhost.exchanges,
        sleep=gevent.sleep,
    )

    other.send_method(method)

    other.expect_silence()
    slow_disk_door.committer.finish()
    other.expect(answer)


@pytest.mark.parametrize("durable", [True, False], ids=["durable-queue", "transient-queue"])
@pytest.mark.parametrize(("bind", "unbind", "answer"), [
    (QueueBind(queue="q", exchange="x"), QueueUnbind(queue="q", exchange="x"), QueueUnbindOk),
    (
        ExchangeBind(source="x", destination="amq.fanout"),
        ExchangeUnbind(source="x", destination="amq.fanout"), ExchangeUnbindOk,
    ),
])
def test_unbind_that_deletes_the_exchange_waits_for_the_disk(slow_disk_door, bind, unbind, answer, durable):
    client = slow_disk_door.client()
    client.send_method(ExchangeDeclare(exchange="x", type="direct", durable=True, auto_delete=True))
    client.send_method(QueueDeclare(queue="q", durable=durable))
    client.send_method(bind)
    client.expect_silence()
    finish_until_idle(slow_disk_door)
    for answered in (
        ExchangeDeclareOk, QueueDeclareOk, QueueBindOk if isinstance(bind, QueueBind) else ExchangeBindOk
    ):
        client.expect(answered)

    client.send_method(unbind)

    client.expect_silence()
    assert "x" not in slow_disk_door.vhost.exchanges
    slow_disk_door.committer.finish()
    client.expect(answer)


def test_waiting_answer_holds_back_only_its_own_channel(slow_disk_door):
    client = slow_disk_door.client(channels=(1, 2))
    client.send_method(QueueDeclare(queue="durable", durable=True))
    client.send_method(QueueDeclare(queue="transient"))

    client.call(QueueDeclare(queue="other"), QueueDeclareOk, channel=2)

    client.expect_silence()
    slow_disk_door.committer.finish()
    assert (
        [client.expect(QueueDeclareOk).queue, client.expect(QueueDeclareOk).queue] == ["durable", "transient"]
    )


def test_error_behind_a_waiting_answer_keeps_its_place(slow_disk_door):
    client = slow_disk_door.client()
    client.send_method(QueueDeclare(queue="durable", durable=True))
    client.send_method(QueueDeclare(queue="nope", passive=True))

    client.expect_silence()
    slow_disk_door.committer.finish()

    client.expect(QueueDeclareOk)
    client.expect_error(ChannelClose, 404, "NOT_FOUND - no queue 'nope' in vhost '/'")


def test_disk_that_refuses_a_declare_closes_the_connection(slow_disk_door):
    client = slow_disk_door.client()
    client.send_method(QueueDeclare(queue="durable", durable=True))
    client.expect_silence()

    slow_disk_door.committer.finish(OSError("no space left"))

    client.expect_error(ConnectionClose, 541, "INTERNAL_ERROR - the disk refused a change: no space left", 0)


# permissions

@pytest.mark.parametrize(("method", "verb", "kind", "name"), [
    (QueueDeclare(queue="q"), "configure", "queue", "q"),
    (QueueDeclare(queue="bobq", arguments={"x-dead-letter-exchange": "x"}), "write", "exchange", "x"),
    (QueueDelete(queue="q"), "configure", "queue", "q"),
    (QueuePurge(queue="q"), "read", "queue", "q"),
    (QueueBind(queue="q", exchange="bobx"), "write", "queue", "q"),
    (QueueBind(queue="bobq", exchange="amq.direct"), "read", "exchange", "amq.direct"),
    (QueueUnbind(queue="bobq", exchange="nope"), "read", "exchange", "nope"),
    (ExchangeDeclare(exchange="x", type="direct"), "configure", "exchange", "x"),
    (ExchangeDeclare(exchange="bobx", type="direct", arguments={"alternate-exchange": "x"}), "write",
     "exchange", "x"),
    (ExchangeDelete(exchange="x"), "configure", "exchange", "x"),
    (ExchangeBind(source="bobx", destination="x"), "write", "exchange", "x"),
    (ExchangeBind(source="x", destination="bobx"), "read", "exchange", "x"),
    (ExchangeUnbind(source="x", destination="bobx"), "read", "exchange", "x"),
])
def test_method_without_the_right_is_refused(bob, method, verb, kind, name):
    text = f"ACCESS_REFUSED - {verb} access to {kind} '{name}' in vhost '/' refused for user 'bob'"
    refused(bob, method, 403, text)


def test_name_made_by_the_server_needs_the_right_too(bob):
    bob.send_method(QueueDeclare())

    close = bob.expect(ChannelClose)
    assert close.reply_text.startswith("ACCESS_REFUSED - configure access to queue 'amq.gen-")


@pytest.mark.parametrize("method", [
    QueueDeclare(queue="q", passive=True), ExchangeDeclare(exchange="amq.direct", passive=True)
])
def test_passive_declare_needs_no_right(door, bob, method):
    door.client().call(QueueDeclare(queue="q"), QueueDeclareOk)

    bob.call(method, QueueDeclareOk if isinstance(method, QueueDeclare) else ExchangeDeclareOk)


def test_methods_with_the_right_are_carried_out(bob):
    bob.call(ExchangeDeclare(exchange="bobx", type="direct"), ExchangeDeclareOk)
    bob.call(QueueDeclare(queue="bobq"), QueueDeclareOk)
    bob.call(QueueBind(queue="bobq", exchange="bobx"), QueueBindOk)
    bob.call(QueueUnbind(queue="bobq", exchange="bobx"), QueueUnbindOk)
    bob.call(QueuePurge(queue="bobq"), QueuePurgeOk)
    bob.call(QueueDelete(queue="bobq"), QueueDeleteOk)


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan"), Float32("inf")])
def test_numbers_that_no_json_holds_are_refused_in_arguments(door, number):
    """The management API, definitions and replays could only show something else.

    RabbitMQ cannot read them at all and ends the connection.
    """
    text = "field table with a number that no JSON holds: infinity, or larger than 1.8e308, or not a number"
    door.client().call(QueueDeclare(queue="q"), QueueDeclareOk)
    for method, what in (
            (QueueDeclare(queue="odd", arguments={"x": number}), "queue 'odd' in vhost '/'"),
            (
                ExchangeDeclare(exchange="odd", type="fanout", arguments={"x": [number]}),
                "exchange 'odd' in vhost '/'",
            ),
            (
                QueueBind(queue="q", exchange="amq.headers", arguments={"x": {"y": number}}),
                "a binding from exchange 'amq.headers' in vhost '/'",
            )):
        refused(door.client(), method, 406, f"PRECONDITION_FAILED - arguments of {what}: {text}")

    assert "odd" not in door.vhost.queues and "odd" not in door.vhost.exchanges


# what is imported late

@pytest.mark.parametrize("module, method, ok", [
    ("gomq_py.storage.stores.stream_recovery",
     QueueDeclare(queue="q", durable=True, arguments={"x-queue-type": "stream"}), QueueDeclareOk),
    ("gomq_py.broker.queues.stream_queue",
     QueueDeclare(queue="q", durable=True, arguments={"x-queue-type": "stream"}), QueueDeclareOk),
    ("gomq_py.storage.stores.priority_store",
     QueueDeclare(queue="q", durable=True, arguments={"x-queue-type": "quorum"}), QueueDeclareOk),
    ("gomq_py.storage.stores.priority_store",
     QueueDeclare(queue="q", durable=True, arguments={"x-max-priority": 3}), QueueDeclareOk),
    ("gomq_py.broker.transfer.delayed",
     ExchangeDeclare(exchange="x", type="x-delayed-message", durable=True,
                     arguments={"x-delayed-type": "direct"}), ExchangeDeclareOk),
])
def test_what_cannot_be_imported_for_the_first_declare_leaves_nothing_behind(
    client, door, monkeypatch, caplog, module, method, ok,
):
    """As in a broker that has no descriptor left: the connection goes on, and the next attempt is made."""
    folder = door.data_dir.queues_folder
    before = sorted(os.listdir(folder))
    monkeypatch.setitem(sys.modules, module, None)

    client.send_method(method)

    assert client.expect(ChannelClose).reply_code == 506
    assert module in caplog.text
    assert sorted(os.listdir(folder)) == before
    assert "q" not in door.vhost.queues and "x" not in door.vhost.exchanges
    monkeypatch.undo()
    client.call(ChannelOpen(), ChannelOpenOk, channel=2)
    client.call(method, ok, channel=2)


def test_what_cannot_be_imported_for_the_first_consumer_of_a_stream_ends_its_channel_alone(
    client, monkeypatch,
):
    client.call(QueueDeclare(queue="q", durable=True, arguments={"x-queue-type": "stream"}), QueueDeclareOk)
    client.call(BasicQos(prefetch_count=1), BasicQosOk)
    monkeypatch.setitem(sys.modules, "gomq_py.amqp.server.stream_consumer", None)

    client.send_method(BasicConsume(queue="q"))

    assert client.expect(ChannelClose).reply_code == 506
