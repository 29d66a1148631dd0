"""Authenticates requests, and checks the user's management tags in each view with ``@access``.

HTTP Basic carries a password or a token, Bearer a token. ``auth.logins`` checks both and slows down guessing.
A request without these headers may belong to a session (``http.session``).
"""
import functools
from urllib.parse import urlsplit

from flask import current_app, g, request
from werkzeug.datastructures import Authorization

from gomq_py.auth.errors import LoginRefused, LoopbackOnly, TooManyAttempts
from gomq_py.auth.logins import OAUTH, backends_named
from gomq_py.auth.permissions import Permission
from gomq_py.auth.users import LoginProof, User
from gomq_py.broker.policies.parameters import OPERATOR
from gomq_py.broker.signals.events import ACTOR, Actor
from gomq_py.broker.verbs.access import may_enter
from gomq_py.http import foreign_pages
from gomq_py.http.answers import MAX_BODY_OCTETS, node, receive_body
from gomq_py.http.errors import LoginFailed, NotAuthorised, SessionEnded, Throttled
from gomq_py.http.origins import login_address
from gomq_py.http.session import number_in_cookie
from gomq_py.observability.log import logger

LOG = logger("http")
# Characters that would end a source in a Content-Security-Policy.
_SEPARATORS = " ;,'\"\t\r\n"
# Tags that a tag includes: RabbitMQ's table of management tags.
IMPLIED = {
    "administrator": frozenset({"administrator", "monitoring", "policymaker", "management"}),
    "monitoring": frozenset({"monitoring", "management"}),
    "policymaker": frozenset({"policymaker", "management"}),
    "management": frozenset({"management"}),
}
MANAGEMENT, MONITORING, POLICYMAKER, ADMINISTRATOR = (
    "management", "monitoring", "policymaker", "administrator"
)
CONTROL_SOCKET = "control socket"  # in place of a protocol's name
# No tag is needed: the view checks a permission, as AMQP does.
ANYBODY = ""


class LoginCounts:
    """Counts successful and failed logins at the management API."""

    def __init__(self):
        self.succeeded_count = self.failed_count = 0


class LocalOperator(User):
    """The user of the control socket, who may do everything and is not in the list of users."""

    __slots__ = ()

    def __init__(self):
        User.__init__(self, "gomq-py-ctl", "", "", (ADMINISTRATOR,), None)

    def permission(self, vhost):
        return Permission(self.name, vhost, ".*", ".*", ".*")


def reach(user):
    """Return a set: the user's tags, and the tags that these imply."""
    reached = set()
    for tag in user.tags:
        reached |= IMPLIED.get(tag, frozenset({tag}))
    return reached


def authenticate():
    """Check the request's login, and return its User. Raises ForeignPage, LoginFailed, NotAuthorised,
    Throttled. May switch greenlets.
    """
    operator = current_app.extensions.get("gomq.operator")
    if operator is not None:
        return operator
    number = number_in_cookie() if request.authorization is None else None
    return by_password(request.authorization) if number is None else _by_session(number)


def sessions():
    """Return this Flask app's Sessions, the logins by cookie."""
    return current_app.extensions["gomq.sessions"]


def _by_session(number):
    """Return the User of the session of this number. Set ``g.session``. Raises ForeignPage, SessionEnded."""
    users = node().broker.users
    session = sessions().find(number)
    # A token's user is not a local user, whatever its name.
    is_kept = session is not None and session.user.expires_at_s is None
    if session is None or is_kept and not users.may_come_from(session.user.name, _address()):
        raise SessionEnded("The session has ended")
    foreign_pages.check_token(sessions().token(number))
    g.session = session
    return session.user


def _address():
    return login_address(
        request.remote_addr or "", request.headers.get("Host", ""), node().settings.oauth_mgmt_base_url)


def basic(name, password):
    """Return a name and a password as a Basic Authorization header."""
    return Authorization("basic", {"username": name, "password": password})


def by_password(given):
    """Check and count the login in an Authorization header (None if missing), and return its User. Raises
    NotAuthorised, LoginFailed, Throttled. May switch greenlets.
    """
    counts = current_app.extensions["gomq.logins"]
    address = _address()
    try:
        user = _login(current_app.extensions["gomq.node"].broker.logins, given, address)
    except LoopbackOnly as error:
        LOG.warning("login from %s refused: %s", address, error)
        raise NotAuthorised("User can only log in via localhost") from None
    except TooManyAttempts as error:
        counts.failed_count += 1
        raise Throttled("too many failed logins", error.retry_after_s) from None
    except LoginRefused as error:
        counts.failed_count += 1
        LOG.warning("login from %s refused: %s", address, error)
        raise LoginFailed("Login failed") from None
    counts.succeeded_count += 1
    return user


def _login(logins, given, address):
    """Return the User of an Authorization header, Basic or Bearer. The password of Basic may be a token.
    Raises LoginRefused, LoginFailed. May switch greenlets.
    """
    if given is not None and given.type == "basic" and given.username is not None:
        return logins.login(given.username, given.password or "", address)
    if given is not None and given.type == "bearer" and given.token:
        return logins.login_with_token(given.token)
    raise LoginFailed("Login failed")


# RabbitMQ's texts, by missing tag.
REFUSALS = {
    MANAGEMENT: "Not management user", POLICYMAKER: "User not authorised to access object",
    MONITORING: "Not monitor user", ADMINISTRATOR: "Not administrator user",
}


def access(tag, max_octets=MAX_BODY_OCTETS, who=authenticate):
    """Return a decorator that restricts a view to users whose tags include ``tag``.

    Sets ``g.user``, ``g.tags`` and ``g.session`` (None for a password or token). ``max_octets`` is the most
    bytes of the request body, which is received before the view runs. ``who()`` checks the login and returns
    the user. ``who()`` must not switch greenlets after the check, or a change of the user could go unnoticed.
    """

    def decorate(view):
        @functools.wraps(view)
        def guarded(*args, **kwargs):
            g.session = None
            g.user = who()
            g.proof = LoginProof(g.user)
            g.tags = reach(g.user)
            require_tag(tag)
            receive_body(max_octets)
            check_login()
            before = ACTOR.set(_actor())
            try:
                return view(*args, **kwargs)
            finally:
                ACTOR.reset(before)  # the connection's next request may be another user's

        setattr(guarded, "required_tag", tag)  # for the OpenAPI document
        return guarded

    return decorate


def _actor():
    protocol = CONTROL_SOCKET if isinstance(g.user, LocalOperator) else request.scheme.upper()
    return Actor(g.user, protocol, request.environ.get("gomq.peer", str)())


def check_login():
    """Check that the request's login is still valid after a wait. Raises LoginFailed, SessionEnded."""
    # Meanwhile the user may have been deleted or have got another password or other tags, the token may have
    # expired, or the page may have logged out.
    if g.session is not None and not sessions().is_good(g.session):
        raise SessionEnded("The session has ended")
    if not g.proof.is_good():
        raise LoginFailed("Login failed")


def require_tag(tag):
    """Raise NotAuthorised unless the user's tags include ``tag``. ANYBODY means that no tag is needed."""
    if tag != ANYBODY and tag not in g.tags:
        raise NotAuthorised(REFUSALS[tag if MANAGEMENT in g.tags else MANAGEMENT])


def set_by():
    """Return the author of a parameter that this request sets, for ``Parameters.set``: a user's name,
    OPERATOR at the control socket, None for the user of a token.
    """
    # A token's user is not a local user, whatever its name.
    if isinstance(g.user, LocalOperator):
        return OPERATOR
    return g.user.name if node().broker.users.get(g.user.name) is g.user else None


def sees_vhost(name):
    """Return whether this request's user has a permission in the vhost, or the tag monitoring."""
    return user_sees_vhost(g.user, g.tags, name)


def user_sees_vhost(user, tags, name):
    """Return whether this user has a permission in the vhost, or ``tags`` include monitoring."""
    return MONITORING in tags or may_enter(user, name)


# sign-on at the issuer of tokens

def sign_on_settings(given):
    """Return the settings with which a web page logs users in at the token issuer ([oauth]), a dict for
    /api/auth. None if tokens are not accepted, or no client id or usable issuer is configured.
    """
    # The page asks the issuer for a code (OAuth 2.0, RFC 6749 §4.1, with PKCE, RFC 7636) and exchanges it for
    # a token itself; the broker sees only the token, as from any client. A client id is no secret.
    if (
        not given.oauth_client_id or OAUTH not in backends_named(given.auth_backends)
        or not issuer_origins(given)
    ):
        return None
    return {
        "oauth_client_id": given.oauth_client_id, "oauth_provider_url": given.oauth_issuer,
        "oauth_scopes": given.oauth_mgmt_scopes, "oauth_redirect_url": given.oauth_mgmt_base_url,
    }


def issuer_origins(given):
    """Return a tuple with the token issuer's origin; empty if a Content-Security-Policy cannot contain it."""
    try:
        parts = urlsplit(given.oauth_issuer)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return ()
    origin = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    if parts.scheme not in ("http", "https") or not host or any(mark in origin for mark in _SEPARATORS):
        return ()
    return (origin,) if origin.isascii() and origin.isprintable() else ()


def policy_with_issuer(policy, given):
    """Return the Content-Security-Policy ``policy``; with sign-on, pages may also connect to the issuer."""
    if sign_on_settings(given) is None:
        return policy
    return policy.replace("connect-src 'self'", " ".join(("connect-src 'self'", *issuer_origins(given))))
