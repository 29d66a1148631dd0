"""Late imports: what cannot be imported, and what should not be any more."""
import os
import subprocess
import sys

import pytest

import gomq_py
from gomq_py import late_imports
from gomq_py.errors import OutOfResources
from gomq_py.late_imports import Unreplaced, importing


@pytest.mark.parametrize("error", [ImportError("a"), OSError("b"), ValueError("size changed"), TypeError()])
def test_whatever_fails_in_an_import_is_refused_and_told_to_the_log(error, caplog):
    with pytest.raises(OutOfResources, match="cannot import what a stream needs: see the log") as raised:
        with importing("a stream"):
            raise error

    assert raised.value.__cause__ is error
    assert str(error) in caplog.text


def test_nothing_is_imported_from_a_package_that_was_replaced(tmp_path, monkeypatch):
    there, newer = tmp_path / "__init__.py", tmp_path / "newer"
    there.write_text("")
    newer.write_text("")
    monkeypatch.setattr(gomq_py, "__file__", str(there))
    monkeypatch.setattr(Unreplaced, "begun", late_imports._package())

    assert Unreplaced.find_spec("gomq_py.storage.stores.stream_store") is None
    os.replace(newer, there)
    assert Unreplaced.find_spec("json") is None
    with pytest.raises(ImportError, match="gomq_py.storage.stores.stream_store: the package was replaced"):
        Unreplaced.find_spec("gomq_py.storage.stores.stream_store")
    there.unlink()
    with pytest.raises(ImportError, match="the package was replaced"):
        Unreplaced.find_spec("gomq_py.storage.stores.stream_store")


def test_package_in_an_archive_is_never_replaced(monkeypatch):
    monkeypatch.setattr(gomq_py, "__file__", os.path.join(__file__, "gomq_py", "__init__.py"))
    monkeypatch.setattr(Unreplaced, "begun", late_imports._package())

    assert Unreplaced.find_spec("gomq_py.storage.stores.stream_store") is None


def test_a_broker_of_its_own_looks_at_that_and_a_program_that_has_one_does_not():
    for module, is_there in (("gomq_py.__main__", True), ("gomq_py.launcher", False)):
        source = (
            f"import {module}, sys; from gomq_py.late_imports import Unreplaced; "
            "print(Unreplaced in sys.meta_path)")
        done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
        assert done.stdout.strip() == str(is_there), done.stderr
