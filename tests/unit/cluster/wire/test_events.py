"""Tests of events: literal bytes, what is malformed, paths that are none of a data folder."""
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gomq_py.cluster.wire import events
from gomq_py.cluster.wire.events import EventError, check_path, decode, is_of_one_node
from gomq_py.storage.disk import data_dir, swap
from gomq_py.storage.disk.plain_files import PlainFiles

OPERATIONS = [
    ("01 0000000000000003 0000000000800000 0006 706f6f6c2f61", ("created", 3, 8388608, "pool/a")),
    ("02 0006 717565756573", ("folder_created", "queues")),
    ("03 0000000000000003 0000000000000102 00000004 00ff6162", ("written", 3, 258, b"\0\xffab")),
    ("03 0000000000000003 0000000000000102 00000000", ("written", 3, 258, b"")),
    ("04 0000000000000003 0000000000000102", ("resized", 3, 258)),
    ("05 0000000000000003 0001 61 0003 622f63", ("renamed", 3, "a", "b/c")),
    ("05 0000000000000000 0001 61 0001 62", ("renamed", 0, "a", "b")),
    ("06 0000000000000003 0003 64ff65", ("unlinked", 3, "d\udcffe")),
    ("06 0000000000000000 0002 c3bc", ("unlinked", 0, "ü")),
    ("07 0001 61", ("folder_removed", "a")),
    ("08", ("flushed",)),
    ("09 0001 61", ("listed_folder", "a")),
    ("0a 0000000000000004 0000000000000005 0001 61", ("listed", 4, 5, "a")),
    ("0b", ("listed_all",)),
    ("0c", ("synced",)),
    ("0d", ("hurry",)),
]
NAMES = [operation[0] for _, operation in OPERATIONS]


class Calls(list):
    """A follower that notes its calls as (name, *arguments)."""

    def __getattr__(self, name):
        assert name in NAMES
        return lambda *arguments: self.append((name, *arguments))


def decoded(payload):
    """The calls that a payload makes."""
    calls = Calls()
    decode(payload, calls)
    return calls


def written(operations):
    return b"".join(getattr(events, name)(*arguments) for name, *arguments in operations)


@pytest.mark.parametrize("octets, operation", OPERATIONS)
def test_operation_has_these_octets(octets, operation):
    assert written([operation]) == bytes.fromhex(octets)
    assert decoded(bytes.fromhex(octets)) == [operation]


def test_operations_are_called_in_order():
    payload = bytes.fromhex("".join(octets for octets, _ in OPERATIONS))

    assert decoded(payload) == [operation for _, operation in OPERATIONS]
    assert decoded(b"") == []


def test_written_octets_are_part_of_the_payload_and_no_copy():
    payload = events.written(1, 0, bytearray(b"abc"))

    (_, _, _, octets), = decoded(payload)

    assert octets.obj is payload
    assert len(payload) == events.WRITTEN_OVERHEAD + 3


@pytest.mark.parametrize("octets, operation", OPERATIONS)
def test_operation_that_is_cut_short_is_malformed(octets, operation):
    octets = bytes.fromhex(octets)

    for length in range(1, len(octets)):
        with pytest.raises(EventError, match="cut short"):
            decoded(octets[:length])


@pytest.mark.parametrize("octets, text", [
    ("00", "unknown operation 0 at byte 0 of 1"),
    ("08 0e", "unknown operation 14 at byte 1 of 2"),
    ("08 ff", "unknown operation 255 at byte 1 of 2"),
    ("01 0000000000000000 0000000000000000 0001 61", "file id 0 is no file's"),
    ("01 0000000000000001 8000000000000000 0001 61", "file 1 cannot have 9223372036854775808 bytes"),
    ("01 0000000000000001 0000001000000001 0001 61", "file 1 cannot have 68719476737 bytes"),
    ("03 0000000000000001 0000001000000000 00000001 61", "file 1 cannot have 68719476737 bytes"),
    ("04 0000000000000001 0000001000000001", "file 1 cannot have 68719476737 bytes"),
    ("0a 0000000000000001 0000001000000001 0001 61", "file 1 cannot have 68719476737 bytes"),
    ("03 0000000000000000 0000000000000000 00000000", "file id 0 is no file's"),
    ("03 0000000000000001 7fffffffffffffff 00000001 61", "file 1 cannot have 9223372036854775808 bytes"),
    ("03 0000000000000001 0000000000000000 ffffffff 61", "an operation is cut short: 4294967316 bytes wan"),
    ("04 0000000000000000 0000000000000000", "file id 0 is no file's"),
    ("0a 0000000000000000 0000000000000000 0001 61", "file id 0 is no file's"),
    ("02 0000", "path '' is not one of a data folder"),
    ("05 0000000000000001 0001 61 0002 2e2e", "path '..' is not one of a data folder"),
    ("02 ffff 61", "an operation is cut short"),
])
def test_what_is_malformed_is_said(octets, text):
    with pytest.raises(EventError) as raised:
        decoded(bytes.fromhex(octets))

    assert str(raised.value).startswith(text)


def test_operations_before_a_malformed_one_were_called():
    calls = Calls()

    with pytest.raises(EventError):
        decode(b"\x08\x0c\x00\x08", calls)

    assert calls == [("flushed",), ("synced",)]


@pytest.mark.parametrize("path", [
    "", "/", "/etc/passwd", "a/", "a//b", ".", "..", "../a", "a/..", "a/./b", "a/../../b", "a\0b", "\0",
    ".lock", ".last-run", ".last-run.next", ".segments", ".cluster", ".cluster.new.1", ".sync", ".sync/a",
    ".lock/a", ".snapshot", "...", "..a", "lost+found", "lost+found/a",
])
def test_path_outside_of_the_folder_or_of_one_node_is_refused(path):
    with pytest.raises(EventError, match="is not one of a data folder|belongs to one node"):
        check_path(path)


@pytest.mark.parametrize("path", [
    "definitions", "queues/0a/msgs.0000000001", "queues/.lock", "pool/..a", "pool/...", "sync",
    "definitions.new.1", "a b\n", "\udcff", "queues/lost+found",
])
def test_path_in_the_folder_is_accepted(path):
    check_path(path)


def test_longest_file_is_read():
    size = events.MOST_OCTETS

    assert decoded(events.resized(1, size)) == [("resized", 1, size)]


@pytest.mark.parametrize("name", ["a" * 246, "ü" * 123, "\udcff" * 246])
def test_name_that_the_swap_cannot_make_longer_is_refused(name):
    for path in (name, f"{name}/file"):
        with pytest.raises(EventError, match="longer than 245 bytes"):
            check_path(path)
    check_path(f"queues/{name}")
    check_path(name[:len(name) // 2])


def test_longest_name_has_room_for_what_the_swap_puts_in_front(tmp_path):
    name = "a" * events.MOST_TOP_OCTETS
    for folder in (tmp_path, tmp_path / swap.SYNC):
        folder.mkdir(exist_ok=True)
        (folder / name).write_bytes(os.fsencode(folder))

    swap.swap(PlainFiles(), str(tmp_path), set())

    assert os.listdir(tmp_path) == [name]
    assert (tmp_path / name).read_bytes() == os.fsencode(tmp_path / swap.SYNC)


def test_files_of_one_node_are_those_of_its_data_folder_and_the_clusters_own():
    assert all(is_of_one_node(name) for name in (*data_dir.OF_THIS_NODE, ".cluster", ".sync"))


def test_content_of_a_data_folder_is_of_all_nodes():
    assert not any(map(is_of_one_node, (
        data_dir.SCHEMA, data_dir.DEFINITIONS, data_dir.USERS, data_dir.CLUSTER_NAME, data_dir.POOL,
        data_dir.QUEUES, data_dir.TRANSIENT, data_dir.SET_ASIDE,
    )))


IDS = st.integers(1, (1 << 64) - 1)
SIZES = st.integers(0, events.MOST_OCTETS - 50)
PARTS = st.binary(min_size=1, max_size=20).map(
    lambda octets: octets.replace(b"/", b"-").replace(b"\0", b"-").decode("utf-8", "surrogateescape")
).filter(lambda part: not part.startswith("."))
PATHS = st.lists(PARTS, min_size=1, max_size=3).map("/".join)
ANY = st.one_of(
    st.tuples(st.sampled_from(["created", "listed"]), IDS, SIZES, PATHS),
    st.tuples(st.sampled_from(["folder_created", "folder_removed", "listed_folder"]), PATHS),
    st.tuples(st.just("written"), IDS, SIZES, st.binary(max_size=50)),
    st.tuples(st.just("resized"), IDS, SIZES),
    st.tuples(st.just("renamed"), IDS, PATHS, PATHS),
    st.tuples(st.just("unlinked"), IDS, PATHS),
    st.tuples(st.sampled_from(["flushed", "listed_all", "synced"])),
)


@settings(deadline=None)
@given(st.lists(ANY, max_size=10))
def test_any_operations_are_read_as_they_were_written(operations):
    assert decoded(written(operations)) == operations


@settings(deadline=None)
@given(st.lists(ANY, min_size=1, max_size=5), st.data())
def test_damaged_operations_are_read_in_bounds_or_refused(operations, data):
    payload = bytearray(written(operations))
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    calls = Calls()

    try:
        decode(bytes(payload), calls)
    except EventError:
        pass

    for name, *arguments in calls:
        for path in (one for one in arguments if isinstance(one, str)):
            check_path(path)
        if name == "written":
            assert arguments[1] + len(arguments[2]) <= events.MOST_OCTETS


@settings(deadline=None)
@given(st.binary(max_size=300), st.integers(1, 12))
def test_any_octets_are_operations_or_refused(octets, op):
    try:
        decoded(bytes([op]) + octets)
    except EventError:
        pass
