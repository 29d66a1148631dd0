"""Threads: calls functions in threads, and gives their exceptions only to the caller.

All work in threads begins here. gevent by itself prints an exception on standard error instead of in the log,
with the call's arguments. These may contain passwords. Unauthenticated peers can cause such exceptions.
"""
import gevent
from gevent import monkey
from gevent.event import AsyncResult

_start_thread = monkey.get_original("_thread", "start_new_thread")


class ThreadWork:
    """A function call that runs, or has run, in a thread."""

    __slots__ = ("_answer",)

    def __init__(self, answer):
        self._answer = answer

    def ready(self):
        return self._answer.ready()

    def wait(self, timeout_s):
        """Wait until the call has ended, but at most ``timeout_s`` seconds. May switch greenlets."""
        self._answer.wait(timeout_s)

    def call_after(self, callback):
        """Call ``callback()`` in the event loop, not in the thread, when the call has ended."""
        self._answer.rawlink(lambda _: callback())

    def get(self):
        """Wait for the call's result and return it, or raise the call's exception. May switch greenlets."""
        result, error = self._answer.get()
        if error is None:
            return result
        try:
            raise error
        finally:
            error = None  # or the error and this frame would hold each other


def begin(function, *arguments, pool=None):
    """Begin the call ``function(*arguments)`` in a thread of ``pool``. Returns the ThreadWork. May switch
    greenlets. ``pool``: None for gevent's thread pool.
    """
    if pool is None:
        pool = gevent.get_hub().threadpool
    return ThreadWork(pool.spawn(_attempt, function, arguments))


def begin_apart(function, *arguments):
    """Call ``function(*arguments)`` in a new thread, for long work. Returns the ThreadWork. Raises
    RuntimeError if no thread can be started.
    """
    # Work that outlasts the hub ends silently, unlike in a pool.
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
    """Call ``function(*arguments)`` in gevent's thread pool. Returns the result or raises. May switch
    greenlets.
    """
    return begin(function, *arguments).get()


def _attempt(function, arguments):
    """Call the function. Returns (result, error). Never raises."""
    # gevent would print it.
    try:
        return function(*arguments), None
    except BaseException as error:
        return None, error
