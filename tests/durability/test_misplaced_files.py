"""Files of segments that are in another queue's folder, or are gone:
set aside or said by name, and never unlinked by us.

A crash leaves files, too, that look like it, and none of those is called a loss.
"""
import errno
import logging
import os

import gevent
import pytest

from gomq_py.ctl.fsck import check_folder
from gomq_py.storage.disk.files import Files
from tests.support.node import Node
from tests.support.stores import StoreBench
from tests.support.streams import STREAM
from tests.support.unflushed import Unflushed
from tests.support.waiting import wait_until

COUNT = 5


@pytest.fixture
def root(tmp_path):
    """A stopped data folder: queues a and b, and a stream s, with five messages each,
    of which the first of a and b was acked.
    """
    node = Node(tmp_path / "data", Unflushed())
    for name, arguments in (("a", {}), ("b", {}), ("s", STREAM)):
        node.vhost.declare_queue(name, durable=True, arguments=arguments)
        for number in range(COUNT):
            node.publish("", name, b"%s-%d" % (name.encode(), number), persistent=True)
    for name in "ab":
        node.take(name)
    node.stop()
    return tmp_path / "data"


def file_of(root, name, kind="msgs"):
    """The segment file of a queue."""
    for msgs in (root / "queues").glob("*/msgs.*"):
        if b"%s-4" % name.encode() in msgs.read_bytes():
            return msgs.with_name(msgs.name.replace("msgs", kind))
    raise AssertionError(name)


def boot(root, caplog, end="stop"):
    """What each queue holds, and what was said from warnings on."""
    caplog.clear()
    with caplog.at_level(logging.WARNING, "gomq_py"):
        node = Node(root, Unflushed())
        found = {name: node.vhost.queue(name).ready_count for name in "abs"}
        getattr(node, end)()
    return found, caplog.text


def set_aside(root):
    return sorted(os.listdir(root / "set-aside")) if (root / "set-aside").exists() else []


def test_files_of_two_queues_that_were_swapped_are_set_aside_and_said(root, caplog):
    one, other = file_of(root, "a"), file_of(root, "b")
    contents = {one.read_bytes(), other.read_bytes()}
    one.rename(root / "between")
    other.rename(one)
    (root / "between").rename(other)
    assert {path for path, _ in check_folder(root).damage} >= {str(one), str(other)}

    found, said = boot(root, caplog)
    again, said_again = boot(root, caplog)

    assert found == again == {"a": 0, "b": 0, "s": COUNT}
    assert str(one) in said and str(other) in said and "5 message(s), and nothing of its own" in said
    assert said_again == "" and check_folder(root).damage == []
    kept = [root / "set-aside" / name for name in set_aside(root)]
    assert {path.read_bytes() for path in kept if ".msgs." in path.name} == contents
    assert len([path for path in kept if ".acks." in path.name]) == 2


def test_acks_of_two_queues_that_were_swapped_are_set_aside_and_said(root, caplog):
    one, other = file_of(root, "a", "acks"), file_of(root, "b", "acks")
    contents = {one.read_bytes(), other.read_bytes()}
    one.rename(root / "between")
    other.rename(one)
    (root / "between").rename(other)

    found, said = boot(root, caplog)
    again, said_again = boot(root, caplog)

    assert found == again == {"a": COUNT, "b": COUNT, "s": COUNT}
    assert f"{one} holds the acks of segment 1" in said and f"{other} holds the acks of segment 1" in said
    assert (
        said_again == ""
        and {(root / "set-aside" / name).read_bytes() for name in set_aside(root)} == contents
    )


def test_file_that_was_copied_to_a_stream_is_set_aside(root, caplog):
    path = file_of(root, "s").with_name("msgs.0000000007")
    path.write_bytes(file_of(root, "a").read_bytes())

    found, said = boot(root, caplog)

    assert found == {"a": COUNT - 1, "b": COUNT - 1, "s": COUNT}
    assert str(path) in said and [".msgs.0000000007." in name for name in set_aside(root)] == [True]


def test_file_that_was_brought_back_in_its_place_is_read_again(root, caplog):
    msgs, acks = file_of(root, "a"), file_of(root, "a", "acks")
    msgs.rename(root / "lost")
    boot(root, caplog)
    kept, = set_aside(root)

    (root / "lost").rename(msgs)
    (root / "set-aside" / kept).rename(acks)

    assert boot(root, caplog)[0]["a"] == COUNT - 1


@pytest.mark.parametrize("kind, text, left", [
    ("msgs", "its messages are lost", 0),
    ("acks", "the messages of this segment that had been acknowledged come back", COUNT),
])
def test_file_that_is_gone_is_said_by_name_once(root, caplog, kind, text, left):
    path = file_of(root, "a", kind)
    path.unlink()
    assert check_folder(root).damage

    found, said = boot(root, caplog)
    again, said_again = boot(root, caplog)

    assert found == again == {"a": left, "b": COUNT - 1, "s": COUNT}
    assert f"{path} is gone: {text}" in said and said_again == ""


def test_acks_that_a_kill_left_without_their_segment_are_no_loss(root, caplog):
    boot(root, caplog, "kill")
    # as when a segment was emptied, and the process killed before its acks went too
    file_of(root, "a").unlink()

    found, said = boot(root, caplog)

    assert found["a"] == 0 and said == ""
    assert not set_aside(root)


def test_acks_that_stayed_when_nobody_says_how_the_last_run_ended_are_no_loss(root, caplog):
    """A run of an earlier version, or one whose files came here another way than the note."""
    file_of(root, "a").unlink()
    (root / ".last-run").unlink(missing_ok=True)
    assert not check_folder(root).damage

    found, said = boot(root, caplog)

    assert found["a"] == 0 and said == "" and not set_aside(root)


LONG = "x" * 255


@pytest.mark.parametrize("kind", ["file", "dangling link"])
@pytest.mark.parametrize("place", ["set-aside", "pool", "transient"])
def test_what_stands_in_the_place_of_a_folder_of_ours_is_kept_under_another_name(root, caplog, place, kind):
    path = root / place
    if path.is_dir():
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
    if kind == "file":
        path.write_text("somebody's")
    else:
        path.symlink_to(root / "nowhere")
    one, other = file_of(root, "a"), file_of(root, "b")
    one.rename(root / "between")
    other.rename(one)
    (root / "between").rename(other)

    found, said = boot(root, caplog)

    assert found == {"a": 0, "b": 0, "s": COUNT} and len(set_aside(root)) == 4
    kept = root / f"{place}.0"
    assert f"{path} is no folder; it is kept as {kept}" in said
    assert (
        os.readlink(kept) == str(root / "nowhere") if kind == "dangling link"
        else kept.read_text() == "somebody's"
    )


@pytest.mark.parametrize("kind", ["folder", "dangling link", "link to itself", "pipe"])
@pytest.mark.parametrize("place", [".last-run", ".segments"])
def test_what_stands_in_the_place_of_a_file_about_the_last_run_is_kept_under_another_name(
    root, caplog, place, kind
):
    path, kept = root / place, root / f"{place}.0"
    path.unlink()
    if kind == "folder":
        path.mkdir()
        (path / "somebody's").touch()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(root / "nowhere" if kind == "dangling link" else path)
    said_by_fsck = check_folder(root).damage

    found, said = boot(root, caplog)

    assert found == {"a": COUNT - 1, "b": COUNT - 1, "s": COUNT} and said_by_fsck == []
    assert os.path.lexists(kept) and f"{path} is no file; it is kept as {kept}" in said and "lost" not in said
    assert boot(root, caplog) == (found, "")


@pytest.mark.parametrize("place", ["", "queues", "queue", "pool", "transient", "set-aside"])
def test_file_with_the_longest_name_there_is_keeps_no_broker_from_booting(root, caplog, place):
    folder = file_of(root, "a").parent if place == "queue" else root / place
    folder.mkdir(exist_ok=True)
    (folder / LONG).write_text("somebody's")

    for _ in range(2):
        assert boot(root, caplog)[0] == {"a": COUNT - 1, "b": COUNT - 1, "s": COUNT}

    if place == "queues":
        assert (root / "set-aside" / f"{LONG[:200]}.0").read_text() == "somebody's"


@pytest.mark.parametrize("name", ["segments", "damaged.msgs.0000000001", "é" * 127])
def test_folder_in_the_folder_of_a_queue_keeps_no_broker_from_booting(root, caplog, name):
    (file_of(root, "a").parent / name).mkdir()

    assert boot(root, caplog)[0] == {"a": COUNT - 1, "b": COUNT - 1, "s": COUNT}


class NoFolderFlushed(Files):
    """The names in folders of queues cannot be flushed."""

    def sync_folder(self, path):
        if os.path.basename(os.path.dirname(path)) == "queues":
            raise OSError(errno.EIO, "the disk is ill", path)
        Files.sync_folder(self, path)


def test_acks_that_an_ill_disk_kept_from_going_are_no_loss_after_an_orderly_stop(root, caplog):
    node = Node(root, NoFolderFlushed())
    for _ in range(COUNT - 1):
        node.take("a")
    node.vhost.queue("a").write_out()
    folder = file_of(root, "a", "acks").parent
    node.vhost.queue("a").store.committer.mark_folder(str(folder))
    node.stop()
    for path in folder.glob("msgs.*"):
        path.unlink()  # it was on its way, behind the flush that failed

    found, said = boot(root, caplog)

    assert found["a"] == 0 and said == "" and not set_aside(root)


@pytest.mark.parametrize("left", ["head", "acked"])
def test_recycled_files_that_held_nothing_more_are_no_loss(root, caplog, left):
    """What a loss of power leaves of a segment that was about to be used anew:
    its old head, and all of it acked; or nothing.
    """
    node = Node(root, Unflushed())
    node.vhost.declare_queue("c", durable=True)
    for number in range(COUNT):
        node.publish("", "c", b"c-%d" % number, persistent=True)
    for _ in range(COUNT):
        node.take("c")
    node.vhost.queue("c").write_out()
    node.kill()
    msgs, acks = file_of(root, "c"), file_of(root, "c", "acks")
    for path in (msgs, acks):
        content = path.read_bytes()
        target = file_of(root, "b", path.name[:4]).with_name(path.name[:4] + ".0000000009")
        target.write_bytes(bytes(len(content)) if left == "head" else content)

    found, said = boot(root, caplog)

    assert found["b"] == COUNT - 1 and said == "" and not set_aside(root)


class Killed(Exception):
    """The process ends here."""


class KilledInRename(Files):
    """The process is killed when so many files have left the pool."""

    left = 0

    def _rename(self, source, target):
        if self.left and os.path.basename(os.path.dirname(source)) == "pool":
            self.left -= 1
            if not self.left:
                raise Killed
        super()._rename(source, target)


def test_pair_that_a_kill_met_on_its_way_out_of_the_pool_is_no_damage(tmp_path, caplog):
    files = KilledInRename()
    bench = StoreBench(tmp_path, files, enabled=True, segment_bytes=65536, in_threads=False)
    for _ in range(12):
        bench.push(bytes(12_000))
    bench.store.write_out()
    bench.drain()
    wait_until(lambda: bench.committer.is_idle, sleep=gevent.sleep)
    files.left = 2
    with pytest.raises(Killed):
        for _ in range(12):
            bench.push(bytes(12_000))
    bench.pool.close()
    caplog.clear()

    with caplog.at_level(logging.WARNING, "gomq_py"):
        bench.crash()

    assert bench.report.removed == (str(tmp_path / "queue" / "acks.0000000004"),)
    assert caplog.text == "" and not bench.pool.damage.kept_paths
    bench.close()


@pytest.mark.parametrize("how", ["take", "purge", "delete"])
def test_segments_that_were_emptied_just_before_an_orderly_stop_are_no_loss(root, caplog, how):
    """Their acks files go after their messages; the stop waits for both."""
    node = Node(root, Files())
    for number in range(60):
        node.publish("", "a", b"x" * 20_000, persistent=True)
    node.publish("", "a", b"last", persistent=True)
    gevent.sleep(0)
    if how == "take":
        while node.vhost.queue("a").ready_count > 1:
            node.take("a")
    elif how == "purge":
        node.vhost.queue("a").purge()
    else:
        node.vhost.delete_queue("a")
        node.vhost.declare_queue("a", durable=True)
    node.stop()

    found, said = boot(root, caplog)

    assert found["b"] == COUNT - 1 and said == "" and not set_aside(root)
