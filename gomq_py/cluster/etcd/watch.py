"""Watch: a stream of events from etcd that wakes a reader after each change, and at least every 2 s.

A stream without events is not trusted, because a server may hang or lose its connection to the other servers.
So ``wake`` is called every 2 s even without an event, and a stream that stays silent is replaced. Each stream
begins at the present revision, and calls ``wake`` when it has begun. The reader then reads all keys, so no
change is missed. Old events are not requested, because etcd may have compacted them.
"""
import json
import time
from collections.abc import Callable
from typing import Any

import gevent

from gomq_py.cluster.core.transactions import CoordinatorError
from gomq_py.cluster.etcd import messages
from gomq_py.cluster.etcd.connection import Connection, Failure, within
from gomq_py.cluster.etcd.messages import AnswerError, Refused
from gomq_py.observability.log import logger

LOG = logger("cluster")
# A change whose event is lost is seen after this time.
POLL_S = 2.0
# A stream is replaced after so long without an event: one that was lost looks like one without changes.
SILENCE_S = 30.0
# Pause after each event, so that many changes at once wake the reader seldom.
REST_S = 0.01
# Pause before the next stream, when one has failed.
PAUSE_S = 1.0
# Time for a stream's first line.
BEGIN_S = 2.0


class Watch:
    """Calls ``wake()`` until it is closed. ``etcd``: the client. ``body``: the watch request."""

    def __init__(self, etcd: Any, body: messages.JSONObject, wake: Callable[[], None]):
        self._etcd = etcd
        self._body = json.dumps(body).encode()
        self._wake = wake
        self._is_broken = False
        self._greenlet = gevent.spawn(self._run)
        self._greenlet.name = "cluster watches etcd"

    def close(self) -> None:
        self._greenlet.kill()

    def _run(self) -> None:
        while True:
            try:
                self._follow()
                continue
            except (Failure, CoordinatorError, Refused) as error:
                self._tell_broken(error)
            except Exception:
                LOG.exception("the watch of etcd has failed, and begins again")
            self._wake()
            gevent.sleep(PAUSE_S)

    def _follow(self) -> None:
        """Open a stream, and call ``wake`` for its events. May switch greenlets.

        Returns when the stream must be replaced. Raises Failure, CoordinatorError, Refused.
        """
        endpoint = self._etcd.endpoint
        connection = None
        try:
            connection, token = self._etcd.connect()
            self._listen(connection, token)
        except Failure:
            self._etcd.failed(endpoint)
            raise
        except (OSError, AnswerError) as error:
            self._etcd.failed(endpoint)
            raise Failure(endpoint, error, False) from error
        finally:
            if connection is not None:
                connection.close()

    def _listen(self, connection: Connection, token: str) -> None:
        lines = connection.stream(messages.WATCH, self._body, token, POLL_S)
        line = within(BEGIN_S, next, lines)
        heard_s = time.monotonic()
        poll_s = heard_s + POLL_S
        while True:
            now_s = time.monotonic()
            if line:
                heard_s = now_s
                self._check(line, token)
            elif now_s >= heard_s + SILENCE_S or self._etcd.endpoint != connection.endpoint:
                return
            if line or now_s >= poll_s:
                poll_s = now_s + POLL_S
                self._wake()
            if line:
                gevent.sleep(REST_S)
            line = next(lines)

    def _check(self, line: bytes, token: str) -> None:
        """Raise AnswerError or Refused if this line of the stream ends the watch."""
        try:
            reason = messages.cancel_reason(messages.parse(line))
        except Refused as error:
            if error.is_stale_token:
                self._etcd.forget_token(token)
            raise
        if reason is not None:
            if any(text in reason for text in messages.STALE_TOKEN):
                self._etcd.forget_token(token)
            raise AnswerError(reason)
        if self._is_broken:
            self._is_broken = False
            LOG.info("etcd's events come again, from %s", self._etcd.endpoint)

    def _tell_broken(self, error: Exception) -> None:
        if not self._is_broken:
            self._is_broken = True
            LOG.warning("etcd's events do not come, changes are looked for every %g s: %s", POLL_S, error)
