"""FlushPool: in place of the committer's thread pool, flushes as greenlets that give way now and then, so
that a seed decides what happens meanwhile.

With real threads a failure found by a seed may not come again.
``use`` puts it into ``storage.flush.flushing`` for one test.
"""
import gevent
from gevent.event import AsyncResult

from gomq_py.storage.flush import flushing


class FlushPool:
    """What GroupCommit needs of a gevent ThreadPool."""

    def __init__(self, threads):
        self._results = []

    def spawn(self, function, *arguments):
        """Run it in a greenlet of the same thread; ``get`` of the result waits for it
        and raises what it raised.
        """
        result = AsyncResult()

        def run():
            try:
                result.set(function(*arguments))
            except BaseException as error:
                result.set_exception(error)

        gevent.spawn(run).is_in_flush_pool = True
        return result

    def kill(self):
        pass


def use(monkeypatch):
    """Flush in greenlets from here to the end of the test."""
    monkeypatch.setattr(flushing, "ThreadPool", FlushPool)


def is_in_pool():
    """Whether what calls runs in the pool's place."""
    return getattr(gevent.getcurrent(), "is_in_flush_pool", False)


def give_way(random, most=6):
    """A pause in the middle of a flush: some turns of the loop."""
    for _ in range(random.randrange(most)):
        gevent.sleep(0)
