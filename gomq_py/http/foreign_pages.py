"""Refuses cross-site requests: a page of another site must not use the login that a browser remembers.

Browsers add a remembered login to any request, even to a form that another site posts. But they also send
``Origin`` and usually ``Sec-Fetch-Site``. No page can forge these headers, or omit them from a request that
changes something. Without a CORS preflight a page can send only a form's body. Other programs send neither
header, and send JSON; ``curl -d`` labels the JSON as a form, but no form begins with "{".

A changing request with a session's cookie also needs a token, which only the broker's own pages can read.
"""
import hmac

from flask import request

from gomq_py.http.errors import ForeignPage, UnsupportedType
from gomq_py.http.origins import is_of
from gomq_py.http.session import TOKEN_HEADER

READING = frozenset(("GET", "HEAD", "OPTIONS"))
FOREIGN_SITES = frozenset(("cross-site", "same-site"))
# Content types of a posted form: HTML, "form-submission-algorithm".
URLENCODED = "application/x-www-form-urlencoded"
FORMS = frozenset((URLENCODED, "multipart/form-data", "text/plain"))


def check():
    """Refuse cross-site requests that may change something. Raises ForeignPage, UnsupportedType (a form)."""
    if request.method in READING:
        return
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    if site in FOREIGN_SITES:
        raise ForeignPage(f"a page of another site ({origin or site}) may change nothing here")
    # A proxy may have changed Host; then only the browser knows that page and API have one origin.
    if site != "same-origin" and origin is not None and not is_of(origin, request.headers.get("Host", "")):
        raise ForeignPage(
            f"a page of {origin} may change nothing at {request.headers.get('Host', 'this address')}"
        )
    if request.mimetype in FORMS and not (
            request.mimetype == URLENCODED and request.method in ("PUT", "POST")):  # see check_body()
        raise _is_form()


def check_body(octets):
    """Raise UnsupportedType if the request's body, which begins with ``octets``, is a form. JSON with a
    form's content type is accepted, as ``curl -d`` sends it.
    """
    # Browsers encode "{" in a form. A script can send it so, but its browser then adds ``Origin``.
    if request.mimetype == URLENCODED and not octets.lstrip().startswith(b"{"):
        raise _is_form()


def _is_form():
    return UnsupportedType(
        f"{request.mimetype} is a form's content type: send Content-Type: application/json")


def check_token(token):
    """Raise ForeignPage if a request that may change something lacks its session's CSRF ``token``."""
    given = request.headers.get(TOKEN_HEADER, "")
    if (
        request.method not in READING
        and not hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())
    ):
        raise ForeignPage(
            f"a request of a session that changes something takes its csrf_token in {TOKEN_HEADER}: see GET "
            "/api/session"
        )
