"""Lines that are written some together: which ones, when, and that nothing overtakes them or is lost."""
import logging
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from gomq_py.observability import gathered_lines, log
from gomq_py.observability.gathered_lines import GATHER_MS, MOST_LINES, GatheredLines, write_gathered
from gomq_py.observability.log_ring import LogRing
from tests.support.waiting import in_time

AMQP = log.logger("amqp")


class Gathering:
    """Lines in a log of their own, with a clock and timers that are moved by hand."""

    def __init__(self, path):
        self.path = path
        self.now_s = 1_800_000_000.0
        self.timers = []
        self.lines = GatheredLines(
            AMQP, lambda after_ms, function: self.timers.append((after_ms, function)), lambda: self.now_s)

    def time_is_over(self):
        (after_ms, function), = self.timers
        self.timers.clear()
        self.now_s += after_ms / 1000
        function()

    def written(self):
        """What the log's lines say, without their time."""
        return [line.split(" ", 1)[1] for line in self.path.read_text().splitlines()]


@pytest.fixture
def gathering(tmp_path, kept_logging):
    log.configure(path=str(tmp_path / "broker.log"))
    one = Gathering(tmp_path / "broker.log")
    yield one
    one.lines.close()


def test_who_comes_alone_is_written_at_once(gathering):
    for number in range(3):
        gathering.lines.info("client %d", number)
        gathering.now_s += 2 * GATHER_MS / 1000

    assert gathering.written() == [f"info  amqp: client {number}" for number in range(3)]
    assert gathering.timers == []


def test_those_who_follow_are_written_together_with_the_time_of_each(gathering):
    for number in range(4):
        gathering.now_s += 0.002
        gathering.lines.info("client %d", number)

    assert gathering.written() == ["info  amqp: client 0"]
    gathering.time_is_over()
    assert gathering.written() == [f"info  amqp: client {number}" for number in range(4)]
    times = [line.split("Z")[0][-3:] for line in gathering.path.read_text().splitlines()[1:]]
    assert times == ["004", "006", "008"]


def test_those_who_come_behind_a_written_batch_are_gathered_again(gathering):
    gathering.lines.info("first")
    gathering.lines.info("second")
    gathering.time_is_over()

    gathering.lines.info("third")

    assert len(gathering.written()) == 2 and len(gathering.timers) == 1


def test_lines_of_two_loggers_keep_their_order(gathering):
    other = GatheredLines(log.logger("mqtt"), pytest.fail, lambda: gathering.now_s)
    other._is_armed = True
    for number in range(3):
        gathering.now_s += 0.002
        gathering.lines.info("client %d", number)
        gathering.now_s += 0.002
        other.info("client %d", number)
    gathering.time_is_over()
    other.close()

    lines = [line.split() for line in gathering.path.read_text().splitlines()]
    assert [(source, number) for *_, source, _, number in lines] == [
        (source, number) for number in "012" for source in ("amqp:", "mqtt:")]
    assert sorted(line[0] for line in lines) == [line[0] for line in lines]


@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR])
def test_any_other_line_waits_for_them_and_has_them_written(gathering, level):
    log.set_level("debug")
    gathering.lines.info("first")
    gathering.lines.info("second")

    log.logger("queue").log(level, "third")

    said = [line.rsplit(" ", 1)[1] for line in gathering.written()]
    assert said == ["first", "second", "third"]


def test_a_line_of_another_thread_has_them_written(gathering):
    gathering.lines.info("first")
    gathering.lines.info("second")

    thread = threading.Thread(target=log.logger("store").warning, args=("third",))
    thread.start()
    thread.join()

    assert [line.rsplit(" ", 1)[1] for line in gathering.written()] == ["first", "second", "third"]
    gathering.lines.info("fourth")
    gathering.time_is_over()
    assert len(gathering.written()) == 4


def test_a_line_of_another_thread_waits_while_they_are_written(gathering):
    said, begun, overtaken = [], threading.Event(), threading.Event()

    def handle(record):
        if record.getMessage() == "second":
            begun.set()
            overtaken.wait(0.2)  # which it never is
        said.append(record.getMessage())
        overtaken.set()

    gathering.lines.info("first")
    gathering.lines.info("second")
    handler = SimpleNamespace(level=0, handle=handle)
    AMQP.addHandler(handler)
    try:
        writer = threading.Thread(target=write_gathered)
        writer.start()
        assert begun.wait(in_time(30))
        AMQP.warning("third")
        writer.join()
    finally:
        AMQP.removeHandler(handler)

    assert said == ["second", "third"]


def test_very_many_are_not_kept_until_their_time(gathering):
    for number in range(MOST_LINES + 1):
        gathering.lines.info("client %d", number)

    assert len(gathering.written()) == MOST_LINES + 1 and len(gathering.timers) == 1
    gathering.time_is_over()
    assert len(gathering.written()) == MOST_LINES + 1


def test_what_is_not_logged_at_this_level_is_not_kept(gathering):
    log.set_level("warn")
    gathering.lines.info("first")
    gathering.lines.info("second")

    log.set_level("info")
    write_gathered()

    assert gathering.written() == [] and gathering.timers == []


def test_whoever_hears_of_lines_hears_of_each_in_order(gathering):
    ring = LogRing()
    try:
        for number in range(3):
            gathering.lines.info("client %d", number)
        gathering.time_is_over()

        assert [line.message for line in ring.since(0)] == ["client 0", "client 1", "client 2"]
        assert ring.since(2)[0].at_ms == 1_800_000_000_000
    finally:
        ring.close()


def test_filters_of_loggers_and_handlers_and_levels_of_handlers_count(gathering):
    handler, = (one for one in logging.getLogger().handlers if isinstance(one, log.SystemLocked))
    handler.addFilter(lambda record: "hidden" not in record.getMessage())
    only_errors = SimpleNamespace(level=logging.ERROR, handle=lambda record: pytest.fail("it is no error"))
    AMQP.addHandler(only_errors)
    AMQP.addFilter(keeps := lambda record: "secret" not in record.getMessage())
    try:
        for word in ("first", "hidden", "secret", "last"):
            gathering.lines.info("%s", word)
        gathering.time_is_over()
    finally:
        AMQP.removeHandler(only_errors)
        AMQP.removeFilter(keeps)

    assert [line.rsplit(" ", 1)[1] for line in gathering.written()] == ["first", "last"]


def test_one_that_cannot_be_made_takes_no_other_along(gathering, capfd):
    log.configure(path=str(gathering.path))  # without the test run's own handlers, which raise
    gathering.lines.info("first")
    for arguments in (("second",), ("too", "many"), ("third",)):
        gathering.lines.info("%s", *arguments)

    gathering.time_is_over()

    assert [line.rsplit(" ", 1)[1] for line in gathering.written()] == ["first", "second", "third"]
    assert "lines of the log are lost" in capfd.readouterr().err


def test_a_log_that_is_opened_anew_has_them_in_the_old_file(gathering, tmp_path):
    gathering.lines.info("first")
    gathering.lines.info("second")

    log.use(log.open_handler("text", str(tmp_path / "new.log")))

    assert len(gathering.written()) == 2 and (tmp_path / "new.log").read_text() == ""


def test_after_the_end_nothing_is_gathered(gathering):
    gathering.lines.info("first")
    gathering.lines.info("second")
    gathering.lines.close()

    gathering.lines.info("third")

    assert len(gathering.written()) == 3


def test_a_program_that_logs_in_its_own_way_has_each_line_at_once(kept_logging, monkeypatch):
    """As one does that embeds a broker: nobody would write what waits before a line of its own."""
    heard = []
    handler = SimpleNamespace(level=0, handle=lambda record: heard.append(record.getMessage()))
    monkeypatch.setattr(AMQP, "level", logging.INFO)
    AMQP.addHandler(handler)
    lines = GatheredLines(AMQP, lambda *_: pytest.fail("it is gathered"))
    try:
        lines.info("first")
        lines.info("second")
    finally:
        AMQP.removeHandler(handler)

    assert heard == ["first", "second"]


@pytest.mark.parametrize("end", ["", "raise RuntimeError('a crash')", "sys.exit(3)"])
def test_the_end_of_the_process_writes_them(tmp_path, end):
    program = f"""if True:
        import sys
        from gomq_py.observability import log
        from gomq_py.observability.gathered_lines import GatheredLines
        log.configure(path={str(tmp_path / "log")!r})
        lines = GatheredLines(log.logger("amqp"), lambda *_: None)
        for number in range(3):
            lines.info("client %d", number)
        {end}
    """

    subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, timeout=in_time(60))

    assert (tmp_path / "log").read_text().count("client") == 3


def test_a_log_that_another_thread_waits_for_does_not_keep_a_process_that_stops_at_once(tmp_path):
    program = f"""if True:
        import logging, signal, threading
        from gomq_py import launcher
        from gomq_py.observability import log
        from gomq_py.observability.gathered_lines import GatheredLines
        handler = log.configure(path={str(tmp_path / "log")!r})
        lines = GatheredLines(log.logger("amqp"), lambda *_: None)
        lines.info("first")
        lines.info("second")
        taken = threading.Event()
        def write():
            with handler.lock:
                taken.set()
                threading.Event().wait()
        threading.Thread(target=write, daemon=True).start()
        taken.wait()
        signal.signal(signal.SIGINT, launcher._abort)
        signal.raise_signal(signal.SIGINT)
    """

    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, timeout=in_time(60))

    assert done.returncode == 1 and not done.stderr


def test_nothing_of_it_is_kept_behind(gathering):
    gathering.lines.info("first")
    gathering.lines.info("second")
    gathering.lines.close()

    assert not gathered_lines._waiting
