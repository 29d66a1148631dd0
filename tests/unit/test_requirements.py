"""What setup.cfg asks for has upper bounds, and CI's constraints name a version of each within them."""
import configparser
import sys
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.unit.source_tree import PACKAGE, ROOT, imports, sources

# Extras that CI does not install: each needs what only some have.
ELSEWHERE = {"fuzz", "load"}


def requirements():
    """{extra, or None: [Requirement]} of setup.cfg."""
    declared = configparser.ConfigParser()
    declared.read(ROOT / "setup.cfg")
    groups = {None: declared["options"]["install_requires"], **declared["options.extras_require"]}
    return {group: [Requirement(line) for line in text.split("\n") if line] for group, text in groups.items()}


def constraints():
    """{name: version} of CI."""
    lines = (ROOT / ".ci" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in pairs}


def test_every_requirement_has_an_upper_bound():
    every = [requirement for group in requirements().values() for requirement in group]

    assert [str(each) for each in every if not any(bound.operator == "<" for bound in each.specifier)] == []


def test_constraints_name_a_version_of_each_within_its_bounds():
    installed = [each for extra, group in requirements().items() if extra not in ELSEWHERE for each in group]
    pinned = constraints()

    assert [each.name for each in installed if canonicalize_name(each.name) not in pinned] == []
    versions = {each: pinned[canonicalize_name(each.name)] for each in installed}
    assert [str(each) for each, version in versions.items() if version not in each.specifier] == []


def test_what_compiles_is_said_alike_for_pip_and_for_make():
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]

    assert {str(Requirement(line)) for line in build} == {str(each) for each in requirements()["compile"]}


def test_a_plain_install_has_what_extras_of_its_parts_name():
    """But for LZ4, which a cluster may do without."""
    asked = requirements()
    parts = {str(each) for extra in ("management", "ctl", "cluster") for each in asked[extra]}

    assert {Requirement(each).name for each in parts - set(map(str, asked[None]))} == {"lz4"}


@pytest.mark.parametrize("part, extra", [("http", "management"), ("ctl", "ctl"), ("cluster", "cluster")])
def test_an_extra_names_what_its_part_imports(part, extra):
    """Flask brings werkzeug; without gevent there is no broker."""
    roots = {
        name.partition(".")[0] for path in sources() if path.is_relative_to(PACKAGE / part)
        for name in imports(path)
    }

    assert roots - set(sys.stdlib_module_names) - {"gomq_py", "gevent", "werkzeug"} == {
        each.name.replace("-", "_") for each in requirements()[extra]}
