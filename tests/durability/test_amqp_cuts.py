"""A broker with its AMQP door under power cuts: what a client was answered is on the disk at every moment,
whichever cut the disk makes of it.

The broker runs in this process over socket pairs and a modelled disk. Confirms, tx.commit-ok and the -ok of
declares, binds and deletes are what is believed; a client is always a little behind the broker, so nothing is
believed too early.
"""
from itertools import count
from random import Random

import gevent
import pytest
from gevent import select, socket

from gomq_py.amqp.server.server import AMQPServer
from gomq_py.amqp.wire import methods
from gomq_py.config.settings import Settings
from gomq_py.content.properties import Properties
from gomq_py.net.listener import serve
from tests.durability import broker_driver, flush_pool
from tests.durability.account import Account, body_of, number_in
from tests.durability.broker_driver import Life, World, check_folder
from tests.durability.seeds import seeds
from tests.durability.test_broker_cuts import cutter
from tests.durability.wire_client import WireClient
from tests.support.power_cut import Disk, PowerCutFiles
from tests.support.unflushed import Unflushed
from tests.support.waiting import TIMEOUT_S

SETTINGS = Settings(segment_size=65536)
PERSISTENT = Properties(delivery_mode=2).encode()
QUEUES = ("q0", "q1", "q2")
EXCHANGE = "x1"
CUT_SHARE = 0.03
# A run goes on until there are so many cuts: how many calls it makes is a matter of time, too.
STEPS, FEWEST_CUTS = 250, 10


@pytest.fixture(autouse=True)
def in_process(monkeypatch):
    flush_pool.use(monkeypatch)
    monkeypatch.setattr(broker_driver, "SETTINGS", SETTINGS)


class Door:
    """The AMQP server of a Life, reached over socket pairs."""

    def __init__(self, life):
        self.life = life
        self.server = AMQPServer(life.broker, SETTINGS, life.hub)
        self._greenlets = []

    def connect(self):
        ours, theirs = socket.socketpair()
        self._greenlets.append(gevent.spawn(self._serve, theirs))
        return WireClient(ours, poll=select.poll)

    def close(self):
        self.life.hub.take_leave()
        gevent.joinall(self._greenlets)

    def _serve(self, theirs):
        serve(self.server.handle, theirs, ("127.0.0.1", 1))
        theirs.close()


class Incarnation:
    """That of a queue whose declare was not answered yet: a cut may find the queue before its client knows
    which it is.
    """

    def __init__(self):
        self.octets = None

    def __eq__(self, other):
        return self.octets == other

    __hash__ = None


class Publisher:
    """Declares, binds, deletes and publishes on one channel, so that the order of things is known;
    publishes are confirmed later.
    """

    def __init__(self, door, random, world):
        self.door, self.random, self.world = door, random, world
        self.client = door.connect()
        self.client.call(methods.ConfirmSelect(), methods.ConfirmSelectOk)
        self.incarnations = {}  # queue -> incarnation
        self.bound = set()
        self.tag = self.number = 0
        self.waiting = {}  # delivery tag -> (incarnations, number)

    def step(self):
        draw = self.random.random()
        name = self.random.choice(QUEUES)
        if draw < 0.1:
            self.declare(name)
        elif draw < 0.13 and name in self.incarnations:
            self.delete(name)
        elif draw < 0.18 and name in self.incarnations:
            self.bind(name)
        else:
            for _ in range(self.random.choice((1, 3, 10))):
                self.publish(name)
        self.listen()

    def declare(self, name):
        is_new = name not in self.incarnations
        if is_new:
            incarnation = Incarnation()
            self.world.definitions.set(("queue", name), incarnation)
        self.client.call(methods.QueueDeclare(queue=name, durable=True), methods.QueueDeclareOk)
        if is_new:
            vhost = self.door.life.vhost
            incarnation.octets = self.incarnations[name] = vhost.incarnation_of(vhost.queues[name])
            self.world.accounts[incarnation.octets] = Account()
            self.world.definitions.promise(self.world.definitions.sequence)

    def delete(self, name):
        self.world.definitions.set(("queue", name), None)
        if name in self.bound:
            self.world.definitions.set(("binding", EXCHANGE, name, ""), None)
            self.bound.discard(name)
        del self.incarnations[name]
        self.client.call(methods.QueueDelete(queue=name), methods.QueueDeleteOk)
        self.world.definitions.promise(self.world.definitions.sequence)

    def bind(self, name):
        self.world.definitions.set(("exchange", EXCHANGE), "fanout")
        self.client.call(
            methods.ExchangeDeclare(exchange=EXCHANGE, type="fanout", durable=True), methods.ExchangeDeclareOk
        )
        self.world.definitions.promise(self.world.definitions.sequence)
        self.world.definitions.set(("binding", EXCHANGE, name, ""), True)
        self.client.call(methods.QueueBind(queue=name, exchange=EXCHANGE), methods.QueueBindOk)
        self.world.definitions.promise(self.world.definitions.sequence)
        self.bound.add(name)

    def publish(self, name):
        number, self.number = self.number, self.number + 1
        exchange = EXCHANGE if self.bound and self.random.random() < 0.3 else ""
        reached = self.bound if exchange else {name} & self.incarnations.keys()
        incarnations = [self.incarnations[queue] for queue in reached]
        for incarnation in incarnations:
            self.world.accounts[incarnation].given.add(number)
            self.world.accounts[incarnation].published = number + 1
        self.tag += 1
        self.waiting[self.tag] = incarnations, number
        body = body_of(number, self.random.choice((1, 50, 900, 9000)))
        self.client.send(methods.BasicPublish(exchange=exchange, routing_key=name), PERSISTENT, body)

    def listen(self):
        for method, _, _ in self.client.receive():
            assert isinstance(method, methods.BasicAck), method
            tags = (
                [tag for tag in self.waiting if tag <= method.delivery_tag] if method.multiple
                else [method.delivery_tag]
            )
            for tag in tags:
                incarnations, number = self.waiting.pop(tag)
                for incarnation in incarnations:
                    self.world.accounts[incarnation].confirmed.add(number)


class Transactor:
    """Gets and acks in transactions, and publishes in them too:
    a commit-ok is a promise about the acks as well.
    """

    def __init__(self, door, random, world, publisher):
        self.random, self.world, self.publisher = random, world, publisher
        self.client = door.connect()
        self.client.call(methods.TxSelect(), methods.TxSelectOk)

    def step(self):
        name = self.random.choice(QUEUES)
        incarnation = self.publisher.incarnations.get(name)
        # a message that is not confirmed has no account of its own yet
        if incarnation is None or self.publisher.waiting:
            return
        account = self.world.accounts[incarnation]
        taken = set()
        for _ in range(self.random.choice((1, 5, 20))):
            self.client.send(methods.BasicGet(queue=name))
            (method, _, body), = self.client.receive(TIMEOUT_S)
            if isinstance(method, methods.BasicGetEmpty):
                break
            number = number_in(body)
            taken.add(number)
            self.client.send(methods.BasicAck(delivery_tag=method.delivery_tag))
        account.received |= taken
        if self.random.random() < 0.2:
            self.client.call(methods.TxRollback(), methods.TxRollbackOk)
            self.client.call(methods.BasicRecover(requeue=True), methods.BasicRecoverOk)
            return
        account.acked |= taken
        self.client.call(methods.TxCommit(), methods.TxCommitOk)
        account.synced |= taken


@pytest.mark.parametrize("seed", seeds(4))
def test_what_a_client_was_answered_survives_a_power_cut(tmp_path, seed):
    random = Random(seed)
    (tmp_path / "data").mkdir()
    disk, world, taken = Disk(tmp_path / "data", random), World(), []
    files = PowerCutFiles(disk, None, lambda path: flush_pool.give_way(random))
    life = Life(disk.root, files)
    life.committer.wait()
    files.on_call = cutter(disk, world, tmp_path / "cut", random, CUT_SHARE, taken)
    door = Door(life)
    publisher = Publisher(door, random, world)
    transactor = Transactor(door, random, world, publisher)

    for step in count(1):
        publisher.step()
        transactor.step()
        for _ in range(random.randrange(5)):
            gevent.sleep(0)
        if step >= STEPS and len(taken) > FEWEST_CUTS:
            break
    taken.append((disk.cut(tmp_path / "cut-end"), world.copy()))
    door.close()
    life.stop()
    disk.discard()

    for folder, then in taken:
        check_folder(folder, then)


class Mover:
    """Consumes from one queue and publishes to the next in transactions;
    ``moved`` are those whose commit was answered.
    """

    def __init__(self, door, random):
        self.door, self.random = door, random
        self.moved = set()
        self.client = None

    def step(self):
        if self.client is None:
            self.client = self.door.connect()
            self.client.call(methods.TxSelect(), methods.TxSelectOk)
        taken, tag = set(), 0
        for _ in range(self.random.choice((1, 3, 15))):
            self.client.send(methods.BasicGet(queue="in"))
            (method, _, body), = self.client.receive(TIMEOUT_S)
            if isinstance(method, methods.BasicGetEmpty):
                break
            taken.add(number_in(body))
            tag = method.delivery_tag
            self.client.send(methods.BasicPublish(routing_key="out"), PERSISTENT, body)
        self.client.send(methods.BasicAck(delivery_tag=tag, multiple=True))
        if self.random.random() < 0.25:  # goes without having heard; the commit was read or not
            self.client.send(methods.TxCommit())
            self.client.close()
            self.client = None
        else:
            self.client.call(methods.TxCommit(), methods.TxCommitOk)
            self.moved |= taken


@pytest.mark.parametrize("seed", seeds(4))
def test_a_transaction_that_moves_messages_has_them_in_one_queue_at_least_at_every_moment(tmp_path, seed):
    """The acks of a transaction must not reach the disk before its publishes,
    whichever pages the disk writes early.
    """
    random = Random(seed)
    (tmp_path / "data").mkdir()
    disk, taken = Disk(tmp_path / "data", random, write_back=0.3), []
    files = PowerCutFiles(disk, None, lambda path: flush_pool.give_way(random))
    life = Life(disk.root, files)
    life.committer.wait()
    door = Door(life)
    client, mover, everything = door.connect(), Mover(door, random), set(range(150))
    for name in ("in", "out"):
        client.call(methods.QueueDeclare(queue=name, durable=True), methods.QueueDeclareOk)
    for number in everything:
        client.send(
            methods.BasicPublish(routing_key="in"), PERSISTENT, body_of(number, random.choice((1, 50, 9000)))
        )
    client.call(methods.ConfirmSelect(), methods.ConfirmSelectOk)
    life.committer.wait()

    def on_call(call, path):
        if random.random() < 0.2:
            taken.append((disk.cut(tmp_path / f"cut-{len(taken)}"), set(mover.moved)))

    files.on_call = on_call
    while life.vhost.queues["in"].ready_count or life.vhost.queues["in"].unacked_count:
        mover.step()
        gevent.sleep(0)
    door.close()
    life.stop()
    disk.discard()

    assert len(taken) > 10
    for folder, moved in taken:
        found = Life(folder, Unflushed())
        there, gone_on = (
            {number for number, _ in found.look(found.vhost.queues[name])} for name in ("in", "out")
        )
        found.stop()
        assert not everything - there - gone_on, "neither in the one queue nor in the other"
        assert not moved - gone_on and not moved & there, "the answer to a commit did not hold"
