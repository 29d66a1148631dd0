"""Budget: octets that all connections of a hub may hold together, who waits for room, and what becomes of
those who keep others waiting.

Below the kinds of it (bodies, large_output), each of which has its own rule of who may have more.
Never holds any octets itself.
"""
import gevent

from gomq_py.observability.log import logger

LOG = logger("hub")

# Whoever holds something that others wait for must get on with it at least this often: half a heartbeat's
# default, long for a network and short for those who wait.
STALLED_S = 30


class Budget:
    """``limit`` in octets, of which ``held`` are in use.

    While anybody waits somebody looks every ``stalled_s`` who has not got on.
    """

    def __init__(self, limit, stalled_s=STALLED_S, call_later=gevent.spawn_later):
        self.limit = limit
        self.held = 0
        self._stalled_s = stalled_s
        self._call_later = call_later
        self._waiting = []
        self._watch = None
        self._is_closed = False

    def close(self):
        """Stop watching; nobody who waits goes on any more."""
        self._is_closed = True
        self._waiting = []
        if self._watch is not None:
            self._watch.kill(block=False)
            self._watch = None

    def _wait(self, waiter):
        """``waiter.resume_held()`` is called when it is worth asking anew."""
        if not self._is_closed:
            self._waiting.append(waiter)
            self._watch_on()

    def _watch_on(self):
        if self._waiting and self._watch is None:
            self._note_progress()
            self._watch = self._call_later(self._stalled_s, self._look)

    def _look(self):
        self._watch = None
        if self._waiting:
            self._give_up_stalled()
            self._watch_on()

    def _resume(self, waiters):
        for waiter in waiters:
            if self._is_closed:
                break
            try:
                waiter.resume_held()
            except Exception:  # the others wait for nobody but us
                LOG.exception("a connection that waited for memory cannot go on")

    def _give_up(self, holder, why):
        """The others have waited long enough."""
        try:
            holder.give_up(why)
        except Exception:
            LOG.exception("a connection that others wait for cannot be given up")

    def _note_progress(self):
        """Remember how far each holder has got."""
        raise NotImplementedError

    def _give_up_stalled(self):
        """Give up those that have got no further since."""
        raise NotImplementedError
