"""Running ``gomq-py`` to its end, for tests of what it says and how it leaves."""
import os
import subprocess
import sys
from pathlib import Path

from tests.support.waiting import in_time

ROOT = Path(__file__).resolve().parents[2]


def gomq_py(*arguments, timeout_s=in_time(100), **environment):
    """The finished ``python -m gomq_py ARGUMENTS`` with returncode, stdout and stderr as text; our own
    environment names do not leak in.
    """
    return run_module("gomq_py", *arguments, timeout_s=timeout_s, **environment)


def gomq_py_perf(*arguments, timeout_s=in_time(100), **environment):
    """The finished ``python -m gomq_py.perf ARGUMENTS``."""
    return run_module("gomq_py.perf", *arguments, timeout_s=timeout_s, **environment)


def run_module(module, *arguments, timeout_s=in_time(100), **environment):
    """The finished ``python -m MODULE ARGUMENTS``."""
    foreign = ("GOMQ_DATADIR", "STATE_DIRECTORY", "CONFIGURATION_DIRECTORY")
    inherited = {
        name: value
        for name, value in os.environ.items() if not name.startswith("LAVINMQ_") and name not in foreign
    }
    return subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)], capture_output=True, text=True,
        timeout=timeout_s, cwd=ROOT, env={**inherited, "PYTHONPATH": str(ROOT), **environment})
