"""Running ``gomq-py-ctl`` as an operator does: as a process of its own."""
import json
import os
import subprocess
import sys
from unittest import mock

from click.testing import CliRunner

from gomq_py.ctl import (  # noqa: F401  (their commands register themselves)
    access, backup, checks, cluster, diagnostics, limits, links, listings, messages, migrate, node, set_aside,
    simple, topology, transfer, watch,
)
from gomq_py.ctl.commands import ctl
from tests.support.broker_process import ROOT
from tests.support.waiting import in_time


commands = ctl.commands


def environment(**more):
    """The process' environment, without settings of whoever runs the tests."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("GOMQ_CTL", "GOMQ_CONTROL", "GOMQCTL", "LAVINMQCTL"))
    }
    return {**inherited, "PYTHONPATH": str(ROOT), **more}


def in_process(uri, *arguments):
    """The same without a process, for going through many commands:
    click's result, which has ``exit_code`` and ``stdout``.
    """
    with mock.patch.dict(os.environ, environment(), clear=True):
        return CliRunner().invoke(ctl, ["--uri", uri, *arguments], prog_name="gomq-py-ctl")


class Runner:
    """Calls run one command against the broker at ``uri``; they return the finished process."""

    def __init__(self, uri):
        self.uri = uri

    def __call__(self, *arguments, uri=None, given=None, bare=False, **more):
        """``bare``: it is not told which broker is meant."""
        command = (
            [sys.executable, "-m", "gomq_py.ctl", *arguments] if bare else self.command(*arguments, uri=uri)
        )
        return subprocess.run(
            command, text=True, input=given, capture_output=True, timeout=in_time(100), check=False, cwd=ROOT,
            env=environment(**more))

    def command(self, *arguments, uri=None):
        """The command line."""
        return [sys.executable, "-m", "gomq_py.ctl", "--uri", uri or self.uri, *arguments]


def done(finished):
    """What a command that must succeed printed."""
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def data(finished):
    """The same, as JSON."""
    return json.loads(done(finished))
