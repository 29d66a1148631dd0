"""The child of test_kill_points: runs a scenario of the fault tests and kills itself on the way.

``python -m tests.durability.killed_child KIND ROOT CALL ACCOUNT``: at seam call number CALL the account of
what was answered by then is pickled into ACCOUNT, and the process gets SIGKILL.
"""
import pickle
import sys
from pathlib import Path

from gomq_py.storage.flush import flushing, group_commit
from tests.durability import test_broker_faults, test_store_faults
from tests.durability.flush_pool import FlushPool

# No flush is brought about by time alone: the N-th call is the same one however long a run takes.
UNHURRIED_S = 3600


def scenario_of(kind, root, call=None):
    """A scenario that is killed at this call, or never; and a function that gives its account."""
    if kind == "store":
        scenario = test_store_faults.Scenario(root, call, "kill", None)
        return scenario, lambda: scenario.account
    scenario = test_broker_faults.Scenario(root, call, "kill")
    return scenario, lambda: scenario.world


def main():
    kind, root, call, target = sys.argv[1:]
    flushing.ThreadPool, group_commit.UNHURRIED_S = FlushPool, UNHURRIED_S
    scenario, account = scenario_of(kind, Path(root), int(call))
    scenario.files.on_kill = lambda: Path(target).write_bytes(pickle.dumps(account()))
    scenario.run()
    sys.exit("was not killed")


if __name__ == "__main__":
    main()
