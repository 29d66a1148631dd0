"""/api/arguments: describes arguments of queues, exchanges and consumers, and keys of policies, for hints in
the web page. Specific to gomq-py.
"""
import re

from flask import Blueprint

from gomq_py.broker.exchanges.types import DESCRIBED
from gomq_py.broker.features import table
from gomq_py.broker.features.feature import EVERY_KIND
from gomq_py.http.answers import json_answer
from gomq_py.http.login import MANAGEMENT, access

blueprint = Blueprint("arguments", __name__)
# A row's value: an example in backquotes, and behind a colon the values there are.
_VALUE = re.compile(r"`([^`]*)`(?:: (.*))?")
_REFERENCE = re.compile(r" \(\[[^]]*\]\([^)]*\)\)")
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
WITHOUT_EFFECT = "None: "


@blueprint.get("/api/arguments")
@access(MANAGEMENT)
def list_arguments():
    """Return all arguments (of queues, exchanges, consumers) and keys of policies that have an effect. Each
    is shown with its effect, values, default and an example. ``of`` is queue, exchange, consumer or policy;
    ``kinds`` lists the types of queues or exchanges that have it (empty: all types), ``also`` its other
    names.
    """
    return json_answer(described())


def described():
    """Return a list of all arguments and policy keys that have an effect, as JSON objects."""
    return [
        _described(of, name, row) for of, named in (
            ("queue", table.ARGUMENTS.items()), ("exchange", ((row.argument, row) for row in DESCRIBED)),
            ("consumer", table.CONSUMER_ARGUMENTS.items()), ("policy", table.POLICY_KEYS.items()),
        ) for name, row in named if not row.effect.startswith(WITHOUT_EFFECT)]


def _described(of, name, row):
    example, values = _VALUE.fullmatch(row.value).groups()
    return {
        "of": of, "name": name, "also": list(getattr(row, "also", ())),
        "example": example, "values": plain(values or ""),
        "default": plain(row.default), "effect": plain(row.effect),
        "kinds": [] if row.kinds == EVERY_KIND else sorted(row.kinds),
        "operator": getattr(row, "operator", False),
    }


def plain(text):
    return _LINK.sub(r"\1", _REFERENCE.sub("", text)).replace("`", "")
