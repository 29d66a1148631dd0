"""Remembered routes: one connection's cache of routes, keyed by octets on the wire.

A door's fast lane looks up each message. The door defines the keys: ``ask`` makes a Route of one. Outdated
routes are asked for again. Never yields.
"""
from gomq_py.broker.routing import route as _route  # noqa: F401  (its .pxd types the routes)

# Most routes of a connection; at this number all are dropped.
ROUTES = 4096


class RememberedRoutes:
    """``ask(key)`` returns a Route, or None if each such message must take the slow lane.

    ``last``: the route found last, or None, and ``last_key`` its octets: a lane compares them in place before
    it calls ``find``, because publishers stay with one key for long.
    """

    __slots__ = ("last", "last_key", "ask", "routes", "most")

    def __init__(self, ask, most=ROUTES):
        self.ask = ask
        self.most = most
        self.routes = {}
        self.last = None
        self.last_key = b""

    def forget(self):
        """Drop all routes."""
        self.routes = {}
        self.last = None
        self.last_key = b""

    def find(self, at, start, length):
        """The route for ``length`` octets at ``start`` of the buffer ``at``; None: take the slow lane."""
        # bytes() would cost 1000 instructions for an object that is bytes already.
        return self.find_key(b"" + at[start:start + length])

    def find_key(self, key):
        """The route for these octets; None: take the slow lane."""
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
