"""The open event streams (``live``) of one port, and the Waker that wakes them.

Here a follower is the stream of an HTTP client, not a node of a cluster. Imports no Flask: the broker imports
this module at its start, and Flask later.
"""
# Limits per user and per port; the latter is also at most this part of the port's connections.
OF_USER_MAX, OF_PORT_MAX, PART = 20, 200, 4


class Followers:
    """The open streams of server-sent events on one port. All end when the port closes."""

    def __init__(self, settings):
        self._settings = settings
        self._users = {}  # {Event: name of the user}
        self.is_closed = False  # once true, the remaining streams have to end

    def __len__(self):
        return len(self._users)

    def enter(self, event, user):
        """Add a stream of this User, woken by setting ``event``. Raises Unavailable if there are too many."""
        # imported here: a broker that was sent no request needs no Flask
        from gomq_py.http.errors import Unavailable
        most = min(OF_PORT_MAX, max(1, self._settings.http_max_connections // PART))
        if self.is_closed or len(self._users) >= most:
            raise Unavailable(f"{len(self._users)} event streams are open, and no more may be")
        if list(self._users.values()).count(user.identity) >= OF_USER_MAX:
            raise Unavailable(
                f"{OF_USER_MAX} event streams of user '{user.name}' are open, and no more may be")
        self._users[event] = user.identity

    def leave(self, event):
        self._users.pop(event, None)

    def close(self):
        """End all streams and accept no more."""
        self.is_closed = True
        for event in list(self._users):
            event.set()


class Waker:
    """Wakes event streams. The keys of ``followers`` are the Events on which the streams wait."""

    def __init__(self):
        self.followers = {}

    def wake(self):
        for event in self.followers:
            event.set()
