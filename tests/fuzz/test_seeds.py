"""The kept inputs of every fuzz target, and the samples the fuzzer begins with:
each still keeps the promise that the target checks.

Needs no fuzzer: ``make fuzz`` finds inputs, this replays them, with the compiled modules, the interpreted
ones and under AddressSanitizer.
"""
import os
from pathlib import Path

import pytest

from tests.fuzz.target import SEEDS, read_seeds
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_what_was_found_once_stays_right(name):
    inputs = [*TARGETS[name].samples(), *read_seeds(name), *found_here(name)]
    assert inputs
    for data in inputs:
        try:
            TARGETS[name].run(data)
        except BaseException as error:
            error.add_note(f"input of the fuzz target {name}: {data!r}")
            raise


def found_here(name):
    """What the fuzzer has found on this machine; ``make asan`` says where."""
    root = os.environ.get("GOMQ_FUZZ_CORPUS")
    return [path.read_bytes() for path in sorted(Path(root, name, "corpus").glob("*"))] if root else []


def test_seeds_belong_to_targets_and_are_few():
    kept = {path.name: path.stat().st_size for path in SEEDS.iterdir()} if SEEDS.exists() else {}

    assert kept.keys() <= TARGETS.keys()
    assert sum(kept.values()) < 600_000
