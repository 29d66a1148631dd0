"""tests.check: which tests a change is checked by, and how long a commit subject may be."""
import subprocess
import sys

import pytest

from tests import check


@pytest.mark.parametrize("file, test", [
    ("gomq_py/storage/stores/message_store.py", "tests/unit/storage/stores/test_message_store.py"),
    ("gomq_py/amqp/server/fast_lane.pxd", "tests/unit/amqp/server/test_settling.py"),
    ("gomq_py/reload.py", "tests/unit/test_reload.py"),
    (str(check.ROOT / "gomq_py" / "octets.py"), "tests/unit/test_octets.py"),
    ("tests/e2e/test_tls.py", "tests/e2e/test_tls.py"),
])
def test_file_has_the_tests_of_its_room(file, test):
    assert test in map(str, check.tests_of(file))


@pytest.mark.parametrize("file", ["docs/where.md", "tests/conftest.py", "tests/unit/test_gone.py", "x.py"])
def test_what_lies_in_no_room_has_the_tests_of_the_house_only(file):
    assert check.tests_of(file) == []


def test_tests_of_the_house_exist():
    assert [test for test in check.HOUSE if not (check.ROOT / test).exists()] == []


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A clone with a commit of its own; ``git(...)`` runs in it."""
    def git(*arguments, folder="clone"):
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=tmp_path / folder,
            check=True, capture_output=True)

    (tmp_path / "origin").mkdir()
    git("init", "-q", folder="origin")
    git("commit", "-q", "--allow-empty", "-m", "o" * 73, folder="origin")
    git("clone", "-q", "origin", "clone", folder="")
    monkeypatch.setattr(check, "ROOT", tmp_path / "clone")
    return git


@pytest.mark.parametrize("columns, code", [(72, 0), (73, 1)])
def test_subject_of_a_new_commit_has_at_most_72_columns(clone, columns, code):
    clone("commit", "-q", "--allow-empty", "-m", "x" * columns)

    assert check.check_subjects() == code


def test_subjects_are_not_checked_without_an_upstream(clone, capsys):
    clone("checkout", "-q", "--detach")
    clone("commit", "-q", "--allow-empty", "-m", "x" * 73)

    assert check.check_subjects() == 0
    assert "not checked" in capsys.readouterr().out


def test_without_files_it_is_what_differs_from_the_upstream_branch(clone):
    for name in ("committed", "untracked"):
        (check.ROOT / name).write_text("x")
        if name == "committed":
            clone("add", name)
            clone("commit", "-q", "-m", "more")

    assert check.changed() == ["committed", "untracked"]


def test_without_an_upstream_it_asks_for_files(clone):
    clone("checkout", "-q", "--detach")

    with pytest.raises(SystemExit, match="name the files"):
        check.changed()


def test_program_checks_the_subjects_of_this_clone():
    """In whatever state it is: the exit code says whether they are short."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.check", "--subjects"], cwd=check.ROOT, capture_output=True, text=True)

    assert run.returncode in (0, 1) and not run.stderr
