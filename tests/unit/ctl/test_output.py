"""Output: a bar on a terminal for what takes more than a second, and nothing elsewhere."""
import io
from threading import Event
from types import SimpleNamespace

import pytest

from gomq_py.ctl import output
from gomq_py.ctl.api import APIError
from gomq_py.ctl.output import Output, Progress
from tests.support.waiting import in_time


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setattr(output, "sys", SimpleNamespace(stderr=Terminal()))
    monkeypatch.setattr(output, "LOOK_S", 0.001)
    return output.sys.stderr


def test_long_step_has_a_bar(terminal, monkeypatch):
    monkeypatch.setattr(output, "SHOWN_AFTER_S", 0)
    with Progress(Output()) as progress:
        for done in range(5):
            progress("copying", done, 4)
        progress("checking", 1, 2)

    assert "copying" in terminal.getvalue() and "100%" in terminal.getvalue()
    assert "checking" in terminal.getvalue() and " 50%" in terminal.getvalue()


def test_long_request_has_a_bar_while_it_waits(terminal, monkeypatch):
    monkeypatch.setattr(output, "SHOWN_AFTER_S", 0)
    looks, is_seen = [], Event()

    def look():
        looks.append(1)
        if len(looks) == 2:
            raise APIError("the broker was busy")
        if len(looks) == 5:
            is_seen.set()
        return min(4, len(looks)), 4

    def request():
        assert is_seen.wait(in_time(30))
        return "moved"

    with Progress(Output()) as progress:
        assert progress.during("move", request, look) == "moved"
    assert "move" in terminal.getvalue() and "100%" in terminal.getvalue()


def test_short_step_has_none(terminal):
    with Progress(Output()) as progress:
        progress("copying", 1, 2)

    assert terminal.getvalue() == ""


def test_quiet_command_and_no_terminal_have_none(terminal, monkeypatch):
    monkeypatch.setattr(output, "SHOWN_AFTER_S", 0)
    with Progress(Output(quiet=True)) as progress:
        progress("copying", 1, 2)
        assert progress.during("move", lambda: 1, None) == 1
    monkeypatch.setattr(output, "sys", SimpleNamespace(stderr=(plain := io.StringIO())))
    with Progress(Output()) as progress:
        progress("copying", 1, 2)

    assert terminal.getvalue() == plain.getvalue() == ""
