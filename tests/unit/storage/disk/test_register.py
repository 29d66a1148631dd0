"""Register: the ids of files whose names change hands before replicators hear of it, and what it takes in."""
import os
import socket

import pytest

from gomq_py.storage.disk.files import Files
from gomq_py.storage.disk.register import Register, listing
from gomq_py.storage.errors import DataDirError


class Told(list):
    """A replicator that notes events with their arguments."""

    def __getattr__(self, name):
        return lambda *arguments: self.append((name, *arguments))


@pytest.fixture
def told():
    return Told()


@pytest.fixture
def files(told):
    return Files((told,))


@pytest.mark.parametrize("change", ["unlinked", "renamed"])
def test_file_whose_name_has_another_file_before_replicators_hear_has_its_own_id(
    files, told, tmp_path, change
):
    path, target = str(tmp_path / "a"), str(tmp_path / "b")
    files.create(path, 4096)
    changing = files.unlinking(path) if change == "unlinked" else files.renaming(path, target)
    changing.act()
    files.create(path, 4096)

    changing.told()

    assert told[2:] == [(change, 1, path) if change == "unlinked" else (change, 1, path, target)]
    left = {2: path} if change == "unlinked" else {1: target, 2: path}
    assert files.register.paths == left
    assert all(files.register.id_of(path) == file_id for file_id, path in left.items())


def test_change_of_a_file_that_was_made_in_a_thread_is_told_with_the_id_that_it_got(files, told, tmp_path):
    file = files.make(tmp_path / "a", 4096)
    unlinking = files.unlinking(file.path)
    unlinking.act()
    files.made(file)

    unlinking.told()

    assert told[-1] == ("unlinked", 1, file.path) and not files.register.paths


@pytest.mark.parametrize("change", [
    lambda files, file: files.appended(file, 0, 1), lambda files, file: files.overwritten(file, 0, 1),
    lambda files, file: files.truncate(file, 1),
], ids=["appended", "overwritten", "resized"])
def test_change_of_a_file_that_is_not_in_the_register_is_told_as_divergence(files, told, tmp_path, change):
    file = files.make(tmp_path / "a", 4096)

    change(files, file)

    assert told == [("diverged",)] and files.register.told == 1
    assert files.register.paths == {files.register.id_of(file.path): file.path}


def test_socket_is_not_in_the_register(tmp_path):
    (tmp_path / "users").touch()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        register = Register(())
        register.seed(tmp_path, ())

    assert list(register.paths.values()) == [str(tmp_path / "users")]


def test_second_seed_keeps_nothing_of_the_first_and_uses_no_id_again(tmp_path):
    register = Register(())
    (tmp_path / "queues").mkdir()
    (tmp_path / "users").touch()
    register.seed(tmp_path, ())
    (tmp_path / "queues").rmdir()
    os.rename(tmp_path / "users", tmp_path / "definitions")

    register.seed(tmp_path, ())

    path = str(tmp_path / "definitions")
    assert (register.paths, list(register.folders), register.id_of(tmp_path / "users")) == ({2: path}, [], 0)


def test_link_to_a_folder_is_refused_unless_it_is_left_out(tmp_path):
    root = str(tmp_path)
    os.symlink("/", os.path.join(root, "queues"))

    Register(()).seed(root, {"queues"})
    with pytest.raises(DataDirError):
        Register(()).seed(root, ())


def test_copy_of_another_folder_keeps_its_ids_and_positions(told, files, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).touch()
    files.register.go_on({str(tmp_path / "a"): 7, str(tmp_path / "b"): 3}, 50)

    files.register.seed(str(tmp_path), ())
    files.create(tmp_path / "c", 4096)

    assert files.register.paths == {7: f"{tmp_path}/a", 3: f"{tmp_path}/b", 8: f"{tmp_path}/c"}
    assert files.register.told == 51 and told == [("created", 8, f"{tmp_path}/c", 4096)]


@pytest.mark.parametrize("ids", [{"a": 7}, {"a": 7, "b": 3, "c": 9}])
def test_folder_with_other_files_than_its_copies_has_diverged(told, files, tmp_path, ids):
    for name in ("a", "b"):
        (tmp_path / name).touch()
    files.register.go_on({str(tmp_path / name): file_id for name, file_id in ids.items()}, 50)

    files.register.seed(str(tmp_path), ())

    assert told == [("diverged",)] and files.register.told == 51


@pytest.fixture
def late(told, tmp_path):
    """Files of a broker that works, to which a replicator was attached, and its register."""
    files = Files()
    files.create(str(tmp_path / "listed"), 4096)
    files.make_folder(str(tmp_path / "queue"))
    files.create(str(tmp_path / "queue" / "inner"), 4096)
    return files, files.register.attach(told)


def fill(register, root):
    for path, is_folder in listing(root):
        register.found(path, is_folder)
    register.is_filling = False


def left_in(root):
    return {path for path, is_folder in listing(root) if not is_folder}


def test_an_attached_replicator_hears_of_files_that_were_there_before(late, told, tmp_path):
    files, register = late
    fill(register, tmp_path)
    listed = str(tmp_path / "listed")
    file_id = register.id_of(listed)

    files.unlink(listed)

    assert file_id and told == [("unlinked", file_id, listed)]
    assert set(register.folders) == {str(tmp_path / "queue")}


def test_a_detached_replicator_hears_nothing_more(late, told, tmp_path):
    files, register = late
    fill(register, tmp_path)

    files.register.detach(told)
    files.unlink(tmp_path / "listed")

    assert not told and not files.register.replicators and not files.register.id_of(str(tmp_path / "queue"))


@pytest.mark.parametrize("told_at", ["before the listing", "while it fills", "behind it"])
@pytest.mark.parametrize("change", ["make", "rename", "rename a folder", "replace", "unlink"])
def test_changes_that_a_thread_made_before_the_listing_fit_it(tmp_path, told, change, told_at):
    """A thread makes a change before the attachment and tells of it later: the register has what is there, or
    every copy is compared anew.
    """
    files = Files()
    a, b, queue, moved = [str(tmp_path / name) for name in ("a", "b", "queue", "moved")]
    files.create(a, 4096)
    files.make_folder(queue)
    files.create(os.path.join(queue, "inner"), 4096)
    if change == "replace":
        files.create(b, 4096)
    if change == "make":
        file = files.make(b, 4096)
        tell = lambda: files.made(file)  # noqa: E731
    else:
        changing = {
            "rename": lambda: files.renaming(a, b), "replace": lambda: files.renaming(a, b),
            "rename a folder": lambda: files.renaming(queue, moved), "unlink": lambda: files.unlinking(a),
        }[change]()
        changing.act()
        tell = changing.told
    register = files.register.attach(told)

    if told_at == "before the listing":
        tell()
    for path, is_folder in listing(tmp_path):
        register.found(path, is_folder)
    if told_at == "while it fills":
        tell()
    register.is_filling = False
    if told_at == "behind it":
        tell()

    assert set(register.paths.values()) == left_in(tmp_path)
    assert len(register.paths) == len(left_in(tmp_path))
    assert set(register.folders) == {path for path, is_folder in listing(tmp_path) if is_folder}
    is_renamed = change.startswith("re")
    assert (("diverged",) in told) == (is_renamed and told_at == "behind it")


def test_a_folder_that_moves_between_listing_and_register_is_registered_whole(late, told, tmp_path):
    files, register = late
    found = listing(tmp_path)

    files.rename(tmp_path / "queue", tmp_path / "moved")
    for path, is_folder in found:
        register.found(path, is_folder)

    assert set(register.paths.values()) == left_in(tmp_path)


def test_a_link_in_the_folder_is_no_content_of_a_backup(late, tmp_path):
    os.symlink("listed", tmp_path / "link")

    with pytest.raises(DataDirError, match="is a link"):
        listing(tmp_path)
