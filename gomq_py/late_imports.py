"""Late imports: lets a running broker import modules when it first needs them.

Such an import may fail: the process may lack a descriptor to read a file, or the package may have been
deleted. So callers import under ``with importing``, before any change of state: a failed import refuses the
request, and the next attempt may succeed. The package may also have been upgraded, and compiled modules of
two versions together may crash the broker: ``Unreplaced`` then refuses imports.
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
    """Return (device, inode, mtime in ns, size) of the package's __init__ file; None in an archive."""
    try:
        there = os.stat(gomq_py.__file__)
    except OSError:
        return None
    return there.st_dev, there.st_ino, there.st_mtime_ns, there.st_size


class Unreplaced:
    """A module finder that refuses imports from this package after its files were replaced."""

    begun = _package()

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> None:
        if name.startswith("gomq_py.") and _package() != cls.begun:
            raise ImportError(f"{name}: the package was replaced, the broker has to be started again")


@contextmanager
def importing(what: str) -> Iterator[None]:
    """Context manager: log an error in its block and raise OutOfResources. ``what``: the feature imported."""
    try:
        yield
    except Exception as error:  # a module of another version may fail in any way
        LOG.error("cannot import what %s needs: %s: %s", what, type(error).__name__, error)
        raise OutOfResources(f"cannot import what {what} needs: see the log") from error
