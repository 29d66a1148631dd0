"""Refuses a session of tests on compiled modules that are not what the sources beside them say."""
import os

import pytest

from gomq_py import build_info

COMMAND = "make build (or python setup.py build_ext --inplace)"


def refuse_stale(root=build_info.ROOT):
    """UsageError where a compiled module was built from other sources, or is left over from one that is
    compiled no more: the old ones would answer. Interpreted, nothing compiled is imported.
    """
    if os.environ.get("GOMQ_PURE_PYTHON", "") not in ("", "0"):
        return
    said = []
    if stale := build_info.stale_modules(root):
        said.append(f"compiled from other sources than these: {', '.join(stale)}")
    if left := build_info.left_over(root):
        paths = ", ".join(str(path.relative_to(root)) for path in left)
        said.append(f"compiled, but not among what is compiled any more: {paths}")
    if said:
        advice = f"Compile what changed with: {COMMAND}. Or test the plain modules: GOMQ_PURE_PYTHON=1"
        raise pytest.UsageError(f"{'; '.join(said)}. {advice}")
