"""Background: runs jobs on files that may take long, and for which no flush waits.

A worker runs its jobs in order, each in a thread of the pool. Jobs without a callback, such as closing
descriptors, may run together. ``storage.flush.group_commit`` has three workers. The greenlet of a worker
exists only while there are jobs.
"""
import logging
from collections import deque

import gevent

from gomq_py.hub.threads import begin

logger = logging.getLogger("gomq_py.storage.aside")


# Names of the workers' greenlets, in the order of Background's attributes.
WORKERS = ("files-aside", "files-at-leisure", "files-for-readers")


class Failures(list):
    """The errors of jobs that ran together in one thread."""


class Background:
    """The three workers of a GroupCommit, each with a greenlet and a thread of its own.

    ``short`` runs jobs that end soon, ``long`` runs long jobs, and ``for_readers`` runs jobs for which
    consumers wait. ``threads_of()`` returns the pool of threads.
    """

    def __init__(self, threads_of):
        self._workers = [BackgroundWorker(name, threads_of) for name in WORKERS]
        self.short, self.long, self.for_readers = self._workers

    @property
    def is_idle(self):
        return all(worker.is_idle for worker in self._workers)

    def join(self):
        """Wait until each worker, one after the other, has no jobs left. May switch greenlets."""
        for worker in reversed(self._workers):  # the first one closes files that the others let go of
            worker.join()

    def kill(self):
        """Stop all workers as a crash would: see BackgroundWorker.kill."""
        for worker in self._workers:
            worker.kill()


class BackgroundWorker:
    """Runs one job after the other in threads. ``threads_of()`` returns the pool of threads."""

    def __init__(self, name, threads_of):
        self._name = name
        self._threads_of = threads_of
        self._work = deque()  # (function, arguments, done or None)
        # urgent work, with its count of pieces: it alternates with _work, so that endless urgent work does
        # not hold up the rest
        self._first = deque()
        self._was_first = False
        self._pieces = 1  # of _work that may be done in its next turn
        self._greenlet = None
        self._taken = None  # (function, arguments, done or None) that waits for a thread
        self._under_way = None  # (the work in a thread, its done or None)
        self._killed = False

    def __len__(self):
        return len(self._first) + len(self._work) + (self._taken is not None)

    @property
    def is_idle(self):
        return self._greenlet is None

    def add(self, function, *arguments, done=None, first=False):
        """Have a thread call ``function(*arguments)`` soon, beside the flushes. ``done(result, error)``, if
        given, is called in the event loop after the job. It must neither switch greenlets nor raise.
        ``first``: the job is urgent; urgent and other jobs alternate. With ``first=n``, n above 1, up to n
        other jobs without ``done`` run together, in one thread, after this job.
        """
        if first:
            self._first.append((function, arguments, done, int(first)))
        else:
            self._work.append((function, arguments, done))
        if self._greenlet is None:
            self._begin()

    def join(self):
        """Wait until all jobs are done. May switch greenlets."""
        while (greenlet := self._greenlet) is not None:
            greenlet.join()
            self._ended(greenlet)

    def kill(self):
        """Stop as a crash would, without calling any ``done``. Queued jobs without a ``done``, such as
        closing descriptors, still run here: in a real crash the system does their work.
        """
        self._killed = True
        if self._greenlet is not None:
            gevent.kill(self._greenlet)
            self._greenlet = None
        while self:
            function, arguments, done = self._next()
            if done is None:
                function(*arguments)

    def _next(self):
        taken, self._taken = self._taken, None
        if taken is not None:  # left by a greenlet that was ended
            return taken
        self._was_first = bool(self._first) and not (self._was_first and self._work)
        if self._was_first:
            *taken, self._pieces = self._first.popleft()
            return taken
        pieces, self._pieces = self._pieces, 1
        taken = self._work.popleft()
        if taken[2] is None and pieces > 1:
            return self._do_each, ([taken, *self._next_unheard(pieces - 1)],), None
        return taken

    def _next_unheard(self, count):
        while count > 0 and self._work and self._work[0][2] is None:
            yield self._work.popleft()
            count -= 1

    @staticmethod
    def _do_each(pieces):
        """Run jobs in turn in a thread. Returns Failures. Logs nothing: log locks may be gevent's."""
        failures = Failures()
        for function, arguments, _ in pieces:
            try:
                function(*arguments)
            except Exception as error:
                failures.append(error)
        return failures

    def _begin(self):
        self._greenlet = gevent.spawn(self._run)
        self._greenlet.name = self._name
        self._greenlet.rawlink(self._ended)

    def _ended(self, greenlet):
        """Start a new greenlet for the remaining jobs if the old one was killed."""
        if self._greenlet is greenlet and not self._killed:
            self._begin()

    def _run(self):
        if self._under_way is not None:  # left by a greenlet that was ended
            self._finish()
        while self:
            self._taken = function, arguments, done = self._next()
            try:
                work = begin(function, *arguments, pool=self._threads_of())
            except Exception as error:  # the system gives no thread
                self._taken = None
                self._tell(done, None, error)
            else:
                self._taken, self._under_way = None, (work, done)
                self._finish()
            if self._killed:
                return
        self._greenlet = None

    def _finish(self):
        """Wait for the running job, and call its ``done``. May switch greenlets."""
        work, done = self._under_way
        try:
            result, error = work.get(), None
        except BaseException as failure:
            if not work.ready():  # this greenlet itself is being ended
                raise
            result, error = None, failure
        self._under_way = None
        if not self._killed:  # after a crash no callback is called
            self._tell(done, result, error)

    @staticmethod
    def _tell(done, result, error):
        if done is None:
            for one in result if isinstance(result, Failures) else [error] if error is not None else ():
                logger.warning("work on files failed: %s", one)
        try:
            if done is not None:
                done(result, error)
        except Exception:
            logger.exception("a callback after work on files failed")
