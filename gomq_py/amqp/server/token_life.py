"""The life of a login by token: the connection ends when the token does, unless the client renews it
(connection.update-secret).

Beside the connection, which makes one of these for a user that came in by token. One timer per such
connection and none for the others.
"""
from gomq_py.amqp.wire.errors import AccessRefused
from gomq_py.amqp.wire.methods import ConnectionUpdateSecret, ConnectionUpdateSecretOk
from gomq_py.amqp.wire.frames import method_frame
from gomq_py.auth.errors import LoginRefused
from gomq_py.observability.log import logger

LOG = logger("amqp")
EXPIRED = "token expired"
# gevent's timers count in floating seconds; a token that lives for years is looked at again after this long.
LONGEST_SLEEP_S = 86400


class TokenLife:
    """Watches the token of ``connection.user``. ``stop`` when the connection ends."""

    def __init__(self, connection, logins):
        self._connection = connection
        self._logins = logins
        self._timer = self._renewal = None
        self._arm()

    def renew(self, secret):
        """The client sends a newer token, octets: answered when it has been verified, which may take a fetch
        of the issuer's keys.

        Nothing behind it is read before: what the client asks then, it asks with the new token's rights.
        """
        hold = self._connection.stream.hold("its new token to be verified")
        self._renewal = self._connection.hub.spawn(self._renew, secret, hold)

    def stop(self):
        for greenlet in (self._timer, self._renewal):
            if greenlet is not None:
                greenlet.kill(block=False)

    def _renew(self, secret, hold):
        connection = self._connection
        try:
            self._logins.renew(connection.user, secret)
        except LoginRefused as error:
            LOG.warning(
                "connection %s: the token of user '%s' is not renewed: %s", connection.name,
                connection.user.name, error,
            )
            refusal = AccessRefused(
                f"the new token of user '{connection.user.name}' was refused. For details see the broker "
                "logfile."
            ).hard()
            refusal.class_id, refusal.method_id = (
                ConnectionUpdateSecret.ID >> 16, ConnectionUpdateSecret.ID & 0xFFFF
            )
            connection.fail(refusal)
            return
        finally:
            hold.release()
        LOG.info("connection %s: user '%s' renewed its token", connection.name, connection.user.name)
        self._arm()
        connection.write(method_frame(0, ConnectionUpdateSecretOk()))

    def _arm(self):
        if self._timer is not None:
            self._timer.kill(block=False)
        self._timer = self._connection.hub.call_later(
            max(0, min(self._connection.user.seconds_left, LONGEST_SLEEP_S)), self._due
        )

    def _due(self):
        self._timer = None
        if self._connection.user.seconds_left > 0:
            self._arm()
        else:
            self._connection.force_close(EXPIRED)
