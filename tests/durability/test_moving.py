"""Moves under power cuts: what was confirmed is in the source or the target, however the cut falls."""
from random import Random

import gevent
import pytest

from gomq_py.broker.transfer.moves import Filter, Move, to_queue
from gomq_py.storage.message import Message
from tests.durability.seeds import seeds
from tests.durability.test_dead_letters import numbers_in
from tests.support.node import Node
from tests.support.power_cut import Disk, PowerCutFiles
from tests.support.reading import get

COUNT = 200


def work(files, folder, random, confirmed, moved, cut):
    """Fill a queue, then move from it what begins with one digit after the other,
    while the disk is cut at any call.
    """
    node = Node(folder, files)
    source, _ = node.vhost.declare_queue("q", durable=True)
    target, _ = node.vhost.declare_queue("to", durable=True)
    for number in range(COUNT):
        node.publish("", "q", b"%d" % number, persistent=True)
    source.write_out()
    node.committer.wait()
    confirmed.update(range(COUNT))
    for _ in range(6):
        ended = []
        step = random.randrange(5, 60)
        Move(
            source, to_queue(target), node.broker.durability, node.broker.scheduler,
            lambda *end: ended.append(end), Filter(), step,
        ).start()
        while not ended:
            cut()
            gevent.sleep(0)
        moved.append(ended[0][0].done)
        if random.random() < 0.5:
            message = Message()
            if get(source, message):
                source.requeue(message.describe()["location"])
    node.stop()


def survivors(folder):
    """The numbers that a boot after a cut finds in either queue."""
    node = Node(folder)
    try:
        return [number for name in ("q", "to") for number in numbers_in(node, name)]
    finally:
        node.kill()


@pytest.mark.parametrize("seed", seeds(4))
def test_no_confirmed_message_is_lost_on_its_way(tmp_path, seed):
    random = Random(seed)
    (tmp_path / "data").mkdir()
    confirmed, moved, cuts = set(), [], []

    def cut(*_):
        if len(cuts) < 12 and random.random() < 0.1:
            cuts.append((disk.cut(tmp_path / f"cut{len(cuts)}"), set(confirmed)))

    disk = Disk(tmp_path / "data", random)
    work(PowerCutFiles(disk, on_call=cut), tmp_path / "data", random, confirmed, moved, cut)
    disk.discard()

    assert cuts and sum(moved)
    for folder, promised in cuts:
        assert promised <= set(survivors(folder)), f"lost: {sorted(promised - set(survivors(folder)))}"
    assert sorted(survivors(tmp_path / "data")) == list(range(COUNT))
