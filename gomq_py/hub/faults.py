"""Faults of greenlets and callbacks, said in the log: for hubs that are the broker's own.

A leaf over gevent, which by itself prints what a greenlet died of on standard error, with the arguments of
the call: passwords among them, past the log's file and format.
"""
import sys

import gevent

from gomq_py.observability.log import logger

LOG = logger("hub")


def log_faults():
    """Log what greenlets and callbacks of this thread's hub die of.

    For a hub of the broker's own, never a host program's.
    """
    gevent.get_hub().print_exception = _log_fault


def log_unraisable():
    """What the interpreter cannot raise anywhere (in a destructor, say) goes to the log, too.

    For a process of the broker's own.
    """
    sys.unraisablehook = _log_unraisable


def _log_fault(context, kind, error, trace):
    """As gevent's ``Hub.print_exception``, which says everything that it knows of the context:
    here its name alone.
    """
    if isinstance(context, tuple):
        return  # work in a thread, of a library's: whoever asked for it gets the exception
    LOG.error(
        "%s died of a fault of the broker", name_of(context),
        exc_info=(kind, error, trace) if kind is not None else None,
    )


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
