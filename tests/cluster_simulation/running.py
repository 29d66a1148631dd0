"""Running: one seed with its trace, or many on all processors."""
import argparse
import os
import time
from concurrent.futures import ProcessPoolExecutor

from tests.cluster_simulation.scenario import Scenario


def judge(seed):
    """(seed, faults, promised records, doors opened, counts of faults that struck)."""
    scenario = Scenario(seed)
    faults = scenario.run_all()
    return seed, faults, len(scenario.judge.confirmed), scenario.judge.opened_count, scenario.counts


def main(arguments):
    """Exit code 0: nothing was found."""
    parser = argparse.ArgumentParser(prog="tests.cluster_simulation")
    parser.add_argument("seeds")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    asked = parser.parse_args(arguments)
    first, _, last = asked.seeds.partition("-")
    if not last:
        scenario = Scenario(int(first), print)
        faults = scenario.run_all()
        print("\n".join(faults) or "ok", len(scenario.judge.confirmed), "promised")
        return bool(faults)
    began_s, promised, opened, failed = time.monotonic(), 0, 0, 0
    with ProcessPoolExecutor(asked.jobs) as pool:
        for seed, faults, confirmed, doors, _ in pool.map(
                judge, range(int(first), int(last) + 1), chunksize=8):
            promised, opened, failed = promised + confirmed, opened + doors, failed + bool(faults)
            if faults:
                print(f"seed {seed}: {faults[0][:400]}", flush=True)
    print(f"{failed} failed, {promised} promised, doors opened {opened} times, "
          f"{time.monotonic() - began_s:.1f} s")
    return bool(failed)
