"""Columns: tells which columns a list has, from the broker's own description of its API.

Asked only where a chosen column is in no row: an optional field, such as a policy, or a mistyped one.
"""
import json
import re

import click

from gomq_py.ctl.api import APIError
from gomq_py.ctl.output import has, path_of

_NAME = re.compile(r"{\w+}")


def check(session, path, chosen, rows):
    """Raises UsageError, which names the columns of the list at ``path``, if a chosen one is none of them."""
    missing = [column for column in chosen if not any(has(row, column) for row in rows)]
    if not missing:
        return
    described = _described(session.api, path)
    if described is None:  # another broker, or a list that is always empty
        session.out.said(f"gomq-py-ctl: nothing here has a field {', '.join(missing)}")
        return
    schema, schemas = described
    unknown = [column for column in missing if not _knows(schema, schemas, path_of(column))]
    if unknown:
        names = sorted({name for one in _plain(schema, schemas) for name in one.get("properties", ())})
        raise click.UsageError(f"no such column: {', '.join(unknown)}; there are {', '.join(names)}")


def _described(api, path):
    """Return (schema of an element of the list at ``path``, schemas by name); None without a description."""
    try:
        document = json.loads(api.text("/docs/openapi.json"))
        paths = {_NAME.sub("{}", rule): methods for rule, methods in document["paths"].items()}
        answer = paths["/api/" + _NAME.sub("{}", path)]["get"]["responses"]["200"]["content"]
        schemas = document["components"]["schemas"]
        arrays = [one for one in _plain(answer["application/json"]["schema"], schemas) if "items" in one]
    except (APIError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return ({"anyOf": [one["items"] for one in arrays]}, schemas) if arrays else None


def _plain(schema, schemas):
    """Yield the alternatives of a schema, without references."""
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    if "anyOf" not in schema:
        yield schema
    for one in schema.get("anyOf", ()):
        yield from _plain(one, schemas)


def _knows(schema, schemas, path):
    """Whether objects of this schema may have the nested fields ``path``."""
    if not path:
        return True
    for one in _plain(schema, schemas):
        if "properties" in one:
            found = one["properties"].get(path[0])
            if found is not None and _knows(found, schemas, path[1:]):
                return True
        elif "object" in one.get("type", "object"):
            return True  # an object with any fields
    return False
