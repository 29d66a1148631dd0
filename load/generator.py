"""``gomq-py-perf`` with p99.9 among its latencies (``latency_p999_ms`` and ``confirm_latency_p999_ms``)."""
import sys
from bisect import bisect_left
from itertools import accumulate

from gomq_py.perf import cli, load, walk


def summarize(regions):
    """``walk.summarize`` of some histograms, and "p999"."""
    summary = walk.summarize(regions)
    if summary["count"]:
        seen = list(accumulate(map(sum, zip(*regions, strict=True))))
        summary["p999"] = walk.lower_bound(bisect_left(seen, 0.999 * summary["count"])) / 1e6
    return summary


if __name__ == "__main__":
    load.summarize = summarize
    sys.exit(cli.main())
