"""``python -m tests.node_simulation SEED``, with its trace; ``FIRST-LAST``: many; ``--mutant NAME``."""
import os
import sys
import time

from tests.simulation import clock
from tests.simulation.__main__ import ENVIRONMENT


def main(arguments):
    """Exit code 0: no seed has failed; of mutants: each was found."""
    if any(os.environ.get(name) != value for name, value in ENVIRONMENT.items()):
        os.execve(sys.executable, [sys.executable, "-m", "tests.node_simulation", *arguments],
                  {**os.environ, **ENVIRONMENT})
    clock.install()
    time.clock_gettime = lambda clock_id: clock.CLOCK.monotonic()
    from tests.node_simulation.running import run_all  # behind the clock, which modules bind at import

    return run_all(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
