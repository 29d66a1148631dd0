"""Launcher: a node that leads no more begins anew, or its process ends."""
import os

import gevent
from gevent.event import Event

from gomq_py import launcher as module
from gomq_py.config.settings import Settings
from gomq_py.hub.turns import give_way
from gomq_py.launcher import Launcher


def test_process_ends_if_the_program_cannot_begin_anew(tmp_path, monkeypatch, caplog):
    """It would stay, with nothing open, and no service manager would start it again."""
    def fail(*arguments):
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(os, "execve", fail)
    launcher = Launcher(Settings.checked(data_dir=str(tmp_path)))
    launcher._asked_to_stop = Event()

    launcher._begin_anew("another node leads")

    assert launcher._asked_to_stop.is_set() and launcher._has_failed
    assert "cannot begin anew" in caplog.text


def test_ordered_stop_waits_for_a_demotion_that_has_begun(tmp_path, monkeypatch):
    """The signal comes while the node, which leads no more, is being closed."""
    for name in ("log_faults", "log_unraisable", "raise_descriptor_limit"):
        monkeypatch.setattr(module, name, lambda: None)
    monkeypatch.setattr(module.garbage, "freeze", lambda: None)
    monkeypatch.setattr(module.resources, "use_one_heap", lambda: None)
    launcher = Launcher(Settings.checked(data_dir=str(tmp_path)))
    closed = []

    def close():
        give_way()
        closed.append("node")

    def start():
        launcher._demotion = gevent.spawn(close)
        launcher._asked_to_stop.set()

    monkeypatch.setattr(launcher, "start", start)

    launcher.run()

    assert closed == ["node"]
