"""Running: seeds, each in a forked child, so that every one begins with the same memory; and mutants."""
import argparse
import os
import sys
import traceback
from functools import partial

from tests.node_simulation.mutants import MUTANTS
from tests.node_simulation.scenario import Scenario
from tests.node_simulation.steering import steer
from tests.simulation.children import in_children
from tests.simulation.running import get_ready, lived, seeds_of


def run_all(arguments):
    """Run the seeds of the command. Returns the exit code."""
    parser = argparse.ArgumentParser("python -m tests.node_simulation")
    parser.add_argument("seeds", nargs="+", help="7 is one seed, 1-100 are a hundred")
    parser.add_argument("--mutant", choices=[*MUTANTS, "all"], help="put this fault into the nodes")
    parser.add_argument("--faults", type=int, help="so many at most")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    asked = parser.parse_args(arguments)
    seeds = [seed for argument in asked.seeds for seed in seeds_of(argument)]
    get_ready()
    if asked.mutant == "all":
        return find_mutants(seeds, asked.jobs)
    if asked.mutant:
        MUTANTS[asked.mutant]()
    out = sys.stdout if len(seeds) == 1 else None
    failed, promised, struck = 0, 0, {}
    for seed, result in in_children(asked.jobs, partial(judge, asked.faults, out), seeds):
        result = result or died(seed)
        print(result["text"], flush=True)
        failed += result["failed"]
        promised += result["promised"]
        for name, count in result["faults"].items():
            struck[name] = struck.get(name, 0) + count
        if failed and asked.mutant:
            break
    if len(seeds) > 1:
        print(", ".join(f"{name} {count}" for name, count in sorted(struck.items())))
        print(f"{len(seeds)} seeds, {failed} failed, {promised} confirmed")
    return 1 if failed else 0


def find_mutants(seeds, jobs):
    """Each in a child of its own, until a seed finds it. Returns the exit code: 0 if all were found."""
    missed = 0
    for mutant, found in in_children(jobs, partial(find, seeds), MUTANTS, limit_s=0):
        missed += not found
        print(f"{mutant:<42}{found or 'NOT FOUND'}", flush=True)
    print(f"{len(MUTANTS) - missed} of {len(MUTANTS)} found")
    return 1 if missed else 0


def find(seeds, mutant):
    """What the first seed that fails says, or ""."""
    MUTANTS[mutant]()
    for took, (seed, result) in enumerate(in_children(1, partial(judge, None, None), seeds), 1):
        result = result or died(seed)
        if result["failed"]:
            return f"{took:5}  {result['text'].splitlines()[1].strip()}"
    return ""


def judge(faults, out, seed):
    """Run it here, in a child."""
    try:
        return run_here(faults, out, seed)
    except BaseException:
        return died(seed, traceback.format_exc())


def died(seed, text="its process died"):
    """As judge(), of one that did not come to its end."""
    return {"text": f"seed {seed}: FAILED\n    {text}", "failed": True, "promised": 0, "faults": {}}


def run_here(faults, out, seed):
    """As judge()."""
    scenario, begin, end = lived(seed, partial(Scenario, seed, out=out, faults=faults), steer)
    world, promised = scenario.world, scenario.judge.confirmed_count
    text = (
        f"{begin}, {world.counts['boots']} boots, {world.counts['power cuts']} power cuts, "
        f"{scenario.judge.opened_count} leaders, {promised} confirmed, {end}")
    return {"text": "\n    ".join([text, *world.findings[:3]]), "failed": bool(world.findings),
            "promised": promised, "faults": dict(world.faults)}
