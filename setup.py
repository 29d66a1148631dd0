"""The compiled modules, which setup.cfg cannot declare.

A module is compiled when a ``.pxd`` of its name with C types for it lies beside the ``.py``. Without Cython,
a C compiler or Python's headers the build warns and installs the plain ``.py``, which answers the same, about
30 times slower. ``GOMQ_REQUIRE_COMPILED=1`` makes that an error.

A compiled module carries a digest of its sources (gomq_py/build_info.py) and one of how they were translated
and compiled, as its ELF build ID. A module with other digests is thrown away before the build. Times of files
do not tell: an older source may have been put back since.

A package index shows README.md with absolute links, made of the project's address: ``GOMQ_HOME``.
"""
import hashlib
import itertools
import os
import re
import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

sys.path.insert(0, str(Path(__file__).resolve().parent))  # the tree that is built here, whatever is installed

import gomq_py  # noqa: E402
from gomq_py import build_info  # noqa: E402

PAGES = {
    "Documentation": "docs/README.md", "Changelog": "CHANGELOG.md", "Security": "SECURITY.md",
    "Coming from RabbitMQ": "docs/missing.md",
}
CYTHON_LEAST = (3, 3)  # 3.2 shares less between modules, and is not tested
DIRECTIVES = {
    "language_level": 3,
    "annotation_typing": False,
    "binding": False,
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
    "cdivision": True,
    # Code to pickle each class would be an eighth of a wheel. A class that users pickle says so in its .pxd.
    "auto_pickle": False,
}
# -g0: half of the compiler's time is debug information that nobody looks at;
# set CFLAGS=-g to profile by line.
FLAGS = ["-O2", "-g0", "-Wno-unused-function", "-Wno-unreachable-code", "-Wno-sign-compare"]
# These keep a wheel below 5 MB (.ci/wheel) and add no instruction to hot paths: no tables for unwinding,
# which debuggers and C++ read (7 % of the compiled modules), no gaps before functions, loops and jumps
# (2.7 %), no table of jumps to Python's functions (1.4 %), no loops over several elements at a time (0.8 %).
FLAGS += [
    "-fno-asynchronous-unwind-tables", "-falign-functions=1", "-falign-loops=1", "-falign-jumps=1",
    "-falign-labels=1", "-fno-plt", "-fno-tree-vectorize",
]
JOBS = os.cpu_count() or 1
# A folder shared by several working copies, so that each does not translate the same sources again.
CACHE = os.environ.get("GOMQ_CYTHON_CACHE") or False
TRANSLATED = Path("build", "cython")
# Commands that compile nothing, and so need no C. Others may build, as far as we know.
PACKING = {"sdist", "egg_info", "dist_info", "--version", "--name"}
BUILDING = {"build", "build_ext", "bdist_wheel", "install", "develop", "editable_wheel"}
# The project's address, which a release sets (docs/contributing/release.md). Nobody owns the default.
HOME = os.environ.get("GOMQ_HOME") or "https://example.org/gomq-py"


class OptionalBuildExt(build_ext):
    """Compile what can be compiled, on all cores; what could not be is said,
    and its plain module installed.
    """

    def finalize_options(self):
        super().finalize_options()
        self.parallel = self.parallel or JOBS

    def run(self):
        try:
            self.throw_away_stale()
            super().run()
        except Exception as error:
            if must_compile():
                raise
            warn(error)

    def throw_away_stale(self):
        """Compiled modules of other sources, and of modules that are compiled no more; where the working copy
        is to have them, those that lie there, too. What is right is made newer than what it was built from.
        """
        names = {self.get_ext_filename(known.name): known.name for known in self.extensions}
        digests = {
            self.get_ext_filename(known.name): bytes.fromhex(known.extra_link_args[0].partition("0x")[2])
            for known in self.extensions}
        for folder in [Path(self.build_lib)] + ([Path()] if self.inplace else []):
            for path in (folder / "gomq_py").rglob("*" + sysconfig.get_config_var("EXT_SUFFIX")):
                digest = digests.get(str(path.relative_to(folder)))
                if digest is None or digest not in path.read_bytes():
                    path.unlink()
                else:
                    path.touch()
        self.missing = {name for file, name in names.items() if not Path(self.build_lib, file).exists()}
        if self.missing:
            say(f"compiling {len(self.missing)} modules, {self.parallel} at a time")
            self.numbers = itertools.count(1)

    def build_extension(self, extension):
        super().build_extension(extension)
        if extension.name in self.missing:
            say(f"compiled {next(self.numbers)} of {len(self.missing)}: {extension.name}")


def say(text):
    """Tell what takes so long, even where setuptools is told to be quiet."""
    print(text, flush=True)


def must_compile():
    """True where a failure is a fault of the sources: when asked for,
    and in a working copy of somebody who could compile.
    """
    if os.environ.get("GOMQ_REQUIRE_COMPILED"):
        return True
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    headers = Path(sysconfig.get_path("include"), "Python.h")
    return "--inplace" in sys.argv and shutil.which(compiler) is not None and headers.exists()


def warn(reason):
    """Say that the plain modules will be used."""
    print(
        f"WARNING: gomq-py's hot modules are not compiled, they will run interpreted and slowly: {reason}",
        file=sys.stderr,
    )


def compiled_modules():
    """An extension for every ``gomq_py/**/x.py`` with an ``x.pxd`` beside it; none for commands that compile
    nothing, and none with a warning where Cython is missing, too old or fails.
    """
    if os.environ.get("GOMQ_PURE_PYTHON", "") not in ("", "0") or only_packs(sys.argv[1:]):
        return []
    try:
        import Cython
        from Cython.Build import cythonize
        from Cython.Compiler import Options
        Options.emit_code_comments = False
        see_modules()
        if tuple(int(part) for part in Cython.__version__.split(".")[:2]) < CYTHON_LEAST:
            raise ImportError(f"Cython {Cython.__version__} is too old")
        made_by = hashlib.sha256(repr((Cython.__version__, DIRECTIVES, FLAGS)).encode()).hexdigest()[:16]
        extensions = [
            extension_of(name, ".py", build_info.digest_of(name) + made_by)
            for name in build_info.hot_modules()]
        throw_away_stale_translations(extensions)
        return cythonize(
            [*extensions, extension_of(build_info.SHARED, ".c", made_by)], compiler_directives=DIRECTIVES,
            shared_utility_qualified_name=build_info.SHARED, build_dir=str(TRANSLATED), nthreads=JOBS,
            quiet=True, cache=CACHE)
    except Exception as error:
        if must_compile() and not isinstance(error, ImportError) or os.environ.get("GOMQ_REQUIRE_COMPILED"):
            raise
        warn(error)
        return []


def only_packs(arguments):
    """True if no command among the arguments compiles: a source archive is made in a second."""
    return not PACKING.isdisjoint(arguments) and BUILDING.isdisjoint(arguments)


def extension_of(name, suffix, build_id):
    """The extension of a module whose source has this suffix."""
    source = str(Path(*name.split(".")).with_suffix(suffix))
    return Extension(
        name, [source], extra_compile_args=FLAGS, optional=not must_compile(),
        extra_link_args=["-Wl,--build-id=0x" + build_id])


def throw_away_stale_translations(extensions):
    """C files of other sources: Cython notes the linker's arguments in them, and with these the digest."""
    missing = 0
    for known in extensions:
        path = TRANSLATED / Path(known.sources[0]).with_suffix(".c")
        if path.exists() and known.extra_link_args[0] not in path.read_text(encoding="utf-8"):
            path.unlink()
        elif path.exists():
            path.touch()  # or Cython would translate the same again, for the time of a source
        missing += not path.exists()
    if missing:
        say(f"translating {missing} modules to C")


def see_modules():
    """Have Cython see that ``from package cimport module`` depends on the module, so that a changed ``.pxd``
    compiles anew whoever cimports it.

    Its own pattern for what follows the word cimport begins with ``^``, which does not match where the search
    for it begins (seen in 3.3.1).
    """
    from Cython.Build import Dependencies
    inherited = Dependencies.parse_dependencies

    def parse_dependencies(path):
        cimports, *others = inherited(path)
        found = re.findall(
            r"^from ([\w.]+) cimport ([\w ,]+)", Path(path).read_text(encoding="utf-8"), re.MULTILINE
        )
        modules = [f"{package}.{name.split()[0]}" for package, names in found for name in names.split(",")]
        return [*cimports, *modules], *others

    Dependencies.parse_dependencies = parse_dependencies


def long_description():
    """README.md with absolute links: a package index has no other files."""
    text = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
    return re.sub(r"\]\((?!https?:|mailto:|#)", f"]({HOME}/blob/v{gomq_py.__version__}/", text)


if __name__ == "__main__":  # cythonize's worker processes import this file again
    setup(
        ext_modules=compiled_modules(), cmdclass={"build_ext": OptionalBuildExt}, url=HOME,
        project_urls={
            name: f"{HOME}/blob/v{gomq_py.__version__}/{page}" for name, page in PAGES.items()
        },
        long_description=long_description())
