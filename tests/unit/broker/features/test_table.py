"""The table of features: every row is whole, and no other module spells what a row names."""
import ast

import pytest

from gomq_py.broker.features import table
from tests.unit.source_tree import PACKAGE, module_name, sources, tree

FEATURES = "gomq_py.broker.features."
# Programs beside the broker, which speak to it from outside, and names that say something else there, too.
APART = (
    "gomq_py.perf", "gomq_py.client", "gomq_py.dispatcher", "gomq_py.spark", "gomq_py.pipeline",
    "gomq_py.testing", "gomq_py.federation.parameters", "gomq_py.ctl.links", "gomq_py.diagnosis.difference",
    "gomq_py.ctl.offline",
)
OTHER_WORDS = {row.component for row in table.FEATURES} | {"federation-upstream-set", "routing-key"}


def names():
    """Every argument, of queues and of consumers, and every policy key."""
    return {*table.ARGUMENTS, *table.POLICY_KEYS, *table.CONSUMER_ARGUMENTS} - OTHER_WORDS


def spelled(path):
    """The names of features that a module spells."""
    return {node.value for node in ast.walk(tree(path)) if isinstance(node, ast.Constant)
            and isinstance(node.value, str) and node.value in names()}


def test_argument_and_policy_key_are_spelled_in_the_file_of_their_feature_alone():
    elsewhere = {
        module_name(path): spelled(path) for path in sources() if path.is_relative_to(PACKAGE)
        and not module_name(path).startswith((FEATURES, *APART)) and spelled(path)
    }
    at_home = [name for path in sources() if module_name(path).startswith(FEATURES) for name in spelled(path)]

    assert elsewhere == {}
    assert sorted(at_home) == sorted(set(at_home))


@pytest.mark.parametrize("row", table.FEATURES, ids=lambda row: row.argument or row.policy)
def test_row_says_how_what_it_names_is_checked_and_merged(row):
    assert (row.argument is None) == (row.check is None) == (row.place == 0)
    assert (row.policy is None) == (row.check_policy is None)
    assert (row.setting is None) == (row.merge is None)
    assert (
        row.flag is None or row.argument is not None and (row.flag.kind is None) != (row.flag.value is None)
    )


def test_no_two_rows_are_the_same():
    for of in ("argument", "policy", "setting"):
        values = [getattr(row, of) for row in table.FEATURES if getattr(row, of) is not None]
        assert len(values) == len(set(values))
    assert [row.place for row in table.ARGUMENTS.values()] == list(range(1, len(table.ARGUMENTS) + 1))
