"""Faults: logs the exceptions that end greenlets and callbacks. gevent by itself prints such exceptions on
standard error instead of in the log, with the call's arguments. These may contain passwords.
"""
import sys

import gevent

from gomq_py.observability.log import logger

LOG = logger("hub")


def log_faults():
    """Log the exceptions that end greenlets and callbacks of this thread's event loop."""
    # Not for a thread whose hub belongs to an embedding program.
    gevent.get_hub().print_exception = _log_fault


def log_unraisable():
    """Log, in the whole process, exceptions that the interpreter cannot raise, such as in a destructor."""
    # So a broker that is embedded in another program must not call this.
    sys.unraisablehook = _log_unraisable


def _log_fault(context, kind, error, trace):
    """Log an exception with the name of its context, without arguments. Replaces Hub.print_exception."""
    if isinstance(context, tuple):
        return  # a library's work in a thread: its caller gets the exception
    LOG.error(
        "%s died of a fault of the broker", name_of(context),
        exc_info=(kind, error, trace) if kind is not None else None,
    )


def _log_unraisable(unraisable):
    LOG.error("a fault of the broker in %s", name_of(unraisable.object),
              exc_info=(unraisable.exc_type, unraisable.exc_value, unraisable.exc_traceback))


def name_of(context):
    """Return a greenlet's given name, else its function's name. Never contains the arguments."""
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
