"""Errands: work done upstream beside the flow of messages, over a connection of its own.

The connection is closed a little after the last errand: bindings come and go in bursts, and a thousand idle
links need no second connection each.
"""
from gevent.event import Event

from gomq_py.client.errors import ClientError
from gomq_py.observability.log import logger

LOG = logger("federation")
# Seconds for which the connection waits for the next errand.
LINGER_S = 5.0


class Errands:
    """The errands of one link. ``connect()`` returns a client's connection; ``failed(error)`` is called if
    the upstream cannot be reached or refuses something, and all waiting errands are dropped. It must not
    switch.
    """

    def __init__(self, hub, connect, failed):
        self._hub = hub
        self._connect = connect
        self._failed = failed
        self._waiting = {}  # functions, as keys, in order
        self._more = Event()
        self._greenlet = None
        self._is_stopped = False

    def run(self, do):
        """Have ``do(channel)`` called soon, once for all requests until then."""
        if self._is_stopped:
            return
        self._waiting[do] = None
        self._more.set()
        if self._greenlet is None:
            self._greenlet = self._hub.spawn(self._run)
            self._greenlet.name = "federation errands"

    def stop(self):
        """Drop what waits; a running errand ends, and its failure is not reported."""
        self._is_stopped = True
        self._waiting.clear()
        self._more.set()

    def _run(self):
        try:
            while self._waiting:
                with self._connect() as connection:
                    self._serve(connection.channel())
        except (ClientError, OSError, ValueError) as error:
            self._end(error)
        except Exception as error:
            LOG.exception("federation errands: a fault of ours")
            self._end(error)
        finally:
            self._greenlet = None

    def _end(self, error):
        self._greenlet = None
        self._waiting.clear()
        if not self._is_stopped:
            self._failed(error)

    def _serve(self, channel):
        while self._waiting:
            self._more.clear()
            do = next(iter(self._waiting))
            del self._waiting[do]
            do(channel)
            if not self._waiting and not self._is_stopped:
                self._more.wait(LINGER_S)
