"""Alarm hold: a connection that publishes while an alarm is on, and is not read until that is over.

Beside heartbeats, which have it look twice a minute whether the system has given up the socket: a client that
was reset, or answers no probes (``tcp_keepalive``), would else keep its unacknowledged messages and exclusive
queues until the alarm ends, for nobody who does not read hears of it. What a client has sent that closed its
side in order is read when the alarm is over.
"""
import os
import socket

INTERVAL_S = 60


class AlarmHold:
    """Holds the stream of ``connection`` until release(), also where it ends."""

    def __init__(self, connection, reason):
        self._connection = connection
        self._hold = connection.stream.hold(f"an alarm to end ({reason})")
        connection.hub.heartbeats.watch(self, INTERVAL_S)

    def check_heartbeat(self):
        """Of the hub's heartbeats: end a connection whose socket has failed."""
        error = self._connection.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            self._connection.abort(f"the socket failed: {os.strerror(error)}")

    def release(self):
        """The alarm is over, or the connection. A second time changes nothing."""
        self._connection.hub.heartbeats.forget(self)
        self._hold.release()
