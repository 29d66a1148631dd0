"""Login sessions of the web page. A cookie identifies the session, and a token proves that a changing request
is the page's own.

Sessions are only in memory; a restart ends them. A session's number is 256 random bits, of which only the
hash is kept. The token is derived from the number with a key of this process, so neither can be found in
memory. A session ends with its login: when the user is deleted or gets another password or other tags
(auth.users.LoginProof). The number of sessions is limited, per user and in total. Never switches greenlets.

Browsers share cookies between ports of a host. So the cookie's name contains the port, and two brokers on a
machine have separate cookies. Over TLS the name begins with ``__Host-``: a browser accepts such a cookie only
from this very host over TLS.
"""
import hashlib
import hmac
import os
import time
from base64 import urlsafe_b64encode
from collections import OrderedDict
from urllib.parse import urlsplit

from flask import request

from gomq_py.auth.users import LoginProof

TOKEN_HEADER = "X-CSRF-Token"
COOKIE, TLS_PREFIX = "gomq_session", "__Host-"
# A working day, as RabbitMQ's login_session_timeout; and a break without requests of the user's pages.
ENDS_AFTER_S = 8 * 3600
ENDS_IDLE_S = 1800
# Above these limits the least recently used session ends.
SESSIONS_MAX = 1000
SESSIONS_OF_USER_MAX = 20
NUMBER_OCTETS = 32


class LoginSession:
    """The session of a logged-in user. ``digest`` is the hash of the number in the cookie."""

    __slots__ = ("digest", "user", "proof", "begun_s", "used_s")

    def __init__(self, digest, user, now_s):
        self.digest = digest
        self.user = user
        self.proof = LoginProof(user)
        self.begun_s = self.used_s = now_s


class Sessions:
    """The sessions of one management API."""

    def __init__(self, now_s=time.monotonic, unix_s=time.time):
        self._now_s = now_s
        self._unix_s = unix_s
        self._key = os.urandom(NUMBER_OCTETS)
        self._sessions = OrderedDict()  # digest: LoginSession, the least recently used first

    def __len__(self):
        return len(self._sessions)

    def begin(self, user):
        """Start a user's session. Return (session number for the cookie, LoginSession)."""
        number = _text(os.urandom(NUMBER_OCTETS))
        session = LoginSession(_digest(number), user, self._now_s())
        self._sessions[session.digest] = session
        same = [one for one in self._sessions.values() if one.user.identity == user.identity]
        if len(same) > SESSIONS_OF_USER_MAX:
            self.end(same[0])
        if len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)
        return number, session

    def find(self, number):
        """Return the valid LoginSession with this number, or None. This counts as a use of the session."""
        session = self._sessions.get(_digest(number))
        if session is None:
            return None
        if not self.is_good(session):
            self.end(session)
            return None
        session.used_s = self._now_s()
        self._sessions.move_to_end(session.digest)
        return session

    def is_good(self, session):
        """Return whether the session exists, has time left, and its login is still valid."""
        is_there = self._sessions.get(session.digest) is session
        return is_there and self.seconds_left(session) > 0 and session.proof.is_good(self._unix_s())

    def seconds_left(self, session):
        """Return the seconds until the session ends without further use."""
        now_s, expires_at_s = self._now_s(), session.user.expires_at_s
        left = [session.begun_s + ENDS_AFTER_S - now_s, session.used_s + ENDS_IDLE_S - now_s]
        return min(left if expires_at_s is None else [*left, expires_at_s - self._unix_s()])

    def end(self, session):
        self._sessions.pop(session.digest, None)

    def end_numbered(self, number):
        self._sessions.pop(_digest(number), None)

    def token(self, number):
        """Return the CSRF token of the session with this number, for requests that change something."""
        return _text(hmac.digest(self._key, number.encode("utf-8", "replace"), "sha256"))


def _digest(number):
    return hashlib.sha256(number.encode("utf-8", "replace")).digest()


def _text(octets):
    return urlsafe_b64encode(octets).rstrip(b"=").decode()


# the cookie of a request and an answer

def number_in_cookie():
    """Return the session number in this request's cookie, or None."""
    if not request.cookies:
        return None
    secure = request.cookies.get(TLS_PREFIX + _plain_cookie_name())
    # Behind a proxy that ends TLS, a reading request does not show that its page came over TLS.
    return secure if secure is not None or is_over_tls() else request.cookies.get(_plain_cookie_name())


def numbers_in_cookies():
    """Return a list of the session numbers in this request's cookies, with and without the TLS prefix."""
    return [request.cookies[each] for each in _cookie_names() if each in request.cookies]


def cookie_name():
    """Return the name of the session cookie that the answer to this request would set."""
    return TLS_PREFIX + _plain_cookie_name() if is_over_tls() else _plain_cookie_name()


def set_cookie(response, number):
    """Set the session cookie in the response, with the session's ``number``."""
    response.set_cookie(
        cookie_name(), number, max_age=ENDS_AFTER_S, path="/", secure=is_over_tls(), httponly=True,
        samesite="Strict",
    )


def delete_cookies(response):
    """Delete the session cookies that the request has, with and without the TLS prefix."""
    for each in _cookie_names():
        if each in request.cookies:
            secure = each.startswith(TLS_PREFIX)
            response.delete_cookie(each, path="/", secure=secure, httponly=True, samesite="Strict")


def _cookie_names():
    return TLS_PREFIX + _plain_cookie_name(), _plain_cookie_name()


def _plain_cookie_name():
    """Return the cookie's name without TLS prefix. It ends with the port in the header ``Host``, if any."""
    try:
        port = urlsplit(f"//{request.headers.get('Host', '')}").port
    except ValueError:  # an invalid port
        port = None
    return COOKIE if port is None else f"{COOKIE}_{port}"


def is_over_tls():
    """Return whether the browser uses TLS, to this server or to a proxy in front of it."""
    return request.is_secure or request.headers.get("Origin", "").startswith("https://")
