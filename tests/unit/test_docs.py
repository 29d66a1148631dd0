"""docs/arguments.md is what the table of features says, modules and commands that pages name are there, and
docs/sizing.md has figures of other pages alone.
"""
import ast
import re

from gomq_py.broker.exchanges.federation_upstream import FederationUpstreamExchange
from gomq_py.broker.exchanges.types import COMPARED_ARGUMENTS, EXCHANGE_TYPES
from gomq_py.broker.features import table
from gomq_py.ctl import (  # noqa: F401 (each registers its commands)
    access, backup, checks, cluster, commands, diagnostics, limits, links, listings, messages, migrate, node,
    set_aside, simple, topology, transfer, watch,
)
from tests.conformance.mqtt import page as conformance
from tests.docs import CONFORMANCE, PAGE, TABLES, page_as_it_should_be
from tests.unit.source_tree import PACKAGE, ROOT, module_names, sources, tree

TEXT = PAGE.read_text(encoding="utf-8")


def test_tables_are_as_the_features_make_them():
    assert TEXT == page_as_it_should_be(TEXT), "make docs writes them"


def test_conformance_page_is_as_the_tests_make_it():
    text = CONFORMANCE.read_text(encoding="utf-8")

    assert text == page_as_it_should_be(text), "make docs writes it"


def test_every_statement_has_a_test_or_a_reason():
    assert [conformance.not_held(version) for version in (3, 5)] == [[], []]


def test_every_table_has_its_place():
    assert [name for name in TABLES if f"<!-- {name} -->" not in TEXT] == []


def test_every_argument_and_policy_key_is_on_the_page():
    names = {*table.ARGUMENTS, *table.POLICY_KEYS, *table.CONSUMER_ARGUMENTS}

    assert [name for name in names if f"`{name}`" not in TEXT] == []


def test_effect_is_a_sentence():
    rows = (*table.FEATURES, *table.CONSUMER_ARGUMENTS.values())

    assert [row for row in rows if not row.effect.endswith(".") or "|" in row.effect] == []


def test_row_with_an_effect_has_an_example_a_default_and_tells_of_other_brokers():
    rows = (*table.FEATURES, *table.CONSUMER_ARGUMENTS.values())

    assert [
        row for row in rows if not row.effect.startswith("None: ")
        and not (row.value.startswith("`") and ": " in row.value and row.default and row.others)
    ] == []


def test_every_type_of_exchange_and_its_arguments_are_on_the_page():
    names = {*EXCHANGE_TYPES, *COMPARED_ARGUMENTS} - {FederationUpstreamExchange.type}

    assert [name for name in names if f"`{name}`" not in TEXT] == []


def test_table_that_was_changed_by_hand_is_made_anew():
    changed = TEXT.replace("| `x-delivery-limit` |", "| `x-delivery-limits` |")

    assert changed != TEXT and page_as_it_should_be(changed) == TEXT


_ROOMS = {path.name for path in PACKAGE.iterdir() if path.is_dir()}
_MODULE = re.compile(r"`((\w+)(?:\.\w+)+)[`(]")


def lost_modules(text):
    """The modules that a text names in backquotes, ``room.module`` or ``room.module.function``,
    and that are not there. An exchange is called mqtt.default.
    """
    named = [name for name, room in _MODULE.findall(text) if room in _ROOMS and name != "mqtt.default"]
    return [
        name for name in named
        if f"gomq_py.{name}" not in module_names()
        and not PACKAGE.joinpath(*name.split(".")[:-1]).with_suffix(".py").exists()
    ]


def architecture():
    """(pages, their text) of the architecture and the glossary."""
    pages = [
        *map(PAGE.with_name, ("architecture.md", "glossary.md")), *PAGE.with_name("architecture").glob("*.md")
    ]
    return pages, "\n".join(page.read_text(encoding="utf-8") for page in pages)


def test_methods_that_the_architecture_names_are_there():
    _, text = architecture()
    named = re.findall(r"`([A-Z]\w+)\.(\w+)`", text)
    classes = {}
    for path in sources():
        for found in ast.walk(tree(path)):
            if isinstance(found, ast.ClassDef):
                classes.setdefault(found.name, set()).update(
                    getattr(one, "attr", getattr(one, "name", "")) for one in ast.walk(found))

    assert len(named) > 20
    assert [(name, method) for name, method in named if method not in classes.get(name, ())] == []


def test_modules_that_the_architecture_and_the_glossary_name_are_there():
    pages, text = architecture()

    assert len(pages) > 5 and len(_MODULE.findall(text)) > 10
    assert lost_modules(text) == []


def test_module_that_has_moved_is_found():
    assert lost_modules("`broker.job`, `hub.scheduler`, `hub.scheduler.SliceClock`") == [
        "broker.job"
    ]


_COMMAND = re.compile(r"gomq-py-ctl (?:--?[\w-]+(?:[ =](?!--)\S+)? )*([a-z_]+)\b")
_ROW_OF_SIZING = re.compile(r"^\| ([^|]+) \| ([^|]+) \| \[[^]]+\]\(([^)#]+)[^)]*\) \|$", re.MULTILINE)
_FIGURE = re.compile(r"\d[\d .]*\d|\d")


def test_commands_that_pages_name_are_there():
    named = {}
    for page in (ROOT / "README.md", ROOT / "CHANGELOG.md", *PAGE.parent.rglob("*.md")):
        for name in _COMMAND.findall(page.read_text(encoding="utf-8")):
            named.setdefault(name, page.name)

    assert len(named) > 70
    assert {name: page for name, page in named.items() if name not in commands.ctl.commands} == {}


def is_there(figure, text):
    return re.search(rf"(?<![\d.]){re.escape(figure)}(?!\d)", text) is not None


def test_figures_of_the_sizing_page_stand_on_the_pages_that_it_names():
    rows = _ROW_OF_SIZING.findall(PAGE.with_name("sizing.md").read_text(encoding="utf-8"))
    pages = {name: (PAGE.parent / name).read_text(encoding="utf-8") for _, _, name in rows}
    figures = [(what, figure, name) for what, cell, name in rows for figure in _FIGURE.findall(cell)]

    assert len(figures) > 40
    assert [row for row in figures if not is_there(row[1], pages[row[2]])] == []
