"""Reopening: recovers a store in a thread while the broker serves, for the restart of a queue.

Used by the queue factory. Recovery takes seconds for a long queue. Pool, committer and register of files
belong to the event loop's thread. The recovery thread only records its calls to them. The event loop makes
these calls after recovery.
"""
import copy

from gomq_py.hub.threads import in_thread


def open_in_thread(opening, folder, files, pool, committer, *arguments):
    """Open a store in a thread by ``opening(folder, files, pool, committer, *arguments)``. ``opening``: for
    example recovery.open_store. Returns its result, (store, report). Raises OSError, StoreError. May switch
    greenlets.
    """
    laters = _Laters(files, pool, committer)
    try:
        store, report = in_thread(opening, folder, laters.files, laters.pool, laters.committer, *arguments)
    except Exception:
        laters.tell()
        raise  # if this greenlet was killed instead, the thread still works, and nobody is told any more
    laters.hand_over(store)
    return store, report


def open_aside(done, opening, folder, files, pool, committer, *arguments):
    """Do as open_in_thread(), but return at once; the event loop calls ``done(store, report, error)``."""
    laters = _Laters(files, pool, committer)

    def opened(result, error):
        if error is not None:
            laters.tell()
            done(None, None, error)
        else:
            store, report = result
            laters.hand_over(store)
            done(store, report, None)

    committer.background.long.add(
        opening, folder, laters.files, laters.pool, laters.committer, *arguments, done=opened)


class _Laters:
    """Stand-ins for files, pool and committer, for use in a thread. They record calls to make later."""

    def __init__(self, files, pool, committer):
        self._hubs = pool, committer
        self._register = files.register
        # also without replicators: one may be attached meanwhile
        self.files = copy.copy(files)
        self.files.register = LaterRegister(files.register)
        self.pool = Later(
            pool, "stage", "folder", "last_end", "listed", "boot", "damage", files=self.files)
        self.committer = Later(committer, "enabled", "begun")

    def tell(self):
        """Report the thread's changes of files to the replicators. Call in the event loop."""
        # Also if recovery has failed.
        if self.files.register is not self._register:
            self.files.register.catch_up()
            self.files.register = self._register  # the store goes on with these Files

    def hand_over(self, store):
        """Give the store the real objects, and make the recorded calls. Call in the event loop."""
        self.tell()
        store.hand_over(*self._hubs)
        self.pool.catch_up()
        self.committer.catch_up()


class Later:
    """Stand-in, in a thread, for an object of the event loop. Records all method calls, to be made later. The
    attributes named in ``known`` are copied from the object, so that the thread can read them.
    """

    def __init__(self, target, *known, **replaced):
        self._target = target
        self._calls = []
        vars(self).update(replaced)
        for name in known:
            setattr(self, name, getattr(target, name))

    def __getattr__(self, verb):
        def call(*arguments, **options):
            self._calls.append((verb, arguments, options))

        return call

    def catch_up(self):
        """Make the recorded calls. Call in the event loop."""
        for verb, arguments, options in self._calls:
            getattr(self._target, verb)(*arguments, **options)


class LaterRegister(Later):
    """Stand-in for the register of files. Keeps each changed file open until its changes are reported."""

    replicators = True  # somebody is told, later

    def id_of(self, path):
        """Return 0. The file of the path is looked up when its changes are reported."""
        return 0

    def appended(self, file, start, end):
        """Record that [start, end) of a file changed. Its content after recovery is reported later."""
        file.retain()
        self._calls.append(("overwritten", (file, start, end), {}))

    overwritten = appended

    def catch_up(self):
        """Make the recorded calls. Leaves out bytes after a file's end. Call in the event loop."""
        for verb, arguments, _ in self._calls:
            if verb != "overwritten":
                getattr(self._target, verb)(*arguments)
                continue
            file, start, end = arguments
            if start < min(end, file.size):
                self._target.overwritten(file, start, min(end, file.size))
            file.release()
