"""Web: an app of views under paths, over WSGI, and the request that is being answered.

Between the server, which knows no route, and the views. Paths, heads and bodies are Werkzeug's; what is here
is the little of Flask that the management API needs. Flask itself brings templates, commands and signed
cookies: 5 MB, and 40 ms of each start.

    blueprint = Blueprint("queues")              views by their paths, registered at an app
    @blueprint.get("/api/queues/<vhost>")        the view answers a Response
    request, g, current_app                      of the greenlet's request; g is for whatever views keep

For a request all ``before_request`` are called, then its view, then all ``after_request`` with the answer,
the last one first. What any of these raises goes to the handler of its nearest class.
"""
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from werkzeug import wrappers
from werkzeug.exceptions import HTTPException, InternalServerError, abort
from werkzeug.local import LocalProxy
from werkzeug.routing import Map, RequestRedirect, Rule
from werkzeug.utils import redirect

from gomq_py.observability.log import logger

__all__ = ("App", "Blueprint", "Response", "abort", "current_app", "g", "redirect", "request")

LOG = logger("http")


class _Current:
    """What is going on in a greenlet: the ``app``, the ``request`` (None: it works for none), and ``g``."""

    __slots__ = ("app", "request", "g")

    def __init__(self, app, request=None):
        self.app = app
        self.request = request
        self.g = _Kept()


class _Kept:
    """Attributes that views keep for each other while a request lasts."""

    def get(self, name, default=None):
        """The attribute, or ``default`` where nobody kept it."""
        return self.__dict__.get(name, default)

    def pop(self, name, default=None):
        """As ``get``; it is not kept any more."""
        return self.__dict__.pop(name, default)


_current: ContextVar[_Current] = ContextVar("gomq_py.http.web")
current_app: Any = LocalProxy(_current, "app")
request: Any = LocalProxy(_current, "request")
g: Any = LocalProxy(_current, "g")


class Response(wrappers.Response):
    """An answer; HTML, where nothing else is said."""

    default_mimetype = "text/html"


class Blueprint:
    """Views by their paths: ``rules`` is [(path, endpoint, view, options of a Rule)].

    Endpoints begin with its ``name``.
    """

    def __init__(self, name):
        self.name = name
        self.rules = []

    def add_url_rule(self, path, endpoint=None, view_func=None, methods=("GET",), **options):
        """``view_func`` answers at the path; the endpoint is called like it, unless told. ``options``: a
        werkzeug.routing.Rule's.
        """
        options["methods"] = {*methods, "OPTIONS"}
        self.rules.append((path, f"{self.name}.{endpoint or view_func.__name__}", view_func, options))

    def get(self, path, **options):
        """The function below answers GET at the path, and HEAD."""
        return self._at(path, "GET", options)

    def post(self, path, **options):
        """The function below answers POST at the path."""
        return self._at(path, "POST", options)

    def put(self, path, **options):
        """The function below answers PUT at the path."""
        return self._at(path, "PUT", options)

    def delete(self, path, **options):
        """The function below answers DELETE at the path."""
        return self._at(path, "DELETE", options)

    def _at(self, path, method, options):
        def decorate(view):
            self.add_url_rule(path, view_func=view, methods=(method,), **options)
            return view

        return decorate


class App:
    """A WSGI app. ``extensions``: what those who make it give its views."""

    def __init__(self, converters=None):
        """``converters``: {name in a path: werkzeug.routing.BaseConverter}, beside Werkzeug's own."""
        self.extensions = {}
        self.url_map = Map(strict_slashes=False)
        self.url_map.converters.update(converters or {})
        self.view_functions = {}
        self._before = []
        self._after = []
        self._handlers = {}

    def register_blueprint(self, blueprint):
        """Its views are this app's. OPTIONS of their paths says which methods they answer."""
        for path, endpoint, view, options in blueprint.rules:
            self.url_map.add(Rule(path, endpoint=endpoint, **options))
            if self.view_functions.setdefault(endpoint, view) is not view:
                raise ValueError(f"two views are called {endpoint}")

    def before_request(self, function):
        """Call ``function()`` before any view."""
        self._before.append(function)

    def after_request(self, function):
        """Call ``function(response)``, which returns the response, after any view, and before functions that
        were given earlier.
        """
        self._after.insert(0, function)

    def register_error_handler(self, kind, handler):
        """``handler(error)`` answers for errors of this class."""
        self._handlers[kind] = handler

    @contextmanager
    def app_context(self):
        """Within, ``current_app`` is this one, as while it answers a request."""
        token = _current.set(_Current(self))
        try:
            yield
        finally:
            _current.reset(token)

    def __call__(self, environ, start_response):
        current = _Current(self, wrappers.Request(environ))
        token = _current.set(current)
        try:
            return self._answer(environ)(environ, start_response)
        finally:
            _current.reset(token)

    def _answer(self, environ):
        """The Response to the request that is current."""
        try:
            return self._finished(self._tried(environ))
        except Exception as error:  # of what comes after views, or of a handler: a fault of ours
            failed = InternalServerError(original_exception=error)
            LOG.exception("%s failed", request.path, exc_info=error)
            response = self._handler_of(failed)(failed)
            try:
                return self._finished(response)
            except Exception as again:
                LOG.exception("%s failed again", request.path, exc_info=again)
                return response

    def _tried(self, environ):
        try:
            adapter, rule, names = self._matched(environ)
            for function in self._before:
                function()
            if isinstance(rule, HTTPException):
                raise rule
            if request.method == "OPTIONS":
                response = Response()
                response.allow.update(adapter.allowed_methods())
                return response
            return self.view_functions[rule.endpoint](**names)
        except RequestRedirect as error:  # of a path with two slashes in a row
            return error.get_response(environ)
        except Exception as error:
            return self._handler_of(error)(error)

    def _matched(self, environ):
        """(adapter, Rule, {name: value}) of the path; in place of the Rule what is to be raised, where there
        is none.
        """
        adapter = None
        try:
            adapter = self.url_map.bind_to_environ(environ, subdomain="")
            return (adapter, *adapter.match(return_rule=True))
        except HTTPException as error:
            return adapter, error, None

    def _finished(self, response):
        for function in self._after:
            response = function(response)
        return response

    def _handler_of(self, error):
        for kind in type(error).__mro__:
            if kind in self._handlers:
                return self._handlers[kind]
        raise error
