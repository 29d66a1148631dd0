"""docs/compatibility.md, and the page of its tests: every method has its row, every difference is told,
and every test they name exists.
"""
import ast
import re
from pathlib import Path

import pytest

from tests.support.wire_encoding import METHODS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
TESTS = (ROOT / "docs" / "contributing" / "compatibility.md").read_text(encoding="utf-8")
TABLE = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in TESTS.splitlines() if line.startswith("| `")
]
ROWS = {row[0].strip("`"): row[1:] for row in TABLE if row[0].strip("`") in METHODS}


def functions(pattern):
    """The test functions of the modules that match, as {name: node}."""
    found = {}
    for path in sorted(ROOT.glob(pattern)):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found[node.name] = node
    return found


def named(cell):
    """(chapter, test name) of every reference in a cell of the table of methods."""
    return [
        (chapter, f"test_{name}")
        for chapter, names in re.findall(r"(\d\d) ([^;]*)", cell) for name in re.findall(r"(\w{4,})", names)
    ]


@pytest.mark.parametrize("method", sorted(METHODS))
def test_method_has_a_row_whose_tests_exist(method):
    good, refused, malformed = ROWS[method]

    assert good and refused and malformed
    for cell in (good, refused, malformed):
        for chapter, name in named(cell):
            assert name in functions(f"tests/conformance/amqp/test_{chapter}_*.py"), (
                f"{method}: no {name} in chapter {chapter}"
            )


def test_other_tests_it_names_exist():
    every = functions("tests/**/test_*.py")

    assert [name for name in re.findall(r"`(test_\w+)`", TESTS) if name not in every] == []
    assert "test_" not in PAGE


def test_every_difference_is_told():
    marked = [
        name for name, node in functions("tests/conformance/amqp/*.py").items()
        if any("deviates" in ast.unparse(decorator) for decorator in node.decorator_list)
    ]

    assert [name for name in marked if f"`{name}`" not in TESTS] == []


@pytest.mark.parametrize("section", ["Clients", "Features", "Differences from RabbitMQ"])
def test_every_row_has_its_tests(section):
    sections = [page.partition(f"\n## {section}\n")[2].partition("\n## ")[0] for page in (PAGE, TESTS)]
    rows, with_tests = (re.findall(r"^\| (.+?) \|", text, re.MULTILINE) for text in sections)

    assert len(rows) > 9 and rows[1:] == with_tests[1:]
