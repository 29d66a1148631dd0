"""Running ``gomq-py-ctl`` as an operator does: as a process of its own."""
import json
import os
import subprocess
import sys

from tests.support.broker_process import ROOT


def environment(**more):
    """The process' environment, without settings of whoever runs the tests."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("GOMQ_CTL", "GOMQ_CONTROL", "GOMQCTL", "LAVINMQCTL"))}
    return {**inherited, "PYTHONPATH": str(ROOT), **more}


class Runner:
    """Calls run one command against the broker at ``uri``; they return the finished process."""

    def __init__(self, uri):
        self._uri = uri

    def __call__(self, *arguments, uri=None, given=None, **more):
        return subprocess.run(
            [sys.executable, "-m", "gomq_py.ctl", "--uri", uri or self._uri, *arguments], text=True, input=given, capture_output=True, timeout=60,
            check=False, cwd=ROOT, env=environment(**more))


def done(finished):
    """What a command that must succeed printed."""
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def data(finished):
    """The same, as JSON."""
    return json.loads(done(finished))
