"""The power-cut simulator itself: it must lose everything that was not flushed, and nothing that was.

A kind simulator proves nothing.
"""
import errno
import os
from random import Random

import pytest

from tests.support.power_cut import Disk, PowerCutFiles, PowerIsOff

CUTS = 60


@pytest.fixture
def root(tmp_path):
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


@pytest.fixture
def files(root):
    files = PowerCutFiles(Disk(root, Random(1), write_back=0))
    yield files
    files.disk.discard()


def outcomes(files, tmp_path, look):
    """What ``look`` sees in many cuts of this moment, as a set."""
    seen = set()
    for number in range(CUTS):
        seen.add(look(files.disk.cut(tmp_path / f"cut{files.disk.cuts}-{number}")))
    return seen


def content(name):
    def look(folder):
        path = os.path.join(folder, name)
        if not os.path.exists(path):
            return None
        with open(path, "rb") as file:
            return file.read()
    return look


def names(folder):
    return tuple(sorted(os.listdir(folder)))


def test_a_file_whose_folder_was_not_flushed_may_be_gone_however_well_it_was_flushed(files, root, tmp_path):
    file = files.open_log(root / "log")
    files.append(file, b"content")
    files.sync(file)

    assert outcomes(files, tmp_path, content("log")) == {None, b"content"}


def test_a_flushed_file_in_a_flushed_folder_stays(files, root, tmp_path):
    file = files.open_log(root / "log")
    files.append(file, b"content")
    files.sync(file)
    files.sync_folder(root)

    assert outcomes(files, tmp_path, content("log")) == {b"content"}


def test_an_append_that_was_not_flushed_may_be_there_in_part_or_as_zeros(files, root, tmp_path):
    file = files.open_log(root / "log")
    files.append(file, b"flushed.")
    files.sync(file)
    files.sync_folder(root)
    files.append(file, b"later")

    seen = outcomes(files, tmp_path, content("log"))

    assert {b"flushed.", b"flushed.later", b"flushed.\0\0\0\0\0"} <= seen
    assert all(octets.startswith(b"flushed.") for octets in seen)


def test_each_page_of_a_mapping_is_lost_or_kept_by_itself(files, root, tmp_path):
    file = files.create(root / "msgs", 3 * 4096)
    files.sync(file)
    files.sync_folder(root)
    for page in range(3):
        file.map[page * 4096:page * 4096 + 1] = b"x"

    seen = outcomes(files, tmp_path, lambda folder: content("msgs")(folder)[::4096])

    assert {b"\0\0\0", b"xxx", b"x\0\0", b"\0x\0", b"\0\0x"} <= seen


def test_a_flush_covers_what_was_written_before_it_began_and_no_more(root, tmp_path):
    file = None

    def write_meanwhile(path):
        file.map[1:2] = b"2"

    files = PowerCutFiles(Disk(root, Random(2), write_back=0), flush_pause=write_meanwhile)
    file = files.create(root / "msgs", 4096)
    file.map[0:1] = b"1"

    files.sync(file)
    files.flush_pause = None
    files.sync_folder(root)

    assert outcomes(files, tmp_path, lambda folder: content("msgs")(folder)[:2]) == {b"1\0", b"12"}


def test_a_flush_after_a_failed_one_succeeds_and_writes_nothing_of_what_that_one_lost(root, tmp_path):
    """What Linux does since it has had errors to report: a retry proves nothing."""
    def fail(path):
        raise OSError(errno.EIO, "bad sector", path)

    files = PowerCutFiles(Disk(root, Random(2), write_back=0), flush_pause=fail)
    file = files.create(root / "msgs", 8192)
    files.flush_pause = None
    files.sync(file)
    files.sync_folder(root)
    file.map[0:1] = file.map[4096:4097] = b"1"
    files.flush_pause = fail

    with pytest.raises(OSError):
        files.sync(file)
    files.flush_pause = None
    file.map[4097:4098] = b"2"
    files.sync(file)

    seen = outcomes(
        files, tmp_path, lambda folder: content("msgs")(folder)[0:1] + content("msgs")(folder)[4096:4098]
    )
    assert seen == {b"\x0012", b"112"}


def test_what_is_written_over_itself_after_a_failed_flush_is_flushed(root, tmp_path):
    files = PowerCutFiles(Disk(root, Random(2), write_back=0))
    file = files.create(root / "msgs", 3 * 4096)
    files.sync(file)
    files.sync_folder(root)
    for page in range(3):
        file.map[page * 4096:page * 4096 + 1] = b"x"
    files.disk.fail_flush(files.disk.begin_flush(file))

    files.write_again(file, 4096, 4097)
    files.sync(file)

    seen = content("msgs")(files.disk.lay_out_flushed(tmp_path / "cut"))
    assert seen[::4096] == b"\0x\0"


def test_names_of_one_folder_are_lost_or_kept_each_by_itself(files, root, tmp_path):
    for name in "ab":
        files.open_log(root / name)
    files.sync_folder(root)
    files.unlink(root / "a")
    files.rename(root / "b", root / "c")

    assert outcomes(files, tmp_path, names) == {("a", "b"), ("b",), ("a", "c"), ("c",)}


def test_a_rename_between_folders_may_leave_both_names_or_none(files, root, tmp_path):
    files.make_folder(root / "from")
    files.make_folder(root / "to")
    files.open_log(root / "from" / "x")
    for folder in (root / "from", root / "to", root):
        files.sync_folder(folder)
    files.rename(root / "from" / "x", root / "to" / "x")

    seen = outcomes(
        files, tmp_path,
        lambda folder: (names(os.path.join(folder, "from")), names(os.path.join(folder, "to"))),
    )

    assert seen == {(("x",), ()), ((), ("x",)), ((), ()), (("x",), ("x",))}


def test_a_replacement_shows_the_old_file_or_the_new_one(files, root, tmp_path):
    old, new = files.open_log(root / "users"), files.open_log(root / "users.new")
    files.append(old, b"old")
    files.append(new, b"new")
    for file in (old, new):
        files.sync(file)
    files.sync_folder(root)

    files.rename(root / "users.new", root / "users")

    assert outcomes(files, tmp_path, content("users")) == {b"old", b"new"}


def test_a_new_folder_that_was_not_flushed_takes_its_content_along(files, root, tmp_path):
    files.make_folder(root / "queue")
    file = files.open_log(root / "queue" / "log")
    files.sync(file)
    files.sync_folder(root / "queue")

    assert outcomes(files, tmp_path, names) == {(), ("queue",)}

    files.sync_folder(root)
    assert outcomes(files, tmp_path, content("queue/log")) == {b""}


def test_a_cut_that_was_not_flushed_may_be_undone(files, root, tmp_path):
    file = files.create(root / "msgs", 8192)
    file.map[0:8192] = b"x" * 8192
    files.sync(file)
    files.sync_folder(root)

    files.truncate(file, 4096)
    assert outcomes(files, tmp_path, lambda folder: len(content("msgs")(folder))) == {4096, 8192}

    files.sync(file)
    assert outcomes(files, tmp_path, lambda folder: len(content("msgs")(folder))) == {4096}


def test_pages_may_be_at_a_state_between_the_flush_and_the_cut(root, tmp_path):
    files = PowerCutFiles(Disk(root, Random(3), write_back=0.5))
    file = files.create(root / "acks", 4096)
    files.sync(file)
    files.sync_folder(root)

    for value in range(1, 200):
        file.map[0:1] = bytes((value,))
        files.overwritten(file, 0, 1)

    seen = outcomes(files, tmp_path, lambda folder: content("acks")(folder)[0])
    assert any(0 < value < 199 for value in seen)


def test_a_renamed_folder_keeps_its_content(files, root, tmp_path):
    files.make_folder(root / "queue")
    file = files.open_log(root / "queue" / "log")
    files.sync(file)
    for folder in (root / "queue", root):
        files.sync_folder(folder)

    files.rename(root / "queue", root / "gone")
    files.append(file, b"more")
    files.unlink(root / "gone" / "log")

    assert outcomes(files, tmp_path, names) == {("queue",), ("gone",)}


def test_nothing_happens_after_the_process_is_dead(files, root):
    file = files.open_log(root / "log")
    files.switch_off()

    with pytest.raises(PowerIsOff):
        files.append(file, b"x")
    with pytest.raises(OSError):
        files.sync(file)

    assert (root / "log").read_bytes() == b""


def test_what_a_killed_process_wrote_is_still_not_flushed_for_the_next_one(files, root, tmp_path):
    file = files.open_log(root / "log")
    files.sync(file)
    files.sync_folder(root)
    files.append(file, b"x")
    files.switch_off()

    again = PowerCutFiles(files.disk)
    assert again.open_log(root / "log").size == 1
    assert b"" in outcomes(again, tmp_path, content("log"))


def test_a_laid_out_folder_is_taken_as_flushed(files, root, tmp_path):
    files.make_folder(root / "queue")
    files.append(files.open_log(root / "queue" / "log"), b"x")
    for folder in (root / "queue", root):
        files.sync_folder(folder)
    first = files.disk.lay_out_flushed(tmp_path / "first")
    assert os.listdir(first / "queue") == ["log"] and content("queue/log")(first) == b""

    again = PowerCutFiles(Disk(first, Random(4)))

    assert outcomes(again, tmp_path, content("queue/log")) == {b""}


def test_one_seed_gives_one_folder(tmp_path):
    seen = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        files = PowerCutFiles(Disk(tmp_path / name, Random(7)))
        file = files.create(tmp_path / name / "msgs", 1 << 15)
        for at in range(0, 1 << 15, 100):
            file.map[at:at + 1] = b"x"
            files.appended(file, at, at + 1)
        seen.append(content("msgs")(files.disk.cut(tmp_path / (name + "-cut"))))

    assert seen[0] == seen[1]
