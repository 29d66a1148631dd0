"""Alarms: connections are told that publishers are held, or that it is over, and those that publish meanwhile
are not read.

AlarmNews is beside clients, which begins a round at each change. A connection is told by ``block(reason)`` or
``unblock()``; what its client hears of it is its door's business. In slices: thousands that were told at once
would hold everybody up. Never reads, never writes.

AlarmHold is beside heartbeats, which have it look twice a minute whether the system has given up the socket:
a client that was reset, or answers no probes (``tcp_keepalive``), would else keep its unacknowledged messages
and exclusive queues until the alarm ends, for nobody who does not read hears of it. What a client has sent
that closed its side in order is read when the alarm is over.
"""
import os
import socket
import time

from gomq_py.hub.job import Job, SliceClock

INTERVAL_S = 60


class AlarmNews(Job):
    """Connections that have not been told yet."""

    name = "telling connections of an alarm"

    def __init__(self, scheduler):
        super().__init__()
        self._scheduler = scheduler
        self._untold = []
        self._reason = None

    def begin(self, connections, reason):
        """Tell these, anew: what is left of an earlier round would be told of what is over.

        ``reason`` is None where the alarm is over.
        """
        self._untold, self._reason = connections, reason
        if self.step():
            self._scheduler.start(self)

    def step(self):
        """Tell some, for some milliseconds of the processor's time."""
        clock = SliceClock(clock=time.thread_time)
        while self._untold:
            connection = self._untold.pop()
            if self._reason is None:
                connection.unblock()
            else:
                connection.block(self._reason)
            if clock.is_over():
                break
        return bool(self._untold)

    def failed(self, error):
        """One could not be told; the others are."""
        return bool(self._untold)


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
