"""Makes the OpenAPI document from the app's routes, the views' docstrings and the table of operations.

No route can be missing: a route without an operation raises KeyError, unless its method is DELETE.
"""
import re
from typing import Any

import gomq_py
from gomq_py.http.login import ADMINISTRATOR, ANYBODY
from gomq_py.http.openapi import examples
from gomq_py.http.openapi.operations import DELETE, OPERATIONS
from gomq_py.http.openapi.parameters import QUERY, path_parameter
from gomq_py.http.openapi.schemas import BODIES, COMPONENTS, ref
from gomq_py.http.session import COOKIE, TLS_PREFIX, TOKEN_HEADER
from gomq_py.hub.turns import paced

# Blueprints for pages, not for the API.
LEFT_OUT = ("docs", "page")
_OF_THE_CODE = "May switch greenlets."  # said of a view to those who work on it
_NAME = re.compile(r"<(?:\w+:)?(\w+)>")
_SENTENCE_END = re.compile(r"(?<=\.)\s+(?=[A-Z0-9`/])")
_REQUIRED = {("streams.find_offset", "timestamp")}
# Subjects, in the order of the page, and the blueprints that are about each.
SUBJECTS = {
    "Overview": ("overview", "identity", "changes"),
    "Queues": ("queues", "queue_states"),
    "Messages": ("messages", "search", "unacked", "delayed", "schedules"),
    "Streams": ("streams",),
    "Exchanges and bindings": ("exchanges", "bindings", "routes", "arguments"),
    "Connections, channels and consumers": ("connections", "closed"),
    "MQTT": ("mqtt",),
    "Virtual hosts and limits": ("vhosts", "limits"),
    "Users and permissions": ("users", "permissions"),
    "Login": ("session",),
    "Policies and parameters": ("policies", "parameters"),
    "Definitions and backup": ("definitions", "backup"),
    "Shovels and federation": ("shovels", "federation"),
    "Health": ("health", "doctor"),
    "Nodes and cluster": ("nodes", "cluster"),
    "Settings and log": ("settings", "log"),
    "Metrics": ("metrics",),
}
_SUBJECT = {blueprint: subject for subject, blueprints in SUBJECTS.items() for blueprint in blueprints}


def document(app):
    """Return the OpenAPI description of an app, as a dict ready for JSON. May switch greenlets."""
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
        "tags": [{"name": subject} for subject in SUBJECTS],
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
    """Return the security scheme of a session whose cookie has this name."""
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
    text, tag = _text(view), getattr(view, "required_tag", None)
    described: dict[str, Any] = {
        "operationId": re.sub(
            r"\W+", "_", f"{method.lower()}_{rule.rule.replace('/api/', '', 1)}").strip("_"),
        "tags": [_SUBJECT[rule.endpoint.partition(".")[0]]],
        "summary": _SENTENCE_END.split(text)[0].replace("`", ""),
        "description": f"{text} {_rights(tag)}",
        "parameters": [
            _path_parameter(rule.rule, name, kind)
            for kind, name in re.findall(r"<(?:(\w+):)?(\w+)>", rule.rule)
        ] + [
            _query_parameter(name, (rule.endpoint, name) in _REQUIRED) for name in known.query],
        "responses": {str(status): _answer(schema, known.media) for status, schema in known.answers.items()},
        "x-endpoint": rule.endpoint,
    }
    described["responses"]["default"] = {
        "description": "refused", "content": {"application/json": {"schema": ref("Error")}}
    }
    if known.body is not None:
        example = examples.BODY_OF.get(rule.endpoint, examples.BODIES[known.body])
        described["requestBody"] = {"required": True, "content": {
            "application/json": {"schema": BODIES[known.body], "example": example}}}
    if tag is None:
        described["security"] = []
    return described


def _text(view):
    text = " ".join((view.__doc__ or "").replace("``", "`").split())
    return text.removesuffix(_OF_THE_CODE).strip()


def _rights(tag):
    if tag is None:
        return "Needs no login."
    if tag == ANYBODY:
        return "Needs no tag, only the permission."
    return f"Needs the tag `{tag}`" + ("." if tag == ADMINISTRATOR else ", or one that includes it.")


def _path_parameter(route, name, kind):
    known = path_parameter(route, name)
    is_number = kind == "int"
    return {
        "name": name, "in": "path", "required": True, "description": known.text,
        "schema": {"type": "integer", "minimum": 0} if is_number else {"type": "string"},
        "example": int(known.example) if is_number else known.example,
    }


def _query_parameter(name, required):
    known = QUERY[name]
    kind = known.schema["type"]
    example = (
        int(known.example) if kind == "integer" else known.example == "true" if kind == "boolean"
        else known.example)
    return {
        "name": name, "in": "query", "required": required, "description": known.text, "schema": known.schema,
        "example": example,
    }


def _answer(schema, media):
    if schema is None:
        return {"description": "done"}
    return {"description": "the answer", "content": {media: {"schema": schema}}}
