"""Seeds of the cluster's simulation: nothing that was promised is lost, and each known fault is found.

By hand: ``make simulate-cluster`` (docs/contributing/simulation.md).
"""
import pytest

from tests.cluster_simulation.faults import FAULTS
from tests.cluster_simulation.mutants import MUTANTS
from tests.cluster_simulation.running import find, judge
from tests.cluster_simulation.scenario import Scenario

# Seeds of one test, which takes some 7 s of CPU; there are eight.
BLOCK = 250
# Seeds by which a mutant must be found. Most are among the first hundred.
MUTANT_SEEDS = range(1, 2001)


@pytest.mark.parametrize("first", range(1, 2001, BLOCK))
def test_seeds_lose_nothing_that_was_promised(first):
    results = [judge(seed) for seed in range(first, first + BLOCK)]

    assert [(seed, faults) for seed, faults, *_ in results if faults] == []
    assert {name for *_, counts in results for name in counts} == set(FAULTS)
    assert sum(promised for _, _, promised, *_ in results) > 50 * BLOCK
    assert sum(opened for _, _, _, opened, _ in results) > 2 * BLOCK


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_known_fault_is_found(mutant):
    assert find(mutant, MUTANT_SEEDS)[2]


def test_one_seed_has_one_trace():
    traces = []
    for _ in range(2):
        lines = []
        Scenario(7, lines.append).run_all()
        traces.append(lines)

    assert traces[0] == traces[1] and len(traces[0]) > 100
