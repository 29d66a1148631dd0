"""Remembered routes: where the messages of one connection go, by the octets that say so on the wire.

Kept by a door's fast lane, which asks per message. What those octets are only the door knows: ``ask`` makes
a Route of them. A route that is no longer current is asked for again. Never yields.
"""
from gomq_py.broker.routing import route as _route  # noqa: F401  (its .pxd types the routes)

# Of one connection; thrown away together when there are more.
ROUTES = 4096


class RememberedRoutes:
    """``ask(key)`` answers a Route, or None where each such message has to be looked at.

    ``last`` is the route that was found last, or None, and ``last_key`` its octets: a lane compares them in
    place before it calls ``find``, because publishers stay with one key for long.
    """

    __slots__ = ("last", "last_key", "ask", "routes", "most")

    def __init__(self, ask, most=ROUTES):
        self.ask = ask
        self.most = most
        self.routes = {}
        self.last = None
        self.last_key = b""

    def forget(self):
        """Forget all of them, and what they lead to."""
        self.routes = {}
        self.last = None
        self.last_key = b""

    def find(self, at, start, length):
        """The route of ``length`` octets of the buffer ``at`` from ``start`` on; None: the slow lane's."""
        # bytes() would cost 1000 instructions where it is bytes already.
        return self.find_key(b"" + at[start:start + length])

    def find_key(self, key):
        """The route of these octets; None: the slow lane's."""
        route = self.routes.get(key)
        if route is None or not route.is_current():
            route = self.ask(key)
            if route is None:
                self.last = None
                self.routes.pop(key, None)
                return None
            if len(self.routes) >= self.most:
                self.routes.clear()
            self.routes[key] = route
        self.last = route
        self.last_key = key
        return route
