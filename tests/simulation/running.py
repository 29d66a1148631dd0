"""Running: seeds, each in a forked child, so that every one begins with the same memory; what is said of
them; and how one that fails is made small. Mutants and twins are run here, too.
"""
import argparse
import contextlib
import gc
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from functools import partial

from gomq_py.build_info import compiled_file, hot_modules, stale_modules
from tests.simulation.children import in_children
from tests.simulation.clock import CLOCK
from tests.simulation.figures import MANY, Figures, listed, of_seed
from tests.simulation.mutants import MUTANTS, ONLY
from tests.simulation.scenario import STORM_S, Reduction, Scenario
from tests.simulation.steering import import_late, steer
from tests.simulation.world import FOLDER_PREFIX

# In memory where that is possible: the disk is modelled.
FOLDER = "/dev/shm" if os.path.isdir("/dev/shm") else None
# What a failing seed is tried with, to make it small.
STORMS_S = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
FEW = (0, 1, 2, 3, 5, 8, 13, 21)
COMMAND = sys.executable, "-m", "tests.simulation"
TRACE = re.compile("^seed ([0-9]+): [a-zA-Z]+, trace ([0-9a-f]+),", re.MULTILINE)


def run_all(arguments):
    """Run the seeds of the command. Returns the exit code."""
    asked = command().parse_args(arguments)
    seeds = [seed for argument in asked.seeds for seed in seeds_of(argument)]
    jobs = asked.jobs or len(os.sched_getaffinity(0))
    if asked.twins:
        return compare(asked.seeds, jobs)
    if asked.mutant == "all":
        return find_mutants(seeds, jobs)
    whole = Reduction(only=parts_of(asked.only) or ONLY.get(asked.mutant, frozenset()))
    reduction = whole._replace(without=parts_of(asked.without), faults=asked.faults, storm_s=asked.storm)
    if asked.mutant:
        MUTANTS[asked.mutant]()
        jobs = asked.jobs or 1  # or the first that finds it would be another one each time
    get_ready()
    run, figures, failed = partial(judge, reduction, sys.stdout if len(seeds) == 1 else None), Figures(), []
    for seed, result in in_children(jobs, run, seeds):
        result = result or died(seed)
        print(result["text"], flush=True)
        figures.add(result["figures"])
        if result["kind"]:
            failed.append((seed, result))
            if asked.mutant:
                break
    for seed, result in failed:
        smaller = shrink(seed, result, whole) if asked.shrink and reduction == whole else reduction
        mutant = f" --mutant {asked.mutant}" if asked.mutant else ""
        print(f"failed: python -m tests.simulation {seed}{smaller}{mutant}", flush=True)
    if len(seeds) > 1 and not asked.mutant:
        print(figures)
    is_plain = reduction == Reduction() and not asked.mutant
    if asked.write or is_plain and len(seeds) >= 10 * MANY:
        figures.write()
    return 1 if failed or is_plain and figures.is_lacking() else 0


def get_ready():
    """What all children have in common."""
    import_late()
    gc.collect()
    gc.freeze()


def find_mutants(seeds, jobs):
    """Each in a child of its own, until a seed finds it. Returns the exit code: 0 if all were found."""
    print(f"{'mutant':<52}{'seed':>5}{'after':>7}  finding")
    missed = 0
    for mutant, found in in_children(jobs, partial(find_mutant, seeds), MUTANTS, limit_s=0):
        missed += not found
        print(f"{mutant:<52}" + ("{:5}{:7}  {}".format(*found) if found else "  NOT FOUND"), flush=True)
    print(f"{len(MUTANTS) - missed} of {len(MUTANTS)} found")
    return 1 if missed else 0


def find_mutant(seeds, mutant):
    """(seed that finds it, how many it took, the finding), or nothing."""
    MUTANTS[mutant]()
    get_ready()
    reduction = Reduction(only=ONLY.get(mutant, frozenset()))
    for took, (seed, result) in enumerate(in_children(1, partial(judge, reduction, None), seeds), 1):
        result = result or died(seed)
        if result["kind"]:
            return seed, took, result["text"].split("\n")[1].strip()
    return ()


def compare(seeds, jobs):
    """Run them interpreted and compiled. Returns the exit code: 0 if each has one trace."""
    if unbuilt := [name for name in hot_modules() if compiled_file(name) is None] + stale_modules():
        sys.exit(f"not compiled, or not anew: {', '.join(unbuilt)}. Run make build")
    twins = []
    for is_pure in ("1", ""):
        output = tempfile.TemporaryFile("w+")
        twins.append((output, subprocess.Popen(
            [*COMMAND, "--no-shrink", "--jobs", str(max(1, jobs // 2)), *seeds], stdout=output,
            env={**os.environ, "GOMQ_PURE_PYTHON": is_pure})))
    traces = []
    for output, process in twins:
        process.wait()
        output.seek(0)
        with output:
            traces.append(dict(TRACE.findall(output.read())))
    interpreted, compiled = traces
    differ = [seed for seed in {**interpreted, **compiled} if interpreted.get(seed) != compiled.get(seed)]
    for seed in differ:
        print(f"two traces: GOMQ_PURE_PYTHON= python -m tests.simulation {seed}")
    print(f"{len(interpreted)} seeds, {len(differ)} with two traces")
    return 1 if differ or not interpreted else 0


def command():
    """What the command takes."""
    parser = argparse.ArgumentParser("python -m tests.simulation")
    parser.add_argument("seeds", nargs="+", help="7 is one seed, 1-100 are a hundred")
    parser.add_argument(
        "--mutant", metavar="NAME", choices=[*MUTANTS, "all"], help="put this fault into the broker")
    parser.add_argument("--without", default="", help="parts of the seeds that are left out: kill,q1")
    parser.add_argument("--only", default="", help="parts that the seeds consist of, drawn or not: f0,kill")
    parser.add_argument("--faults", type=int, help="so many at most")
    parser.add_argument("--storm", type=float, default=STORM_S, help="for so many virtual seconds")
    parser.add_argument("--jobs", type=int, default=0, help="seeds at a time; one for each processor")
    parser.add_argument("--twins", action="store_true", help="compare interpreted and compiled modules")
    parser.add_argument("--write", action="store_true", help="put the figures into docs/promises.md")
    parser.add_argument("--no-shrink", dest="shrink", action="store_false")
    return parser


def parts_of(argument):
    """Names with commas between them."""
    return frozenset(argument.split(",")) - {""}


def seeds_of(argument):
    """7 is one seed, 1-100 are a hundred."""
    first, _, last = argument.partition("-")
    return range(int(first), int(last or first) + 1)


def shrink(seed, result, reduction):
    """Leave out of a seed what it does not need to fail in the same way. Returns the Reduction."""
    def fails(smaller):
        nonlocal reduction
        (_, again), = in_children(1, partial(judge, smaller, None), [seed])
        is_same = (again or died(seed))["kind"] == result["kind"]
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


def judge(reduction, out, seed):
    """Run it here, in a child. Returns ``text``, what is to be said of it; ``kind``, which tells findings
    apart, empty if there is none; ``parts`` and ``faults``, which make it; its ``figures``.
    """
    try:
        return run_here(seed, reduction, out)
    except BaseException as error:
        return died(seed, repr(error), traceback.format_exc())


def died(seed, kind="died", text="its process died"):
    """As judge(), of one that did not come to its end."""
    counts = {"seeds": 1, "findings": 1}
    return {"text": f"seed {seed}: FAILED\n    {text}", "kind": kind, "parts": [], "faults": 0,
            "figures": {"counts": counts, "faults": {}, "promises": {}}}


def run_here(seed, reduction, out):
    """As judge()."""
    scenario, begin, end = lived(seed, partial(Scenario, seed, reduction=reduction, out=out), steer)
    world, figures = scenario.world, of_seed(scenario)
    text = f"{begin}, {len(scenario.machine.processes)} boots, {listed(figures['promises'])}, {end}"
    first = world.findings[0].split(": ", 1)[1] if world.findings else ""
    return {"text": "\n    ".join([text, *world.findings]), "kind": re.sub("[^a-zA-Z ]+", "", first),
            "parts": scenario.parts, "faults": scenario.faults, "figures": figures}


def lived(seed, make, steer_):
    """The scenario that ``make(folder)`` returns, when it has run, and what is said of it first and last."""
    gc.disable()  # when it collects depends on what ran before
    began_s = time.process_time()
    with folder() as path:
        scenario = make(path)
        steer_(scenario.world)
        scenario.run()
    world = scenario.world
    return scenario, (
        f"seed {seed}: {'FAILED' if world.findings else 'ok'}, trace {world.trace.digest()}, "
        f"{CLOCK.now_s:.1f} virtual s, {world.events} events, {scenario.faults} faults"
    ), f"{time.process_time() - began_s:.2f} s of CPU"


@contextlib.contextmanager
def folder():
    """A folder for the machines' disks."""
    path = tempfile.mkdtemp(dir=FOLDER, prefix=FOLDER_PREFIX)
    try:
        yield path
    finally:
        shutil.rmtree(path)
