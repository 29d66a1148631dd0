"""Token life: ends a connection when its login token expires, unless the client renews the token.

A connection whose user has a token makes a TokenLife, which has one timer.
"""
from gomq_py.auth.errors import LoginRefused

# The reason of the close.
EXPIRED = "token expired"
# Longest timer (gevent counts in floating seconds); a token that lives for years is checked again after it.
LONGEST_SLEEP_S = 86400


class TokenLife:
    """Calls ``expired()`` when the token of ``user`` expires. Call ``stop`` when the connection ends."""

    def __init__(self, user, logins, hub, expired):
        self._user = user
        self._logins = logins
        self._hub = hub
        self._expired = expired
        self._timer = self._renewal = None
        self._arm()

    def renew(self, secret, hold, renewed, refused):
        """Verify a newer token (bytes) in a greenlet, then call ``renewed()`` or ``refused(error)``. The
        issuer's keys may have to be fetched for that. ``hold``: the caller's pause in reading from the
        client, because later requests may need the new token's rights; it is released after the check.
        """
        self._renewal = self._hub.spawn(self._renew, secret, hold, renewed, refused)

    def stop(self):
        """Stop the timer, and a renewal in progress."""
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
