"""Endings lately: why connections and channels ended, the last ones, for operators.

Doors tell; the management door shows. Kept as octets, some 250 each: nothing here keeps a connection in
memory, and no object of one either. Those would be made where connections have just been freed, and one
object holds 1 MiB (an arena of Python's) that could be given back to the system.
"""
import marshal
import time
from itertools import count
from struct import Struct

# Of each kind.
KEPT = 500
# Reasons and names come from clients.
TEXT_MAX = 500
LENGTH = Struct("<I")


class EndingsLately:
    """Of connections and channels. ``unix_s`` is given by tests."""

    def __init__(self, unix_s=time.time):
        self._connections = Ring(KEPT)
        self._channels = Ring(KEPT)
        self._unix_s = unix_s
        self._numbers = count(1)

    @property
    def connections(self):
        """Those that ended, as dicts, the oldest first; ``user`` is a User's identity."""
        return self._connections.all()

    @property
    def channels(self):
        """Those that the broker closed, likewise."""
        return self._channels.all()

    def connection(self, one, reason, given_name=None):
        """A connection of any door has ended, which had logged in."""
        self._connections.add({
            **self._common("connection", one, reason), "protocol": one.protocol,
            "user_provided_name": given_name[:TEXT_MAX] if isinstance(given_name, str) else None,
            "connected_at": int(one.connected_at * 1000),
        })

    def channel(self, connection, number, reason):
        """The broker closes a channel because of an error."""
        self._channels.add({**self._common("channel", connection, reason), "channel": number})

    def _common(self, what, connection, reason):
        return {
            "number": next(self._numbers), "what": what, "name": connection.name,
            "vhost": connection.vhost.name, "user": connection.user.identity,
            "closed_at": int(self._unix_s() * 1000), "reason": str(reason)[:TEXT_MAX],
        }


class Ring:
    """The last ``most`` values that were added, in one piece of memory; of values as marshal knows them."""

    def __init__(self, most):
        self._room = most
        self._octets = bytearray()  # a length and as many octets for each

    def add(self, value):
        """The oldest goes where there are too many."""
        octets, kept = self._octets, marshal.dumps(value)
        if self._room:
            self._room -= 1
        else:
            del octets[:LENGTH.size + LENGTH.unpack_from(octets)[0]]
        octets += LENGTH.pack(len(kept))
        octets += kept

    def all(self):
        """A list of them, the oldest first."""
        values, at = [], 0
        while at < len(self._octets):
            start = at + LENGTH.size
            at = start + LENGTH.unpack_from(self._octets, at)[0]
            values.append(marshal.loads(self._octets[start:at]))
        return values
