"""What a compiled module was built from, and what a session of tests does about one that is stale."""
import os
from importlib.machinery import EXTENSION_SUFFIXES

import pytest

from gomq_py import build_info
from tests.support.built import refuse_stale
from tests.unit.source_tree import ROOT, imports

SUFFIX = EXTENSION_SUFFIXES[0]
SOURCES = {
    "gomq_py/__init__.pxd": "",
    "gomq_py/__init__.py": "",
    "gomq_py/hot.py": "COUNT = 1\n",
    "gomq_py/hot.pxd": "from gomq_py cimport octets\nfrom gomq_py.leaf cimport Leaf\n",
    "gomq_py/leaf.py": "class Leaf: pass\n",
    "gomq_py/leaf.pxd": "cdef class Leaf:\n    pass\n",
    "gomq_py/octets.py": "",
    "gomq_py/octets.pxd": "# inline C\n",
    "gomq_py/plain.py": "",
}


@pytest.fixture
def tree(tmp_path):
    """A package of two hot modules, both compiled from the sources that are there."""
    for name, text in SOURCES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    for name in build_info.hot_modules(tmp_path):
        module = tmp_path.joinpath(*name.split("."))
        digest = bytes.fromhex(build_info.digest_of(name, tmp_path))
        module.with_name(module.name + SUFFIX).write_bytes(b"\x7fELF" + digest + b"code")
    tmp_path.joinpath(*build_info.SHARED.split(".")).with_suffix(SUFFIX).write_bytes(b"\x7fELF")
    return tmp_path


@pytest.fixture
def compiled_wanted(monkeypatch):
    monkeypatch.delenv("GOMQ_PURE_PYTHON", raising=False)


def test_hot_modules_are_those_with_types_beside_them(tree):
    assert build_info.hot_modules(tree) == ["gomq_py.hot", "gomq_py.leaf"]


def test_what_was_built_from_these_sources_is_not_stale(tree, compiled_wanted):
    refuse_stale(tree)

    assert (build_info.stale_modules(tree), build_info.left_over(tree)) == ([], [])


@pytest.mark.parametrize("changed, stale", [
    ("gomq_py/hot.py", ["gomq_py.hot"]),
    ("gomq_py/hot.pxd", ["gomq_py.hot"]),
    ("gomq_py/leaf.py", ["gomq_py.leaf"]),
    ("gomq_py/leaf.pxd", ["gomq_py.hot", "gomq_py.leaf"]),
    ("gomq_py/octets.pxd", ["gomq_py.hot"]),
    ("gomq_py/plain.py", []),
])
def test_a_changed_source_makes_stale_whoever_was_built_from_it(tree, changed, stale):
    (tree / changed).write_text("# changed\n" + SOURCES[changed])

    assert build_info.stale_modules(tree) == stale


def test_times_of_files_decide_nothing(tree):
    for name in SOURCES:
        os.utime(tree / name)
    unchanged = build_info.stale_modules(tree)
    (tree / "gomq_py/hot.py").write_text("COUNT = 2\n")
    os.utime(tree / "gomq_py/hot.py", (0, 0))

    assert (unchanged, build_info.stale_modules(tree)) == ([], ["gomq_py.hot"])


def test_session_on_stale_modules_is_refused_with_the_command_that_compiles(tree, compiled_wanted):
    (tree / "gomq_py/hot.py").write_text("COUNT = 2\n")

    with pytest.raises(pytest.UsageError, match=r"sources than these: gomq_py\.hot\. Compile .* make build"):
        refuse_stale(tree)


def test_a_module_compiled_no_more_is_left_over_and_refused(tree, compiled_wanted):
    """Its compiled twin would be imported instead of the source."""
    (tree / "gomq_py/leaf.pxd").unlink()
    (tree / "gomq_py/hot.pxd").write_text("")

    with pytest.raises(pytest.UsageError, match=r"not among what is compiled any more: gomq_py/leaf\."):
        refuse_stale(tree)


def test_another_pythons_modules_are_left_alone(tree):
    (tree / "gomq_py" / "gone.cpython-399-x86_64-linux-gnu.so").write_bytes(b"")

    assert build_info.left_over(tree) == []


def test_interpreted_session_does_not_care(tree, monkeypatch):
    monkeypatch.setenv("GOMQ_PURE_PYTHON", "1")
    (tree / "gomq_py/hot.py").write_text("COUNT = 2\n")

    refuse_stale(tree)


def test_sources_of_a_module_are_all_that_it_cimports():
    """Held against another reader of the declarations, followed from each module on."""
    for name in build_info.hot_modules():
        path = ROOT.joinpath(*name.split(".")).with_suffix(".pxd")
        expected, left = set(), [path]
        while left:
            declarations = left.pop()
            if declarations not in expected:
                expected.add(declarations)
                targets = (ROOT.joinpath(*target.split(".")) for target in imports(declarations))
                left += [path for target in targets if (path := target.with_suffix(".pxd")).exists()]

        found = {path for path in build_info.sources_of(name) if path.suffix == ".pxd"}

        assert {path for path in found if path.stem != "__init__"} == expected, name


def test_description_names_what_is_stale(tree, monkeypatch):
    monkeypatch.setattr(build_info, "stale_modules", lambda: ["gomq_py.hot"])

    assert "but from other sources than these: gomq_py.hot" in build_info.describe()
