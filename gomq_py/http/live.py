"""Answers requests with endless streams of server-sent events, for the broker's changes and its log.

A source, such as the log, wakes its streams. A stream sends all due events together, so that a busy broker
causes few writes per second. Each stream counts as a connection of its port ([mgmt] max_connections), and the
number of streams is limited. A stream ends when its login ends, its port closes or its client is gone. After
SILENCE_S seconds without events an empty line detects a lost client.
"""
import time

import gevent
from flask import Response, g, request
from gevent.event import Event

from gomq_py.http import login
from gomq_py.http.answers import node
from gomq_py.http.followers import Followers
from gomq_py.http.json_slices import json_octets

MEDIA_TYPE = "text/event-stream"
# Pause after a wakeup, also one by invisible events, so that the next ones are sent together.
PAUSE_S = 0.25
# Seconds until an empty line: proxies close silent connections, and it detects a client that has gone.
SILENCE_S = 15.0
# Milliseconds that a browser waits before it reconnects.
RETRY_MS = 2000


class Viewer:
    """The user and login of an event stream, copied from Flask's ``g``, which ends before the stream."""

    def __init__(self):
        self.user, self.tags = g.user, g.tags
        self._session, self._proof, self._sessions = g.session, g.proof, login.sessions()

    def is_good(self):
        """Return whether the login is still valid. The check does not count as a use of the session."""
        if self._session is not None and not self._sessions.is_good(self._session):
            return False
        return self._proof.is_good(time.time())


def is_wanted():
    """Return whether the request prefers an event stream to JSON."""
    return request.accept_mimetypes.best_match(("application/json", MEDIA_TYPE)) == MEDIA_TYPE


def answer(source, tell):
    """Return a response that streams events. Raises Unavailable if there are too many streams.

    ``source`` is the Waker of the stream. ``tell()`` returns the events since its last call, a list of
    (event's name or None, event's id or None, JSON value). If ``tell()`` returns None, the stream ends.
    """
    viewer, followers = Viewer(), request.environ.get("gomq.followers")
    event = Event()
    if followers is None:  # an app without a server
        followers = Followers(node().settings)
    followers.enter(event, viewer.user)
    event.set()
    stream = _Stream(source, followers, event, viewer, tell)
    response = Response(stream, mimetype=MEDIA_TYPE)
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Accel-Buffering"] = "no"  # nginx would buffer a page of it
    return response


class _Stream:
    """An endless WSGI body, which yields events until the server closes it. ``source`` is the Waker."""

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
        self._parts = None  # breaks a reference cycle

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
            elif not is_woken or time.monotonic() - wrote_at >= SILENCE_S:  # or woken by invisible events
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
