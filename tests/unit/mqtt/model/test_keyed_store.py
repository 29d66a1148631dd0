"""KeyedStore: one message a key, on a real store; what a kill, a full disk and damage leave of it.

What power cuts leave is tests/durability/test_kept_cuts.py.
"""
import errno
import os

import pytest

from gomq_py.broker.topology.own_stores import OwnStores
from gomq_py.broker.topology.vhost import VHost
from gomq_py.hub import timers
from gomq_py.storage.errors import StoreError
from tests.support.faulty_files import FaultyFiles
from tests.support.full_disk import FullDisk
from tests.support.kept import STORE, content, kept_kinds, made
from tests.support.node import Node
from tests.support.unflushed import Unflushed

SMALL = 65536


@pytest.fixture
def boot(tmp_path):
    """A function that boots a node over the same folder; the last one is stopped at the end."""
    nodes = []

    def boot(files=None):
        nodes.append(Node(tmp_path / "data", files, kept_kinds(), segment_size=SMALL))
        return nodes[-1]

    yield boot
    nodes[-1].stop()


def kept_of(node):
    return node.vhost.extras[STORE]


def put(node, key, body, **options):
    kept = kept_of(node)
    answer = kept.put(key, made(key, body, **options))
    kept.write_out()
    return answer


def settle(node):
    """Until what is outdated has gone from the store."""
    kept = kept_of(node)

    def is_settled():
        if kept._deleting:
            node.committer.wait()  # nobody else is in a hurry
        return not (
            kept._outdated or kept._tombstones or kept._gone or kept._deleting or kept.touched
            or kept._rewriting.running
        )

    node.wait(is_settled)


def in_store(node):
    return kept_of(node)._store.unacked_count


def segments(node):
    return len(kept_of(node)._store.layout())


def folder_of(node):
    return kept_of(node)._store.folder


def test_last_message_of_a_key_is_kept_and_those_before_it_go(boot):
    node = boot()

    for number in range(3):
        assert put(node, "a", b"a%d" % number) == 1
    put(node, "b", b"bb")
    settle(node)

    assert content(kept_of(node)) == {"a": b"a2", "b": b"bb"}
    assert (in_store(node), kept_of(node).octets) == (2, 4)


@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("is_settled", [True, False])
def test_messages_outlive_the_broker(boot, end, is_settled):
    node = boot()
    for number in range(3):
        put(node, "a", b"a%d" % number)
    put(node, "b", b"bb")
    if is_settled:
        settle(node)
    getattr(node, end)()

    node = boot()

    assert content(kept_of(node)) == {"a": b"a2", "b": b"bb"} and kept_of(node).octets == 4
    settle(node)
    assert in_store(node) == 2


@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("is_settled", [True, False])
def test_what_was_deleted_does_not_come_back(boot, end, is_settled):
    node = boot()
    for number in range(3):
        put(node, "a", b"a%d" % number)
    put(node, "b", b"b")
    kept_of(node).delete("a")
    kept_of(node).write_out()
    if is_settled:
        settle(node)
        assert in_store(node) == 1
    getattr(node, end)()

    node = boot()

    assert content(kept_of(node)) == {"b": b"b"}
    settle(node)
    assert in_store(node) == 1


def test_key_that_was_deleted_may_be_used_again_at_once(boot):
    node = boot()
    put(node, "a", b"1")
    kept_of(node).delete("a")
    put(node, "a", b"2")
    assert not kept_of(node).delete("b")
    settle(node)
    node.kill()

    assert content(kept_of(boot())) == {"a": b"2"}


def test_successor_is_on_disk_before_the_message_goes(boot):
    """The flush hangs: both are there."""
    files = FaultyFiles(how="hold")
    node = boot(files)
    put(node, "a", b"1")
    settle(node)
    files.fail_at = len(files.calls) + 1

    put(node, "a", b"2")
    node.wait(lambda: kept_of(node)._deleting)
    node.wait(lambda: files.failed)
    assert in_store(node) == 2
    files.resume.set()

    settle(node)
    assert in_store(node) == 1


def test_full_disk_refuses_messages_and_still_deletes(boot):
    files = FullDisk()
    node = boot(files)
    kept = kept_of(node)
    put(node, "first", b"1")
    put(node, "first", b"2")
    settle(node)
    files.is_full = True
    keys = ["first"]
    while kept.put(f"{len(keys)}", made(f"{len(keys)}", bytes(5000))) == 1:
        keys.append(f"{len(keys)}")
    assert kept.unable and not kept.failed and content(kept).keys() == set(keys)
    # what was replaced has not gone yet, and tombstones have no room
    while kept.put("1", made("1", b"")) == 1:
        pass

    for key in keys:
        assert kept.delete(key)
    assert kept.octets == 0
    kept.write_out()
    node.kill()

    node = boot()
    assert content(kept_of(node)) == {} and put(node, "first", b"3") == 1


def test_message_waits_for_files_where_it_may(boot):
    node = boot()
    message = made("a", b"1")
    message.may_wait = True

    assert kept_of(node).put("a", message) == 2
    made_files = []
    message.lacking(made_files.append)
    node.wait(lambda: made_files)

    assert made_files == [None] and kept_of(node).put("a", message) == 1


def test_damaged_message_costs_itself_and_no_boot(boot, caplog):
    node = boot()
    for key in ("a", "b", "c"):
        put(node, key, key.encode() * 50)
    settle(node)
    path = os.path.join(folder_of(node), "msgs.0000000001")
    node.stop()
    with open(path, "r+b") as file:
        octets = file.read()
        file.seek(octets.index(b"b" * 50))
        file.write(b"B")

    node = boot()

    assert content(kept_of(node)) == {"a": b"a" * 50, "c": b"c" * 50}
    assert "1 damaged records in" in caplog.text
    assert put(node, "b", b"new") == 1 and content(kept_of(node))["b"] == b"new"


def test_message_that_is_none_of_its_own_stays_and_keeps_nothing_from_booting(boot, caplog):
    node = boot()
    put(node, "a", b"1")
    put(node, "?", b"strange")
    node.kill()

    node = boot()

    assert content(kept_of(node)) == {"a": b"1"} and kept_of(node).set_aside == 1
    assert "1 messages in" in caplog.text and "are none of its own" in caplog.text


def test_store_that_cannot_be_opened_is_closed_until_it_can_and_the_broker_boots(boot, monkeypatch):
    node = boot()
    put(node, "a", b"1")
    node.stop()
    recover = OwnStores.recover

    def fail(stores, name, incarnation):
        factory, vhost = stores._factory, stores._vhost

        def open_own(*arguments):
            raise StoreError("folder", 0, "the disk says no")
        with monkeypatch.context() as patch:
            patch.setattr(factory, "open_own", open_own)
            # the folder is known all the same
            factory._known_folders.add(factory._folder(vhost.name, name, incarnation))
            recover(stores, name, incarnation)

    with monkeypatch.context() as patch:
        patch.setattr(OwnStores, "recover", fail)
        node = boot()
    assert put(node, "b", b"1") == 0 and kept_of(node).unable and kept_of(node).failed
    assert not kept_of(node).delete("a") and node.vhost.stores.closed() == [STORE]

    node.wait(lambda: not kept_of(node).closed)

    assert content(kept_of(node)) == {"a": b"1"}
    assert put(node, "b", b"1") == 1


@pytest.fixture
def soon(monkeypatch):
    """Attempts come soon after each other."""
    monkeypatch.setattr(timers, "FIRST_PAUSE_MS", 1)
    monkeypatch.setattr(timers, "LONGEST_PAUSE_MS", 20)


def test_io_error_closes_the_store_until_the_disk_takes_writes_and_nothing_else(boot, soon, caplog):
    """On 6805b4a2 it stayed closed."""
    files = FaultyFiles(how="dead")
    node = boot(files)
    put(node, "a", b"1")
    node.committer.wait()
    files.fail_at = len(files.calls) + 1
    put(node, "b", b"1")
    node.wait(lambda: kept_of(node).failed)
    assert put(node, "c", b"1") == 0 and not kept_of(node).get("a", made("x", b""))
    assert node.vhost.stores.closed() == [STORE]
    node.wait(lambda: "cannot be opened again" in caplog.text)
    assert kept_of(node).closed and kept_of(node).unable

    files.fail_at = None
    node.wait(lambda: not kept_of(node).closed)

    assert content(kept_of(node))["a"] == b"1" and node.vhost.stores.closed() == []
    assert put(node, "c", b"2") == 1 and not kept_of(node).failed
    settle(node)
    node.kill(are_answered=False)
    found = content(kept_of(boot()))
    assert (found["a"], found["c"]) == (b"1", b"2")


def test_message_that_was_safe_stays_until_the_one_that_the_disk_refused_is_written_anew(boot, soon):
    """A flush that has failed leaves pages that the next one does not write."""
    files = FaultyFiles()
    node = boot(files)
    put(node, "a", b"1")
    put(node, "b", b"1")
    settle(node)
    before = kept_of(node).index.get("a")
    put(node, "a", b"2")
    refused = kept_of(node).index.get("a")

    kept_of(node)._store.fence(OSError(errno.EIO, "the disk failed"))
    node.wait(lambda: not kept_of(node).closed)

    assert content(kept_of(node)) == {"a": b"2", "b": b"1"}
    assert before < refused < kept_of(node).index.get("a")
    settle(node)
    assert in_store(node) == 2


def test_store_that_is_open_is_not_opened_once_more(boot, soon):
    """A job that fails behind its last step asks for it. At 420ef4da that closed the store."""
    node = boot()
    put(node, "a", b"1")
    store = kept_of(node)._store

    kept_of(node)._reopening.start()

    assert put(node, "b", b"1") == 1 and kept_of(node)._store is store


def test_answer_from_before_the_fault_deletes_nothing_of_the_store_that_is_open_again(
    boot, soon, monkeypatch
):
    """A mirror may give it that late. At 8119bd64 it deleted what had been safe."""
    node, answers = boot(), []
    put(node, "a", b"1")
    settle(node)
    with monkeypatch.context() as patch:
        patch.setattr(VHost, "when_safe", lambda _self, callback, *_arguments: answers.append(callback))
        put(node, "a", b"2")
        node.wait(lambda: answers)
        kept_of(node)._store.fence(OSError(errno.EIO, "the disk failed"))
        node.wait(lambda: not kept_of(node).closed and not kept_of(node).touched)

        answers.pop(0)(None)

        assert in_store(node) == 3
    for answer in answers:
        answer(None)
    settle(node)
    assert content(kept_of(node)) == {"a": b"2"} and in_store(node) == 1


def test_vhost_that_closes_or_goes_while_a_store_is_opened_again_closes_that(boot, soon):
    for end in ("stop", "delete"):
        node = boot()
        put(node, "a", b"1")
        settle(node)
        kept_of(node)._store.fence(OSError(errno.EIO, "the disk failed"))
        if end == "delete":
            node.broker.vhosts["/"].departures()
            kept_of(node).close()
        node.stop()
        assert kept_of(node).closed


def test_key_that_is_written_over_for_ever_does_not_let_old_ones_keep_the_disk(boot):
    """Thirty messages that nobody writes over, each in another segment than the next."""
    node = boot()
    expected = {}
    for number in range(30):
        key = f"old{number}"
        put(node, key, b"%d" % number)
        expected[key] = b"%d" % number
        for _ in range(8):
            put(node, "new", bytes(10000))
        settle(node)
        assert segments(node) <= 8, number
    expected["new"] = bytes(10000)

    assert content(kept_of(node)) == expected
    node.kill()
    assert content(kept_of(boot())) == expected


def test_messages_of_an_earlier_run_are_written_anew_too(boot):
    node = boot()
    for number in range(40):
        put(node, f"{number}", bytes(10000))
    settle(node)
    node.stop()
    node = boot()
    before = segments(node)
    for number in range(40):
        if number % 8:
            kept_of(node).delete(f"{number}")
    settle(node)

    for _ in range(20):
        put(node, "new", bytes(10000))
        settle(node)

    assert before >= 7 and segments(node) <= 6
    assert content(kept_of(node)).keys() == {"0", "8", "16", "24", "32", "new"}


def test_store_goes_with_its_vhost(boot):
    node = boot()
    vhost = node.broker.create_vhost("v")
    kept = vhost.extras[STORE]
    assert kept.put("a", made("a", b"1")) == 1
    folder = kept._store.folder
    node.wait(lambda: os.path.isdir(folder))

    node.broker.delete_vhost("v")

    node.wait(lambda: not os.path.isdir(folder))
    assert kept.put("a", made("a", b"1")) == 0
    again = node.broker.create_vhost("v").extras[STORE]
    assert content(again) == {} and again.put("b", made("b", b"2")) == 1


def test_store_is_found_again_after_the_definitions_were_compacted(boot):
    node = boot()
    put(node, "a", b"1")
    for number in range(10_000):
        node.broker._log.append({
            "op": "global-parameter", "name": "x", "value": str(number)})
    node.stop()
    node = boot()
    node.wait(lambda: not node.broker._log.is_compacting)
    node.stop()

    node = boot()

    assert node.broker._log.record_count < 100 and content(kept_of(node)) == {"a": b"1"}


def test_store_that_nobody_keeps_any_more_is_set_aside_and_not_lost(tmp_path):
    node = Node(tmp_path / "data", Unflushed(), kept_kinds())
    put(node, "a", b"1")
    folder = os.path.basename(folder_of(node))
    node.stop()

    node = Node(tmp_path / "data", Unflushed())
    node.stop()

    assert folder in "".join(os.listdir(tmp_path / "data" / "set-aside"))
