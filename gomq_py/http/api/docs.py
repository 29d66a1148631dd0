"""/docs: describes the API, as OpenAPI for programs and as a page for people; /api redirects there.

The description needs no login and contains no secret.
"""
from html import escape
from importlib import import_module

from flask import Blueprint, Response, current_app, redirect

from gomq_py.http.answers import json_answer
from gomq_py.http.session import cookie_name
from gomq_py.hub.turns import paced

blueprint = Blueprint("docs", __name__)
# Imported on demand, one per slice: few requests need them, and they take 0.5 MB and 15 ms.
MODULES = ("schemas", "operations", "document")
STYLE = """body { font: 16px/1.4 sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem }
table { border-collapse: collapse; width: 100% }
td { border-top: 1px solid #ccc; padding: .3rem .6rem; vertical-align: top }
code { font-family: monospace } .method { font-weight: bold }
"""


def described():
    """Return the OpenAPI document of this app, made at the first call, in slices. May switch."""
    extensions = current_app.extensions
    if "gomq.openapi" not in extensions:
        for name in paced(MODULES):
            module = import_module(f"gomq_py.http.openapi.{name}")
        extensions["gomq.openapi"] = module.document(current_app)
    return extensions["gomq.openapi"]


@blueprint.get("/api")
def home():
    """Redirect browsers to /docs."""
    return redirect("/docs")


@blueprint.get("/docs/openapi.json")
def openapi():
    """Return the OpenAPI description. It names the session cookie, which depends on the requested port."""
    from gomq_py.http.openapi.document import session_scheme
    whole = described()
    schemes = {**whole["components"]["securitySchemes"], "session": session_scheme(cookie_name())}
    return json_answer({**whole, "components": {**whole["components"], "securitySchemes": schemes}})


@blueprint.get("/docs/style.css")
def style():
    """Return the style sheet of /docs."""
    return Response(STYLE, mimetype="text/css")


@blueprint.get("/docs")
def page():
    """Return a page that lists every route with its summary, without a script."""
    rows = "".join(
        _row(path, method, operation) for path, methods in described()["paths"].items()
        for method, operation in methods.items()
    )
    info = described()["info"]
    return Response(
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(info['title'])}</title>"
        "<link rel=stylesheet href=/docs/style.css>"
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{escape(info['description'])} "
        f"<a href=/docs/openapi.json>OpenAPI description</a></p><table>{rows}</table></html>",
        mimetype="text/html")


def _row(path, method, operation):
    return (
        f"<tr><td class=method>{method.upper()}<td><code>{escape(path)}</code>"
        f"<td>{escape(operation['summary'])} {escape(operation.get('description', 'For everybody.'))}</tr>")
