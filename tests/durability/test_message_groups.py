"""A queue with groups over restarts and kills: each message that was not acked is there, in the order of its
group, and no group is given to two channels at a time.
"""
from random import Random

import pika
import pytest

GROUPS, MESSAGES = 6, 25
ROUNDS = 4


class Account:
    """What must come: ``left``, {group: numbers}; ``held``, {group: (channel, {number: delivery tag})}."""

    def __init__(self):
        self.left = {group: list(range(MESSAGES)) for group in range(GROUPS)}
        self.held = {}

    def deliver(self, channel, body, tag):
        group, number = map(int, body.split())
        owner, tags = self.held.setdefault(group, (channel, {}))
        assert owner is channel, "two channels have messages of a group"
        assert number == next(each for each in self.left[group] if each not in tags), (group, number)
        tags[number] = tag

    def settle(self, random, is_ack):
        """Ack or nack one of the messages that a channel holds."""
        group = random.choice(list(self.held))
        channel, tags = self.held[group]
        number = random.choice(list(tags))
        tag = tags.pop(number)
        if not tags:
            del self.held[group]
        if is_ack:
            channel.basic_ack(tag)
            self.left[group].remove(number)
        else:
            channel.basic_nack(tag)


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
        account.held.clear()
        channel = channel_of(broker)
    take_all(channel, account, random)

    assert channel.queue_declare("q", passive=True).method.message_count == 0


def take_some(channel, account, random):
    """Take messages on two channels, ack some, return some, and keep the rest."""
    channels = channel, channel.connection.channel()
    for _ in range(40):
        taker = random.choice(channels)
        method, _, body = taker.basic_get("q")
        if method is not None:
            account.deliver(taker, body, method.delivery_tag)
        if account.held and (method is None or random.random() < 0.6):
            account.settle(random, random.random() < 0.7)
            taker.queue_declare("q", passive=True)
    for taker in channels:
        taker.queue_declare("q", passive=True)  # so that the broker has read the acks


def take_all(channel, account, random):
    while any(account.left.values()):
        method, _, body = channel.basic_get("q")
        if method is not None:
            account.deliver(channel, body, method.delivery_tag)
        else:
            account.settle(random, True)
