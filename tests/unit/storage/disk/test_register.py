"""Register: the ids of files whose names change hands before replicators hear of it, and what it takes in."""
import os
import socket

import pytest

from gomq_py.storage.disk.files import Files
from gomq_py.storage.disk.register import Register
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
