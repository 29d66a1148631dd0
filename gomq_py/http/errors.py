"""Translates all errors of the management API into HTTP answers of RabbitMQ's form: ``{"error": ...,
"reason": ...}``.

Answers name the requested object but no internals. An unexpected error is logged whole; its answer is 500
without detail.
"""
import orjson
from flask import Response, request
from werkzeug.exceptions import HTTPException

from gomq_py.errors import AccessRefused, ClusterError, NoPermission, NotFound, Refused
from gomq_py.http.heads import BodyLost
from gomq_py.observability.log import logger

LOG = logger("http")


class APIError(Exception):
    """Base class of errors that become an HTTP answer: a status, RabbitMQ's error word and the reason."""

    status, error = 500, "internal_server_error"

    def __init__(self, reason, error=None):
        super().__init__(reason)
        self.reason = reason
        if error is not None:
            self.error = error


class BadRequest(APIError):
    """400: the request is malformed, or contradicts the present state."""

    status, error = 400, "bad_request"


class NotAuthorised(APIError):
    """401: the rights or tags of the user do not suffice."""

    status, error = 401, "not_authorised"


class LoginFailed(NotAuthorised):
    """401: the login failed. The error word has RabbitMQ's z, because tools look for it."""

    error = "not_authorized"


class SessionEnded(LoginFailed):
    """401: the cookie's session has ended. The web page asks for a login; the browser shows no dialogue."""


class ForeignPage(APIError):
    """403: a page of another site made the browser send the request, perhaps without the user's knowledge."""

    status, error = 403, "forbidden"


class NoSuchObject(APIError):
    """404: the object does not exist. The default text is RabbitMQ's, the same for every kind of object."""

    status, error = 404, "Object Not Found"

    def __init__(self, reason="Not Found", error=None):
        super().__init__(reason, error)


class Conflict(APIError):
    """409: the state of the node does not allow the request."""

    status, error = 409, "conflict"


class PreconditionNotMet(APIError):
    """412: the state of the entity does not allow the request."""

    status, error = 412, "precondition_failed"


class TooLarge(APIError):
    """413: the body is over the limit for this kind of request."""

    status, error = 413, "payload_too_large"


class UnsupportedType(APIError):
    """415: the content type of the body is not JSON."""

    status, error = 415, "unsupported_content_type"


class Unprocessable(APIError):
    """422: the entity is in the requested state already, or cannot do what is asked."""

    status, error = 422, "unprocessable_entity"


class Throttled(APIError):
    """429: logins of this user or address have failed before, and too many attempts are waiting."""

    status, error = 429, "too_many_requests"

    def __init__(self, reason, retry_after_s):
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class Unavailable(APIError):
    """503: the broker cannot do this now, for example because it blocks publishers."""

    status, error = 503, "service_unavailable"


def validation_failed(error):
    """Return the error text for a policy or parameter that was refused, in RabbitMQ's form."""
    return f"Validation failed\n\n{error}\n"


def answer(status, error, reason):
    """Return an error response, whose body is RabbitMQ's JSON object with ``error`` and ``reason``."""
    return Response(orjson.dumps({"error": error, "reason": reason}), status, mimetype="application/json")


def from_api_error(error):
    """Return the response to an APIError."""
    response = answer(error.status, error.error, error.reason)
    if error.status == 401:
        # A page with its own login form sends this header, and is spared the browser's dialogue.
        if request.headers.get("X-Requested-With") is None and not isinstance(error, SessionEnded):
            response.headers["WWW-Authenticate"] = 'Basic realm="gomq-py management"'
    if isinstance(error, Throttled):
        response.headers["Retry-After"] = str(error.retry_after_s)
    return response


def from_refused(error):
    """Return the response to a Refused, an error of the broker, as RabbitMQ does: 404 for missing entities,
    401 for missing rights, 400 for all other errors.
    """
    if isinstance(error, NotFound):
        return answer(404, "Object Not Found", error.text)
    if isinstance(error, NoPermission):
        # as in RabbitMQ, AMQP's text
        return from_api_error(NotAuthorised(f"ACCESS_REFUSED - {error.text}" if error.verb else error.text))
    if isinstance(error, AccessRefused):
        return answer(401, "not_authorised", error.text)
    return answer(400, "bad_request", error.text)


def from_cluster_error(error):
    """Return the response to a ClusterError: 400 with its text."""
    return answer(400, "bad_request", str(error))


def from_http_error(error):
    """Return the response to an error of Flask: an unknown path, a wrong method or a malformed request."""
    if error.code == 404:
        return answer(404, "Object Not Found", "Not Found")
    response = answer(error.code or 500, error.name, error.name)
    allowed = getattr(error, "valid_methods", None)
    if allowed:
        response.headers["Allow"] = ", ".join(sorted(allowed))
    return response


def from_lost_body(error):
    """Return the response to a request whose body was cut off. The request has changed nothing."""
    return answer(error.status, "bad_request", error.reason)


def from_anything(error):
    """Log an unexpected exception, which is a bug of the broker, and return a response of status 500."""
    LOG.exception("%s %s failed", request.method, request.path, exc_info=error)
    return answer(500, "internal_server_error", "unexpected error: see the broker's log")


def register(app):
    """Install the error handlers in a Flask app."""
    app.register_error_handler(APIError, from_api_error)
    app.register_error_handler(Refused, from_refused)
    app.register_error_handler(ClusterError, from_cluster_error)
    app.register_error_handler(HTTPException, from_http_error)
    app.register_error_handler(BodyLost, from_lost_body)
    app.register_error_handler(Exception, from_anything)
    app.teardown_request(_forget_routing_exception)


def _forget_routing_exception(_error):
    """Break a reference cycle: the exception's traceback refers to the request, and vice versa."""
    request.routing_exception = None
