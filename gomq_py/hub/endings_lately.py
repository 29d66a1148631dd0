"""Endings lately: why connections and channels ended, the last ones, for operators.

Doors tell; the management door shows. A ring of plain values, some 500 octets each: nothing here keeps a
connection in memory.
"""
import time
from collections import deque
from itertools import count

# Of each kind.
KEPT = 500
# Reasons and names come from clients.
TEXT_MAX = 500


class EndingsLately:
    """``connections`` and ``channels``: dicts, the oldest first. ``unix_s`` is given by tests."""

    def __init__(self, unix_s=time.time):
        self.connections = deque(maxlen=KEPT)
        self.channels = deque(maxlen=KEPT)
        self._unix_s = unix_s
        self._numbers = count(1)

    def connection(self, one, reason, given_name=None):
        """A connection of any door has ended, which had logged in."""
        self.connections.append({
            **self._common("connection", one, reason), "protocol": one.protocol,
            "user_provided_name": given_name[:TEXT_MAX] if isinstance(given_name, str) else None,
            "connected_at": int(one.connected_at * 1000),
        })

    def channel(self, connection, number, reason):
        """The broker closes a channel because of an error."""
        self.channels.append({**self._common("channel", connection, reason), "channel": number})

    def _common(self, what, connection, reason):
        return {
            "number": next(self._numbers), "what": what, "name": connection.name,
            "vhost": connection.vhost.name, "user": connection.user.name,
            "closed_at": int(self._unix_s() * 1000), "reason": str(reason)[:TEXT_MAX],
        }
