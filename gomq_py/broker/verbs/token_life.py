"""The life of a login by token: the connection ends when the token does, unless the client renews it.

Beside the connection of a door, which makes one of these for a user that came in by token. One timer per such
connection and none for the others.
"""
from gomq_py.auth.errors import LoginRefused

# The reason to close a connection for.
EXPIRED = "token expired"
# gevent's timers count in floating seconds; a token that lives for years is looked at again after this long.
LONGEST_SLEEP_S = 86400


class TokenLife:
    """Watches the token of ``user`` and calls ``expired()`` at its end. ``stop`` when the connection ends."""

    def __init__(self, user, logins, hub, expired):
        self._user = user
        self._logins = logins
        self._hub = hub
        self._expired = expired
        self._timer = self._renewal = None
        self._arm()

    def renew(self, secret, hold, renewed, refused):
        """The client sends a newer token, octets: ``renewed()`` or ``refused(error)`` is called when it has
        been verified, which may take a fetch of the issuer's keys.

        ``hold`` is released then: nothing behind the token is read before, because what the client asks then,
        it asks with the new token's rights.
        """
        self._renewal = self._hub.spawn(self._renew, secret, hold, renewed, refused)

    def stop(self):
        """The connection has ended: nothing is called any more."""
        for greenlet in (self._timer, self._renewal):
            if greenlet is not None:
                greenlet.kill(block=False)

    def _renew(self, secret, hold, renewed, refused):
        try:
            self._logins.renew(self._user, secret)
        except LoginRefused as error:
            refused(error)
            return
        finally:
            hold.release()
        self._arm()
        renewed()

    def _arm(self):
        if self._timer is not None:
            self._timer.kill(block=False)
        self._timer = self._hub.call_later(max(0, min(self._user.seconds_left, LONGEST_SLEEP_S)), self._due)

    def _due(self):
        self._timer = None
        if self._user.seconds_left > 0:
            self._arm()
        else:
            self._expired()
