"""Makes the WSGI apps of the management listeners from the API's Flask blueprints.

Each call of a function here makes a new app, so that several brokers can run in one process.
"""
import contextlib
from http import HTTPStatus

from flask import Flask, current_app, g, request
from werkzeug.routing import Rule, UnicodeConverter

import gomq_py
from gomq_py.http import doctor, durability, errors, foreign_pages, page
from gomq_py.http.api import (
    arguments, backup, bindings, changes, closed, cluster, connections, definitions, delayed, docs,
    exchanges, federation, health, identity, limits, log, messages, metrics, mqtt, nodes, overview,
    parameters, permissions, policies, queue_states, queues, routes, schedules, search, session,
    settings, shovels, streams, unacked, users, vhosts,
)
from gomq_py.http.login import LocalOperator, LoginCounts, policy_with_issuer
from gomq_py.http.session import Sessions

RESOURCES = (
    docs, arguments, identity, overview, nodes, cluster, backup, health, metrics, connections, exchanges,
    queues, queue_states, streams, bindings, vhosts, users, permissions, policies, parameters, limits,
    messages, definitions, changes, session, mqtt, shovels, federation, unacked, delayed, schedules,
    routes, search, doctor, closed, log, settings, page,
)

POLICY = "Content-Security-Policy"
# No inline script, no foreign source, no text made HTML: a queue's name can never run as code.
SECURITY_HEADERS = {
    POLICY: "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' "
    "data:; connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class NameConverter(UnicodeConverter):
    """Decodes a name in a URL path: %2F and %25, which ``server.path_info`` leaves encoded."""

    def to_python(self, value):
        return value.replace("%2F", "/").replace("%25", "%")


class ExchangeConverter(NameConverter):
    """Decodes an exchange's name in a URL path. The name may be empty: the default exchange."""

    def __init__(self, url_map):
        super().__init__(url_map, minlength=0)


class Route(Rule):
    """A route without werkzeug's compiled code for url_for(). All routes together save 50 ms and 0.5 MB."""

    def _compile_builder(self, append_unknown=True):
        return _write_nothing


def _write_nothing(*_):
    """Return None, from which werkzeug concludes that url_for() cannot write this route's address."""


def create_app(node):
    """Return the WSGI app that manages ``node``."""
    app = Flask("gomq_py.http", static_folder=None)
    app.extensions["gomq.node"] = node
    app.extensions["gomq.logins"] = LoginCounts()
    app.extensions["gomq.sessions"] = Sessions()
    app.url_rule_class = Route
    app.url_map.redirect_defaults = False  # to an address, as url_for() writes it
    app.url_map.strict_slashes = False
    # Merging would redirect, and the redirect would escape twice: %2F became the vhost "%2F".
    app.url_map.merge_slashes = False
    app.url_map.converters["default"] = app.url_map.converters["name"] = NameConverter
    app.url_map.converters["exchange"] = ExchangeConverter
    for resource in RESOURCES:
        app.register_blueprint(resource.blueprint)
    errors.register(app)
    app.before_request(foreign_pages.check)
    app.before_request(_check_path)
    app.after_request(add_headers)
    app.after_request(durability.after_request)  # runs before the one above
    return app


def _check_path():
    """Raise BadRequest if the path is not UTF-8: replacement characters could make two names equal."""
    try:
        request.environ["PATH_INFO"].encode("latin-1").decode("utf-8")
    except UnicodeDecodeError:
        raise errors.BadRequest("the path is no UTF-8") from None


def create_control_app(node):
    """Return the WSGI app of the control socket: the whole API without a login, as the user LocalOperator."""
    app = create_app(node)
    app.extensions["gomq.operator"] = LocalOperator()
    return app


def create_metrics_app(node):
    """Return the WSGI app of the metrics port: /metrics and health checks, without a login."""
    app = Flask("gomq_py.http.metrics", static_folder=None)
    app.extensions["gomq.node"] = node
    app.register_blueprint(metrics.public)
    app.register_blueprint(health.public)
    errors.register(app)
    app.after_request(add_headers)
    return app


# Kind of listener (http.door) -> what makes its app.
MAKERS = {"http": create_app, "control": create_control_app, "metrics": create_metrics_app}


def add_headers(response):
    """Set the headers that every answer has, and return the response. Flask calls this after each request."""
    for name, value in SECURITY_HEADERS.items():
        response.headers.setdefault(name, value)
    shown = current_app.extensions["gomq.node"]
    if shown is not None:
        response.headers[POLICY] = policy_with_issuer(response.headers[POLICY], shown.settings)
    # RabbitMQ sends the phrases of RFC 9110; the framework would write them in capitals.
    with contextlib.suppress(ValueError):
        response.status = f"{response.status_code} {HTTPStatus(response.status_code).phrase}"
    if request.method == "OPTIONS":
        response.headers.pop("Content-Type", None)
    response.headers["Server"] = f"gomq-py/{gomq_py.__version__}"
    g.pop("user", None)
    return response
