"""Pure Python: makes imports take the interpreted modules if ``GOMQ_PURE_PYTHON=1``.

An import hook before the ordinary finders loads ``x.py`` of this package even if a compiled ``x.*.so`` lies
beside it. A user can bypass a fault of a compiled module; CI runs the suite both ways on one installation.
"""
import sys
from importlib.machinery import PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path


class PurePythonFinder:
    """Finds the ``.py`` of ``gomq_py.*``; leaves all other modules to the finders behind it."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if not name.startswith("gomq_py."):
            return None
        stem = name.rpartition(".")[2]
        for folder in path or ():
            source = Path(folder, stem + ".py")
            if source.is_file():
                return spec_from_file_location(name, source, loader=SourceFileLoader(name, str(source)))
        return PathFinder.find_spec(name, path, target)


def install():
    """Put the import hook before the other finders; a second call does nothing."""
    if PurePythonFinder not in sys.meta_path:
        sys.meta_path.insert(0, PurePythonFinder)
