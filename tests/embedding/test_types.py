"""The types of the public names, as mypy and pyright see them in a program that uses the package."""
import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gomq_py import dispatcher
from tests.support.waiting import in_time

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("typed_program.py")
CHECKERS = {"mypy": ("--strict",), "basedpyright": ()}
# Calls that a task's own signature refuses, and a name that is not there.
WRONG = """
from gomq_py.dispatcher import Dispatcher, Nothing

app = Dispatcher()


@app.task(with_uuid=True)
def resize(uuid: str, path: str, width: int = 1) -> None: ...


resize.delay(5)
resize.delay("cat.png", height=2)
resize.submit("uuid", "cat.png", 3)
resize("cat.png")
app.task(retry=3)
"""
WRONG_LINES = [2, 11, 12, 13, 14, 15]
LIBRARY = (
    "embedded.py", "client/*.py", "testing/brokers.py", "dispatcher/app.py", "dispatcher/errors.py",
    "dispatcher/server.py", "dispatcher/signatures.py", "dispatcher/tasks.py", "dispatcher/worker.py",
)


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_strict_checker_finds_wrong_calls_of_tasks_and_nothing_else(checker, tmp_path):
    """The programs lie outside of our tree, so that the checkers find the package as an installed one."""
    pytest.importorskip(checker, reason="it has no wheel for this processor")
    (tmp_path / "wrong.py").write_text(WRONG, encoding="utf-8")
    (tmp_path / "right.py").write_text(PROGRAM.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')

    done = subprocess.run(
        [sys.executable, "-m", checker, *CHECKERS[checker], "right.py", "wrong.py"], cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=in_time(200))

    found = re.findall(r"(\w+)\.py:(\d+):.*error", done.stdout)
    expected = {("wrong", line) for line in WRONG_LINES}
    assert {(name, int(line)) for name, line in found} == expected, done.stdout


def test_public_functions_of_the_library_say_their_types():
    bare = []
    for path in (path for pattern in LIBRARY for path in sorted((ROOT / "gomq_py").glob(pattern))):
        module = ast.parse(path.read_text(encoding="utf-8"))
        classes = [node for node in module.body if isinstance(node, ast.ClassDef) and node.name[0] != "_"]
        for owner in (module, *classes):
            for node in owner.body:
                if isinstance(node, ast.FunctionDef) and is_public(node.name) and not says_types(node):
                    bare.append(f"{path.name}:{node.lineno} {node.name}")

    assert bare == []


def is_public(name):
    return name[0] != "_" or name == "__init__"


def says_types(function):
    """True if each argument and the result has a type, or the function is one that overloads describe."""
    arguments = function.args
    every = (*arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
    bare = [each for each in every if each and each.annotation is None and each.arg not in ("self", "cls")]
    return not bare and function.returns is not None or function.name == "task"


def test_a_checker_sees_the_names_that_the_dispatcher_imports_late():
    stub = ast.parse(Path(dispatcher.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))

    seen = {alias.asname: node.module.rpartition(".")[2] for node in stub.body for alias in node.names}

    assert seen == dispatcher._HOMES
