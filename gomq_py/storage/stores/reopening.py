"""Reopening: recovers a store in a thread while the broker serves, for the restart of a queue.

Above recovery, below the queue factory. Recovery scans, reads and flushes, which takes seconds for a long
queue. Pool and committer belong to the hub: calls to them are recorded, and made after recovery.
"""
from gomq_py.hub.threads import in_thread


def open_in_thread(opening, folder, files, pool, committer, *arguments):
    """Open a store in a thread by ``opening(folder, files, pool, committer, *arguments)``, a function such as
    recovery.open_store. Returns its result, (store, report).

    Raises OSError, StoreError. May switch. If ``files`` has listeners, which hear of changes in the hub only,
    the store is opened in the hub, which blocks.
    """
    if files.has_listeners:
        return opening(folder, files, pool, committer, *arguments)
    laters = _laters(pool, committer)
    return _opened(pool, committer, laters, *in_thread(opening, folder, files, *laters, *arguments))


def open_aside(done, opening, folder, files, pool, committer, *arguments):
    """Do open_in_thread() without a switch: ``done(store, report, error)`` is called in the hub once the
    thread has opened the store, or before this returns if ``files`` has listeners.
    """
    laters = (pool, committer) if files.has_listeners else _laters(pool, committer)

    def opened(result, error):
        if error is not None:
            done(None, None, error)
        else:
            done(*_opened(pool, committer, laters, *result), None)

    if not files.has_listeners:
        committer.background.long.add(opening, folder, files, *laters, *arguments, done=opened)
        return
    try:
        result = opening(folder, files, *laters, *arguments)
    except Exception as error:
        done(None, None, error)
    else:
        done(*result, None)


def _laters(pool, committer):
    return (
        Later(pool, "files", "stage", "folder", "last_end", "listed", "settled", "damage"),
        Later(committer, "enabled", "begun"))


def _opened(pool, committer, laters, store, report):
    store.hand_over(pool, committer)
    for later in laters:
        later.catch_up()
    return store, report


class Later:
    """Stand-in, in a thread, for an object of the hub: records all method calls, to be made later.

    The attributes ``known`` are copied from the object, and can be read in the thread.
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
        """In the hub: make the recorded calls."""
        for verb, arguments, options in self._calls:
            getattr(self._target, verb)(*arguments, **options)
