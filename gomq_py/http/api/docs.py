"""/docs: describes the API, as OpenAPI for programs and as a web page. /api redirects there.

The description needs no login and contains no secret.
"""
from importlib import import_module, metadata

from flask import Blueprint, Response, current_app, redirect

from gomq_py.http.answers import json_answer
from gomq_py.http.api.arguments import described as described_arguments
from gomq_py.http.session import cookie_name
from gomq_py.hub.turns import paced

blueprint = Blueprint("docs", __name__)
# Imported on demand, one per slice: few requests need them, and they take 0.5 MB and 15 ms.
MODULES = ("schemas", "operations", "parameters", "examples", "document")


def described():
    """Return this app's OpenAPI document, made in slices at the first call. May switch greenlets."""
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
    """Return the OpenAPI description. The session cookie's name in it contains the port of the request."""
    from gomq_py.http.openapi.document import session_scheme
    whole = described()
    schemes = {**whole["components"]["securitySchemes"], "session": session_scheme(cookie_name())}
    return json_answer({**whole, "components": {**whole["components"], "securitySchemes": schemes}})


@blueprint.get("/docs")
def page():
    """Return a page that describes every route, and every argument of queues and exchanges. May switch
    greenlets.
    """
    extensions = current_app.extensions
    if "gomq.docs" not in extensions:
        document = described()
        from gomq_py.http.openapi.page import rendered
        extensions["gomq.docs"] = rendered(
            document, described_arguments(), _manual()).encode()
    return Response(extensions["gomq.docs"], mimetype="text/html")


def _manual():
    """Return the documentation's URL from the installed package's metadata, or ""."""
    try:
        named = metadata.metadata("gomq-py").get_all("Project-URL", ())
    except metadata.PackageNotFoundError:
        named = ()
    return next(
        (one.partition(",")[2].strip() for one in named if one.lower().startswith("documentation,")), "")
