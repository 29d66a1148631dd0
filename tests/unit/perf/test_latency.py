"""The latency histogram: how far off it is at most, and its percentiles against a sorted list."""
import random
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gomq_py.perf.latency import BUCKETS, LatencyHistogram, lower_bound, summarize


def region():
    return memoryview(array("Q", bytes(8 * BUCKETS)))


def counted(values):
    counts = region()
    histogram = LatencyHistogram(counts)
    for value in values:
        histogram.add(value)
    return counts


@given(st.integers(0, 2**45 - 1))
def test_a_value_falls_into_the_bucket_that_begins_at_most_a_64th_below_it(value):
    counts = counted([value])
    index = list(counts).index(1)

    assert lower_bound(index) <= value <= lower_bound(index) * (1 + 1 / 64) + 1


@pytest.mark.parametrize("value", [2**45, 2**50, 2**63, 2**64 - 1])
def test_a_value_beyond_all_buckets_stays_in_the_region(value):
    assert sum(counted([value])) == 1


def test_nothing_counted_is_a_count_of_zero():
    assert summarize([region(), region()]) == {"count": 0}


def test_percentiles_over_several_regions_are_those_of_all_values():
    chance = random.Random(1)
    values = [int(chance.expovariate(1 / 200_000)) for _ in range(20000)]

    summary = summarize([counted(values[:5000]), counted(values[5000:])])

    values.sort()
    assert summary["count"] == 20000
    for name, share in (("median", 0.5), ("p75", 0.75), ("p95", 0.95), ("p99", 0.99)):
        assert summary[name] == pytest.approx(values[int(share * 20000) - 1] / 1e6, rel=0.02)
    assert summary["min"] == pytest.approx(values[0] / 1e6, rel=0.02)
    assert summary["max"] == pytest.approx(values[19999] / 1e6, rel=0.02)


def test_one_value_is_every_percentile():
    summary = summarize([counted([1_000_000])])

    assert {summary[name] for name in ("min", "median", "p75", "p95", "p99", "max")} == {
        lower_bound(list(counted([1_000_000])).index(1)) / 1e6
    }
