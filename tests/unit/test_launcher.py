"""Launcher: a node that leads no more begins anew, or its process ends."""
import os

from gevent.event import Event

from gomq_py.config.settings import Settings
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
