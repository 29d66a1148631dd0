"""Rounds of faults over a real cluster: nothing that was confirmed is lost, order is kept, QoS 2 comes once,
and within 30 s all nodes stream again, those that were removed often too; these wait to be admitted.

``make cluster-rounds SEEDS=1-300``, or one seed alone.
"""
import os

import pytest

from tests.cluster_rounds import rounds

SEEDS = rounds.seeds(os.environ.get("GOMQ_CLUSTER_ROUNDS") or "1-20")


@pytest.mark.long
@pytest.mark.needs_program("etcd")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "chosen", rounds.groups(SEEDS), ids=lambda chosen: f"seeds-{chosen[0]}-{chosen[-1]}")
def test_nothing_promised_is_lost(tmp_path, chosen):
    cluster = rounds.run(tmp_path, chosen)
    print("\n".join([*cluster.log, cluster.summary()]))
