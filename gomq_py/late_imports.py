"""Late imports: of modules that a broker has no need of before the first that needs them.

A leaf. A broker that serves may have no descriptor left to read a file with, or its package may be gone.
Whoever imports late does so in ``importing``, and before it has changed anything: then somebody is refused,
and the next attempt may succeed.

The package may have been upgraded, too, and compiled modules take each other's layout for granted: the first
stream then killed the broker. ``Unreplaced`` lets nothing be imported from files that came later than it.
"""
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gomq_py
from gomq_py.errors import OutOfResources
from gomq_py.observability.log import logger

LOG = logger("broker")


def _package() -> Any:
    """Which file the package begins with; None where there is none, as in an archive."""
    try:
        there = os.stat(gomq_py.__file__)
    except OSError:
        return None
    return there.st_dev, there.st_ino, there.st_mtime_ns, there.st_size


class Unreplaced:
    """A finder of modules (importlib), for sys.meta_path of a broker's own process, that finds none. Raises
    ImportError where one of the package is wanted, and that is another one by now.
    """

    begun = _package()

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> None:
        if name.startswith("gomq_py.") and _package() != cls.begun:
            raise ImportError(f"{name}: the package was replaced, the broker has to be started again")


@contextmanager
def importing(what: str) -> Iterator[None]:
    """Raise OutOfResources where what is imported inside cannot be; ``what`` needs it."""
    try:
        yield
    except Exception as error:  # a module of another version may fail in any way
        LOG.error("cannot import what %s needs: %s: %s", what, type(error).__name__, error)
        raise OutOfResources(f"cannot import what {what} needs: see the log") from error
