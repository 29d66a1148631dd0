"""Work in threads whose exceptions only the caller gets.

A leaf over gevent, which by itself prints what a thread's work raised on standard error, with the arguments
of the call: passwords among them, past the log's file and format, whenever a stranger can cause one. Every
piece of work in a thread therefore begins here.
"""
import gevent
from gevent import monkey
from gevent.event import AsyncResult

_start_thread = monkey.get_original("_thread", "start_new_thread")


class ThreadWork:
    """Work in a thread that has begun."""

    __slots__ = ("_answer",)

    def __init__(self, answer):
        self._answer = answer

    def ready(self):
        """Whether the work has ended or failed."""
        return self._answer.ready()

    def wait(self, timeout_s):
        """Return when the work has ended, or after ``timeout_s``. May switch."""
        self._answer.wait(timeout_s)

    def call_after(self, callback):
        """Call ``callback()`` in the hub when the work has ended."""
        self._answer.rawlink(lambda _: callback())

    def get(self):
        """The work's result; raises its exception. May switch."""
        result, error = self._answer.get()
        if error is None:
            return result
        try:
            raise error
        finally:
            error = None  # or the error and this frame would hold each other


def begin(function, *arguments, pool=None):
    """Begin ``function(*arguments)`` in a thread of ``pool``, the hub's unless one is given.

    Returns the ThreadWork. May switch.
    """
    if pool is None:
        pool = gevent.get_hub().threadpool
    return ThreadWork(pool.spawn(_attempt, function, arguments))


def begin_apart(function, *arguments):
    """As begin(), in a thread of its own, for long work: it may outlast the hub, and then ends silently,
    where a pool's thread would print an error. Raises RuntimeError without a thread.
    """
    answer, outcome = AsyncResult(), []
    watcher = gevent.get_hub().loop.async_()

    def close():
        watcher.stop()
        watcher.close()

    def ended():
        close()
        answer.set(outcome.pop())

    def run():
        outcome.append(_attempt(function, arguments))
        try:
            watcher.send()
        except ValueError:  # of a loop that is destroyed
            pass

    watcher.start(ended)
    try:
        _start_thread(run, ())
    except BaseException:
        close()
        raise
    return ThreadWork(answer)


def in_thread(function, *arguments):
    """Call ``function(*arguments)`` in a thread of the hub's; returns or raises as it does. May switch."""
    return begin(function, *arguments).get()


def _attempt(function, arguments):
    """In the thread: (result, error). Raises nothing, since gevent would print that."""
    try:
        return function(*arguments), None
    except BaseException as error:
        return None, error
