"""docs/arguments.md is what the table of features says."""
from gomq_py.broker.features import table
from tests.docs import PAGE, TABLES, page_as_it_should_be

TEXT = PAGE.read_text(encoding="utf-8")


def test_tables_are_as_the_features_make_them():
    assert TEXT == page_as_it_should_be(TEXT), "make docs writes them"


def test_every_table_has_its_place():
    assert [name for name in TABLES if f"<!-- {name} -->" not in TEXT] == []


def test_every_argument_and_policy_key_is_on_the_page():
    names = {*table.ARGUMENTS, *table.POLICY_KEYS, *table.CONSUMER_ARGUMENTS}

    assert [name for name in names if f"`{name}`" not in TEXT] == []


def test_effect_is_a_sentence():
    rows = (*table.FEATURES, *table.CONSUMER_ARGUMENTS.values())

    assert [row for row in rows if not row.effect.endswith(".") or "|" in row.effect] == []


def test_table_that_was_changed_by_hand_is_made_anew():
    changed = TEXT.replace("| `x-delivery-limit` |", "| `x-delivery-limits` |")

    assert changed != TEXT and page_as_it_should_be(changed) == TEXT
