"""``python -m tests.simulation SEED [SEED | FIRST-LAST ...]``: run these seeds.

A single seed shows its trace. Of several each has a line, and those that failed come again at the end.
``GOMQ_PURE_PYTHON=`` (empty) runs the compiled modules.
"""
import os
import sys

from tests.simulation import clock

# The hashes of texts decide in which order sets of them are gone through.
ENVIRONMENT = {"PYTHONHASHSEED": "0", "GOMQ_PURE_PYTHON": os.environ.get("GOMQ_PURE_PYTHON", "1")}


def main(arguments):
    """Exit code 0: no seed has failed."""
    if any(os.environ.get(name) != value for name, value in ENVIRONMENT.items()):
        os.execve(sys.executable, [sys.executable, "-m", "tests.simulation", *arguments],
                  {**os.environ, **ENVIRONMENT})
    clock.install()
    from tests.simulation.running import run_all  # behind the clock, which modules bind at import

    return run_all(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
