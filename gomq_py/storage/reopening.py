"""Reopening: recover a store in a thread while the broker serves, for the restart of a queue.

Above recovery, below the queue factory. Recovery scans, reads and flushes, which takes seconds for a long
queue. The pool and the committer belong to the hub: calls to them are noted, and made when recovery is over.
"""
from gomq_py.hub.threads import in_thread


def open_in_thread(opening, folder, files, pool, committer, *arguments):
    """What ``opening(folder, files, pool, committer, *arguments)``, one of the functions that open a store,
    returns: the store and its report.

    Raises OSError, StoreError. May switch. With listeners, which hear of changes in the hub, it is done
    there: blocks.
    """
    if files.has_listeners:
        return opening(folder, files, pool, committer, *arguments)
    later_pool = Later(pool, "files", "stage", "folder", "last_end", "listed", "damage")
    later_committer = Later(committer, "enabled", "begun")
    store, report = in_thread(opening, folder, files, later_pool, later_committer, *arguments)
    store.hand_over(pool, committer)
    for later in (later_pool, later_committer):
        later.catch_up()
    return store, report


class Later:
    """Stands in a thread for an object of the hub's: notes each call, to make it later.

    ``known`` can be read already.
    """

    def __init__(self, target, *known):
        self._target = target
        self._calls = []
        for name in known:
            setattr(self, name, getattr(target, name))

    def __getattr__(self, verb):
        def call(*arguments, **options):
            self._calls.append((verb, arguments, options))

        return call

    def catch_up(self):
        """Make the calls that were noted, in the hub."""
        for verb, arguments, options in self._calls:
            getattr(self._target, verb)(*arguments, **options)
