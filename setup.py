"""The compiled modules, which setup.cfg cannot declare.

A module is compiled when a ``.pxd`` of its name with C types for it lies beside the ``.py``. Without Cython, a C compiler or Python's headers the
build warns and installs the plain ``.py``, which answers the same, about 30 times slower. ``GOMQ_REQUIRE_COMPILED=1`` makes that an error.
"""
import os
import re
import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

CYTHON_LEAST = (3, 1)
DIRECTIVES = {
    "language_level": 3,
    "annotation_typing": False,
    "binding": False,
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
    "cdivision": True,
}
# -g0: half of the compiler's time is debug information that nobody looks at; set CFLAGS=-g to profile by line.
FLAGS = ["-O2", "-g0", "-Wno-unused-function", "-Wno-unreachable-code", "-Wno-sign-compare"]
JOBS = os.cpu_count() or 1
# A folder shared by several working copies, so that each does not translate the same sources again.
CACHE = os.environ.get("GOMQ_CYTHON_CACHE") or False
# octets is inline C in its .pxd and has nothing to compile; an __init__.pxd only marks a package for cimport.
NOT_COMPILED = ("octets", "__init__")


class OptionalBuildExt(build_ext):
    """Compile what can be compiled, on all cores; what could not be is said, and its plain module installed."""

    def finalize_options(self):
        super().finalize_options()
        self.parallel = self.parallel or JOBS

    def run(self):
        try:
            super().run()
        except Exception as error:
            if must_compile():
                raise
            warn(error)


def must_compile():
    """True where a failure is a fault of the sources: when asked for, and in a working copy of somebody who could compile."""
    if os.environ.get("GOMQ_REQUIRE_COMPILED"):
        return True
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    headers = Path(sysconfig.get_path("include"), "Python.h")
    return "--inplace" in sys.argv and shutil.which(compiler) is not None and headers.exists()


def warn(reason):
    """Say that the plain modules will be used."""
    print(f"WARNING: gomq-py's hot modules are not compiled, they will run interpreted and slowly: {reason}", file=sys.stderr)


def compiled_modules():
    """An extension for every ``gomq_py/**/x.py`` with an ``x.pxd`` beside it; none with a warning where Cython is missing, too old or fails."""
    if os.environ.get("GOMQ_PURE_PYTHON", "") not in ("", "0"):
        return []
    paths = sorted(path for path in Path("gomq_py").rglob("*.pxd") if path.with_suffix(".py").exists() and path.stem not in NOT_COMPILED)
    extensions = [
        Extension(".".join(path.with_suffix("").parts), [str(path.with_suffix(".py"))], extra_compile_args=FLAGS, optional=not must_compile())
        for path in paths
    ]
    try:
        import Cython
        from Cython.Build import cythonize
        from Cython.Compiler import Options
        Options.emit_code_comments = False
        see_modules()
        if tuple(int(part) for part in Cython.__version__.split(".")[:2]) < CYTHON_LEAST:
            raise ImportError(f"Cython {Cython.__version__} is too old")
        return cythonize(extensions, compiler_directives=DIRECTIVES, build_dir="build/cython", nthreads=JOBS, quiet=True, cache=CACHE)
    except Exception as error:
        if must_compile() and not isinstance(error, ImportError) or os.environ.get("GOMQ_REQUIRE_COMPILED"):
            raise
        warn(error)
        return []


def see_modules():
    """Have Cython see that ``from package cimport module`` depends on the module, so that a changed ``.pxd`` compiles anew whoever cimports it.

    Its own pattern for what follows the word cimport begins with ``^``, which does not match where the search for it begins (seen in 3.3.1).
    """
    from Cython.Build import Dependencies
    inherited = Dependencies.parse_dependencies

    def parse_dependencies(path):
        cimports, *others = inherited(path)
        found = re.findall(r"^from ([\w.]+) cimport ([\w ,]+)", Path(path).read_text(encoding="utf-8"), re.MULTILINE)
        modules = [f"{package}.{name.split()[0]}" for package, names in found for name in names.split(",")]
        return [*cimports, *modules], *others

    Dependencies.parse_dependencies = parse_dependencies


if __name__ == "__main__":  # cythonize's worker processes import this file again
    setup(ext_modules=compiled_modules(), cmdclass={"build_ext": OptionalBuildExt})
