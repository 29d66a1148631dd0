"""The hub's faults: work in threads whose exceptions only the caller sees, and greenlets that die of one, said in the log; and its turns.

A leaf over gevent. By itself gevent prints what a thread's work or a greenlet raised on standard error, with the arguments of the call: passwords
among them, past the log's file and format, and as often as strangers can bring it about. Every piece of work in a thread therefore begins here, and
the hubs that are the broker's own say the rest through the log.
"""
import sys

import gevent

from gomq_py.observability.log import logger

LOG = logger("hub")
# Any time there is: what counts is that it takes the loop through a poll.
_SHORTEST_S = 1e-4


class Job:
    """Work in a thread that has begun."""

    __slots__ = ("_answer",)

    def __init__(self, answer):
        self._answer = answer

    def ready(self):
        """Whether it has ended, one way or the other."""
        return self._answer.ready()

    def wait(self, timeout_s):
        """Return when it has ended, or after so long. May switch."""
        self._answer.wait(timeout_s)

    def call_after(self, callback):
        """Call ``callback()`` in the hub when it has ended."""
        self._answer.rawlink(lambda _: callback())

    def get(self):
        """What it returned; raises what it raised. May switch."""
        result, error = self._answer.get()
        if error is None:
            return result
        try:
            raise error
        finally:
            error = None  # or it and this frame would hold each other


def begin(function, *arguments, pool=None):
    """Begin ``function(*arguments)`` in a thread of ``pool``, the hub's unless one is given. Returns the Job. May switch."""
    if pool is None:
        pool = gevent.get_hub().threadpool
    return Job(pool.spawn(_attempt, function, arguments))


def in_thread(function, *arguments):
    """What ``function(*arguments)`` returns or raises, called in a thread of the hub's. May switch."""
    return begin(function, *arguments).get()


def _attempt(function, arguments):
    """In the thread: (result, error). Nothing is raised here, for gevent would print it."""
    try:
        return function(*arguments), None
    except BaseException as error:
        return None, error


def give_way():
    """Let the loop look at every socket and timer before going on. May switch.

    ``gevent.sleep(0)`` does not: gevent runs up to 50 such callbacks between two polls, which with slices of 2 ms held messages up for 100 ms.
    """
    gevent.sleep(_SHORTEST_S)


def log_faults():
    """Log what greenlets and callbacks of this thread's hub die of. For a hub of the broker's own, never a host program's."""
    gevent.get_hub().print_exception = _log_fault


def log_unraisable():
    """What the interpreter cannot raise anywhere (in a destructor, say) goes to the log, too. For a process of the broker's own."""
    sys.unraisablehook = _log_unraisable


def _log_fault(context, kind, error, trace):
    """As gevent's ``Hub.print_exception``, which says everything that it knows of the context: here its name alone."""
    if isinstance(context, tuple):
        return  # work in a thread, of a library's: whoever asked for it gets the exception
    LOG.error("%s died of a fault of the broker", name_of(context), exc_info=(kind, error, trace) if kind is not None else None)


def _log_unraisable(unraisable):
    LOG.error("a fault of the broker in %s", name_of(unraisable.object),
              exc_info=(unraisable.exc_type, unraisable.exc_value, unraisable.exc_traceback))


def name_of(context):
    """A greenlet's name where it was given one, else the name of its function; never its arguments."""
    name = getattr(context, "name", "")
    if isinstance(name, str) and name and not name.startswith("Greenlet-"):
        return f"greenlet {name!r}"
    if isinstance(context, gevent.Greenlet):
        return f"a greenlet of {_function_name(context._run)}"
    return _function_name(context)


def _function_name(thing):
    while hasattr(thing, "func"):  # a partial's own text has the arguments
        thing = thing.func
    return getattr(thing, "__qualname__", type(thing).__qualname__)
