"""A queue with groups over restarts and kills: each message that was not acked is there, in the order of its
group, and no group is given to two channels at a time.
"""
from random import Random

import pika
import pytest

GROUPS, MESSAGES = 6, 25
ROUNDS = 4


class Account:
    """What must come: ``left``, {group: numbers}, of which the first may be held."""

    def __init__(self):
        self.left = {group: list(range(MESSAGES)) for group in range(GROUPS)}

    def deliver(self, body):
        group, number = map(int, body.split())
        assert self.left[group][0] == number, (group, number, self.left[group])
        return group

    def settle(self, group):
        del self.left[group][0]


def channel_of(broker):
    channel = pika.BlockingConnection(pika.URLParameters(broker.amqp_url)).channel()
    channel.confirm_delivery()
    return channel


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "killed"])
def test_groups_keep_their_order_over_restarts(broker_process, kind, crash):
    random = Random(f"{kind} {crash}")
    broker = broker_process().start()
    channel = channel_of(broker)
    channel.queue_declare("q", durable=True, arguments={
        "x-queue-type": kind, "x-message-group": "header:customer", "x-delivery-limit": -1})
    account = Account()
    for number in range(MESSAGES):
        for group in random.sample(range(GROUPS), GROUPS):
            channel.basic_publish("", "q", b"%d %d" % (group, number), pika.BasicProperties(
                delivery_mode=2, headers={"customer": f"c{group}"}))

    for _ in range(ROUNDS):
        take_some(channel, account, random)
        broker.kill() if crash else broker.stop()
        broker = broker_process().start()
        channel = channel_of(broker)
    take_all(channel, account)

    assert channel.queue_declare("q", passive=True).method.message_count == 0


def take_some(channel, account, random):
    """Take messages in some order, ack some, return some, and keep the rest."""
    held = {}
    for _ in range(30):
        method, _, body = channel.basic_get("q")
        if method is not None:
            group = account.deliver(body)
            assert group not in held, "two of a group at a time"
            held[group] = method.delivery_tag
        if held and (method is None or random.random() < 0.6):
            group = random.choice(list(held))
            tag = held.pop(group)
            if random.random() < 0.7:
                channel.basic_ack(tag)
                account.settle(group)
            else:
                channel.basic_nack(tag)
    channel.queue_declare("q", passive=True)  # so that the broker has read the acks


def take_all(channel, account):
    while any(account.left.values()):
        held = []
        while (got := channel.basic_get("q"))[0] is not None:
            held.append((account.deliver(got[2]), got[0].delivery_tag))
        assert len({group for group, _ in held}) == len(held) > 0
        for group, tag in held:
            channel.basic_ack(tag)
            account.settle(group)
