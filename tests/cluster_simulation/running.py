"""Running: one seed with its trace, many on all processors, or mutants until a seed finds each."""
import argparse
import os
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial

from tests.cluster_simulation.mutants import MUTANTS
from tests.cluster_simulation.scenario import Scenario

CHUNK = 10


def judge(seed, mutant=None):
    """(seed, faults, promised records, doors opened, counts of faults that struck)."""
    scenario = Scenario(seed)
    with switched_on(mutant):
        faults = scenario.run_all()
    return seed, faults, len(scenario.judge.confirmed), scenario.judge.opened_count, scenario.counts


@contextmanager
def switched_on(mutant):
    """A context in which a mutant is switched on."""
    undo = []

    def patch(owner, name, value):
        undo.append((owner, name, vars(owner)[name]))
        setattr(owner, name, value)

    try:
        if mutant is not None:
            MUTANTS[mutant](patch)
        yield
    finally:
        for owner, name, value in reversed(undo):
            setattr(owner, name, value)


def find(mutant, seeds):
    """(mutant, seeds tried, what was found); nothing was found: an empty text."""
    for count, seed in enumerate(seeds, 1):
        faults = judge(seed, mutant)[1]
        if faults:
            return mutant, count, f"seed {seed}: {faults[0]}"
    return mutant, len(seeds), ""


def main(arguments):
    """Exit code 0: nothing was found; of mutants: each was."""
    parser = argparse.ArgumentParser(prog="tests.cluster_simulation", description=__doc__)
    parser.add_argument("seeds", help="SEED or FIRST-LAST")
    parser.add_argument("--mutant", choices=[*MUTANTS, "all"])
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    asked = parser.parse_args(arguments)
    first, _, last = asked.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    if asked.mutant == "all":
        return run_mutants(seeds, asked.jobs)
    if len(seeds) > 1:
        return run_many(seeds, asked.mutant, asked.jobs)
    scenario = Scenario(seeds[0], partial(print, flush=True))
    with switched_on(asked.mutant):
        faults = scenario.run_all()
    print("\n".join(faults) or f"ok, {len(scenario.judge.confirmed)} promised")
    return bool(faults)


def run_many(seeds, mutant, jobs):
    """Run the seeds. Returns the exit code."""
    began_s, promised, opened, failed, struck = time.monotonic(), 0, 0, 0, {}
    with ProcessPoolExecutor(jobs) as pool:
        for seed, faults, confirmed, doors, counts in pool.map(
                partial(judge, mutant=mutant), seeds, chunksize=CHUNK):
            promised, opened, failed = promised + confirmed, opened + doors, failed + bool(faults)
            for name, count in counts.items():
                struck[name] = struck.get(name, 0) + count
            if faults:
                print(f"seed {seed}: {faults[0][:500]}", flush=True)
    print(", ".join(f"{name} {count}" for name, count in sorted(struck.items())))
    print(f"{len(seeds)} seeds, {failed} failed; {promised} records promised, doors opened {opened} times, "
          f"{time.monotonic() - began_s:.1f} s")
    return bool(failed)


def run_mutants(seeds, jobs):
    """Run each mutant until a seed finds it. Returns the exit code."""
    missed = 0
    with ProcessPoolExecutor(jobs) as pool:
        for mutant, count, found in pool.map(partial(find, seeds=seeds), MUTANTS):
            missed += not found
            print(f"{mutant:<42}{count:>6}  {found[:160] or 'NOT FOUND'}", flush=True)
    print(f"{len(MUTANTS) - missed} of {len(MUTANTS)} found")
    return bool(missed)
