"""SIGKILL of a real broker at random moments under confirmed load, and again while it recovers;
every message is accounted for.

A killed process leaves its mapped pages and writes to the system, so this proves nothing about the disk (the
power cuts do). It proves that what the broker has answered was in the files by then: confirms, acks that a
later answer went past, redelivered marks; and that recovery can be killed.
"""
import os
import signal
import threading
from random import Random

import pytest

from gomq_py.amqp.wire import methods
from gomq_py.content.properties import Properties
from tests.durability.account import Account, body_of, number_in
from tests.durability.seeds import seeds
from tests.durability.wire_client import Gone, WireClient
from tests.support.waiting import TIMEOUT_S

QUEUE = "jobs"
WINDOW = 300
PREFETCH = 40
BACKLOG = 3000  # the publisher is faster than the careful consumer; what waits is read back after every kill
PERSISTENT = Properties(delivery_mode=2).encode()


class Publisher:
    """Publishes numbers with confirms, a window at a time."""

    def __init__(self, port, account):
        self.account = account
        self.client = WireClient(port)
        self.client.call(methods.ConfirmSelect(), methods.ConfirmSelectOk)
        self.tag = 0
        self.waiting = {}  # delivery tag -> number, in the order of publishing

    def step(self):
        """Fill the window, take confirms."""
        account = self.account
        while len(self.waiting) < WINDOW and account.published - len(account.settled) < BACKLOG:
            number = account.published
            account.published += 1
            self.tag += 1
            self.waiting[self.tag] = number
            self.client.send(methods.BasicPublish(routing_key=QUEUE), PERSISTENT, body_of(number))
        self.listen(0.001)

    def listen(self, timeout_s):
        for method, _, _ in self.client.receive(timeout_s):
            assert isinstance(method, methods.BasicAck), method
            tags = [method.delivery_tag]
            if method.multiple:
                tags = [tag for tag in self.waiting if tag <= method.delivery_tag]
            self.account.confirmed.update(self.waiting.pop(tag) for tag in tags)


class Consumer:
    """Takes messages, acks some, gives some back, keeps some; asks for an answer now and then, which shows
    that the acks before it were seen.
    """

    def __init__(self, port, account, random):
        self.account = account
        self.random = random
        self.client = WireClient(port)
        self.client.call(methods.BasicQos(prefetch_count=PREFETCH), methods.BasicQosOk)
        self.client.call(methods.BasicConsume(queue=QUEUE, consumer_tag="c"), methods.BasicConsumeOk)
        self.in_hand = {}  # delivery tag -> number
        self.unanswered = []  # one set of acked numbers per question that is on its way
        self.fresh_acks = set()

    def step(self):
        self.listen(0.001)
        draw = self.random.random()
        if draw < 0.5:
            self.ack_some()
        elif draw < 0.7 and self.in_hand:
            tag = self.random.choice(list(self.in_hand))
            del self.in_hand[tag]
            self.client.send(methods.BasicNack(delivery_tag=tag, requeue=True))
        elif draw < 0.8:
            self.unanswered.append(self.fresh_acks)
            self.fresh_acks = set()
            self.client.send(methods.BasicQos(prefetch_count=PREFETCH))

    def ack_some(self):
        if not self.in_hand:
            return
        tag = self.random.choice(list(self.in_hand))
        if multiple := self.random.random() < 0.3:
            tags = [each for each in self.in_hand if each <= tag]
        else:
            tags = [tag]
        numbers = {self.in_hand.pop(each) for each in tags}
        self.account.acked |= numbers
        self.fresh_acks |= numbers
        self.client.send(methods.BasicAck(delivery_tag=tag, multiple=multiple))

    def listen(self, timeout_s):
        for method, _, body in self.client.receive(timeout_s):
            if isinstance(method, methods.BasicQosOk):
                self.account.settled |= self.unanswered.pop(0)
                continue
            assert isinstance(method, methods.BasicDeliver), method
            number = number_in(body)
            assert number not in self.account.settled, f"{number} was acked and is delivered again"
            assert method.redelivered or number not in self.account.received, (
                f"{number} is delivered again and not marked"
            )
            self.in_hand[method.delivery_tag] = number
            self.account.received.add(number)


def load_until_killed(broker, account, random, kill_after_s):
    """Publish and consume; the broker is killed meanwhile, wherever it is."""
    publisher, consumer = Publisher(broker.port, account), Consumer(broker.port, account, random)
    killer = threading.Timer(kill_after_s, os.kill, (broker.pid, signal.SIGKILL))
    killer.start()
    try:
        while True:
            publisher.step()
            consumer.step()
    except Gone:
        pass
    for side in (publisher, consumer):  # what it said before it died counts
        try:
            while True:
                side.listen(TIMEOUT_S)
        except Gone:
            side.client.close()
    killer.join()
    broker.wait()


def everything_in(port):
    """All ready messages as (number, redelivered), in the order they come;
    they go back when the connection is dropped.
    """
    client = WireClient(port)
    count = client.call(methods.QueueDeclare(queue=QUEUE, durable=True), methods.QueueDeclareOk).message_count
    client.call(methods.BasicConsume(queue=QUEUE), methods.BasicConsumeOk)
    found = []
    while len(found) < count:
        batch = client.receive(TIMEOUT_S)
        assert batch, f"{len(found)} of {count} messages came"
        found += [(number_in(body), method.redelivered) for method, _, body in batch]
    assert len(found) == count
    client.close()
    return found


def declare(port):
    client = WireClient(port)
    client.call(methods.QueueDeclare(queue=QUEUE, durable=True), methods.QueueDeclareOk)
    client.close()


def kill_while_booting(broker, after_s):
    """Start it again, and kill it somewhere in its recovery."""
    killer = threading.Timer(after_s, lambda: broker.is_running and broker.process.kill())
    killer.start()
    try:
        broker.start()
    except AssertionError:  # died before it was ready: what we want most of the time
        pass
    killer.join()
    broker.kill()


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("kills", [8, pytest.param(60, marks=[pytest.mark.long, pytest.mark.timeout(400)])])
def test_killed_brokers_account_for_every_message(broker_process, tmp_path, seed, kills):
    random = Random(seed)
    account = Account()
    (tmp_path / "gomq.ini").write_text("[main]\nsegment_size = 262144\n")
    broker = broker_process(config=tmp_path / "gomq.ini").start()
    declare(broker.port)

    before, confirmed, killed = set(), 0, 0
    # on a slow machine a life may be over before much was confirmed
    while killed < kills or confirmed <= 100 * kills:
        killed += 1
        assert killed <= 10 * kills
        load_until_killed(
            broker, account, random, random.choice((0.02, 0.1, 0.3, 0.6)) * random.uniform(0.5, 1.5)
        )
        if random.random() < 0.5:
            kill_while_booting(broker, random.uniform(0.05, 0.6))
        broker.start()
        found = everything_in(broker.port)
        account.check(found)
        confirmed += len(account.confirmed - before)
        account.start_anew(found)
        before = set(account.confirmed)
