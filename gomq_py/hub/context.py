"""Hub: holds everything that a broker and its protocol servers share in one event loop.

The node makes one Hub per broker and gives it to the broker and to every server. A Hub has the connected
clients, buffers, budgets, turns, admission, timers and jobs. A server keeps the parts of its own protocol.
Knows no protocol, no queue and no file: a part that writes to the disk is stopped by its owner.
"""
from functools import partial

import gevent

from gomq_py.hub.admission import Admission, Leftovers, give_back
from gomq_py.hub.backpressure import Backpressure
from gomq_py.hub.budget import BodyBudget, LargeOutput
from gomq_py.hub.buffers import BodyBuffers, HubBuffers
from gomq_py.hub.clients import SHUTDOWN, Clients
from gomq_py.hub.coalescer import Coalescer
from gomq_py.hub.endings import Endings
from gomq_py.hub.gate import Gate
from gomq_py.hub.heartbeats import Heartbeats
from gomq_py.hub.lingering_close import Lingering
from gomq_py.hub.scheduler import Scheduler
from gomq_py.hub.shutdown import Shutdown
from gomq_py.hub.timers import HubTimers
from gomq_py.hub.turns import PacedTurns, SlowTurns, give_way
from gomq_py.observability.log import logger

LOG = logger("hub")
# Ten thousand links that start at boot or lose the same peer must not starve the broker: 500 connects per
# second are more than accepting connections takes. The second is the longest pause, so that links start on a
# busy machine.
LINK_PACE_S, LINK_REST_MOST_S = 0.002, 0.05


class Hub:
    """The parts that one broker and its protocol servers share. Virtual hosts, exchanges and queues use
    ``scheduler`` and ``timers``; protocol servers use all parts.
    """

    def __init__(self, settings):
        self._settings = settings
        self._buffers = None
        self._closing = {}  # functions called at the end, as keys
        self._greenlets = {}  # as an ordered set
        self.is_closed = False
        self.scheduler = Scheduler()
        self.gate = Gate(self.scheduler)
        self.timers = HubTimers()
        self.endings = Endings(self.scheduler)
        leftovers = Leftovers(self.timers, self.endings, partial(self.spawn, give_back))
        self.admission = Admission(settings, on_left=leftovers.one_left)
        self.clients = Clients(self.scheduler)
        self.bodies = BodyBudget(settings.max_unfinished_bodies, self.timers)
        self.body_buffers = BodyBuffers(self.timers)
        self.large_output = LargeOutput(settings.max_large_output, self.timers)
        self.coalescer = Coalescer()
        self.backpressure = Backpressure(self.timers)
        self.heartbeats = Heartbeats(self.timers)
        self.slow_turns = SlowTurns(self.scheduler)
        self.link_turns = PacedTurns(self.spawn, LINK_PACE_S, LINK_REST_MOST_S)
        self.lingering = Lingering(self.timers)

    @property
    def buffers(self):
        """The HubBuffers (input and output buffer of all connections), made for the first connection."""
        if self._buffers is None:
            self._buffers = HubBuffers(self._settings.frame_max)
        return self._buffers

    def spawn(self, function, *arguments):
        """Start a greenlet, which is killed when the hub closes, and return it."""
        return self._begun(gevent.Greenlet(function, *arguments), 0)

    def call_later(self, seconds, function, *arguments):
        """Return a greenlet that starts after so many seconds. Its ``kill(block=False)`` cancels the call.
        For work that may switch greenlets; other work uses a timer.
        """
        return self._begun(gevent.Greenlet(function, *arguments), seconds)

    def at_close(self, function):
        """Call ``function()`` when the hub closes, or at once if it is closed. The function must not switch
        greenlets. Functions added last are called first.
        """
        if self.is_closed:
            self._end(function)
        else:
            self._closing[function] = None

    def not_at_close(self, function):
        """Withdraw ``function`` from at_close(). Does nothing if it was not given."""
        self._closing.pop(function, None)

    def take_leave(self):
        """Close all connections in an orderly way: inform every client that the broker stops, wait a limited
        time, then shut down all sockets and release all that connections held. May switch greenlets.
        """
        shutdown = Shutdown()
        shutdown.do(self.clients.close, SHUTDOWN)
        shutdown.do(self.lingering.close)
        shutdown.do(self.admission.close)  # clients that have not logged in
        shutdown.do(self.slow_turns.finish)
        # In one round of the loop the greenlets of connections end, in the next round the work that they
        # begin at their end, such as closing a socket.
        for _ in range(2):
            shutdown.do(give_way)
        shutdown.do(self.endings.finish)
        shutdown.raise_failure()

    def close(self):
        """End all work, timers, greenlets and sockets of this broker at once, without informing clients. A
        second call does nothing. Unless ``take_leave`` came first, work stays unfinished, as after a kill.
        """
        if self.is_closed:
            return
        self.is_closed = True
        self.scheduler.close()
        self.timers.close()
        self.heartbeats.close()
        self.coalescer.close()
        self.bodies.close()
        self.large_output.close()
        self.endings.close()
        self._end(self.slow_turns.finish)
        for connection in self.clients.all():
            self._end(connection.cut_off)
        while self._closing:
            self._end(self._closing.popitem()[0])
        gevent.killall([one for one in self._greenlets if one is not gevent.getcurrent()], block=False)
        self.lingering.close()
        self.admission.close()

    def _begun(self, greenlet, seconds):
        if not self.is_closed:
            self._greenlets[greenlet] = None
            greenlet.rawlink(self._greenlets.pop)
            greenlet.start_later(seconds)
        return greenlet

    @staticmethod
    def _end(function):
        try:
            function()
        except Exception:  # the others must end, too
            LOG.exception("%s failed at the end of the hub", getattr(function, "__qualname__", function))
