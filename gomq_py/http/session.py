"""Sessions: a page that has logged in once asks with a cookie, and shows with a token that a request which
changes something is its own.

Beside login, which asks here who sent a cookie. In memory only: a restart ends every session. A session's
number is 256 random bits, and what is kept is its hash; the token is made of the number with a key of this
process, so that neither can be told from what is here. A session is as good as the login it began with
(auth.users.LoginProof): it ends when the user is deleted or gets another password or other tags. What the
user may do is looked up for each request. Bounded, for each user and in all. Never yields.
"""
import hashlib
import hmac
import os
import time
from base64 import urlsafe_b64encode
from collections import OrderedDict

from gomq_py.auth.users import LoginProof

TOKEN_HEADER = "X-CSRF-Token"
# A working day, as RabbitMQ's login_session_timeout;
# and a break, in which no page of the user asked for anything.
ENDS_AFTER_S = 8 * 3600
ENDS_IDLE_S = 1800
# Beyond, the one that was not used for longest ends.
SESSIONS_MAX = 1000
SESSIONS_OF_USER_MAX = 20
NUMBER_OCTETS = 32


class Session:
    """Somebody who has logged in. ``digest`` is of its number."""

    __slots__ = ("digest", "user", "proof", "begun_s", "used_s")

    def __init__(self, digest, user, now_s):
        self.digest = digest
        self.user = user
        self.proof = LoginProof(user)
        self.begun_s = self.used_s = now_s


class Sessions:
    """The sessions of one door.

    Clocks are given by tests: ``now_s`` only moves forward, ``unix_s`` is what tokens expire by.
    """

    def __init__(self, now_s=time.monotonic, unix_s=time.time):
        self._now_s = now_s
        self._unix_s = unix_s
        self._key = os.urandom(NUMBER_OCTETS)
        self._sessions = OrderedDict()  # digest: Session, the one that was not used for longest first

    def __len__(self):
        return len(self._sessions)

    def begin(self, user):
        """(the number of a new session of this user, for its cookie alone; the Session)."""
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
        """The Session with this number, or None where there is none that is good. It counts as used."""
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
        """Whether it is still there, in time, and its user as it was."""
        is_there = self._sessions.get(session.digest) is session
        return is_there and self.seconds_left(session) > 0 and session.proof.is_good(self._unix_s())

    def seconds_left(self, session):
        """How long it lasts if it is not used meanwhile."""
        now_s, expires_at_s = self._now_s(), session.user.expires_at_s
        left = [session.begun_s + ENDS_AFTER_S - now_s, session.used_s + ENDS_IDLE_S - now_s]
        return min(left if expires_at_s is None else [*left, expires_at_s - self._unix_s()])

    def end(self, session):
        """It is good for nothing any more."""
        self._sessions.pop(session.digest, None)

    def end_numbered(self, number):
        """Likewise the one with this number, if there is one."""
        self._sessions.pop(_digest(number), None)

    def token(self, number):
        """What requests of the session with this number that change something bring along."""
        return _text(hmac.digest(self._key, number.encode("utf-8", "replace"), "sha256"))


def _digest(number):
    return hashlib.sha256(number.encode("utf-8", "replace")).digest()


def _text(octets):
    return urlsafe_b64encode(octets).rstrip(b"=").decode()
