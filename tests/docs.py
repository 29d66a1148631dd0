"""The tables of docs/arguments.md, made of the table of features,
and those of docs/mqtt-conformance.md, made of the conformance tests.

``python -m tests.docs`` (``make docs``) writes them, each between ``<!-- NAME -->`` and ``<!-- end -->``.
tests/unit/test_docs.py holds that the pages are as this makes them.
"""
import re
from pathlib import Path

from gomq_py.broker.features import table
from gomq_py.broker.features.feature import CLASSIC, EVERY_KIND, QUORUM, STREAM
from tests.conformance.mqtt import page as conformance

PAGE = Path(__file__).resolve().parents[1] / "docs" / "arguments.md"
CONFORMANCE = PAGE.with_name("mqtt-conformance.md")
_PLACE = re.compile(r"(<!-- ([\w. ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def page_as_it_should_be(text):
    """The page with its tables made anew. Raises KeyError for a table that nobody makes."""
    makers = {**TABLES, **STATEMENTS}
    return _PLACE.sub(lambda place: f"{place[1]}{makers[place[2]]()}{place[3]}", text)


def queue_arguments():
    """Arguments of queues, in the order in which they are checked."""
    rows = [
        (_code(row.argument), _kinds(row), _code(row.policy), _operator(row),
         _code(row.flag and row.flag.name), row.effect)
        for row in table.ARGUMENTS.values()
    ]
    heads = "argument", "queues", "policy key", "operator policy", "flag of create_queue", "effect"
    return _table(heads, rows)


def policy_keys():
    """Keys of policies that are no argument of queues."""
    rows = [(_code(row.policy), _operator(row), row.effect) for row in table.FEATURES if row.argument is None]
    return _table(("policy key", "operator policy", "effect"), rows)


def consumer_arguments():
    """Arguments of consumers, in the order in which they are checked."""
    rows = [
        (_code(row.argument), _kinds(row), _elsewhere(row), row.effect)
        for row in table.CONSUMER_ARGUMENTS.values()
    ]
    return _table(("argument", "queues", "on others", "effect"), rows)


def statements_3_1_1():
    """Statements of MQTT 3.1.1, and what holds them."""
    return _table(("statement", "asks that", "tests"), conformance.rows(3))


def statements_5():
    """Statements of MQTT 5.0, and what holds them."""
    return _table(("statement", "asks that", "tests"), conformance.rows(5))


TABLES = {
    "arguments of queues": queue_arguments, "other keys of policies": policy_keys,
    "arguments of consumers": consumer_arguments,
}
STATEMENTS = {"statements of MQTT 3.1.1": statements_3_1_1, "statements of MQTT 5.0": statements_5}


def _kinds(row):
    kinds = [kind for kind in (CLASSIC, QUORUM, STREAM) if kind in row.kinds]
    return "all" if row.kinds == EVERY_KIND else ", ".join(kinds)


def _elsewhere(row):
    if row.kinds == EVERY_KIND:
        return ""
    return "refused" if row.only_there else "ignored"


def _operator(row):
    return "" if row.policy is None else "yes" if row.operator else "no"


def _code(name):
    return f"`{name}`" if name else ""


def _table(heads, rows):
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join("|" + "".join(f" {cell} |" if cell else " |" for cell in line) + "\n" for line in lines)


if __name__ == "__main__":
    for each in (PAGE, CONFORMANCE):
        each.write_text(page_as_it_should_be(each.read_text(encoding="utf-8")), encoding="utf-8")
