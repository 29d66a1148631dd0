"""Some rounds of faults; ``make cluster-rounds SEEDS=1-300`` plays more."""
import pytest

from tests.cluster_nodes.rounds import Round

SEEDS = range(1, 5)


@pytest.mark.parametrize("seed", SEEDS)
def test_round_loses_nothing_and_heals(tmp_path, seed):
    Round(tmp_path, seed).play()
