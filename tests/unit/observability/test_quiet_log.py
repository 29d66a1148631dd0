"""The log that a flood cannot fill."""
import logging

import pytest

from gomq_py.observability import quiet_log
from gomq_py.observability.quiet_log import QuietLog

LOG = logging.getLogger("gomq_py.quiet")


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def quiet(clock, caplog):
    caplog.set_level(logging.INFO, LOG.name)
    return QuietLog(LOG, 10.0, clock)


def test_one_line_per_key_and_interval(quiet, clock, caplog):
    for number in range(1000):
        quiet.warning("a", "%d from a", number)
    quiet.warning("b", "from b")

    assert caplog.messages == ["0 from a", "from b"]


def test_next_line_tells_what_was_left_out(quiet, clock, caplog):
    for number in range(4):
        quiet.info("a", "%d from a", number)
    clock.now += 10
    quiet.info("a", "again")
    clock.now += 10
    quiet.info("a", "and again")

    assert caplog.messages == ["0 from a", "again (and 3 more like it since the last line)", "and again"]


def test_many_keys_cost_no_memory(quiet, monkeypatch):
    monkeypatch.setattr(quiet_log, "KEYS", 10)
    for key in range(1000):
        quiet.warning(key, "x")

    assert len(quiet._quiet) <= 10


def test_an_error_brings_its_traceback_once(quiet, caplog):
    for _ in range(3):
        quiet.error("a", "it failed", exc_info=ValueError("why"))

    assert caplog.messages == ["it failed"] and caplog.text.count("ValueError: why") == 1


def test_many_keys_share_so_many_lines_and_the_next_interval_tells_what_was_left_out(clock, caplog):
    caplog.set_level(logging.INFO, LOG.name)
    quiet = QuietLog(LOG, 10.0, clock, most=3)

    for number in range(1000):
        quiet.warning(number, "%d fails", number)
    clock.now += 10
    quiet.warning("next", "next fails")

    assert caplog.messages == [
        "0 fails", "1 fails", "2 fails", "997 more lines like the following were left out", "next fails"]
