"""A process in which tasks run: what signals mean to it, and when it ends."""

import signal
import subprocess
import sys

from gomq_py.dispatcher.processes import Child
from tests.support import task_functions
from tests.support.command import ROOT
from tests.support.waiting import in_time


def test_sigterm_of_a_whole_group_is_the_parents_to_deal_with():
    """And ends what the task has forked, as it would anywhere."""
    child = Child()

    child.run(task_functions.sign_off, ())

    child.close()


PARENT = """
import os, signal, sys, threading
from gomq_py.dispatcher.processes import Child
from tests.support import task_functions

child = Child()
threading.Thread(target=child.run, args=(task_functions.wait_for_ever, ()), daemon=True).start()
sys.stdin.readline()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_ends_with_its_parent():
    """Its task goes back to the queue, and would run twice at once. The output that both share ends."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], cwd=ROOT, text=True, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with parent:
        assert parent.stdout.readline() == "begun\n"

        rest, _ = parent.communicate("end\n", timeout=in_time(60))

    assert (rest, parent.returncode) == ("", -signal.SIGKILL)
