"""A broker with its MQTT door under power cuts: what a client was answered is on the disk at every moment,
whichever cut the disk makes of it.

As test_amqp_cuts: the broker runs in this process over a modelled disk. PUBACK, PUBREC and SUBACK are what
is believed. After a cut the machine's boot is another one, so an identifier of QoS 2 counts only where PUBREC
may have been sent; what comes twice then is allowed, what is missing is not.
"""
import copy
from random import Random

import gevent
import pytest
from gevent import socket

import gomq_py.node  # noqa: F401 - makes MQTT's form of content known
from gomq_py.broker.broker import Broker
from gomq_py.client.mqtt import MQTTClient
from gomq_py.config.settings import Settings
from gomq_py.hub.context import Hub
from gomq_py.mqtt.model import kinds
from gomq_py.mqtt.server.server import MQTTServer
from gomq_py.mqtt.wire.packets import PublishPacket, Subscription
from gomq_py.net.listener import serve
from gomq_py.storage.disk import data_dir
from gomq_py.storage.disk.data_dir import DataDir
from gomq_py.storage.flush.durability import Durability
from gomq_py.storage.flush.group_commit import GroupCommit
from tests.durability import flush_pool
from tests.durability.seeds import seeds
from tests.durability.test_mqtt_kill import GONE, Publisher, Subscriber
from tests.support.power_cut import Disk, PowerCutFiles
from tests.support.unflushed import Unflushed
from tests.support.waiting import TIMEOUT_S

SETTINGS = Settings(segment_size=65536)
CUT_SHARE = 0.02
STEPS, FEWEST_CUTS, MOST_CUTS = 60, 6, 14


@pytest.fixture(autouse=True)
def in_process(monkeypatch):
    flush_pool.use(monkeypatch)


class Door:
    """A booted broker and its MQTT server."""

    def __init__(self, root, files, settings=SETTINGS):
        self.files = files
        self.data_dir = DataDir(root, files, lock=False).open()
        self.committer = GroupCommit(files)
        self.hub = Hub(settings)
        self.broker = Broker(
            self.data_dir, files, Durability(self.committer), settings, self.hub, kinds.all_kinds())
        self.broker.recover()
        self.server = MQTTServer(self.broker, settings, self.hub)
        self._greenlets = []
        self._listener = socket.socket()  # create_server would give one that blocks
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen()
        self.port = self._listener.getsockname()[1]
        self._acceptor = gevent.spawn(self._accept)

    def _accept(self):
        while True:
            accepted, _ = self._listener.accept()
            self._greenlets.append(gevent.spawn(self._serve, accepted))

    def _serve(self, accepted):
        serve(self.server.handle, accepted, "")
        accepted.close()

    def close(self):
        self._acceptor.kill()
        self._listener.close()
        self.hub.take_leave()
        gevent.joinall(self._greenlets, timeout=TIMEOUT_S)
        self.broker.close()
        self.committer.stop()
        self.hub.close()
        self.data_dir.close(in_order=not self.committer.has_failed)


def connected(party, door):
    """Connect a Party of test_mqtt_kill to a door of this process."""
    party.client = MQTTClient(
        f"mqtt://guest:guest@127.0.0.1:{door.port}", version=party.version, client_identifier=party.name,
        clean_start=False, session=party.session, timeout_s=TIMEOUT_S, socket_module=socket,
        properties={"session_expiry_interval": 3600} if party.version == 5 else None)
    return party.client.connack.session_present


class Account:
    """What both clients know at a moment."""

    def __init__(self, publisher, subscriber):
        waiting = [one for one in publisher.session.outgoing.values() if isinstance(one, PublishPacket)]
        self.acknowledged = {
            qos: set(range(publisher.published[qos])) - {
                int(one.payload) for one in waiting if one.topic_name == f"k/{qos}"
            } for qos in (1, 2)
        }
        self.kept = publisher.kept_acknowledged
        self.subscriber = Subscriber(subscriber.version)
        self.subscriber.session = copy.deepcopy(subscriber.session)
        self.subscriber.received = copy.deepcopy(subscriber.received)
        for message in subscriber.client.messages if subscriber.client else ():
            self.subscriber._take(message)

    def check(self, door):
        """Everything that was acknowledged has come, or comes now."""
        subscriber = self.subscriber
        assert connected(subscriber, door), "the session is lost"
        missing = self._missing()
        while missing:
            assert subscriber.step(TIMEOUT_S), f"lost: {missing}"
            missing = self._missing()
        subscriber.client.close()
        if self.kept:
            looker = Subscriber(subscriber.version)
            looker.name = "looker"
            connected(looker, door)
            looker.client.subscribe("k/kept", qos=1)
            assert int(looker.client.next_message(TIMEOUT_S).payload) >= self.kept
            looker.client.close()

    def _missing(self):
        return {
            qos: sorted(numbers - set(self.subscriber.received[qos]))
            for qos, numbers in self.acknowledged.items() if numbers - set(self.subscriber.received[qos])
        }


@pytest.mark.parametrize("seed", seeds(2))
@pytest.mark.parametrize("version", [4, 5])
def test_what_a_client_was_answered_survives_a_power_cut(tmp_path, monkeypatch, version, seed):
    random = Random(seed * 10 + version)
    (tmp_path / "data").mkdir()
    disk, taken = Disk(tmp_path / "data", random), []
    publisher, subscriber = Publisher(version), Subscriber(version)

    def cut(_call=None, _path=None):
        if len(taken) < MOST_CUTS and (_call is None or random.random() < CUT_SHARE):
            account = Account(publisher, subscriber)
            taken.append((disk.cut(tmp_path / f"cut-{len(taken)}"), account))

    files = PowerCutFiles(disk, None, lambda path: flush_pool.give_way(random))
    door = Door(disk.root, files)
    connected(subscriber, door)
    subscriber.client.subscribe(Subscription("k/1", 1), Subscription("k/2", 2))
    connected(publisher, door)
    files.on_call = cut

    step = 0
    while step < STEPS or len(taken) < FEWEST_CUTS:
        step += 1
        publisher.step()
        if random.random() < 0.7:
            subscriber.step()
        if random.random() < 0.1:
            publisher.keep()
        if random.random() < 0.05:
            subscriber.drop()
            connected(subscriber, door)
        for _ in range(random.randrange(5)):
            gevent.sleep(0)
    files.on_call = None
    cut()
    for party in (publisher, subscriber):
        party.drop()
    door.close()
    disk.discard()

    monkeypatch.setattr(data_dir, "boot_id", lambda: b"another\n")
    for folder, account in taken:
        again = Door(folder, Unflushed())
        try:
            account.check(again)
        except GONE as error:
            raise AssertionError("a client was turned away") from error
        finally:
            account.subscriber.drop()
            again.close()
