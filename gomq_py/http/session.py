"""Sessions: a page that has logged in sends a cookie, and proves with a token that a request which changes
something is its own.

Below login, which looks sessions up here. In memory only: a restart ends every session. A session's number is
256 random bits, of which only the hash is kept; its token is derived from the number with a key of this
process, so that neither can be found from memory. A session is as valid as its login (auth.users.LoginProof):
it ends when the user is deleted or gets another password or other tags. The user's rights are looked up for
each request. Bounded per user and in all. Never yields.
"""
import hashlib
import hmac
import os
import time
from base64 import urlsafe_b64encode
from collections import OrderedDict

from gomq_py.auth.users import LoginProof

TOKEN_HEADER = "X-CSRF-Token"
# A working day, as RabbitMQ's login_session_timeout; and a break without requests of the user's pages.
ENDS_AFTER_S = 8 * 3600
ENDS_IDLE_S = 1800
# Above these limits the least recently used session ends.
SESSIONS_MAX = 1000
SESSIONS_OF_USER_MAX = 20
NUMBER_OCTETS = 32


class Session:
    """The session of a user. ``digest`` is the hash of its number."""

    __slots__ = ("digest", "user", "proof", "begun_s", "used_s")

    def __init__(self, digest, user, now_s):
        self.digest = digest
        self.user = user
        self.proof = LoginProof(user)
        self.begun_s = self.used_s = now_s


class Sessions:
    """The sessions of one door. Tests pass the clocks: ``now_s`` is monotonic, tokens expire by ``unix_s``.
    """

    def __init__(self, now_s=time.monotonic, unix_s=time.time):
        self._now_s = now_s
        self._unix_s = unix_s
        self._key = os.urandom(NUMBER_OCTETS)
        self._sessions = OrderedDict()  # digest: Session, the least recently used first

    def __len__(self):
        return len(self._sessions)

    def begin(self, user):
        """Start a session of this user; returns (its number, for the cookie alone; the Session)."""
        number = _text(os.urandom(NUMBER_OCTETS))
        session = Session(_digest(number), user, self._now_s())
        self._sessions[session.digest] = session
        same = [one for one in self._sessions.values() if one.user.identity == user.identity]
        if len(same) > SESSIONS_OF_USER_MAX:
            self.end(same[0])
        if len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)
        return number, session

    def find(self, number):
        """The Session with this number, or None without a valid one. Counts as a use."""
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
        """Whether it exists, is in time, and its login is still valid."""
        is_there = self._sessions.get(session.digest) is session
        return is_there and self.seconds_left(session) > 0 and session.proof.is_good(self._unix_s())

    def seconds_left(self, session):
        """Seconds until it ends if it is not used meanwhile."""
        now_s, expires_at_s = self._now_s(), session.user.expires_at_s
        left = [session.begun_s + ENDS_AFTER_S - now_s, session.used_s + ENDS_IDLE_S - now_s]
        return min(left if expires_at_s is None else [*left, expires_at_s - self._unix_s()])

    def end(self, session):
        """End a session."""
        self._sessions.pop(session.digest, None)

    def end_numbered(self, number):
        """End the session with this number, if it exists."""
        self._sessions.pop(_digest(number), None)

    def token(self, number):
        """The token for a session's requests that change something."""
        return _text(hmac.digest(self._key, number.encode("utf-8", "replace"), "sha256"))


def _digest(number):
    return hashlib.sha256(number.encode("utf-8", "replace")).digest()


def _text(octets):
    return urlsafe_b64encode(octets).rstrip(b"=").decode()
