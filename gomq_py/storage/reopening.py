"""Reopening: a store is recovered in a thread while the broker serves, as a restart of its queue asks for.

Above recovery, below the queue factory. Recovery scans, reads and flushes, which takes seconds for a long
queue. What it would tell the pool and the committer, which are the hub's, is noted, and told once it is over.
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
    """In place of an object of the hub's, for a thread: notes each call, to make it later.

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
        """Make the calls, in the hub."""
        for verb, arguments, options in self._calls:
            getattr(self._target, verb)(*arguments, **options)
