"""The tables of docs/arguments.md, made of the table of features,
and those of docs/mqtt-conformance.md, made of the conformance tests.

``python -m tests.docs`` (``make docs``) writes them, each between ``<!-- NAME -->`` and ``<!-- end -->``.
tests/unit/test_docs.py holds that the pages are as this makes them.
"""
import re
from pathlib import Path

from gomq_py.broker.exchanges.types import DESCRIBED
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
    """What arguments of queues do, in the order in which they are checked."""
    return _effects(table.ARGUMENTS.values(), "argument")


def other_policy_keys():
    """What keys of policies do that are no argument of queues."""
    return _effects((row for row in table.FEATURES if row.argument is None), "policy")


def exchange_arguments():
    """What arguments of exchanges do."""
    rows = [
        (_of_types(row), ", ".join(map(_code, (row.argument, *row.also))), row.value, row.default, row.effect,
         row.others) for row in DESCRIBED
    ]
    return _table(
        ("type", "argument", "example: values", "default", "effect", "RabbitMQ 4, LavinMQ 2.9"), rows)


def _of_types(row):
    return ", ".join(map(_code, sorted(row.kinds))) or "all"


def consumer_arguments():
    """What arguments of consumers do, in the order in which they are checked."""
    return _effects(table.CONSUMER_ARGUMENTS.values(), "argument")


def places():
    """Where settings of queues and keys of policies may be given."""
    rows = [
        (_code(row.argument), _kinds(row) if row.argument else "", _code(row.policy), _operator(row),
         _code(row.flag and row.flag.name))
        for row in (*table.ARGUMENTS.values(), *table.FEATURES) if _has_effect(row)
    ]
    heads = "argument", "queues", "policy key", "operator policy", "flag of create_queue"
    return _table(heads, list(dict.fromkeys(rows)))


def consumer_places():
    """Queues whose consumers have the arguments."""
    rows = [
        (_code(row.argument), _kinds(row), _elsewhere(row))
        for row in table.CONSUMER_ARGUMENTS.values() if _has_effect(row)
    ]
    return _table(("argument", "queues", "on others"), rows)


def without_effect():
    """Arguments and keys of other brokers that are accepted."""
    rows = [
        (_code(row.argument), _code(getattr(row, "policy", None)), _reason(row))
        for row in (*table.ARGUMENTS.values(), *table.FEATURES, *table.CONSUMER_ARGUMENTS.values())
        if not _has_effect(row)
    ]
    return _table(("argument", "policy key", "why"), list(dict.fromkeys(rows)))


def statements_3_1_1():
    """Statements of MQTT 3.1.1, and what holds them."""
    return _table(("statement", "asks that", "tests"), conformance.rows(3))


def statements_5():
    """Statements of MQTT 5.0, and what holds them."""
    return _table(("statement", "asks that", "tests"), conformance.rows(5))


TABLES = {
    "arguments of queues": queue_arguments, "other keys of policies": other_policy_keys,
    "arguments of consumers": consumer_arguments, "arguments of exchanges": exchange_arguments,
    "places": places, "places of consumers": consumer_places,
    "without effect": without_effect,
}
STATEMENTS = {"statements of MQTT 3.1.1": statements_3_1_1, "statements of MQTT 5.0": statements_5}


def _effects(rows, name):
    rows = [
        (_code(getattr(row, name)), row.value, row.default, row.effect, row.others)
        for row in rows if _has_effect(row)
    ]
    heads = "argument" if name == "argument" else "policy key", "example: values", "default", "effect"
    return _table((*heads, "RabbitMQ 4, LavinMQ 2.9"), rows)


def _has_effect(row):
    return not row.effect.startswith("None: ")


def _reason(row):
    reason = row.effect.removeprefix("None: ")
    return reason[:1].upper() + reason[1:]


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
