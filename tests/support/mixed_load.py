"""Mixed load: what keeps a leader of a cluster busy, for tests that compare its folder with a follower's.

Over AMQP, in greenlets of the test: whole brokers in this process or another one.
"""
import os

import gevent

from gomq_py.amqp.wire.methods import (
    BasicAck, BasicConsume, BasicConsumeOk, BasicDeliver, BasicQos, BasicQosOk, ConfirmSelect,
    ConfirmSelectOk, QueueDeclare, QueueDeclareOk, QueueDelete, QueueDeleteOk, QueuePurge, QueuePurgeOk,
)
from gomq_py.content.properties import Properties
from tests.support.waiting import wait_until

PERSISTENT = Properties(delivery_mode=2).encode()
STREAM = {"x-queue-type": "stream", "x-max-length-bytes": 2_000_000}
QUORUM = {"x-queue-type": "quorum"}


class MixedLoad:
    """``connect()`` returns a tests.support.door.Client with channel 1. ``turns``: rounds of publishes of all
    sizes until now.
    """

    def __init__(self, connect):
        self.turns = 0
        self._connect = connect
        self._is_busy = False
        self._workers = []

    def begin(self):
        """Begin, or go on."""
        self._is_busy = True
        self._workers = [gevent.spawn(work) for work in (self._queues, self._consume, self._churn)]

    def end(self):
        """End it in order."""
        self._is_busy = False
        gevent.joinall(self._workers, raise_error=True)

    def give_up(self):
        """End it, whatever its connections do."""
        gevent.killall(self._workers)
        self._workers = []

    def go_on_for(self, turns):
        """Return after so many rounds more, each of which comes in time."""
        for turn in range(self.turns + 1, self.turns + turns + 1):
            wait_until(lambda turn=turn: self.turns >= turn, sleep=gevent.sleep)

    # each with a connection of its own

    def _queues(self):
        """Confirmed messages of all sizes for queues, with a purge now and then, and a stream."""
        client = self._connect()
        for name, arguments in (("q", {}), ("quorum", QUORUM), ("s", STREAM)):
            client.call(QueueDeclare(queue=name, durable=True, arguments=arguments), QueueDeclareOk)
        client.call(ConfirmSelect(), ConfirmSelectOk)
        tag = 0
        while self._is_busy:
            for size in (0, 10, 3000, 20_000, 200_000 if self.turns % 5 == 0 else 100):
                for name in ("q", "quorum", "s"):
                    # Each priority has files of its own, which are made while followers come and go.
                    priority = self.turns % 32 if name == "quorum" else None
                    properties = Properties(delivery_mode=2, priority=priority).encode()
                    client.publish(name, os.urandom(size), properties=properties)
                tag += 3
            while client.expect(BasicAck).delivery_tag < tag:
                pass
            if self.turns % 20 == 19:
                client.call(QueuePurge(queue="q"), QueuePurgeOk)
            self.turns += 1
        client.close()

    def _consume(self):
        client, other = self._connect(), self._connect()
        client.call(QueueDeclare(queue="consumed", durable=True), QueueDeclareOk)
        client.call(BasicQos(prefetch_count=20), BasicQosOk)
        client.call(BasicConsume(queue="consumed"), BasicConsumeOk)
        tag = 0
        while self._is_busy:
            for _ in range(20):
                other.publish("consumed", os.urandom(1000), properties=PERSISTENT)
            for _ in range(20):
                tag = client.expect_message(BasicDeliver)[0].delivery_tag
            client.send_method(BasicAck(delivery_tag=tag, multiple=True))
        client.close()
        other.close()

    def _churn(self):
        """Queues that come and go, and come again with the same name."""
        client = self._connect()
        number = 0
        while self._is_busy:
            number += 1
            name = f"churn.{number % 6}"
            client.call(QueueDeclare(queue=name, durable=True), QueueDeclareOk)
            client.publish(name, os.urandom(100_000), properties=PERSISTENT)
            if number > 5:
                client.call(QueueDelete(queue=f"churn.{(number - 5) % 6}"), QueueDeleteOk)
        client.close()
