"""Power cuts while a client publishes at QoS 2: what was answered is there, and an identifier counts only
where its message is there, so that the client's next attempt is not taken for one that was stored.
"""
from random import Random

import gevent
import pytest

from gomq_py.mqtt.server.flows import Inbound
from gomq_py.storage.disk import data_dir
from gomq_py.storage.message import Message
from tests.durability import flush_pool
from tests.durability.seeds import seeds
from tests.support.door import poll_until
from tests.support.mqtt_outbound import Peer, mqtt_message, mqtt_node, publish
from tests.support.power_cut import Disk, PowerCutFiles

MESSAGES = 80


@pytest.fixture(autouse=True)
def flushes_in_greenlets(monkeypatch):
    flush_pool.use(monkeypatch)


def found_in(folder):
    """(messages, identifiers) of the session after a boot of another machine."""
    node = mqtt_node(folder)
    session = node.vhost.extras["mqtt"].by_client["c"]
    message, bodies = Message(), set()
    while session.queue.ready_count:
        if session.queue.peek(message):
            bodies.add(int(message.get_body()))
            session.queue.take(message, False)
        else:
            node.wait(lambda: not session.queue.is_opening(), what="a thread reads what may be damaged")
    ids = session.received_ids()
    found = bodies, {number for number in range(1, MESSAGES + 1) if ids.has(number)}
    node.stop()
    return found


@pytest.mark.parametrize("seed", seeds(3))
def test_what_was_answered_is_there_and_no_identifier_without_its_message(tmp_path, monkeypatch, seed):
    random = Random(seed)
    (tmp_path / "data").mkdir()
    disk = Disk(tmp_path / "data", random)
    monkeypatch.setattr(data_dir, "boot_id", lambda: b"1\n")
    files = PowerCutFiles(disk)
    node = mqtt_node(tmp_path / "data", files=files)
    peer = Peer(node).subscribe("t", qos=2)
    peer.disconnect()
    node.committer.wait()
    ids, answered, cuts = peer.session.received_ids(), set(), []

    def answer(number, mark, error):
        if error is None:
            ids.sure(number, mark)
            answered.add(number)

    for number in range(1, MESSAGES + 1):
        message = mqtt_message("t", b"%d" % number, 2)
        ids.begin(number, (peer.session.queue,), message)
        publish(node, message)
        ids.add(number, (peer.session.queue,))
        mark = ids.records.last_received
        node.broker.durability.when_safe(
            lambda error, number=number, mark=mark: answer(number, mark, error))
        for _ in range(random.randrange(4)):
            gevent.sleep(0)
        if random.random() < 0.15:
            cuts.append((disk.cut(tmp_path / f"cut-{number}"), set(answered)))
    files.switch_off()
    node.hub.close()
    node.committer.kill()
    disk.discard()

    monkeypatch.setattr(data_dir, "boot_id", lambda: b"2\n")
    assert len(cuts) > 3
    for folder, answered_then in cuts:
        bodies, counted = found_in(folder)
        assert answered_then <= bodies and counted <= bodies


class Client:
    """Takes what its Inbound answers."""

    def __init__(self):
        self.answers = []

    def write(self, answer):
        self.answers.append(bytes(answer))

    def expect(self, answer):
        """Wait for this answer, the only one."""
        poll_until(lambda: self.answers)
        assert [self.answers.pop()] == [answer] and not self.answers


@pytest.mark.parametrize("seed", seeds(2))
def test_an_identifier_whose_pubcomp_has_left_does_not_come_back(tmp_path, monkeypatch, seed):
    """The client takes it for another message, which would be thrown away as one that was stored."""
    random = Random(seed)
    (tmp_path / "data").mkdir()
    disk = Disk(tmp_path / "data", random)
    monkeypatch.setattr(data_dir, "boot_id", lambda: b"1\n")
    files = PowerCutFiles(disk)
    node = mqtt_node(tmp_path / "data", files=files)
    peer = Peer(node).subscribe("t", qos=2)
    peer.disconnect()
    node.committer.wait()
    peer.output = Client()
    inbound, cuts = Inbound(peer, node.broker.durability.when_safe, 100), []

    for number in range(1, 31):
        message = mqtt_message("t", b"%d" % number, 2)
        inbound.received.begin(number, (peer.session.queue,), message)
        publish(node, message)
        inbound.stored(2, number, True, True, (peer.session.queue,))
        inbound.done()
        peer.output.expect(bytes((0x50, 2, 0, number)))
        inbound.released(number)
        node.hub.scheduler.finish()
        inbound.done()
        peer.output.expect(bytes((0x70, 2, 0, number)))
        if number < 3 or random.random() < 0.15:
            cuts.append(disk.cut(tmp_path / f"cut-{number}"))
    files.switch_off()
    node.hub.close()
    node.committer.kill()
    disk.discard()

    monkeypatch.setattr(data_dir, "boot_id", lambda: b"2\n")
    for folder in cuts:
        assert found_in(folder)[1] == set()
