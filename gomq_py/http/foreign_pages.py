"""Foreign pages: a browser that is logged in here must not change anything because some other site's page
asks it to.

Browsers add a login that they remember to any request, also to a form that another site posts. They say so,
too: in ``Sec-Fetch-Site`` where they hold the connection to be safe, and in ``Origin``, which no page can
forge or leave out of a request that changes something. And without asking us first a page can send no body
but a form's. Programs send neither header, and JSON. A session's cookie does not come with what other sites'
pages ask for (``SameSite``), where the browser knows that; a request that changes something with it brings a
token besides, which only our own pages can read.
"""
import hmac
import socket
from ipaddress import ip_address
from urllib.parse import urlsplit

from flask import request

from gomq_py.auth.users import is_loopback
from gomq_py.http.errors import ForeignPage, UnsupportedType
from gomq_py.http.session import TOKEN_HEADER

READING = frozenset(("GET", "HEAD", "OPTIONS"))
FOREIGN_SITES = frozenset(("cross-site", "same-site"))
# What a form may be posted as: HTML, "form-submission-algorithm".
FORMS = frozenset(("application/x-www-form-urlencoded", "multipart/form-data", "text/plain"))


def check():
    """For requests that may change something, before anything else. Raises ForeignPage, UnsupportedType."""
    if request.method in READING:
        return
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    if site in FOREIGN_SITES:
        raise ForeignPage(f"a page of another site ({origin or site}) may change nothing here")
    # A proxy may have changed Host, in which case only the browser knows that page and API are one.
    if site != "same-origin" and origin is not None and not _is_ours(origin):
        raise ForeignPage(
            f"a page of {origin} may change nothing at {request.headers.get('Host', 'this address')}"
        )
    if request.mimetype in FORMS:
        raise UnsupportedType(
            f"{request.mimetype} is a form's content type: send Content-Type: application/json"
        )


def check_token(token):
    """For requests of a session: what may change something brings its token. Raises ForeignPage."""
    given = request.headers.get(TOKEN_HEADER, "")
    if (
        request.method not in READING
        and not hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())
    ):
        raise ForeignPage(
            f"a request of a session that changes something takes its csrf_token in {TOKEN_HEADER}: see GET "
            "/api/session"
        )


def login_address(address, host, base_url):
    """The address that a login from ``address`` counts by, whatever is spoken after it: that of no machine
    where ``host``, the field Host of its request, is no name of this one.

    The name of any other site may be made to lead here (DNS rebinding): its page is then no foreign one to
    the browser, which comes from this machine.
    """
    if not is_loopback(address) or _names_this_machine(host, base_url):
        return address
    return f"{address} by a foreign name"


def _names_this_machine(host, base_url):
    """Whether this is an address, or a name that is known to be this machine's own: localhost, the machine's
    name, or that of ``base_url``.
    """
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        ours = urlsplit(base_url).hostname
    except ValueError:
        return False
    machine = socket.gethostname().lower()
    if name in ("", "localhost", machine, machine.partition(".")[0], ours) or name.endswith(".localhost"):
        return True
    try:
        ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True


def is_over_tls():
    """Whether the browser speaks TLS, to us or to a proxy that our page came from."""
    return request.is_secure or request.headers.get("Origin", "").startswith("https://")


def _is_ours(origin):
    """Whether the page came from the host and port that were asked.

    Not the scheme: a proxy may have ended TLS.
    """
    try:
        return urlsplit(origin).netloc.lower() == request.headers.get("Host", "").lower() != ""
    except ValueError:
        return False
