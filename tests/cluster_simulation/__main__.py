"""``python -m tests.cluster_simulation SEED``, with its trace; ``FIRST-LAST``: many; ``--mutants``."""
import sys

from tests.cluster_simulation.running import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
