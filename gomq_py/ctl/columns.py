"""Checks the columns chosen for a list against the broker's own description of its API (OpenAPI).

The description is read only if a chosen column is in no row, because such a column may be optional or
mistyped.
"""
import json
import re

import click

from gomq_py.ctl.api import APIError
from gomq_py.ctl.output import has, path_of

_NAME = re.compile(r"{\w+}")


def check(session, path, chosen, rows):
    """Raise UsageError, with the valid names, if a name in ``chosen`` is no column of the list at
    ``path``. ``rows``: the list.
    """
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
    """Return (schema of a row of the list at ``path``, all schemas by name); None if it is not described."""
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
    """Yield the alternatives of a schema (anyOf), with references resolved."""
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    if "anyOf" not in schema:
        yield schema
    for one in schema.get("anyOf", ()):
        yield from _plain(one, schemas)


def _knows(schema, schemas, path):
    """Return True if objects of this schema may have the nested field ``path``, a list of names."""
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
