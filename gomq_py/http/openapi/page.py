"""Makes an HTML page of the OpenAPI document: each operation with text, parameters and an example, by
subject.

Below the operations are the arguments of queues and exchanges, and the objects in answers.
"""
import re
from html import escape
from itertools import groupby

from gomq_py.http.openapi.document import SUBJECTS
from gomq_py.http.openapi.examples import command
from gomq_py.hub.turns import paced

_CODE = re.compile(r"`([^`]+)`")
_NOT_IN_ANCHORS = re.compile(r"\W+")
_REF = "#/components/schemas/"
HEAD = (
    "<!doctype html><html lang=en><head><meta charset=utf-8>"
    "<meta name=viewport content='width=device-width, initial-scale=1'>"
    "<meta name=color-scheme content='light dark'><title>{title}</title>"
    "<link rel=icon href=/ui/icon.svg type='image/svg+xml'>"
    "<link rel=stylesheet href=/ui/css/page.css><link rel=stylesheet href=/ui/css/docs.css>"
    "<script type=module src=/ui/js/docs.js></script></head><body class=docs>"
    "<a class=skip href='#main'>Skip to the content</a><div id=frame>"
    "<header id=bar><a class=brand href='/'><img src=/ui/icon.svg alt='' width=22 height=22>gomq-py</a>"
    "<span class=grow></span>"
    "<a class=button href=/docs/openapi.json>OpenAPI description</a>{manual}</header>"
    "<nav id=nav aria-label=Contents><ul>{contents}</ul></nav>"
    "<main id=main tabindex='-1'><h1>{title} {version}</h1>")
INTRODUCTION = (
    "<p>The routes are RabbitMQ's and LavinMQ's, on the port of this page. Names in paths are "
    "percent-encoded: the vhost <code>/</code> is <code>%2F</code>. Bodies are JSON.</p>"
    "<p>A request logs in with a user's name and password (HTTP Basic), with a token (<code>Authorization: "
    "Bearer</code>), or with the cookie of <code>POST /api/session</code>. An error has a body "
    "<code>{&quot;error&quot;: ..., &quot;reason&quot;: ...}</code>.</p>"
    "<p class=find hidden><label>Filter <input type=search id=filter placeholder='queues, purge, x-max-age'>"
    "</label> <span class=quiet id=found role=status></span></p>")
END = "</main></div></body></html>"
ARGUMENTS, OBJECTS = "Arguments and policy keys", "Objects"
KINDS = {
    "queue": "Queues", "exchange": "Exchanges", "consumer": "Consumers", "policy": "Policies",
}


def rendered(document, arguments, manual):
    """Return the page's HTML. ``arguments`` are those of ``api.arguments.described()``; ``manual`` is the
    documentation's URL, or "". May switch greenlets.
    """
    info, subjects = document["info"], [tag["name"] for tag in document["tags"]]
    contents = "".join(
        f"<li><a href='#{anchor(one)}'>{escape(one)}</a>" for one in (*subjects, ARGUMENTS, OBJECTS))
    found = _by_subject(document["paths"])
    return "".join((
        HEAD.format(
            title=escape(info["title"]), version=escape(info["version"]), contents=contents,
            manual=f"<a class=button href='{escape(manual)}'>Documentation</a>" if manual else ""),
        INTRODUCTION, *(_subject(name, found[name]) for name in paced(subjects)),
        _section(ARGUMENTS, "".join(_arguments(arguments))),
        _section(OBJECTS, "".join(
            _object(name, schema) for name, schema in paced(document["components"]["schemas"].items()))),
        END))


def anchor(text):
    """Return the HTML id of the element with the heading ``text``."""
    return _NOT_IN_ANCHORS.sub("-", text.lower()).strip("-")


def prose(text):
    """Return a text as HTML; parts between backticks become <code>."""
    return _CODE.sub(r"<code>\1</code>", escape(text))


def _section(name, content):
    return f"<section id='{anchor(name)}'><h2>{escape(name)}</h2>{content}</section>"


def _by_subject(paths):
    found = {}
    for path, methods in paths.items():
        for method, operation in methods.items():
            found.setdefault(operation["tags"][0], []).append((method.upper(), path, operation))
    return found


def _subject(name, operations):
    def sameness(one):
        method, _, operation = one
        return operation["x-endpoint"], method

    blueprints = SUBJECTS[name]
    merged = [list(same) for _, same in groupby(sorted(operations, key=sameness), sameness)]
    merged.sort(key=lambda same: (blueprints.index(_blueprint(same[0][2])), same[0][1], same[0][0]))
    return _section(name, "".join(_operation(same) for same in merged))


def _blueprint(operation):
    return operation["x-endpoint"].partition(".")[0]


def _operation(same):
    """Return the HTML of an operation. ``same``: a (method, path, operation) for each of its paths."""
    method, path, operation = same[0]
    paths = "".join(
        f"<h3><span class='method {one.lower()}'>{one}</span> <code>{escape(at)}</code></h3>"
        for one, at, _ in same)
    parameters = {one["name"]: one for _, _, each in reversed(same) for one in each["parameters"]}
    body = operation.get("requestBody")
    fields = [] if body is None else _fields(body["content"]["application/json"]["schema"])
    return (
        f"<article id='{operation['operationId']}'>{paths}<p>{prose(operation['description'])}</p>"
        + _table("Parameter", "Meaning", [
            (f"<code>{escape(name)}</code>" + ("" if one["in"] == "path" else " <small>query</small>"),
             prose(one["description"])) for name, one in parameters.items()])
        + _table("Field of the body", "Type", fields)
        + f"<pre tabindex=0>{escape(command(method, path, operation))}</pre>"
        f"<p class=quiet>Answer: {'; '.join(_answers(operation['responses']))}</p></article>")


def _answers(responses):
    for status, answer in responses.items():
        if status != "default":
            content = next(iter(answer.get("content", {}).values()), None)
            yield status if content is None else f"{status}, {_type(content['schema'])}"


def _fields(schema):
    required = schema.get("required", ())
    return [
        (f"<code>{escape(name)}</code>{'' if name in required else ' <small>optional</small>'}", _type(one))
        for name, one in schema.get("properties", {}).items()]


def _type(schema):
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_REF)
        return f"<a href='#object-{name.lower()}'>{name}</a>"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(one) for one in schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"<code>{escape(str(one))}</code>" for one in schema["enum"])
    kind = schema.get("type", "any value")
    if kind == "array":
        return f"list of {_type(schema['items'])}" if "items" in schema else "empty list"
    if kind == "object" and schema.get("properties"):
        return "object: " + ", ".join(f"<code>{escape(name)}</code>" for name in schema["properties"])
    return " or ".join(kind) if isinstance(kind, list) else kind


def _table(left, right, rows, kind=""):
    if not rows:
        return ""
    lines = "".join(f"<tr><td>{one}<td>{other}" for one, other in rows)
    return f"<table{kind}><thead><tr><th scope=col>{left}<th scope=col>{right}</thead>{lines}</table>"


def _arguments(rows):
    for of, same in groupby(rows, lambda row: row["of"]):
        yield f"<h3>{KINDS[of]}</h3>"
        for row in same:
            yield (
                f"<article class=argument id='{anchor(of)}-{anchor(row['name'])}'>"
                f"<h4><code>{escape(row['name'])}</code></h4><p>{escape(row['effect'])}</p>"
                f"<p class=quiet>{_line(row)}</p></article>")


def _line(row):
    parts = (
        ("Values", row["values"]), ("Default", row["default"]), ("Types", ", ".join(row["kinds"])),
        ("Also called", ", ".join(row["also"])))
    return " ".join((
        f"Example: <code>{escape(row['example'])}</code>.",
        *(f"{name}: {escape(text.rstrip('.'))}." for name, text in parts if text)))


def _object(name, schema):
    rows = _fields(schema)
    return (
        f"<article id='object-{name.lower()}'><h3>{name}</h3>"
        + (_table("Field", "Type", rows) if rows else f"<p>{_type(schema)}</p>") + "</article>")
