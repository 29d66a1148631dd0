"""The entry point of ``gomq-py-perf`` and ``python -m gomq_py.perf``."""
import sys

from gomq_py.perf.cli import main

if __name__ == "__main__":
    sys.exit(main())
