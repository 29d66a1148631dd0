"""Late imports: of modules that a broker has no need of before the first that needs them.

A leaf. A broker that serves may have no descriptor left to read a file with, or its package may be gone.
Whoever imports late does so in ``importing``, and before it has changed anything: then somebody is refused,
and the next attempt may succeed.
"""
from collections.abc import Iterator
from contextlib import contextmanager

from gomq_py.errors import OutOfResources
from gomq_py.observability.log import logger

LOG = logger("broker")


@contextmanager
def importing(what: str) -> Iterator[None]:
    """Raise OutOfResources where what is imported inside cannot be; ``what`` needs it."""
    try:
        yield
    except Exception as error:  # a module of another version may fail in any way
        LOG.error("cannot import what %s needs: %s: %s", what, type(error).__name__, error)
        raise OutOfResources(f"cannot import what {what} needs: see the log") from error
