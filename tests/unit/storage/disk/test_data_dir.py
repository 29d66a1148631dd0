"""storage.disk.data_dir: one holder at a time, a version that is checked, names that cannot escape."""
import errno
import hashlib
import os
import socket
import subprocess
import sys

import pytest

from gomq_py.storage.disk import data_dir as data_dir_module
from gomq_py.storage.disk import swap
from gomq_py.storage.disk.data_dir import (
    FOLLOWED, KILLED, NOT_CONTENT, POWER_LOST, STOPPED, DataDir, DataDirError, DataDirLocked, last_end_of,
    listed_in, queue_id,
)
from gomq_py.storage.disk.files import Files
from gomq_py.storage.disk.segment_list import Listed
from tests.support.faulty_files import FaultyFiles
from tests.support.mirror import Mirror

HOLD = """
import sys
from gomq_py.storage.disk.data_dir import DataDir
data_dir = DataDir(sys.argv[1]).open()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "data")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.communicate()


def test_open_creates_a_private_folder_with_its_layout_and_version(tmp_path):
    with DataDir(tmp_path / "deep" / "data") as data_dir:
        assert os.stat(data_dir.path).st_mode & 0o777 == 0o700
        assert (tmp_path / "deep" / "data" / "schema_version").read_text() == "2\n"
        assert all(
            os.path.isdir(folder)
            for folder in (data_dir.pool_folder, data_dir.queues_folder, data_dir.transient_folder)
        )


def test_open_again_after_close(tmp_path):
    with DataDir(tmp_path):
        pass

    with DataDir(tmp_path) as data_dir:
        assert data_dir.locked

    assert not data_dir.locked


def test_replicators_are_told_of_nothing_outside_of_the_folder(tmp_path):
    class Heard(Mirror):
        def _here(self, path):
            told.append(path)
            return super()._here(path)

    told, root = [], tmp_path / "deep" / "data"
    with DataDir(root, Files((Heard(root, tmp_path / "copy"),))) as data_dir:
        assert told and all(path.startswith(f"{root}{os.sep}") for path in told)
        assert data_dir.path not in data_dir._files.register.folders


def test_a_second_process_is_told_in_one_line_who_holds_the_folder(tmp_path, holder):
    with pytest.raises(DataDirLocked) as raised:
        DataDir(tmp_path / "data").open()

    assert str(
        raised.value
    ) == f"data folder {tmp_path / 'data'} is in use by PID {holder.pid} @ {socket.gethostname()}"


def test_a_second_opening_in_this_process_is_refused(tmp_path):
    with DataDir(tmp_path) as data_dir:
        with pytest.raises(DataDirLocked):
            DataDir(tmp_path).open()
        with pytest.raises(DataDirLocked):
            data_dir.open()
        assert data_dir.locked


def test_a_second_opening_is_let_in_where_the_lock_is_not_wanted(tmp_path):
    with DataDir(tmp_path):
        with DataDir(tmp_path, lock=False) as second:
            assert not second.locked


def test_a_killed_holder_leaves_the_folder_free(tmp_path, holder):
    holder.kill()
    holder.wait()

    with DataDir(tmp_path / "data") as data_dir:
        assert data_dir.locked


# What runs between this fork and the child's end or exec is safe beside threads;
# Python 3.12 and newer cannot know that.
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_child_neither_keeps_the_folder_nor_gives_it_away(tmp_path):
    data_dir = DataDir(tmp_path).open()
    ready, tell = os.pipe()
    child = os.fork()
    if not child:
        os.write(tell, b"forked")
        os.read(os.pipe()[0], 1)  # for ever, as a worker of an embedding program would
        os._exit(0)
    try:
        os.read(ready, 6)
        with pytest.raises(DataDirLocked):
            DataDir(tmp_path).open()
        os.close(data_dir._lock_fd)  # what the parent's death does: no unlocking, only its copy goes

        with DataDir(tmp_path) as again:
            assert again.locked
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        data_dir._lock_fd = -1


def test_an_unknown_version_is_refused_and_nothing_is_changed(tmp_path):
    (tmp_path / "schema_version").write_text("4")

    with pytest.raises(DataDirError) as raised:
        DataDir(tmp_path).open()

    assert "schema version '4'" in str(raised.value) and "\n" not in str(raised.value)
    assert sorted(os.listdir(tmp_path)) == [".lock", "schema_version"]


def test_a_refused_folder_is_not_left_locked(tmp_path):
    (tmp_path / "schema_version").write_text("4")
    with pytest.raises(DataDirError):
        DataDir(tmp_path).open()
    (tmp_path / "schema_version").write_text("1\n")

    with DataDir(tmp_path) as data_dir:
        assert data_dir.locked


def test_somebody_elses_folder_is_refused(tmp_path):
    (tmp_path / "thesis.tex").touch()

    with pytest.raises(DataDirError, match="not a gomq-py data folder: it holds 'thesis.tex'"):
        DataDir(tmp_path).open()


def test_a_mount_point_and_a_boot_that_was_cut_short_are_fine(tmp_path):
    (tmp_path / "lost+found").mkdir()
    (tmp_path / ".lock").touch()
    (tmp_path / "schema_version.new.1").touch()

    with DataDir(tmp_path):
        assert not (tmp_path / "schema_version.new.1").exists()


def test_a_file_in_place_of_the_folder_is_a_clear_error(tmp_path):
    (tmp_path / "data").touch()

    with pytest.raises(DataDirError, match="is not a folder"):
        DataDir(tmp_path / "data").open()


@pytest.mark.parametrize("name", ["..", "/etc/passwd", "a/b", "", "q" * 255, "\udcff\udc80", "ünï", "x\0y"])
def test_any_queue_name_has_a_folder_of_its_own_inside(tmp_path, name):
    data_dir = DataDir(tmp_path)

    folder = data_dir.queue_folder("/", name)

    assert os.path.dirname(folder) == data_dir.queues_folder
    assert folder != data_dir.queue_folder("other", name)
    assert folder == data_dir.queue_folder("/", name)


def test_vhost_and_queue_do_not_run_together():
    assert len({queue_id("a", "bc"), queue_id("ab", "c"), queue_id("a\0b", "c"), queue_id("a", "b\0c")}) == 4


def test_disk_without_room_for_the_locks_text_is_named_and_the_folder_is_not_left_locked(
    tmp_path, monkeypatch
):
    def no_room(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", no_room)
    with pytest.raises(OSError, match=r"No space left on device: .*/data/\.lock"):
        DataDir(tmp_path / "data").open()
    monkeypatch.undo()

    DataDir(tmp_path / "data").open().close()


@pytest.mark.parametrize("refused", ["open", "write"])
def test_disk_without_room_for_the_note_of_a_run_keeps_nobody_from_booting(tmp_path, monkeypatch, refused):
    DataDir(tmp_path).open().close()
    (tmp_path / ".last-run").unlink()
    real = getattr(os, refused)

    def no_room(target, *rest):
        if refused == "open" and not os.fspath(target).endswith(".last-run"):
            return real(target, *rest)
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(os, refused, no_room)
    DataDir(tmp_path).open().close()
    monkeypatch.undo()

    assert last_end_of(tmp_path) == POWER_LOST


def test_end_of_a_run_that_nobody_noted_is_not_known_to_be_orderly(tmp_path):
    DataDir(tmp_path).open().close(in_order=True)
    assert last_end_of(tmp_path) == STOPPED
    DataDir(tmp_path).open().close()
    assert last_end_of(tmp_path) == KILLED
    (tmp_path / ".last-run").unlink()
    assert last_end_of(tmp_path) == POWER_LOST


@pytest.mark.parametrize("lock", [True, False])
def test_end_that_is_noted_is_not_that_of_another_version_which_ran_since(tmp_path, lock):
    """It knows neither the note nor the list, leaves both as they are and writes its own name into the
    lock's file, if anything.
    """
    stop_with(tmp_path, LISTED)
    assert (last_end_of(tmp_path), listed_in(tmp_path) != {}) == (STOPPED, True)
    if lock:
        (tmp_path / ".lock").write_bytes(b"PID 7 @ elsewhere\n")
    else:
        (tmp_path / ".lock").unlink()  # as in a copy without it, or on a file system without flock

    noted = last_end_of(tmp_path), listed_in(tmp_path) != {}

    assert noted == ((POWER_LOST, False) if lock else (STOPPED, True))
    assert listed_at_boot(tmp_path) == ((POWER_LOST, {}) if lock else (STOPPED, LISTED))


LISTED = {"q.1": Listed({1: 5, 12: 1}), "p.2/level.003": Listed({}), "s.3": Listed({2: 10}, 70, 4711)}


def stop_with(root, listed):
    data_dir = DataDir(root).open()
    data_dir.list_segments(
        {os.path.join(data_dir.queues_folder, folder): entry for folder, entry in listed.items()}
    )
    data_dir.close(in_order=True)


def listed_at_boot(root):
    with DataDir(root) as data_dir:
        return data_dir.last_end, {
            os.path.relpath(folder, data_dir.queues_folder): entry
            for folder, entry in data_dir.listed.items()
        }


def test_list_of_what_an_orderly_stop_left_counts_for_the_next_boot_only(tmp_path):
    stop_with(tmp_path, LISTED)

    assert listed_at_boot(tmp_path) == (STOPPED, LISTED)
    assert listed_at_boot(tmp_path) == (KILLED, {})


def test_orderly_stop_that_left_nothing_leaves_no_list(tmp_path):
    stop_with(tmp_path, LISTED)
    stop_with(tmp_path, {})

    assert (tmp_path / ".last-run").read_bytes() == b"stopped\n" and not (tmp_path / ".segments").exists()
    assert listed_at_boot(tmp_path) == (STOPPED, {})


def test_list_moves_with_the_folder(tmp_path):
    stop_with(tmp_path / "here", LISTED)
    (tmp_path / "here").rename(tmp_path / "there")

    assert listed_at_boot(tmp_path / "there") == (STOPPED, LISTED)


@pytest.mark.parametrize("is_promoted", [True, False])
def test_folder_that_was_followed_tells_nothing_of_the_run_before(tmp_path, is_promoted):
    """Its content is another node's by now, whether the follower leads itself or
    ends and another broker does.
    """
    stop_with(tmp_path, LISTED)
    data_dir = DataDir(tmp_path).follow()
    if not is_promoted:
        data_dir.close()
        data_dir = DataDir(tmp_path)

    data_dir.open()

    assert (data_dir.last_end, data_dir.listed) == (FOLLOWED, {})
    data_dir.close()


@pytest.mark.parametrize("how", [FOLLOWED, POWER_LOST])
def test_what_a_boot_must_look_at_it_must_look_at_again_if_it_was_killed(tmp_path, monkeypatch, how):
    """Until it has read everything, when it notes what there is of the logs."""
    DataDir(tmp_path).follow().close()
    if how == POWER_LOST:
        monkeypatch.setattr(data_dir_module, "boot_id", lambda: b"another\n")
    for _ in range(2):
        booted = DataDir(tmp_path).open()
        booted.note_log("users", {7: 100})
        assert booted.last_end == how
        booted.close()

    booted = DataDir(tmp_path).open()
    booted.note_logs({})
    booted.close()

    assert last_end_of(tmp_path) == KILLED


@pytest.mark.parametrize("octet", [0, 40, -2])
def test_list_that_has_changed_counts_for_nothing(tmp_path, octet):
    stop_with(tmp_path, LISTED)
    content = bytearray((tmp_path / ".segments").read_bytes())
    content[octet] ^= 1
    (tmp_path / ".segments").write_bytes(content)

    assert listed_at_boot(tmp_path) == (STOPPED, {})


@pytest.mark.parametrize("content", [b"a later version's\n", b"\xff\n", b"q.1 0 1:five\n"])
def test_list_that_a_later_version_wrote_in_its_own_way_keeps_nobody_from_booting(tmp_path, content):
    stop_with(tmp_path, LISTED)
    (tmp_path / ".segments").write_bytes(content)
    (tmp_path / ".last-run").write_bytes(b"stopped\n%s\n" % hashlib.sha256(content).hexdigest().encode())

    assert listed_at_boot(tmp_path) == (STOPPED, {})


@pytest.mark.parametrize("name, last_end", [(".last-run", POWER_LOST), (".segments", STOPPED)])
def test_file_about_the_last_run_that_the_disk_does_not_give_back_keeps_nobody_from_booting(
    tmp_path, monkeypatch, caplog, name, last_end
):
    stop_with(tmp_path, LISTED)

    def refused(path, *rest):
        if os.fspath(path).endswith(name):
            raise OSError(errno.EIO, "Input/output error", path)
        return open(path, *rest)

    monkeypatch.setattr(data_dir_module, "open", refused, raising=False)

    assert listed_at_boot(tmp_path) == (last_end, {})
    assert f"{tmp_path / name} cannot be read, and is not needed: Input/output error" in caplog.text


def test_disk_without_room_for_the_list_keeps_the_note_of_an_orderly_stop(tmp_path, monkeypatch):
    data_dir = DataDir(tmp_path).open()
    data_dir.list_segments({os.path.join(data_dir.queues_folder, "q.1"): Listed({1: 5})})
    real = os.write

    def no_room(fd, octets):
        if bytes(octets).startswith(b"q.1"):
            raise OSError(errno.ENOSPC, "no room")
        return real(fd, octets)

    monkeypatch.setattr(os, "write", no_room)
    data_dir.close(in_order=True)
    monkeypatch.undo()

    assert listed_at_boot(tmp_path) == (STOPPED, {})


def test_what_is_set_aside_keeps_its_content_and_pushes_out_nothing_that_was_there_before(tmp_path):
    with DataDir(tmp_path / "data") as data_dir:
        for content in ("first", "second"):
            folder = tmp_path / "data" / "queues" / "orphan"
            folder.mkdir()
            (folder / "msgs").write_text(content)

            target = data_dir.set_aside(folder)

            assert not folder.exists()
            assert open(os.path.join(target, "msgs")).read() == content

    assert len(os.listdir(tmp_path / "data" / "set-aside")) == 2


# a swap that was cut short

def swap_in_part(root):
    """What a kill in the middle of a swap leaves."""
    (root / "cluster_name").write_bytes(b"old")
    (root / ".sync" / "queues").mkdir(parents=True)
    (root / ".sync" / "schema_version").write_bytes(b"2\n")
    (root / ".sync" / "cluster_name").write_bytes(b"new")
    with pytest.raises(OSError):  # when the old name is away, and the new one not there
        swap.swap(FaultyFiles(12), root, NOT_CONTENT)
    assert (root / ".sync.manifest").exists() and not (root / "cluster_name").exists()


@pytest.mark.parametrize("role", ["open", "follow"])
def test_swap_is_finished_first(tmp_path, role):
    swap_in_part(tmp_path)

    data_dir = getattr(DataDir(tmp_path), role)()
    data_dir.close()

    assert (tmp_path / "cluster_name").read_bytes() == b"new"
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".sync")]


def test_replicators_hear_nothing_of_a_swap(tmp_path):
    root = tmp_path / "data"
    root.mkdir()
    swap_in_part(root)
    files = Files((Mirror(root, tmp_path / "copy"),))

    with DataDir(root, files):
        assert files.register.told == 2  # pool, transient
        assert not [path for path in files.register.paths.values() if ".sync" in path]


@pytest.fixture
def linked(tmp_path):
    """A data folder whose queues are elsewhere."""
    root = tmp_path / "data"
    DataDir(root).open().close()
    os.rename(root / "queues", tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", root / "queues")
    return root


def test_link_to_a_folder_is_refused_in_one_line_if_there_are_replicators(linked, tmp_path):
    data_dir = DataDir(linked, Files((Mirror(linked, tmp_path / "copy"),)))

    with pytest.raises(DataDirError) as raised:
        data_dir.open()

    assert str(raised.value).startswith(f"{linked / 'queues'} is a link: ") and "\n" not in str(raised.value)
    assert not data_dir.locked


def test_link_to_a_folder_is_followed_without_replicators(linked):
    with DataDir(linked) as data_dir:
        assert os.path.islink(data_dir.queues_folder)


@pytest.mark.parametrize("role", ["open", "follow"])
def test_unfinished_sync_is_removed(tmp_path, role):
    (tmp_path / ".sync" / "queues").mkdir(parents=True)
    (tmp_path / ".sync" / "queues" / "file").write_bytes(b"x")
    (tmp_path / ".sync.copy").write_bytes(b"x")

    getattr(DataDir(tmp_path), role)().close()

    assert not [name for name in os.listdir(tmp_path) if name.startswith(".sync")]


@pytest.mark.parametrize("role", ["open", "follow"])
def test_damaged_manifest_is_an_error_that_changes_nothing(tmp_path, role):
    swap_in_part(tmp_path)
    (tmp_path / ".sync.manifest").write_bytes(b"nothing")
    names = sorted(os.listdir(tmp_path))

    with pytest.raises(DataDirError, match="parts of two states"):
        getattr(DataDir(tmp_path), role)()

    assert sorted({*os.listdir(tmp_path)} - {".lock"}) == names
