"""docs/promises.md names tests that are there, and every limit among the settings."""
import ast
import re

import pytest

from gomq_py.config.settings import OPTIONS
from tests.support.command import ROOT

PAGE = ROOT / "docs" / "promises.md"
TEXT = PAGE.read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[^`]*?)::([^`]*)`", TEXT)))
OTHER_LIMITS = {
    "frame_max", "channel_max", "login_timeout", "unread_timeout", "http_request_timeout", "http_idle_timeout"
}


@pytest.mark.parametrize("path", sorted({path for path, _ in NAMED}))
def test_the_tests_that_are_named_are_there(path):
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    there = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}

    assert [name for named, name in NAMED if named == path and name not in there] == []


def test_every_promise_names_a_test():
    """A list item without one would be a claim."""
    items = re.findall(r"^- (.*(?:\n  .*)*)", TEXT, re.MULTILINE)

    assert items and [item for item in items if "::test_" not in item] == []


def test_every_limit_is_in_the_table_with_a_test_that_reaches_it():
    limits = {
        option.attribute
        for option in OPTIONS
        if option.section in ("main", "amqp", "mgmt") and not option.pending
        and option.key.startswith("max_")}
    table = dict(re.findall(r"^\| `(\w+)` \| `(tests/[^`]*)` \|$", TEXT, re.MULTILINE))

    assert sorted((limits | OTHER_LIMITS) - table.keys()) == []
