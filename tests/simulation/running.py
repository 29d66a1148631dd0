"""Running: seeds, each in a forked child, so that every one begins with the same memory; and what is said of
them.
"""
import contextlib
import gc
import os
import shutil
import sys
import tempfile
import time
import traceback

from tests.simulation.clock import CLOCK
from tests.simulation.mutants import MUTANTS
from tests.simulation.scenario import Scenario
from tests.simulation.steering import steer
from tests.simulation.world import FOLDER_PREFIX

# In memory where that is possible: the disk is modelled.
FOLDER = "/dev/shm" if os.path.isdir("/dev/shm") else None


def run_all(arguments):
    """Run the seeds of the command. Returns the exit code."""
    is_mutant = arguments[:1] == ["--mutant"]
    if is_mutant:
        MUTANTS[arguments[1]]()
        arguments = arguments[2:]
    seeds = [seed for argument in arguments for seed in seeds_of(argument)]
    gc.collect()
    gc.freeze()
    failed = []
    for seed in seeds:
        if not run_apart(seed, sys.stdout if len(seeds) == 1 else None):
            failed.append(seed)
            if is_mutant:
                break
    for seed in failed:
        print(f"failed: python -m tests.simulation {seed}")
    return 1 if failed else 0


def seeds_of(argument):
    """7 is one seed, 1-100 are a hundred."""
    first, _, last = argument.partition("-")
    return range(int(first), int(last or first) + 1)


def run_apart(seed, out):
    """Run it in a child. Returns whether all is well."""
    sys.stdout.flush()
    child = os.fork()
    if not child:
        code = 2
        try:
            code = run_here(seed, out)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)  # nothing of the processes that were killed may come to its end
    _, status = os.waitpid(child, 0)
    return status == 0


def run_here(seed, out):
    """0: nothing was found."""
    gc.disable()  # when it collects depends on what ran before
    began_s = time.process_time()
    with folder() as path:
        scenario = Scenario(seed, path, out)
        steer(scenario.world)
        scenario.run()
    world = scenario.world
    print(
        f"seed {seed}: {'FAILED' if world.findings else 'ok'}, trace {world.trace.digest()}, "
        f"{CLOCK.now_s:.1f} virtual s, {world.events} events, {scenario.faults} faults, "
        f"{len(scenario.machine.processes)} boots, {exercised(scenario)}, "
        f"{time.process_time() - began_s:.2f} s of CPU")
    for finding in world.findings:
        print(f"    {finding}")
    return 1 if world.findings else 0


def exercised(scenario):
    """How often each promise could have been broken."""
    counts = sum((ledger.exercised for ledger in scenario.ledgers), type(scenario.ledgers[0].exercised)())
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))


@contextlib.contextmanager
def folder():
    """A folder for the machines' disks."""
    path = tempfile.mkdtemp(dir=FOLDER, prefix=FOLDER_PREFIX)
    try:
        yield path
    finally:
        shutil.rmtree(path)
