"""What setup.py builds with a compiler, without one, and without Cython.

Built from a copy of the sources in which one hot module is left, so that a build takes seconds. Needs no
network: no build isolation, no dependencies.
"""
import configparser
import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES

import pytest
from packaging.metadata import Metadata

from gomq_py import build_info
from tests.support.waiting import in_time
from tests.unit.source_tree import ROOT, tracked_files

# Compilers and pip, beside everything else that the machine does.
pytestmark = pytest.mark.timeout(600)

SUFFIX = EXTENSION_SUFFIXES[0]
LEFT = {"__init__.pxd", "octets.pxd", "forms.pxd"}


@pytest.fixture
def copy(tmp_path):
    """A copy of the sources with one hot module, gomq_py.content.forms."""
    for path in tracked_files():
        place = path.relative_to(ROOT)
        if place.parts[0] in ("gomq_py", "etc", ".ci") or len(place.parts) == 1:
            if path.suffix != ".pxd" or path.name in LEFT:
                (tmp_path / "copy" / place).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, tmp_path / "copy" / place)
    return tmp_path / "copy"


def run(copy, *arguments, **environment):
    ours = ("GOMQ_PURE_PYTHON", "GOMQ_REQUIRE_COMPILED", "GOMQ_CYTHON_CACHE", "PYTHONPATH")
    clean = {name: value for name, value in os.environ.items() if name not in ours}
    return subprocess.run(
        [sys.executable, *arguments], cwd=copy, env={**clean, **environment}, capture_output=True, text=True,
        timeout=in_time(500),
    )


def wheel(copy, **environment):
    """(names in the wheel, what the build said)."""
    finished = run(
        copy, "-m", "pip", "wheel", "-v", "--no-deps", "--no-build-isolation", "--disable-pip-version-check",
        "-w", "wheels", ".", **environment)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    with zipfile.ZipFile(next((copy / "wheels").glob("gomq_py-*.whl"))) as archive:
        return archive.namelist(), finished.stdout + finished.stderr


def compiled(names):
    return [name for name in names if name.endswith(".so")]


@pytest.mark.needs_program("cc")
def test_wheel_holds_the_compiled_module_and_both_its_sources(copy):
    names, said = wheel(copy, GOMQ_REQUIRE_COMPILED="1")

    assert {name.split(".")[0] for name in compiled(names)} == {
        "gomq_py/content/forms", "gomq_py/cython_shared"}
    assert {"gomq_py/content/forms.py", "gomq_py/content/forms.pxd", "gomq_py/octets.pxd"} <= set(names)
    assert {"gomq_py/py.typed", "gomq_py/dispatcher/__init__.pyi"} <= set(names)
    assert "WARNING: gomq-py" not in said


def test_without_a_compiler_the_plain_modules_are_installed_with_a_warning(copy):
    names, said = wheel(copy, CC="/nowhere/cc")

    assert compiled(names) == []
    assert "gomq_py/content/forms.py" in names
    assert "hot modules are not compiled" in said


def test_without_cython_the_plain_modules_are_installed_with_a_warning(copy):
    (copy / "Cython").mkdir()
    (copy / "Cython" / "__init__.py").write_text("raise ImportError('no Cython here')\n")

    names, said = wheel(copy, PYTHONPATH=str(copy))

    assert compiled(names) == []
    assert "hot modules are not compiled, they will run interpreted and slowly: no Cython here" in said


def test_compilation_can_be_required(copy):
    finished = run(copy, "setup.py", "build_ext", CC="/nowhere/cc", GOMQ_REQUIRE_COMPILED="1")

    assert finished.returncode != 0


@pytest.mark.needs_program("cc")
def test_fault_in_a_hot_module_is_an_error_where_somebody_could_compile_it(copy):
    (copy / "gomq_py" / "content" / "forms.pxd").write_text(
        "cdef class Form:\n    cdef nonsense a, b c\n"
    )

    finished = run(copy, "setup.py", "build_ext", "--inplace")

    assert finished.returncode != 0
    assert "forms.pxd:2" in finished.stdout + finished.stderr


@pytest.mark.needs_program("cc")
def test_what_was_built_from_other_sources_is_built_again_whatever_the_times_of_files_say(copy):
    """Or with other flags. What is left over from a module that is compiled no more goes, because an import
    would take it.
    """
    show = "from gomq_py.content import forms; print(forms.ADDED, forms.__file__)"
    source, left, script = (
        copy / "gomq_py" / "content" / "forms.py", copy / "gomq_py" / f"octets{SUFFIX}",
        copy / "setup.py")
    first = run(copy, "setup.py", "-q", "build_ext", "--inplace")
    built = build_info.compiled_file("gomq_py.content.forms", copy)
    fresh = build_info.stale_modules(copy)
    source.write_text(source.read_text() + "\nADDED = 1\n")
    os.utime(source, (0, 0))
    left.write_bytes(b"")
    stale = build_info.stale_modules(copy), build_info.left_over(copy)

    second = run(copy, "setup.py", "-q", "build_ext", "--inplace")
    os.utime(source)
    third = run(copy, "setup.py", "-q", "build_ext", "--inplace")
    script.write_text(script.read_text().replace('"-O2"', '"-O0"'))
    fourth = run(copy, "setup.py", "-q", "build_ext", "--inplace")

    assert built is not None, first.stderr
    assert (fresh, stale) == ([], (["gomq_py.content.forms"], [left]))
    assert (build_info.stale_modules(copy), build_info.left_over(copy)) == ([], []), second.stderr
    assert run(copy, "-c", show).stdout == f"1 {built}\n"
    forms, shared = "gomq_py.content.forms", "gomq_py.cython_shared"
    assert [
        set(re.findall(r"^compiled \d of \d: (\S+)", said.stdout, re.MULTILINE))
        for said in (first, second, third, fourth)
    ] == [{forms, shared}, {forms}, set(), {forms, shared}]


@pytest.fixture(scope="module")
def source_archive(tmp_path_factory):
    """(path, names in it) of the archive of these sources, where Cython cannot be imported."""
    folder = tmp_path_factory.mktemp("sdist")
    (folder / "Cython").mkdir()
    (folder / "Cython" / "__init__.py").write_text("raise ImportError('no Cython here')\n")
    finished = run(
        ROOT, "setup.py", "-q", "egg_info", "--egg-base", str(folder), "sdist", "--dist-dir", str(folder),
        PYTHONPATH=str(folder), GOMQ_HOME="https://project.example/gomq")
    assert (finished.returncode, "no Cython here" in finished.stderr) == (0, False), finished.stderr
    path, = folder.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        return path, {name.partition("/")[2] for name in archive.getnames()}


def test_source_archive_holds_every_file_of_the_repository_and_nothing_that_was_built(source_archive):
    _, names = source_archive

    assert {str(path.relative_to(ROOT)) for path in tracked_files()} - names == set()
    assert [name for name in names if name.endswith((".so", ".c", ".pyc"))] == []


def test_a_package_index_shows_what_it_is_and_links_that_lead_somewhere(source_archive):
    path, _ = source_archive
    with tarfile.open(path) as archive:
        name = next(name for name in archive.getnames() if name.count("/") == 1 and name.endswith("PKG-INFO"))
        told = Metadata.from_email(archive.extractfile(name).read())
    links = re.findall(r"\]\(([^)]+)\)", told.description)

    checked = run(ROOT, "-m", "twine", "check", "--strict", str(path))

    assert checked.returncode == 0, checked.stdout
    assert (told.home_page, told.author) == ("https://project.example/gomq", "The gomq-py authors")
    assert {"Changelog", "Documentation"} <= set(told.project_urls)
    assert "MQTT" in told.summary and {"mqtt", "amqp"} <= set(told.keywords)
    assert {"Framework :: Pytest", "Typing :: Typed", "Programming Language :: Python :: 3.14"} <= set(
        told.classifiers)
    assert len(links) > 20 and [link for link in links if not link.startswith(("https://", "#"))] == []


def test_commands_of_the_package_exist(copy):
    """Every console script of setup.cfg names a function that can be imported."""
    names, _ = wheel(copy, GOMQ_PURE_PYTHON="1")
    entry_points = next(name for name in names if name.endswith("entry_points.txt"))
    with zipfile.ZipFile(next((copy / "wheels").glob("gomq_py-*.whl"))) as archive:
        declared = configparser.ConfigParser(delimiters="=")
        declared.read_string(archive.read(entry_points).decode())

    assert "gomq-py" in declared["console_scripts"]
    for target in declared["console_scripts"].values():
        module, _, function = target.partition(":")
        assert run(copy, "-c", f"from {module} import {function}").returncode == 0, target


def test_changed_declarations_compile_anew_whoever_cimports_the_module():
    """Cython's own tracker overlooks ``from package cimport module``,
    and a module would keep the offsets and constants of before.
    """
    dependencies = pytest.importorskip("Cython.Build.Dependencies")
    script = runpy.run_path(str(ROOT / "setup.py"))
    original = dependencies.parse_dependencies
    try:
        script["see_modules"]()
        cimports, *_ = dependencies.parse_dependencies(str(ROOT / "gomq_py/storage/segments/segment.pxd"))
    finally:
        dependencies.parse_dependencies = original

    assert {"gomq_py.storage.format.record", "gomq_py.octets"} <= set(cimports)
