"""Name changes: files get, change and lose their names in a thread, before the next flush.

Below group_commit, which says when, and whose flushes cover them. A rename or an unlink may wait for the
disk, and the hub may not.
"""
import logging
import time

logger = logging.getLogger("gomq_py.storage.sync")

# How long names that are to change soon are gathered. Each trip to a thread takes the processor from the hub
# for a moment, and on a machine where all processors are busy for some milliseconds: a flood that goes
# through 20 segments a second made 90 of them, which p99 of others felt (5.6 ms; 3.3 so).
SOON_S = 0.02


class NameChanges:
    """One per GroupCommit. ``change_each(groups)`` makes changes in a thread, ``begin()`` has the greenlet
    that flushes run, and ``wake``, a Wakeup, wakes it. ``gathers_soon=False``: all are made in the order in
    which they were asked for.
    """

    __slots__ = (
        "_change_each", "_begin", "_wake", "_gathers_soon", "_changes", "_soon", "_soon_since", "_making",
        "_is_making_alone", "__dict__",
    )

    def __init__(self, change_each, begin, wake, gathers_soon):
        self._change_each = change_each
        self._begin = begin
        self._wake = wake
        self._gathers_soon = gathers_soon
        self._changes = []  # ([storage.disk.files.Change, ...], done or None) for the flush that begins next
        self._soon = []  # the same, for a moment in which no flush runs
        self._soon_since = 0.0
        self._making = []  # the changes that are being made
        self._is_making_alone = False

    def change(self, changes, done=None, soon=False):
        """Have names changed in a thread, in the order in which that was asked for, before the next flush;
        ``after_sync`` covers it.

        ``changes``: storage.disk.files.Change; each is made only if those before it in the list were made.
        ``done(error or None)`` is called in the hub, and must neither switch nor raise. A change that fails
        fails the flush for everybody who waits for it. It is no failure that a file was not there any more,
        unless the change needs it.

        ``soon``: it is made after ``SOON_S`` at the latest unless a flush is running then, before changes
        that were asked for without ``soon``, and without a flush of its own; for files that somebody wants to
        use again.
        """
        if soon and self._gathers_soon:
            if not self._soon:
                self._soon_since = time.monotonic()
                self._wake.set()
            self._soon.append((changes, done))
        else:
            self._changes.append((changes, done))
        self._begin()

    # for group_commit

    def are_due(self):
        """Whether some are to be made, or are being made while no flush runs."""
        return bool(self._changes or self._soon or self._is_making_alone)

    def soon_at(self):
        """When those that are wanted soon are to be made, by time.monotonic(); 0: there are none."""
        return self._soon_since + SOON_S if self._soon else 0.0

    def take(self):
        """All that are to be made now, for ``make``."""
        changes, self._soon, self._changes = [*self._soon, *self._changes], [], []
        return changes

    def make(self, changes, failures):
        """Have the changes made, one after the other, and tell of them.

        ``failures`` gets change -> error. May switch.
        """
        if not changes:
            return
        self._making = changes
        try:
            results = self._change_each([group for group, _ in changes])
        except Exception as failure:  # no thread to be had: nothing was done
            results = [(0, failure)] * len(changes)
        changes, self._making = self._making, []  # none if they were forgotten meanwhile
        for (group, done), (made, refusal) in zip(changes, results):
            try:
                for change in group[:made]:
                    change.told()
                if refusal is not None and (not isinstance(refusal, FileNotFoundError) or group[made].needed):
                    logger.error("a name could not be changed: %s", refusal)
                    failures[group[made]] = refusal
                if done is not None:
                    done(refusal)
            except Exception:
                logger.exception("a callback after a change of names failed")

    def make_alone(self, failures):
        """Make all, where nothing is flushed: until they are made, nobody is told that nothing is left to do.
        May switch.
        """
        self._is_making_alone = True
        self.make(self.take(), failures)
        self._is_making_alone = False

    def make_soon(self):
        """Make those that are wanted soon, while no flush runs. Returns change -> error. May switch."""
        changes, self._soon = self._soon, []
        failures = {}
        self._is_making_alone = True
        self.make(changes, failures)
        self._is_making_alone = False
        return failures

    def give_up(self):
        """None will be made. Returns the callbacks of all, also of those that a thread may be making."""
        changes = [*self._making, *self.take()]
        self.forget()
        return [done for _, done in changes if done is not None]

    def forget(self):
        """As after a crash: nobody hears of any."""
        self._changes, self._soon, self._making = [], [], []
        self._is_making_alone = False
