"""Durability: calls back when changes are safe on the local disk and on every node that keeps a copy.

- ``when_safe``, for what clients rely on: a confirm, tx.commit-ok, the -ok of something durable, the answer
  to an HTTP request, and the drop of a message whose copy lies elsewhere. It waits for the local disk and for
  every acknowledger.
- ``when_on_disk``, for housekeeping: files that are reused or removed, logs that replace another. It waits
  for the local disk only, because no client waits for an answer.

Uses ``storage.flush.group_commit``, whose GroupCommit flushes. An *acknowledger* stands for another place
that keeps a copy of this node's data, such as a follower:

    acknowledger.when_safe(position, callback)    calls callback(error or None) once the first ``position``
                                                  events reported to it are safe there

An acknowledger gets the changes by the calls of ``storage.disk.replication.Replicator``. Its when_safe is
called after the local flush, because changes of logs and names are reported only then. The position covers
all that this flush covers (GroupCommit.position). It also covers changes that need no flush, such as acks,
if they were reported before the call of Durability.when_safe. Only ``wait`` switches greenlets.
"""
from collections import deque
from functools import partial

from gevent.event import AsyncResult

from gomq_py.observability.log import logger

LOG = logger("storage")


class NotAcknowledged(Exception):
    """A follower or other acknowledger has not confirmed that it keeps the changes."""


class Durability:
    """Calls back when changes of this node are safe. ``disk``: the node's GroupCommit."""

    def __init__(self, disk):
        self.disk = disk
        self._acknowledgers = {}  # in the order in which they came
        self._promises = deque()
        self._is_keeping = False
        self._end = None  # the error of all promises that an acknowledger is needed for

    # waiting

    def when_safe(self, callback, concerns=None, hurry=True):
        """Call ``callback(error or None)`` once all changes made before this call are safe.

        Safe changes are on the local disk and with every acknowledger. Callbacks are called in order, perhaps
        before this returns. They must neither switch greenlets nor raise. If files of some queues could not
        be flushed, ``concerns()`` returns whether the callback gets the error, and must not raise. Without
        ``concerns`` the callback gets every error.
        ``hurry=False``: the flush may wait for more changes. Returns the NextFlush for which the callback
        waits, or None.
        """
        if not self._acknowledgers and not self._promises:
            return self.disk.after_sync(callback, hurry, concerns)
        promise = _Promise(callback, self.disk.told)
        self._promises.append(promise)
        return self.disk.after_sync(partial(self._on_disk, promise), hurry, concerns)

    def when_defined(self, callback):
        """Call ``callback(error or None)`` once definitions, users and rights are safe, as ``when_safe``
        does. Failed flushes of queues' files are not reported.
        """
        self.when_safe(callback, _not_ours)

    def when_on_disk(self, callback, hurry=True, concerns=None):
        """Call ``callback(error or None)`` once all changes made before this call are on the local disk.
        For the other arguments see when_safe().
        """
        self.disk.after_sync(callback, hurry, concerns)

    def wait(self):
        """Wait until all changes made before this call are safe. Raises the error of the disk or of an
        acknowledger (follower). May switch greenlets.
        """
        result = AsyncResult()
        self.when_safe(lambda error: result.set(None) if error is None else result.set_exception(error))
        result.get()

    # acknowledgers

    @property
    def has_acknowledgers(self):
        """Whether confirms also wait for another node. If this node is killed, the other node's copy may lack
        changes that this node's disk has.
        """
        return bool(self._acknowledgers)

    def add(self, acknowledger):
        """Make every later when_safe() also wait for this acknowledger (follower)."""
        self._acknowledgers[acknowledger] = None
        self.disk.tells_before_it_answers = True

    def remove(self, acknowledger):
        """Make no callback wait for this acknowledger (follower) any more, not even earlier callbacks."""
        self._acknowledgers.pop(acknowledger, None)
        for promise in self._promises:
            promise.missing.discard(acknowledger)
        self._keep()

    def close(self):
        """Fail all callbacks that wait for an acknowledger (follower). While there is an acknowledger, later
        when_safe() calls fail, too.
        """
        # The local disk alone is not what was promised.
        self._end = NotAcknowledged(
            "the broker stops, and not everybody who keeps a copy has said that it is safe"
        )
        for promise in self._promises:
            if promise.missing:
                promise.refuse(self._end)
        self._keep()

    def describe(self):
        """Return the state of flushes and waiting callbacks as one line of text for operators."""
        described = self.disk.describe()
        if self._acknowledgers or self._promises:
            described += f"; {len(self._acknowledgers)} acknowledgers, {len(self._promises)} promises to keep"
        return described

    # helpers

    def _on_disk(self, promise, error):
        promise.is_on_disk = True
        if error is None and self._acknowledgers:
            error = self._end
        if error is not None:
            promise.refuse(error)
        else:
            promise.missing.update(self._acknowledgers)
            position = max(promise.position, self.disk.position)
            for acknowledger in list(self._acknowledgers):
                try:
                    acknowledger.when_safe(position, partial(self._acknowledged, promise, acknowledger))
                except Exception as fault:
                    LOG.exception("%r cannot be asked whether it is safe there", acknowledger)
                    self._acknowledged(promise, acknowledger, fault)
        self._keep()

    def _acknowledged(self, promise, acknowledger, error=None):
        if acknowledger in promise.missing:
            if error is None:
                promise.missing.discard(acknowledger)
            else:
                promise.refuse(NotAcknowledged(f"{acknowledger} does not keep it: {error}"))
            self._keep()

    def _keep(self):
        """Call the callbacks whose wait is over, in order. A callback may call when_safe()."""
        if self._is_keeping:
            return
        self._is_keeping = True
        try:
            while self._promises and self._promises[0].is_on_disk and not self._promises[0].missing:
                promise = self._promises.popleft()
                try:
                    promise.callback(promise.error)
                except Exception:
                    LOG.exception("a callback about something that is safe failed")
        finally:
            self._is_keeping = False


def _not_ours():
    return False


class _Promise:
    """A callback that waits for the local disk, then for the acknowledgers (followers) in ``missing``. The
    callback relies on the first ``position`` reported changes.
    """

    __slots__ = ("callback", "position", "is_on_disk", "missing", "error")

    def __init__(self, callback, position):
        self.callback = callback
        self.position = position
        self.is_on_disk = False
        self.missing = set()  # acknowledgers
        self.error = None

    def refuse(self, error):
        """Keep this error for the callback, and wait for no acknowledger."""
        self.error = error
        self.missing.clear()
