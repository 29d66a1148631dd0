"""Pure Python: lets imports load ``.py`` files instead of compiled modules if ``GOMQ_PURE_PYTHON=1``.

An import hook before the ordinary finders loads ``x.py`` of this package even if a compiled ``x.*.so`` lies
beside it. So a user can avoid a fault in a compiled module, and CI can run the tests both ways.
"""
import sys
from importlib.machinery import PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path


class PurePythonFinder:
    """A module finder that loads ``.py`` files for ``gomq_py.*``, and finds no other modules."""

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
    """Put the PurePythonFinder before all other finders. May be called twice."""
    if PurePythonFinder not in sys.meta_path:
        sys.meta_path.insert(0, PurePythonFinder)
