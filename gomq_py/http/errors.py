"""The one place where the management door turns errors into HTTP answers, in RabbitMQ's form:
``{"error": ..., "reason": ...}``.

Answers name what the caller asked for and nothing of our insides; what was not foreseen is logged whole and
answered with 500 and no detail.
"""
import orjson
from flask import Response, request
from werkzeug.exceptions import HTTPException

from gomq_py.errors import AccessRefused, NoPermission, NotFound, Refused
from gomq_py.observability.log import logger

LOG = logger("http")


class APIError(Exception):
    """An answer other than success: status, RabbitMQ's error word and the reason."""

    status, error = 500, "internal_server_error"

    def __init__(self, reason, error=None):
        super().__init__(reason)
        self.reason = reason
        if error is not None:
            self.error = error


class BadRequest(APIError):
    """400: the request cannot be understood, or contradicts what is there."""

    status, error = 400, "bad_request"


class NotAuthorised(APIError):
    """401: the rights or tags of the user do not reach."""

    status, error = 401, "not_authorised"


class LoginFailed(NotAuthorised):
    """401: whoever asks is not who they say.

    RabbitMQ spells the word otherwise here, and management tools look for it.
    """

    error = "not_authorized"


class SessionEnded(LoginFailed):
    """401: the cookie is of a session that is no more; the page logs in anew, and no browser is to ask for a
    password.
    """


class ForeignPage(APIError):
    """403: whoever asks may, but it is another site's page that has their browser ask."""

    status, error = 403, "forbidden"


class NoSuchObject(APIError):
    """404: as RabbitMQ words it, whatever the object."""

    status, error = 404, "Object Not Found"

    def __init__(self, reason="Not Found", error=None):
        super().__init__(reason, error)


class MethodNotAllowed(APIError):
    """405."""

    status, error = 405, "Method Not Allowed"


class PreconditionNotMet(APIError):
    """412: not while the thing is as it is."""

    status, error = 412, "precondition_failed"


class TooLarge(APIError):
    """413: the body is over the limit of this kind of request."""

    status, error = 413, "payload_too_large"


class UnsupportedType(APIError):
    """415: bodies are JSON."""

    status, error = 415, "unsupported_content_type"


class Unprocessable(APIError):
    """422: what is asked for is so already."""

    status, error = 422, "unprocessable_entity"


class Throttled(APIError):
    """429: too many failed logins of this user or address, of which too many wait already."""

    status, error = 429, "too_many_requests"

    def __init__(self, reason, retry_after_s):
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class Unavailable(APIError):
    """503: not now; publishers are held."""

    status, error = 503, "service_unavailable"


class BodyLost(OSError):
    """The client did not send the rest of a body.

    ``status`` and ``reason`` are what it is told, if it still listens.
    """

    def __init__(self, status, reason):
        super().__init__(reason)
        self.status = status
        self.reason = reason


def validation_failed(error):
    """The reason why a policy or parameter is refused, in RabbitMQ's frame."""
    return f"Validation failed\n\n{error}\n"


def answer(status, error, reason):
    """The JSON body of an error."""
    return Response(orjson.dumps({"error": error, "reason": reason}), status, mimetype="application/json")


def from_api_error(error):
    """Our own refusals."""
    response = answer(error.status, error.error, error.reason)
    if error.status == 401:
        # A page that logs in by itself says so, and is spared the browser's own dialogue.
        if request.headers.get("X-Requested-With") is None and not isinstance(error, SessionEnded):
            response.headers["WWW-Authenticate"] = 'Basic realm="gomq-py management"'
    if isinstance(error, Throttled):
        response.headers["Retry-After"] = str(error.retry_after_s)
    return response


def from_refused(error):
    """What the model refuses: RabbitMQ answers 404 for what is missing, 401 for what nobody may do, 400 with
    the text for the rest.
    """
    if isinstance(error, NotFound):
        return answer(404, "Object Not Found", error.text)
    if isinstance(error, NoPermission):
        # RabbitMQ's words: AMQP's, and which right it is that is missing.
        return from_api_error(
            NotAuthorised(f"ACCESS_REFUSED - {error.verb} {error.text}" if error.verb else error.text)
        )
    if isinstance(error, AccessRefused):
        return answer(401, "not_authorised", error.text)
    return answer(400, "bad_request", error.text)


def from_http_error(error):
    """What Flask itself refuses: unknown paths, methods, malformed requests."""
    if error.code == 404:
        return answer(404, "Object Not Found", "Not Found")
    response = answer(error.code or 500, error.name, error.name)
    allowed = getattr(error, "valid_methods", None)
    if allowed:
        response.headers["Allow"] = ", ".join(sorted(allowed))
    return response


def from_lost_body(error):
    """Nothing of it was done."""
    return answer(error.status, "bad_request", error.reason)


def from_anything(error):
    """A fault of ours."""
    LOG.exception("%s %s failed", request.method, request.path, exc_info=error)
    return answer(500, "internal_server_error", "unexpected error: see the broker's log")


def register(app):
    """Install the translations."""
    app.register_error_handler(APIError, from_api_error)
    app.register_error_handler(Refused, from_refused)
    app.register_error_handler(HTTPException, from_http_error)
    app.register_error_handler(BodyLost, from_lost_body)
    app.register_error_handler(Exception, from_anything)
    app.teardown_request(_forget_routing_exception)


def _forget_routing_exception(_error):
    """Its traceback holds the request, which holds it."""
    request.routing_exception = None
