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
    laters = _laters(pool, committer)
    return _opened(pool, committer, laters, *in_thread(opening, folder, files, *laters, *arguments))


def open_aside(done, opening, folder, files, pool, committer, *arguments):
    """As open_in_thread, without a switch: ``done(store, report, error)`` is called in the hub when the
    committer has had it done, or before this returns.
    """
    laters = (pool, committer) if files.has_listeners else _laters(pool, committer)

    def opened(result, error):
        if error is not None:
            done(None, None, error)
        else:
            done(*_opened(pool, committer, laters, *result), None)

    if not files.has_listeners:
        committer.aside_at_leisure(opening, folder, files, *laters, *arguments, done=opened)
        return
    try:
        result = opening(folder, files, *laters, *arguments)
    except Exception as error:
        done(None, None, error)
    else:
        done(*result, None)


def _laters(pool, committer):
    """What stands in a thread for both."""
    return (
        Later(pool, "files", "stage", "folder", "last_end", "listed", "settled", "damage"),
        Later(committer, "enabled", "begun"))


def _opened(pool, committer, laters, store, report):
    store.hand_over(pool, committer)
    for later in laters:
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
