"""Seeds of the cluster's simulation: nothing that was promised is lost, and each known fault is found.

By hand: ``make simulate-cluster`` (docs/contributing/simulation.md).
"""
import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import pytest

from tests.cluster_simulation.faults import FAULTS
from tests.cluster_simulation.mutants import MUTANTS
from tests.cluster_simulation.running import CHUNK, find, judge
from tests.cluster_simulation.scenario import Scenario

SEEDS = range(1, 2001)
# Seeds by which a mutant must be found.
MUTANT_SEEDS = range(1, 1501)


@pytest.fixture(scope="module")
def pool():
    """A process for each processor."""
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        yield pool


def test_seeds_lose_nothing_that_was_promised(pool):
    results = list(pool.map(judge, SEEDS, chunksize=CHUNK))

    assert [(seed, faults) for seed, faults, *_ in results if faults] == []
    assert {name for *_, counts in results for name in counts} == set(FAULTS)
    assert sum(promised for _, _, promised, *_ in results) > 50 * len(SEEDS)
    assert sum(opened for _, _, _, opened, _ in results) > 2 * len(SEEDS)


def test_known_faults_are_found(pool):
    found = pool.map(partial(find, seeds=MUTANT_SEEDS), MUTANTS)

    assert [mutant for mutant, _, finding in found if not finding] == []


def test_one_seed_has_one_trace():
    traces = []
    for _ in range(2):
        lines = []
        Scenario(7, lines.append).run_all()
        traces.append(lines)

    assert traces[0] == traces[1] and len(traces[0]) > 100
