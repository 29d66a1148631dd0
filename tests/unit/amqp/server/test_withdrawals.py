"""Rights that are withdrawn: consumers that may not read any more are cancelled."""
from types import SimpleNamespace

import pytest

from gomq_py.amqp.server.login import update_secret
from gomq_py.amqp.wire.methods import (
    BasicAck, BasicCancel, BasicConsume, BasicConsumeOk, BasicDeliver, BasicQos, BasicQosOk, ChannelClose,
    ConnectionUpdateSecret, QueueDeclare, QueueDeclareOk,
)
from gomq_py.auth.users import User
from gomq_py.hub.scheduler import SliceClock
from tests.support.door import poll_until

STREAM = {"x-queue-type": "stream"}


@pytest.fixture
def bob(door):
    """A function to a client of user bob, who may read everything yet."""
    door.broker.users.set_user("bob", "secret")
    door.broker.users.set_permission("bob", "/", ".*", ".*", ".*")

    def login(**options):
        return door.client(username="bob", password="secret", **options)

    return login


def may_read(door, pattern):
    door.broker.users.set_permission("bob", "/", ".*", ".*", pattern)


def consume(client, queue, arguments):
    client.call(QueueDeclare(queue=queue, durable=True, arguments=arguments), QueueDeclareOk)
    client.call(BasicConsume(queue=queue, consumer_tag=queue), BasicConsumeOk)


@pytest.mark.parametrize("arguments", [{}, STREAM])
def test_consumer_whose_read_is_withdrawn_is_cancelled_and_others_go_on(door, bob, arguments):
    client = bob()
    client.call(BasicQos(prefetch_count=10), BasicQosOk)
    consume(client, "secret", arguments)
    consume(client, "own", {})

    may_read(door, "^own$")
    cancelled = client.expect(BasicCancel)
    client.publish("secret", b"not for bob")
    client.publish("own", b"for bob")

    assert (cancelled.consumer_tag, cancelled.no_wait) == ("secret", True)
    assert client.expect_message(BasicDeliver)[2] == b"for bob"
    assert door.queue("secret").ready_count == 1


def test_what_a_cancelled_consumer_holds_stays_with_its_channel(door, bob):
    client = bob()
    consume(client, "secret", {})
    client.publish("secret", b"read before")
    tag = client.expect_message(BasicDeliver)[0].delivery_tag

    door.broker.users.delete_permission("bob", "/")
    client.expect(BasicCancel)
    assert door.queue("secret").unacked_count == 1
    client.send_method(BasicAck(delivery_tag=tag))

    poll_until(lambda: door.queue("secret").unacked_count == 0)


def test_client_that_does_not_know_of_cancels_loses_the_channel(door, bob):
    client = bob(capabilities={})
    consume(client, "secret", {})

    may_read(door, "^$")

    text = "ACCESS_REFUSED - read access to queue 'secret' in vhost '/' refused for user 'bob'"
    client.expect_error(ChannelClose, 403, text)


def test_rights_that_are_given_or_others_end_nothing(door, bob):
    client = bob()
    consume(client, "q", {})
    door.broker.users.set_user("eve", "secret")

    may_read(door, "^q$")
    door.broker.users.set_permission("eve", "/", "", "", "")
    door.broker.users.set_user("bob", "secret", tags=("monitoring",))

    client.expect_silence()


def test_every_consumer_of_every_connection_is_looked_at_in_slices(door, bob, monkeypatch):
    """One consumer a slice; a change that comes meanwhile counts, too."""
    withdrawals = door.server.withdrawals
    monkeypatch.setattr(withdrawals, "_clock", SliceClock(seconds=0))
    clients = [bob(channels=(1, 2)) for _ in range(2)]
    for number, client in enumerate(clients):
        for channel in (1, 2):
            queue = f"q{number}{channel}"
            client.call(QueueDeclare(queue=queue), QueueDeclareOk, channel)
            client.call(BasicConsume(queue=queue, consumer_tag=queue), BasicConsumeOk, channel)

    may_read(door, "^q")
    withdrawals.step()
    may_read(door, "^q01$")

    for channel, tag in ((1, "q11"), (2, "q12")):
        assert clients[1].expect(BasicCancel, channel).consumer_tag == tag
    assert clients[0].expect(BasicCancel, 2).consumer_tag == "q02"


def test_narrower_token_is_such_a_change(door, bob, monkeypatch):
    looked_at = []
    monkeypatch.setattr(door.server.withdrawals, "begin", looked_at.append)
    bob()
    connection = door.connection()
    connection.token_life = SimpleNamespace(
        renew=lambda _secret, _hold, renewed, _refused: renewed(), stop=lambda: None)

    update_secret(connection, ConnectionUpdateSecret(new_secret=b"narrower"))

    assert [type(user) for user in looked_at] == [User]
