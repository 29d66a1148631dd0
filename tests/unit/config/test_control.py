"""Where the control socket lies when nobody says, and whom its path names."""
import os
import socket
import stat

import pytest

from gomq_py.config import control


@pytest.fixture
def system(tmp_path, monkeypatch):
    """What stands for /run in these tests: a folder of root's, or of whoever runs them."""
    (tmp_path / "run").mkdir(mode=0o755)
    monkeypatch.setattr(control, "SYSTEM_FOLDER", str(tmp_path / "run" / "gomq-py"))
    return tmp_path / "run"


def listening(path):
    held = socket.socket(socket.AF_UNIX)
    held.bind(str(path))
    held.listen()
    return held


def test_first_choice_is_the_systems_folder_where_that_may_be_made(system, tmp_path):
    path = control.path_to_serve(tmp_path / "data", {"XDG_RUNTIME_DIR": str(tmp_path)})

    assert path == str(system / "gomq-py" / "ctl.sock")
    assert stat.S_IMODE(os.stat(system / "gomq-py").st_mode) & 0o022 == 0


def test_folders_that_others_write_to_are_left_for_the_next(system, tmp_path):
    system.chmod(0o1777)
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)

    assert control.path_to_serve(tmp_path / "data", {"XDG_RUNTIME_DIR": str(runtime)}) == str(
        runtime / "gomq-py" / "ctl.sock"
    )
    runtime.chmod(0o777)
    (runtime / "gomq-py").rmdir()
    assert control.path_to_serve(tmp_path / "data", {"XDG_RUNTIME_DIR": str(runtime)}) == str(
        tmp_path / "data" / "ctl.sock"
    )
    assert control.path_to_serve(tmp_path / "data", {}) == str(tmp_path / "data" / "ctl.sock")


def test_link_in_a_place_of_the_folder_is_not_followed(system, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (system / "gomq-py").symlink_to(tmp_path / "elsewhere")

    assert control.path_to_serve(tmp_path / "data", {}) == str(tmp_path / "data" / "ctl.sock")


@pytest.mark.parametrize("place", ["run/gomq-py", "runtime/gomq-py", "data"])
def test_ctl_finds_it_wherever_the_broker_may_have_put_it(system, tmp_path, place):
    (tmp_path / place).mkdir(parents=True)
    environment = {"XDG_RUNTIME_DIR": str(tmp_path / "runtime")}
    assert control.path_to_use(str(tmp_path / "data"), environment) == ""

    with listening(tmp_path / place / "ctl.sock"):
        assert control.path_to_use(str(tmp_path / "data"), environment) == str(tmp_path / place / "ctl.sock")


@pytest.mark.parametrize("name", ["file", "absent", "nul\0"])
def test_what_is_no_socket_is_not_used(tmp_path, name):
    (tmp_path / "file").write_text("")

    assert not control.is_usable(str(tmp_path / name))


def test_path_names_its_owner_unless_others_may_change_it(monkeypatch):
    """Folders of /, of root and of a user, as stat tells them."""
    folders = {
        "/": (0, 0o755), "/run": (0, 0o755), "/run/gomq-py": (71, 0o755), "/run/shared": (71, 0o775),
        "/tmp": (0, 0o1777), "/tmp/own": (71, 0o700),
        "/users": (0, 0o755), "/users/joe": (71, 0o750), "/users/joe/data": (71, 0o750),
        "/users/joe/ann": (72, 0o700),
    }
    real = os.stat

    def told(path, **options):
        if path not in folders:
            return real(path, **options)
        owner, mode = folders[path]
        return os.stat_result((stat.S_IFDIR | mode, 1, 1, 1, owner, owner, 0, 0, 0, 0))

    monkeypatch.setattr(os.path, "realpath", lambda path: path)
    monkeypatch.setattr(control.os, "stat", told)

    assert {folder: control.owner_by_path(folder + "/ctl.sock") for folder in folders} == {
        "/": 0, "/run": 0, "/run/gomq-py": 71, "/run/shared": None, "/tmp": None, "/tmp/own": None,
        "/users": 0, "/users/joe": 71, "/users/joe/data": 71, "/users/joe/ann": None,
    }
