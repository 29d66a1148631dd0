"""SIGKILL of a real process in front of fifty calls of the file seam, spread over the scenarios of the fault
tests; each folder is recovered twice.

The mapped pages and writes of the killed process stay in the system's cache;
what its end took away is all it had in memory.
"""
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gomq_py.storage.flush import group_commit
from tests.durability import flush_pool
from tests.durability.broker_driver import check_folder
from tests.durability.killed_child import UNHURRIED_S, scenario_of
from tests.durability.store_driver import found_in
from tests.support.command import ROOT
from tests.support.waiting import in_time

POINTS = 25


@pytest.fixture(autouse=True)
def the_same_calls_in_every_run(monkeypatch):
    """As in the children: flushes in greenlets, and none that time alone brings about."""
    flush_pool.use(monkeypatch)
    monkeypatch.setattr(group_commit, "UNHURRIED_S", UNHURRIED_S)


def kill_at(kind, root, call):
    """Run the child until it is killed; returns the account of what had been answered."""
    target = Path(f"{root}.account")
    child = subprocess.run(
        [sys.executable, "-m", "tests.durability.killed_child", kind, str(root), str(call), str(target)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        timeout=in_time(100))
    assert child.returncode == -signal.SIGKILL, child.stderr
    return pickle.loads(target.read_bytes())


def points(kind, tmp_path, count):
    """Call numbers, evenly spread over a run that is not killed;
    how many the very end makes is a matter of time.
    """
    scenario, _ = scenario_of(kind, tmp_path / "whole")
    calls = len(scenario.run().calls)
    assert calls > count
    return [1 + number * (calls - 9) // (count - 1) for number in range(count)]


@pytest.mark.parametrize("count", [
    3, pytest.param(POINTS, marks=[pytest.mark.long, pytest.mark.timeout(400)])
])
def test_a_store_whose_process_is_killed_at_a_seam_call_keeps_its_promises(tmp_path, count):
    for call in points("store", tmp_path, count):
        root = tmp_path / str(call)
        account = kill_at("store", root, call)
        for _ in range(2):
            account.check([(number, redelivered) for number, redelivered, _ in found_in(root)])


@pytest.mark.parametrize("count", [
    3, pytest.param(POINTS, marks=[pytest.mark.long, pytest.mark.timeout(400)])
])
def test_a_broker_whose_process_is_killed_at_a_seam_call_keeps_its_promises(tmp_path, count):
    for call in points("broker", tmp_path, count):
        root = tmp_path / str(call)
        world = kill_at("broker", root, call)
        for _ in range(2):
            check_folder(root, world)
