"""docs/where.md: one file for each behaviour, its words in no other; and how many files one thing enters."""
import ast
import json
import os
import re
import subprocess
import sys
from functools import cache

import pytest

from tests.unit.source_tree import PACKAGE, ROOT, module_name, sources, tree

PAGE = (ROOT / "docs" / "where.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| ([^|]+) \| `([\w/]+\.py)` \| (.+) \|$", PAGE, re.MULTILINE)
FIGURES = {
    what: int(count) for what, count in re.findall(r"^\| ([\w ]+) \| (\d+) \|", PAGE, re.MULTILINE)
}
LEAST_ROWS = 30
# Programs beside the broker, which speak to it from outside: they spell what they send.
APART = (
    "gomq_py.perf", "gomq_py.client", "gomq_py.dispatcher", "gomq_py.spark", "gomq_py.pipeline",
    "gomq_py.testing", "gomq_py.ctl", "gomq_py.embedded", "gomq_py.diagnosis",
)


def words_of(cell):
    """The words in a cell of the table."""
    return re.findall(r"`([^`]+)`", cell)


def literals(module):
    """The strings of a syntax tree, without docstrings."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(module)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    return {
        node.value for node in ast.walk(module)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
    }


def spells(strings, word):
    """Whether the word is one of a module's strings, or, if it has a space in it, part of one."""
    return word in strings or " " in word and any(word in literal for literal in strings)


@cache
def broker_strings():
    """{path: its strings} of every module of the broker."""
    return {path: literals(tree(path)) for path in sources() if not module_name(path).startswith(APART)}


def test_page_has_thirty_behaviours_and_each_once():
    behaviours = [behaviour for behaviour, _, _ in ROWS]

    assert len(behaviours) >= LEAST_ROWS
    assert len(behaviours) == len(set(behaviours))


@pytest.mark.parametrize("behaviour, file, cell", ROWS, ids=[behaviour for behaviour, _, _ in ROWS])
def test_behaviour_has_one_file_and_no_other_spells_its_words(behaviour, file, cell):
    home = PACKAGE / file
    assert home.exists()
    assert words_of(cell) != []

    for word in words_of(cell):
        there = [path for path, strings in broker_strings().items() if spells(strings, word)]
        assert there == [home], f"{word!r} belongs into {file}"


@pytest.mark.parametrize("source, word, found", [
    ("X = 'x-a'", "x-a", True), ("X = 'x-ab'", "x-a", False), ("X = f'of {a} too many'", " too many", True),
    ('"""x-a"""', "x-a", False), ("def f():\n    'x-a'", "x-a", False), ("f('x-a')", "x-a", True),
])
def test_words_are_looked_for_in_strings_and_not_in_docstrings(source, word, found):
    assert spells(literals(ast.parse(source)), word) is found


def test_no_more_files_are_entered_than_the_page_says():
    """Nor fewer: a count that has fallen is written down, so that it does not rise again. The program runs
    interpreted, for a profiler sees no compiled function.
    """
    run = subprocess.run(
        [sys.executable, "-m", "tests.support.files_entered"], cwd=ROOT,
        env=os.environ | {"GOMQ_PURE_PYTHON": "1"}, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr

    entered = json.loads(run.stdout)

    more = {what: list(files) for what, files in entered.items() if len(files) > FIGURES.get(what, 0)}
    assert more == {}, f"more files are entered than {FIGURES}"
    assert FIGURES == {what: len(files) for what, files in entered.items()}, "lower the rows in docs/where.md"
