"""The compiled modules, which setup.cfg cannot declare.

A module is compiled when a ``.pxd`` of its name with C types for it lies beside the ``.py``. Without a C compiler or Cython the build warns and
installs the plain ``.py``, which answers the same, about 30 times slower.
"""
import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

DIRECTIVES = {
    "language_level": 3,
    "annotation_typing": False,
    "binding": False,
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
    "cdivision": True,
}
FLAGS = ["-O2", "-Wno-unused-function", "-Wno-unreachable-code"]


class OptionalBuildExt(build_ext):
    """Compile what can be compiled; say what could not, and install the plain modules."""

    def run(self):
        try:
            super().run()
        except Exception as error:
            self._warn("nothing", error)

    def build_extension(self, extension):
        try:
            super().build_extension(extension)
        except Exception as error:
            self._warn(extension.name, error)

    def _warn(self, name, error):
        if os.environ.get("GOMQ_REQUIRE_COMPILED"):
            raise error
        print(f"WARNING: {name} not compiled, the interpreted modules will be used: {error}", file=sys.stderr)


def compiled_modules():
    """Every ``gomq_py/**/x.py`` with an ``x.pxd`` beside it; octets is inline C in its .pxd and has nothing to compile."""
    if os.environ.get("GOMQ_PURE_PYTHON"):
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    paths = sorted(p for p in Path("gomq_py").rglob("*.pxd") if p.with_suffix(".py").exists() and p.stem not in ("octets", "__init__"))
    extensions = [
        Extension(".".join(p.with_suffix("").parts), [str(p.with_suffix(".py"))], extra_compile_args=FLAGS) for p in paths
    ]
    return cythonize(extensions, compiler_directives=DIRECTIVES, quiet=True)


setup(ext_modules=compiled_modules(), cmdclass={"build_ext": OptionalBuildExt})
