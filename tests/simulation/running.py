"""Running: seeds, each in a forked child, so that every one begins with the same memory; what is said of
them; and how one that fails is made small.
"""
import argparse
import contextlib
import gc
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

from tests.simulation.clock import CLOCK
from tests.simulation.mutants import MUTANTS
from tests.simulation.scenario import STORM_S, Reduction, Scenario
from tests.simulation.steering import import_http, steer
from tests.simulation.world import FOLDER_PREFIX

# In memory where that is possible: the disk is modelled.
FOLDER = "/dev/shm" if os.path.isdir("/dev/shm") else None
# What a failing seed is tried with, to make it small.
STORMS_S = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
FEW = (0, 1, 2, 3, 5, 8, 13, 21)


def run_all(arguments):
    """Run the seeds of the command. Returns the exit code."""
    asked = command().parse_args(arguments)
    reduction = Reduction(frozenset(asked.without.split(",")) - {""}, asked.faults, asked.storm)
    if asked.mutant == "all":
        return run_mutants(asked.seeds)
    if asked.mutant:
        MUTANTS[asked.mutant]()
    seeds = [seed for argument in asked.seeds for seed in seeds_of(argument)]
    import_http()
    gc.collect()
    gc.freeze()
    failed = []
    for seed in seeds:
        result = run_apart(seed, reduction, sys.stdout if len(seeds) == 1 else None)
        print(result.pop("text"), flush=True)
        if result["kind"]:
            failed.append((seed, result))
            if asked.mutant:
                break
    for seed, result in failed:
        smaller = reduction
        if asked.shrink and reduction == Reduction():
            smaller = shrink(seed, result)
        mutant = f" --mutant {asked.mutant}" if asked.mutant else ""
        print(f"failed: python -m tests.simulation {seed}{smaller}{mutant}", flush=True)
    return 1 if failed else 0


def run_mutants(seeds):
    """Each in a process of its own, until a seed finds it. Returns the exit code: 0 if all were found."""
    codes = []
    for mutant in MUTANTS:
        print(f"{mutant}:", flush=True)
        codes.append(subprocess.run(
            [sys.executable, "-m", "tests.simulation", "--no-shrink", "--mutant", mutant, *seeds],
            check=False).returncode)
    return 1 if 0 in codes else 0


def command():
    """What the command takes."""
    parser = argparse.ArgumentParser("python -m tests.simulation")
    parser.add_argument("seeds", nargs="+", help="7 is one seed, 1-100 are a hundred")
    parser.add_argument("--mutant", choices=[*MUTANTS, "all"], help="put this fault into the broker")
    parser.add_argument("--without", default="", help="parts of the seeds that are left out: kill,q1")
    parser.add_argument("--faults", type=int, help="so many at most")
    parser.add_argument("--storm", type=float, default=STORM_S, help="for so many virtual seconds")
    parser.add_argument("--no-shrink", dest="shrink", action="store_false")
    return parser


def seeds_of(argument):
    """7 is one seed, 1-100 are a hundred."""
    first, _, last = argument.partition("-")
    return range(int(first), int(last or first) + 1)


def shrink(seed, result):
    """Leave out of a seed what it does not need to fail in the same way. Returns the Reduction."""
    reduction = Reduction()

    def fails(smaller):
        nonlocal reduction
        is_same = run_apart(seed, smaller)["kind"] == result["kind"]
        if is_same:
            reduction = smaller
        return is_same

    for storm_s in STORMS_S:
        if fails(reduction._replace(storm_s=storm_s)):
            break
    for part in result["parts"]:
        fails(reduction._replace(without=reduction.without | {part}))
    for faults in FEW:
        if faults >= result["faults"] or fails(reduction._replace(faults=faults)):
            break
    return reduction


def run_apart(seed, reduction, out=None):
    """Run it in a child. Returns ``text``, what is to be said of it; ``kind``, which tells findings apart,
    empty if there is none; ``parts`` and ``faults``, which make it.
    """
    sys.stdout.flush()
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        try:
            result = run_here(seed, reduction, out)
        except BaseException as error:
            text = traceback.format_exc()
            result = {"text": f"seed {seed}: FAILED\n{text}", "kind": repr(error), "parts": [], "faults": 0}
        sys.stdout.flush()
        with os.fdopen(writes, "w") as pipe:
            json.dump(result, pipe)
        os._exit(0)  # nothing of the processes that were killed may come to its end
    os.close(writes)
    with os.fdopen(reads) as pipe:
        result = json.loads(pipe.read() or '{"text": "", "kind": "died", "parts": [], "faults": 0}')
    os.waitpid(child, 0)
    return result


def run_here(seed, reduction, out):
    """As run_apart."""
    gc.disable()  # when it collects depends on what ran before
    began_s = time.process_time()
    with folder() as path:
        scenario = Scenario(seed, path, reduction, out)
        steer(scenario.world)
        scenario.run()
    world = scenario.world
    text = (
        f"seed {seed}: {'FAILED' if world.findings else 'ok'}, trace {world.trace.digest()}, "
        f"{CLOCK.now_s:.1f} virtual s, {world.events} events, {scenario.faults} faults, "
        f"{len(scenario.machine.processes)} boots, {exercised(scenario)}, "
        f"{time.process_time() - began_s:.2f} s of CPU")
    first = world.findings[0].split(": ", 1)[1] if world.findings else ""
    return {"text": "\n    ".join([text, *world.findings]), "kind": re.sub("[^a-zA-Z ]+", "", first),
            "parts": scenario.parts, "faults": scenario.faults}


def exercised(scenario):
    """How often each promise could have been broken."""
    counts = sum((ledger.exercised for ledger in scenario.ledgers), scenario.exercised)
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))


@contextlib.contextmanager
def folder():
    """A folder for the machines' disks."""
    path = tempfile.mkdtemp(dir=FOLDER, prefix=FOLDER_PREFIX)
    try:
        yield path
    finally:
        shutil.rmtree(path)
