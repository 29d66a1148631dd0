"""Live: answers that do not end, as server-sent events (HTML's): what changed, and the log.

Between a source, which wakes those who follow it, and the server, which writes what they yield. A follower
sleeps until there is something to tell, and tells what there is then: events that come together leave
together, so that a busy broker costs a viewer no more than a few writes a second. Each counts as a connection
of its port ([mgmt] max_connections), and there are at most so many of them that others still come in. It ends
with the login that it began with, with the port, or when its client is gone, which a line now and then finds
out.
"""
import time

import gevent
from flask import Response, g, request
from gevent.event import Event

from gomq_py.http import login
from gomq_py.http.answers import json_octets, node
from gomq_py.http.errors import Unavailable

MEDIA_TYPE = "text/event-stream"
# Of one user and of one port; a part of the port's connections, too.
OF_USER_MAX, OF_PORT_MAX, PART = 20, 200, 4
# What comes so soon after the last look is looked at together, also by whom it does not concern.
PAUSE_S = 0.25
# A line that says nothing: proxies close what is silent, and it finds out whether anybody listens.
SILENCE_S = 15.0
# What a browser waits before it comes again, in milliseconds.
RETRY_MS = 2000


class Viewer:
    """Whoever asked, as a stream has to know them later on: a request's ``g`` ends with its answer's head."""

    def __init__(self):
        self.user, self.tags = g.user, g.tags
        self._session, self._proof, self._sessions = g.session, g.proof, login.sessions()

    def is_good(self):
        """Whether the login still is. Does not count as a use of the session."""
        if self._session is not None and not self._sessions.is_good(self._session):
            return False
        return self._proof.is_good(time.time())


class Followers:
    """Those who follow something over one port, ended with it. ``settings`` are the broker's."""

    def __init__(self, settings):
        self._settings = settings
        self._users = {}  # {Event: name of the user}
        self._is_closed = False

    def __len__(self):
        return len(self._users)

    def enter(self, event, user):
        """One more, of this User. Raises Unavailable where there are too many."""
        most = min(OF_PORT_MAX, max(1, self._settings.http_max_connections // PART))
        if self._is_closed or len(self._users) >= most:
            raise Unavailable(f"{len(self._users)} event streams are open, and no more may be")
        if list(self._users.values()).count(user.identity) >= OF_USER_MAX:
            raise Unavailable(
                f"{OF_USER_MAX} event streams of user '{user.name}' are open, and no more may be")
        self._users[event] = user.identity

    def leave(self, event):
        """It has ended."""
        self._users.pop(event, None)

    def close(self):
        """End all of them; nobody comes any more."""
        self._is_closed = True
        for event in list(self._users):
            event.set()

    @property
    def is_closed(self):
        """Whether those that are left have to end."""
        return self._is_closed


class Source:
    """Wakes who follows it: ``followers`` are Events; whoever has something to tell calls ``wake``."""

    def __init__(self):
        self.followers = {}

    def wake(self):
        """There is something new. Cheap where nobody follows."""
        for event in self.followers:
            event.set()


def is_wanted():
    """Whether the request asks for a stream of events and not for JSON."""
    return request.accept_mimetypes.best_match(("application/json", MEDIA_TYPE)) == MEDIA_TYPE


def answer(source, tell):
    """A stream of what ``tell()`` answers: [(event's name or None, number or None, value)] of what is new
    since its last call, in order; None: it is over.
    """
    viewer, followers = Viewer(), request.environ.get("gomq.followers")
    event = Event()
    if followers is None:  # an app that nobody serves
        followers = Followers(node().settings)
    followers.enter(event, viewer.user)
    event.set()
    stream = _Stream(source, followers, event, viewer, tell)
    response = Response(stream, mimetype=MEDIA_TYPE)
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Accel-Buffering"] = "no"  # nginx would keep it until there is a page of it
    return response


class _Stream:
    """The octets of a stream, as WSGI has them. It is a follower until ``close``, which comes in any case."""

    def __init__(self, source, followers, event, viewer, tell):
        self._source = source
        self._followers = followers
        self._event = event
        self._viewer = viewer
        self._parts = self._made(tell)
        source.followers[event] = None

    def __iter__(self):
        return self._parts

    def close(self):
        self._source.followers.pop(self._event, None)
        self._followers.leave(self._event)
        self._parts = None  # they hold this

    def _made(self, tell):
        yield b"retry: %d\n\n" % RETRY_MS
        wrote_at = time.monotonic()
        while not self._followers.is_closed and self._viewer.is_good():
            is_woken = self._event.wait(SILENCE_S)
            self._event.clear()
            if self._followers.is_closed or not self._viewer.is_good():
                return
            told = tell()
            if told is None:
                return
            if told:
                yield b"".join(_written(*one) for one in told)
                wrote_at = time.monotonic()
            elif not is_woken or time.monotonic() - wrote_at >= SILENCE_S:  # or woken by what it may not see
                yield b":\n\n"
                wrote_at = time.monotonic()
            if is_woken:
                gevent.sleep(PAUSE_S)


def _written(name, number, value):
    head = b"" if name is None else b"event: " + name.encode() + b"\n"
    if number is not None:
        head += b"id: %d\n" % number
    # JSON has no line breaks, so one line holds it
    return head + b"data: " + json_octets(value) + b"\n\n"
