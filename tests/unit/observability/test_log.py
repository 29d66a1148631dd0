"""What a log line holds, and what it can be made to hold by a peer: nothing."""
import json
import logging
import re

import pytest

from gomq_py.observability import log
from gomq_py.observability.log_ring import LogRing


@pytest.fixture
def lines(tmp_path, kept_logging):
    """A function that logs to a file as configured and returns its lines."""
    path = tmp_path / "broker.log"

    def configured(level="info", format_="text"):
        log.configure(level, format_, str(path))
        return lambda: path.read_text().splitlines()

    return configured


def test_line_has_time_level_source_and_message(lines):
    read = lines()

    log.logger("amqp").info("connection %s closed: %s", "127.0.0.1:5000", "CONNECTION_FORCED - bye")

    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z info  amqp: "
        r"connection 127.0.0.1:5000 closed: CONNECTION_FORCED - bye",
        read()[0],
    )


def test_line_of_one_mapping_takes_what_it_says_from_there(lines):
    read = lines()

    log.logger("amqp").info("%(what)s of %(who)s", {"what": "login", "who": "bob"})

    assert read()[0].endswith("amqp: login of bob")


def test_record_has_the_attributes_that_other_handlers_read(kept_logging):
    """As the standard library's; of the place in the code and the thread nothing is known."""
    log.configure("none")

    ours = logging.makeLogRecord({}).__class__
    assert ours is log.Line
    line = logging.getLogger("x").makeRecord("x", logging.INFO, "a/b.py", 7, "%s", ("y",), None)

    assert vars(logging.LogRecord("x", 20, "", 1, "", (), None)).keys() <= vars(line).keys()
    assert (line.getMessage(), line.levelname, line.lineno, line.exc_text) == ("y", "INFO", 0, None)
    assert logging.Formatter("%(threadName)s %(module)s %(message)s").format(line) == "None (unknown file) y"


def test_filter_of_a_handler_is_asked(lines):
    read = lines()
    logging.getLogger().handlers[-1].addFilter(lambda record: "shown" in record.getMessage())

    log.logger("amqp").info("hidden")
    log.logger("amqp").info("shown")

    assert len(read()) == 1


def test_json_line_is_one_object(lines):
    read = lines(format_="json")

    log.logger("amqp").warning("user %r refused", "a\nb")

    entry = json.loads(read()[0])
    assert (entry["level"], entry["source"], entry["message"]) == ("warn", "amqp", "user 'a\\nb' refused")


@pytest.mark.parametrize("format_", ["text", "json"])
def test_a_peer_cannot_forge_a_line_or_drive_a_terminal(lines, format_):
    read = lines(format_=format_)

    log.logger("amqp").info(
        "user %s", "x\n2026-01-01T00:00:00.000Z info  amqp: forged\r\x1b[2J\x9b\u2028\x00"
    )

    assert len(read()) == 1
    assert not re.search("[\x00-\x1f\x7f-\x9f\u2028]", read()[0])


@pytest.mark.parametrize("format_", ["text", "json"])
def test_octets_that_are_no_utf8_are_written_as_escapes(lines, format_):
    read = lines(format_=format_)

    log.logger("amqp").info("queue %s", b"\xff\xfe".decode("utf-8", "surrogateescape"))

    assert "udcff" in read()[0]


def test_other_languages_stay_readable(lines):
    read = lines()

    log.logger("amqp").info("queue %s", "größe-注文")

    assert "größe-注文" in read()[0]


@pytest.mark.parametrize("uri", [
    "amqp://joe:s3cret@host/vhost", "AMQPS://joe:s3cret@[::1]:5671/%2f", "http://:s3cret@host"
])
def test_passwords_in_uris_are_masked(lines, uri):
    read = lines()

    log.logger("shovel").info("connecting to %s", uri)

    assert "s3cret" not in read()[0]
    assert "host" in read()[0] or "::1" in read()[0]


def test_crash_has_its_traceback_indented_below(lines):
    read = lines()

    try:
        raise ValueError("line one\nline two")
    except ValueError:
        log.logger("amqp").exception("reader died")

    first, *rest = read()
    assert first.endswith("error amqp: reader died")
    assert rest and all(line.startswith("    ") for line in rest)


def test_levels_below_the_chosen_one_are_not_written_and_can_change_at_run_time(lines):
    read = lines(level="warn")

    log.logger("amqp").info("one")
    log.set_level("debug")
    log.logger("amqp").debug("two")
    log.set_level("none")
    log.logger("amqp").critical("three")

    assert [line.rpartition(" ")[2] for line in read()] == ["two"]


def test_libraries_warn_but_do_not_chat(lines):
    read = lines(level="debug")

    logging.getLogger("somelibrary").info("chat")
    logging.getLogger("somelibrary").warning("careful")

    assert [line.rpartition(" ")[2] for line in read()] == ["careful"]


def test_lines_that_cannot_be_written_are_one_complaint_without_what_they_held(kept_logging, capfd):
    log.configure("info", "text", "/dev/full")

    for _ in range(3):
        log.logger("amqp").info("user %s", "s3cret-Pa55word")

    assert capfd.readouterr().err.splitlines() == [
        "gomq-py: lines of the log are lost: No space left on device"
    ]


def test_a_file_that_cannot_be_written_gives_way_to_another(lines):
    log.configure("info", "text", "/dev/full")
    log.logger("amqp").info("lost")

    read = lines()
    log.logger("amqp").info("kept")

    assert [line.endswith("amqp: kept") for line in read()] == [True]


def test_a_line_that_cannot_be_made_is_one_complaint_without_its_arguments(lines, capfd):
    read = lines()

    log.logger("amqp").info("%d messages", "s3cret-Pa55word")

    (complaint,) = capfd.readouterr().err.splitlines()
    assert complaint.startswith(f"gomq-py: lines of the log are lost: TypeError at {__file__}:")
    assert "s3cret" not in complaint
    assert read() == []


def test_line_of_a_greenlet_makes_no_object_of_a_thread(lines, monkeypatch):
    def asked():
        raise AssertionError("asked which thread it is")

    read = lines()
    monkeypatch.setattr("threading.current_thread", asked)
    log.logger("amqp").info("a line")
    assert read()[-1].endswith("a line")


def test_a_line_waits_for_no_lock_that_was_put_in_place_of_the_systems(kept_logging, tmp_path, monkeypatch):
    """Which cost as much as a write, and nothing switches here."""

    class Replaced:
        def acquire(self):
            raise AssertionError("waited for")

    monkeypatch.setattr("threading.RLock", Replaced)
    handler, ring = log.open_handler("text", str(tmp_path / "log")), LogRing()
    monkeypatch.undo()
    log.use(handler)
    log.set_level("info")

    log.logger("amqp").info("a line")
    ring.close()

    assert (tmp_path / "log").read_text().endswith("a line\n") and ring.last == 1


def test_a_file_that_was_closed_takes_a_line_that_comes_late(kept_logging, tmp_path):
    handler = log.configure("info", "text", str(tmp_path / "log"))
    handler.close()

    log.logger("amqp").info("late")

    assert (tmp_path / "log").read_text().endswith("amqp: late\n")


def test_message_of_megabytes_is_cut():
    record = log.Line("gomq_py.http", logging.INFO, "", 0, "definitions: %s", ("N" * 1_000_000,), None)

    assert len(log.message_of(record)) < log.MESSAGE_MAX + 50
    assert log.message_of(record).endswith("N... (983629 more characters)")
