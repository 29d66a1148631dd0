"""The OpenAPI document: the app's own paths, each with its operation.

No route can be missing: a route without an operation raises KeyError, unless its method is DELETE.
"""
import re
from typing import Any

import gomq_py
from gomq_py.http.login import ANYBODY
from gomq_py.http.openapi.operations import DELETE, OPERATIONS
from gomq_py.http.openapi.schemas import BODIES, COMPONENTS, ref
from gomq_py.http.session import COOKIE, TLS_PREFIX, TOKEN_HEADER
from gomq_py.hub.turns import paced

# Blueprints for pages, not for the API.
LEFT_OUT = ("docs", "page")
_NAME = re.compile(r"<(?:\w+:)?(\w+)>")
_COUNTS = ("page", "page_size", "count", "limit")  # from 1
_PLACES = ("since", "last", "offset", "length", "timestamp", "truncate")  # from 0
_REQUIRED = {("streams.find_offset", "timestamp")}
_TRUTHS = ("use_regex", "sort_reverse", "if-unused", "if-empty", "disable_stats", "enable_queue_totals")


def document(app):
    """The OpenAPI description of an app, as a dict ready for JSON. May switch."""
    paths: dict[str, Any] = {}
    for rule in paced(app.url_map.iter_rules()):
        if rule.endpoint.partition(".")[0] in LEFT_OUT:
            continue
        path = paths.setdefault(_NAME.sub(r"{\1}", rule.rule), {})
        for method in sorted(rule.methods - {"HEAD", "OPTIONS"}):
            path[method.lower()] = _operation(app.view_functions[rule.endpoint], rule, method)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "gomq-py management API", "version": gomq_py.__version__,
            "license": {"name": "MIT", "identifier": "MIT"},
            "description": "RabbitMQ's and LavinMQ's routes. Names in paths are percent-encoded, a slash as "
            "%2F.",
        },
        "servers": [{"url": "/"}],
        "security": [{"basic": []}, {"bearer": []}, {"session": []}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": COMPONENTS,
            "securitySchemes": {
                "basic": {
                    "type": "http", "scheme": "basic",
                    "description": "A user's name and password, or a token in the place of the password.",
                },
                "bearer": {
                    "type": "http", "scheme": "bearer", "bearerFormat": "JWT",
                    "description": "A token, where the backend oauth is on.",
                },
                "session": session_scheme(f"{COOKIE}_15672"),
            },
        },
    }


def session_scheme(name):
    """The security scheme of a session whose cookie has this name."""
    return {
        "type": "apiKey", "in": "cookie", "name": name,
        "description": (
            f"What POST /api/session gives: {COOKIE}_PORT with the port that was asked, without one "
            f"{COOKIE}; over TLS with {TLS_PREFIX} before it. Requests that change something bring its "
            f"csrf_token in {TOKEN_HEADER}."
        ),
    }


def _operation(view, rule, method):
    key = rule.endpoint, method
    known = OPERATIONS[key] if key in OPERATIONS or method != "DELETE" else DELETE
    described: dict[str, Any] = {
        "operationId": re.sub(
            r"\W+", "_", f"{method.lower()}_{rule.rule.replace('/api/', '', 1)}").strip("_"),
        "tags": [rule.endpoint.partition(".")[0]],
        # the first paragraph of the docstring, which may be wrapped
        "summary": " ".join((view.__doc__ or "").strip().partition("\n\n")[0].split()),
        "parameters": [
            _path_parameter(name, kind) for kind, name in re.findall(r"<(?:(\w+):)?(\w+)>", rule.rule)
        ] + [
            _query_parameter(name, (rule.endpoint, name) in _REQUIRED) for name in known.query],
        "responses": {str(status): _answer(schema, known.media) for status, schema in known.answers.items()},
    }
    described["responses"]["default"] = {
        "description": "refused", "content": {"application/json": {"schema": ref("Error")}}
    }
    if known.body is not None:
        described["requestBody"] = {
            "required": True, "content": {"application/json": {"schema": BODIES[known.body]}}
        }
    tag = getattr(view, "required_tag", None)
    if tag is None:
        described["security"] = []
    elif tag == ANYBODY:
        described["description"] = "For every user with the permission that it needs, whatever the tags."
    else:
        described["description"] = f"For users with the tag {tag}, or one that reaches it."
    return described


def _path_parameter(name, kind):
    return {
        "name": name, "in": "path", "required": True,
        "schema": {"type": "integer", "minimum": 0} if kind == "int" else {"type": "string"},
    }


def _query_parameter(name, required):
    if name in _COUNTS:
        schema = {"type": "integer", "minimum": 1}
    elif name in _PLACES:
        schema = {"type": "integer", "minimum": 0}
    elif name.endswith(("_age", "_incr")):
        schema = {"type": "integer", "minimum": 1, "maximum": 86400}
    else:
        schema = {"type": "boolean"} if name in _TRUTHS else {"type": "string"}
    parameter = {"name": name, "in": "query", "required": required, "schema": schema}
    if name == "columns":
        parameter["description"] = (
            "Comma separated fields; the objects then have these alone, which this description does not "
            "follow."
        )
    return parameter


def _answer(schema, media):
    if schema is None:
        return {"description": "done"}
    return {"description": "the answer", "content": {media: {"schema": schema}}}
