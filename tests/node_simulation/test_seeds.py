"""Seeds of the simulation of three whole nodes, in processes of their own: no confirmed message is lost, one
seed is one trace, and known faults are found. By hand: ``make simulate-nodes``.
"""
import os
import re
import subprocess
import sys

import pytest

from tests.support.waiting import in_time

LINE = re.compile(r"seed (\d+): (ok|FAILED), trace ([0-9a-f]{16}), .*? (\d+) leaders, (\d+) confirmed")
SEEDS = [str(seed) for seed in range(1, 17)]
# Each is found by the first seeds, and this is what they say.
LACKS, DELIVERS = "may lead without", "delivers"
SOON_FOUND = {
    "acknowledged_when_received": LACKS, "flushed_when_applied": LACKS, "promises_do_not_wait": LACKS,
    "sync_swapped_before_its_flush": LACKS, "gate_not_shut": DELIVERS}


def simulate(*arguments, **environment):
    """What the command prints, and its exit code."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.node_simulation", *arguments], capture_output=True, text=True,
        env={**os.environ, **environment}, timeout=in_time(120), check=False)
    assert not done.stderr, done.stderr
    return done.stdout, done.returncode


@pytest.fixture(scope="module")
def output():
    """Of some seeds."""
    return simulate(*SEEDS)[0]


def test_seeds_lose_nothing_that_was_confirmed(output):
    found = LINE.findall(output)

    assert {(seed, how) for seed, how, *_ in found} == {(seed, "ok") for seed in SEEDS}, output
    assert sum(int(leaders) for *_, leaders, _ in found) > 2 * len(SEEDS)
    assert sum(int(confirmed) for *_, confirmed in found) > 50 * len(SEEDS)


def test_one_seed_has_one_trace_whatever_ran_before_and_wherever(output):
    """Another order of seeds, a larger environment, another seed of hashes, and the other twin."""
    twin = "" if os.environ.get("GOMQ_PURE_PYTHON", "1") else "1"
    again, _ = simulate(
        "5", "1", "--jobs", "1", SURROUNDINGS="x" * 3000, PYTHONHASHSEED="7", GOMQ_PURE_PYTHON=twin)

    traces = {seed: trace for seed, _, trace, *_ in LINE.findall(output)}
    assert {seed: trace for seed, _, trace, *_ in LINE.findall(again)} == {
        seed: traces[seed] for seed in ("5", "1")}


@pytest.mark.parametrize("mutant", SOON_FOUND)
def test_a_known_fault_is_found(mutant):
    printed, code = simulate("1-20", "--mutant", mutant, "--jobs", "1")

    assert code == 1 and SOON_FOUND[mutant] in printed, printed
