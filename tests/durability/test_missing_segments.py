"""A segment, or a queue's whole folder, that is gone though the last run stopped in order and left messages
there: said by queue and file, once.

What goes by itself is never called a loss: emptied segments, deleted queues,
what a kill or a loss of power leaves.
"""
import logging
import os
import shutil
from random import Random

import gevent
import pytest

from gomq_py.ctl.fsck import check_folder
from gomq_py.ctl.recover import recover_definitions
from gomq_py.storage.message import Message
from tests.durability import flush_pool
from tests.durability.broker_driver import EVERYTHING, Driver, World
from tests.durability.seeds import seeds
from tests.support.node import Node
from tests.support.power_cut import Disk
from tests.support.streams import STREAM
from tests.support.unflushed import Unflushed

COUNT = 5
QUEUES = {"classic": {}, "priority": {"x-max-priority": 3}, "stream": STREAM}


@pytest.fixture
def root(tmp_path):
    """A stopped data folder: a queue of each kind with five messages, and one that was emptied."""
    node = Node(tmp_path / "data")
    for name, arguments in {**QUEUES, "empty": {}}.items():
        node.vhost.declare_queue(name, durable=True, arguments=arguments)
        for number in range(COUNT):
            node.publish("", name, b"%s-%d" % (name.encode(), number), persistent=True)
    while node.take("empty") is not None:
        pass
    node.stop()
    return tmp_path / "data"


def file_of(root, name):
    """The msgs file of a queue."""
    found, = [
        path for path in (root / "queues").rglob("msgs.*") if b"%s-4" % name.encode() in path.read_bytes()
    ]
    return found


def folder_of(root, name):
    return root / "queues" / file_of(root, name).relative_to(root / "queues").parts[0]


def remove(root, name, what):
    """Returns the path that must be named."""
    msgs, folder = file_of(root, name), folder_of(root, name)
    if what == "folder":
        shutil.rmtree(folder)
    else:
        for kind in {"pair": ("msgs", "acks")}.get(what, (what,)):
            msgs.with_name(msgs.name.replace("msgs", kind)).unlink(
                missing_ok=kind == "acks" and name == "stream"
            )
    return msgs


def boot(root, caplog, end="stop"):
    """What each queue holds, what was said from warnings on,
    and how many messages were counted as damaged.
    """
    caplog.clear()
    with caplog.at_level(logging.WARNING, "gomq_py"):
        node = Node(root)
        found = {name: queue.ready_count for name, queue in node.vhost.queues.items()}
        count, _ = node.broker.damage()
        getattr(node, end)()
    return found, caplog.text, count


@pytest.mark.parametrize("what", ["msgs", "pair", "folder"])
@pytest.mark.parametrize("name", QUEUES)
def test_messages_of_a_file_that_is_gone_are_said_by_queue_and_file_and_counted_once(
    root, caplog, name, what
):
    path = remove(root, name, what)
    damage = check_folder(root).damage
    assert len(damage) == 1 and str(folder_of_path(root, path)) in damage[0][0]

    found, said, count = boot(root, caplog)
    again, said_again, count_again = boot(root, caplog)

    assert found == again == {**dict.fromkeys(QUEUES, COUNT), "empty": 0, name: 0}
    assert f"queue '{name}' in vhost '/': {COUNT} message(s) are lost: {path} is gone" in said
    assert count == COUNT and (said_again, count_again) == ("", 0)
    assert not check_folder(root).damage


def folder_of_path(root, path):
    return root / "queues" / path.relative_to(root / "queues").parts[0]


@pytest.mark.parametrize("what", ["msgs", "pair", "folder"])
def test_file_of_delayed_messages_that_is_gone_is_said(tmp_path, caplog, what):
    node = Node(tmp_path / "data")
    node.vhost.declare_exchange(
        "later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"}
    )
    park = node.vhost.exchange("later").delayed_store
    folder = park.store.folder
    for number in range(COUNT):
        park.store.append(park_message(number))
    park.store.write_out()
    node.stop()
    for path in (tmp_path / "data" / "queues").glob("*/msgs.*" if what == "msgs" else "*/*"):
        path.unlink()
    if what == "folder":
        os.rmdir(folder)

    _, said, count = boot(tmp_path / "data", caplog)

    assert (
        f"delayed exchange 'later' in vhost '/': {COUNT} message(s) are lost: {folder}{os.sep}msgs." in said
        and count == COUNT
    )


def park_message(number):
    message = Message()
    message.assign(b"later", b"", b"\0\0", b"%d" % number, 1700000000000, persistent=True)
    return message


def test_only_the_first_of_many_files_that_are_gone_are_named(tmp_path, caplog):
    node = Node(tmp_path / "data", segment_size=65536)
    node.vhost.declare_queue("long", durable=True)
    for _ in range(40):
        node.publish("", "long", bytes(20_000), persistent=True)
    node.stop()
    shutil.rmtree(next((tmp_path / "data" / "queues").iterdir()))

    found, said, count = boot(tmp_path / "data", caplog)

    assert count == 40 and found == {"long": 0}
    assert said.count("msgs.") == 5 and "more are gone since the last run stopped" in said


@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("what", ["pair", "folder"])
@pytest.mark.parametrize("name", QUEUES)
def test_queue_goes_on_after_its_loss_and_what_is_brought_back_is_read_again(root, caplog, name, what, end):
    path, folder = file_of(root, name), folder_of(root, name)
    kept = root.parent / "kept"
    shutil.copytree(folder, kept)
    remove(root, name, what)
    node = Node(root)
    node.publish("", name, b"new", persistent=True)
    node.vhost.queue(name).write_out()
    getattr(node, end)()
    assert not path.exists()

    shutil.copytree(kept, folder, dirs_exist_ok=True)

    found, said, count = boot(root, caplog)
    assert found[name] == COUNT + 1 and (said, count) == ("", 0)


def test_stream_does_not_give_offsets_twice_that_a_lost_file_had(root):
    remove(root, "stream", "folder")

    for number in range(2):
        node = Node(root)
        store = node.vhost.queue("stream").store
        assert (store.next_offset, store.first_offset) == (COUNT + number, COUNT)
        node.publish("", "stream", b"new", persistent=True)
        assert store.next_offset == COUNT + number + 1
        node.stop()


@pytest.mark.parametrize("what", ["msgs", "pair", "folder"])
def test_file_in_which_nothing_was_left_is_no_loss(root, caplog, what):
    path, = [path for path in (root / "queues").rglob("msgs.*") if b"empty-4" in path.read_bytes()]
    if what == "folder":
        shutil.rmtree(path.parent)
    else:
        path.unlink()
    if what == "pair":
        path.with_name(path.name.replace("msgs", "acks")).unlink()
    assert not check_folder(root).damage

    found, said, count = boot(root, caplog)

    assert found == {**dict.fromkeys(QUEUES, COUNT), "empty": 0} and (said, count) == ("", 0)


@pytest.mark.parametrize("what", ["pair", "folder"])
@pytest.mark.parametrize("name", QUEUES)
def test_after_a_kill_nobody_knows_what_was_there(root, caplog, name, what):
    """A segment that was emptied in the moment of the kill looks the same."""
    boot(root, caplog, "kill")
    remove(root, name, what)
    assert not check_folder(root).damage

    found, said, count = boot(root, caplog)

    assert found[name] == 0 and (said, count) == ("", 0)


@pytest.mark.parametrize("how", [
    "no list", "torn", "earlier version", "version without one in between", "other list"
])
def test_list_that_is_not_of_the_last_run_says_nothing(root, caplog, how):
    stale = (root / ".segments").read_bytes()
    if how == "no list":
        (root / ".segments").unlink()
    elif how == "torn":
        (root / ".segments").write_bytes(stale[:-10])
    elif how == "earlier version":
        (root / ".last-run").write_bytes(b"stopped\n")
    elif how == "version without one in between":
        (root / ".lock").write_bytes(b"PID 1 @ host\n")
    else:
        (root / ".segments").write_bytes(stale + b"0" * 40 + b".0123456789abcdef 0 1:1\n")
    remove(root, "stream", "folder")
    remove(root, "classic", "pair")

    found, said, count = boot(root, caplog)

    assert found == {"classic": 0, "priority": COUNT, "stream": 0, "empty": 0} and (said, count) == ("", 0)


def test_segment_of_which_both_heads_are_gone_is_kept_and_said(root, caplog):
    """It looks like one that was made and never written to; but there were messages."""
    msgs = file_of(root, "classic")
    acks = msgs.with_name(msgs.name.replace("msgs", "acks"))
    for path in (msgs, acks):
        path.write_bytes(bytes(4096) + path.read_bytes()[4096:])

    found, said, count = boot(root, caplog)
    _, said_again, _ = boot(root, caplog)

    assert found["classic"] == 0 and count == COUNT and said_again == ""
    assert f"damaged: {msgs} holds nothing of this segment any more; kept as damaged.{msgs.name}" in said
    assert msgs.with_name(f"damaged.{msgs.name}").exists() and acks.with_name(f"damaged.{acks.name}").exists()


def test_folders_of_queues_whose_definitions_are_gone_are_kept_with_their_messages(root, caplog):
    folders = {name: folder_of(root, name) for name in QUEUES}
    (root / "definitions").unlink()
    recover_definitions(root)
    shutil.rmtree(folders["stream"])

    found, said, _ = boot(root, caplog)

    assert found == {}
    for name in ("classic", "priority"):
        assert (root / "set-aside" / f"{folders[name].name}.0").exists()
        assert (
            (
                f"the definitions name no queue for {folders[name]}, and did when the last run stopped; its "
                f"{COUNT} message(s) are kept"
            ) in said
        )
    assert (
        f"{folders['stream']} is gone since the last run stopped, and its queue: {COUNT} message(s) are lost"
        in said
    )
    # with the one that was emptied, whose files are there
    assert len(os.listdir(root / "set-aside")) == 3 and not os.listdir(root / "queues")


# what is no loss


@pytest.fixture
def flushes_in_greenlets(monkeypatch):
    flush_pool.use(monkeypatch)


@pytest.mark.parametrize("seed", seeds(4))
def test_whatever_a_broker_did_nothing_is_missed_after_its_orderly_stop_nor_if_the_power_goes_then(
        tmp_path, seed, caplog, flushes_in_greenlets):
    random = Random(seed)
    (tmp_path / "data").mkdir()
    disk = Disk(tmp_path / "data", random)
    driver = Driver(disk, random, World(), None, (), EVERYTHING)
    for cut in range(4):
        driver.work(40)
        if random.random() < 0.5:
            said = caplog.text
            driver.kill()
            assert " gone" not in caplog.text and "set-aside" not in said
            caplog.clear()  # a queue that nobody was answered about, and of which the log knows nothing
            driver.work(20)
        driver.stop_and_start(lambda cut=cut: check_after_cut(disk, tmp_path / f"cut-{cut}"))
    driver.life.stop()
    disk.discard()

    assert " gone" not in caplog.text and "set-aside" not in caplog.text


def check_after_cut(disk, target):
    """The machine loses its power after the stop; what the run has noted was flushed."""
    disk.cut(target)
    for name in (".last-run", ".segments"):
        if os.path.exists(os.path.join(disk.root, name)):
            shutil.copy(os.path.join(disk.root, name), target)
    node = Node(target, Unflushed())
    assert node.broker.damage()[0] == 0
    node.stop()


KINDS = {
    **QUEUES, "short": {"x-max-length": 3}, "stream that forgets": {**STREAM, "x-max-length-bytes": 200_000}
}


@pytest.mark.parametrize("seed", seeds(4))
def test_segments_of_all_kinds_of_queues_come_and_go_and_none_is_missed(tmp_path, seed, caplog):
    random = Random(seed)
    for _ in range(5):
        node = Node(tmp_path / "data", segment_size=65536)
        assert node.broker.damage() == (0, [])
        for _ in range(60):
            change_something(node, random)
        if random.random() < 0.7:
            node.stop()
        else:
            # What is being unlinked in a thread would leave its descriptor to this process, which goes on.
            node.wait(lambda node=node: node.committer.is_idle and node.committer.background.is_idle)
            node.publish("", random.choice(list(node.vhost.queues)), bytes(100), persistent=True)
            node.kill()

    assert "gone" not in caplog.text and not (tmp_path / "data" / "set-aside").exists()


def change_something(node, random):
    name = random.choice(list(KINDS))
    queue, _ = node.vhost.declare_queue(name, durable=True, arguments=KINDS[name])
    what = random.random()
    if what < 0.6:
        for _ in range(random.choice([1, 10])):
            node.publish(
                "", name, bytes(random.choice([10, 20_000])), persistent=random.random() < 0.8,
                priority=random.randrange(5),
            )
    elif what < 0.8 and "stream" not in name:
        for _ in range(random.choice([1, 10, 1000])):
            node.take(name)
    elif what < 0.85:
        queue.purge()
    elif what < 0.9:
        node.vhost.delete_queue(name)
    else:
        gevent.sleep(0)
