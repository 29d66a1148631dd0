"""Answers held against the OpenAPI description: every response that a test of the management API
gets goes through ``check``.
"""
import functools
from urllib.parse import urlsplit

from jsonschema import Draft202012Validator
from werkzeug.exceptions import HTTPException

from gomq_py.http.app import create_app
from gomq_py.http.openapi.document import _NAME, document
from gomq_py.http.server import path_info


@functools.cache
def app():
    """The app, without a broker: its paths are what counts."""
    return create_app(None)


@functools.cache
def described():
    """The OpenAPI document."""
    return document(app())


@functools.cache
def validator(template, method, status):
    """What checks the body of this answer; None for one without a body."""
    responses = described()["paths"][template][method.lower()]["responses"]
    response = responses.get(str(status), responses["default"])
    content = response.get("content", {}).get("application/json")
    return (
        None if content is None
        else Draft202012Validator({**content["schema"], "components": described()["components"]})
    )


def operation_of(method, url):
    """(path template, method) of a request, or None for one that no route is for."""
    try:
        rule, _ = app().url_map.bind("localhost").match(
            path_info(urlsplit(url).path).encode("latin-1").decode("utf-8", "replace"), method,
            return_rule=True,
        )
    except HTTPException:
        return None
    template = _NAME.sub(r"{\1}", rule.rule)
    return (template, method) if template in described()["paths"] else None


def check(response):
    """The answer must be one that is described. Answers cut to columns are passed over."""
    assert response.status_code != 500, response.text
    found = operation_of(response.request.method, response.request.url)
    if (
        found is None or "columns=" in response.request.url
        or response.status_code >= 400 and not response.content
    ):
        return
    responses = described()["paths"][found[0]][found[1].lower()]["responses"]
    assert str(response.status_code) in responses or response.status_code >= 400, (
        f"{found} does not say that it answers {response.status_code}"
    )
    expected = validator(*found, response.status_code)
    if expected is None:
        assert not response.content or not response.headers["Content-Type"].startswith("application/json"), (
            f"{found} is described without a body"
        )
        return
    errors = [
        f"{'/'.join(map(str, error.absolute_path))}: {error.message[:300]}"
        for error in expected.iter_errors(response.json())
    ]
    assert errors == [], f"{found} answers otherwise than described"
