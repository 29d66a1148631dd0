"""Dead letters under power cuts: what was confirmed is in the queue or among the letters,
however the cut falls between the two.
"""
import shutil
from random import Random

import gevent
import pytest

from gomq_py.broker.queues.peeking import browse
from gomq_py.storage.disk.open_file import File
from gomq_py.storage.message import Message
from tests.durability.seeds import seeds
from tests.support.node import Node
from tests.support.power_cut import Disk, PowerCutFiles
from tests.support.reading import get
from tests.support.watched_files import WatchedFiles

# How a message dies: the queue's arguments.
WAYS = {
    "expired": {"x-message-ttl": 5},
    "maxlen": {"x-max-length": 3},
    "rejected": {"x-max-length": 1000},
    "delivery limit": {"x-delivery-limit": 0},
    "refused": {"x-max-length": 3, "x-overflow": "reject-publish-dlx"},
    "retried": {"x-delivery-limit": 1, "x-delayed-retry-type": "all", "x-delayed-retry-min": 1},
}
# Ways in which a consumer has a hand: whether it wants the message back.
GIVEN_BACK = {"refused": False, "rejected": False, "delivery limit": True, "retried": True}


def work(files, folder, random, way, confirmed, cut):
    """Publish persistent messages, wait for the disk now and then as a confirm does,
    and let them die meanwhile.
    """
    node = Node(folder, files)
    node.vhost.declare_queue("dead", durable=True)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead", **WAYS[way]}
    queue, _ = node.vhost.declare_queue("q", durable=True, arguments=arguments)
    node.committer.wait()
    published, refused = [], []
    for number in range(60):
        taken = node.publish("", "q", b"%d" % number, persistent=True)
        (published if taken == [1] else refused).append(number)
        if way in GIVEN_BACK and random.random() < 0.5:
            message = Message()
            if get(queue, message):
                queue.reject(message.describe()["location"], GIVEN_BACK[way])
        if random.random() < 0.2:
            queue.write_out()
            letters = letters_in(node)
            node.committer.wait()
            confirmed.update(published)
            # nobody was promised these, but what is a letter is one for good
            confirmed.update(letters.intersection(refused))
        if random.random() < 0.4:
            let_die(node, queue, way)
        cut()
    node.wait(lambda: letters_in(node).issuperset(refused))
    node.stop()


def letters_in(node):
    """The numbers among the dead letters, which stay there."""
    return set(numbers_in(node, "dead"))


def let_die(node, queue, way):
    """Give the hub the time in which messages die: those that expire need some, the others only a turn."""
    if way == "expired":
        node.wait(lambda: queue.ready_count == 0)
    else:
        gevent.sleep(0)


def survivors(folder):
    """The numbers a boot after a cut finds, wherever they are."""
    node = Node(folder)
    try:
        return {number for name in ("q", "dead") for number in numbers_in(node, name)}
    finally:
        node.kill()


def numbers_in(node, name):
    """The number of everything that is ready, which stays there.

    Never switches: nothing dies or moves meanwhile.
    """
    queue = node.vhost.queues.get(name)
    if queue is None:
        return []
    browser, message, found = browse(queue), Message(), []
    while browser.next(message):
        found.append(int(message.get_body()))
    browser.close()
    return found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", seeds(4))
def test_no_confirmed_message_is_lost_on_its_way(tmp_path, seed, way):
    random = Random(f"{way}{seed}")
    (tmp_path / "data").mkdir()
    confirmed = set()
    cuts = []

    def cut(*_):
        if random.random() < 0.15:
            cuts.append((disk.cut(tmp_path / f"cut{len(cuts)}"), set(confirmed)))

    disk = Disk(tmp_path / "data", random)
    work(PowerCutFiles(disk, on_call=cut), tmp_path / "data", random, way, confirmed, cut)
    disk.discard()

    assert cuts
    for folder, promised in cuts:
        assert promised <= survivors(folder), f"lost: {sorted(promised - survivors(folder))}"
    assert survivors(tmp_path / "data") == set(range(60))


class KilledFiles(WatchedFiles):
    """Once ``begun``, copies the ``folder`` whenever a batch is about to be written with a call: what a kill
    there leaves.
    """

    def __init__(self, folder):
        super().__init__()
        self.folder = folder
        self.begun = False
        self.copies = []

    def about_to(self, call, subject):
        if self.begun and call == "put":
            self.copies.append(f"{self.folder}{len(self.copies)}")
            shutil.copytree(self.folder, self.copies[-1])


@pytest.mark.parametrize("persistent", [False, True])
def test_what_a_kill_finds_in_no_file_of_the_letters_is_in_the_queue_still(tmp_path, monkeypatch, persistent):
    """Of what need not be on disk nobody waits for a flush: then a copy that is in memory alone would be lost
    with the process, because acks that do not follow one another are in the mapping at once.
    """
    # the system never has pages for a new file
    monkeypatch.setattr(File, "cached", property(lambda file: 0, lambda file, cached: None))
    (tmp_path / "data").mkdir()
    files = KilledFiles(tmp_path / "data")
    node = Node(tmp_path / "data", files)
    node.vhost.declare_queue("dead", durable=True)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    queue, _ = node.vhost.declare_queue("q", durable=True, arguments=arguments)
    for number in range(30):
        assert node.publish("", "q", b"%d" % number, persistent=persistent) == [1]
    assert node.publish("", "dead", b"30") == [1]  # its files are there
    locations = [get_one(queue) for _ in range(30)]
    queue.write_out()
    node.committer.wait()
    files.begun = True

    for location in locations[::2]:
        queue.reject(location, False)
    node.wait(lambda: len(letters_in(node)) == 16 and queue.unacked_count == 15)
    node.kill()

    assert files.copies
    for folder in files.copies:
        assert survivors(folder) == set(range(31))


def get_one(queue):
    """The location of the next message of a queue, unacked."""
    message = Message()
    assert get(queue, message)
    return message.describe()["location"]
