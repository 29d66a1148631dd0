"""Running: what is told of a query's progress, on a terminal and elsewhere."""
import io
import json
import urllib.error
import urllib.request
from types import SimpleNamespace

import pytest

from gomq_py.pipeline.running import MOST_STARTS, JobFailed, Reporter, lag_of, repeat, run, seconds_of
from gomq_py.spark.errors import OptionError
from gomq_py.spark.offsets import Position, encode
from tests.support.ports import reserve
from tests.support.waiting import TIMEOUT_S


def progress(batch, rows, read, there, epoch="e", first=0):
    return {
        "runId": "r", "batchId": batch, "timestamp": f"t{batch}", "numInputRows": rows,
        "processedRowsPerSecond": 1234.5,
        "sources": [
            {
                "endOffset": json.dumps(encode({"s": Position("e", read)})),
                "latestOffset": json.dumps({**encode({"s": Position(epoch, there)}), "firsts": {"s": first}}),
            },
        ]}


def test_batches_are_told_once_as_lines_of_json_and_in_a_file_for_prometheus(tmp_path):
    out, path = io.StringIO(), tmp_path / "counts.prom"
    reporter = Reporter(out, str(path))
    query = SimpleNamespace(recentProgress=[progress(0, 10, 10, 35)])
    for more in ([], [progress(1, 25, 35, 35)], []):
        query.recentProgress += more
        query.lastProgress = query.recentProgress[-1]
        reporter.look("bronze", query)
    reporter.end()

    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(line.get("batch"), line.get("rows"), line["rows_total"], line["lag"]) for line in lines] == [
        (0, 10, 10, 25), (1, 25, 35, 0), (None, None, 35, 0)]
    assert 'gomq_pipeline_rows_total{job="bronze"} 35\n' in path.read_text()
    assert 'gomq_pipeline_lag_rows{job="bronze"} 0\n' in path.read_text()


def test_counts_are_served_until_the_end():
    reporter = Reporter(io.StringIO(), address=str(reserve()))
    query = SimpleNamespace(recentProgress=[progress(0, 10, 10, 35)], lastProgress=progress(0, 10, 10, 35))
    url = f"http://127.0.0.1:{reporter.endpoint.port}/metrics"

    reporter.look("bronze", query)
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
        text = answer.read().decode()
    reporter.end()

    assert 'gomq_pipeline_rows_total{job="bronze"} 10\n' in text
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url, timeout=TIMEOUT_S)


def test_counts_are_served_no_more_though_their_file_cannot_be_written(tmp_path):
    reporter = Reporter(io.StringIO(), str(tmp_path / "no-folder" / "counts.prom"), str(reserve()))

    with pytest.raises(FileNotFoundError):
        reporter.end()

    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{reporter.endpoint.port}/metrics", timeout=TIMEOUT_S)


def test_a_terminal_sees_one_line_that_is_written_over():
    class Terminal(io.StringIO):
        def isatty(self):
            return True
    out = Terminal()
    reporter = Reporter(out)
    query = SimpleNamespace(recentProgress=[progress(0, 10, 10, 35)], lastProgress=progress(0, 10, 10, 35))

    reporter.look("bronze", query)

    assert out.getvalue() == "\r\033[Kbronze: batch 0, 10 rows, 1234 rows/s, 25 behind"


def test_lag_counts_a_stream_that_was_made_anew_from_its_first_message():
    assert lag_of(progress(0, 1, 50, 60)) == 10
    assert lag_of(progress(0, 1, 50, 60, epoch="other")) == 60
    assert lag_of(progress(0, 1, 50, 60, epoch="other", first=40)) == 20
    assert lag_of(progress(0, 1, 50, 60, first=57)) == 3
    assert lag_of({"sources": [{"endOffset": None, "latestOffset": None}]}) is None


class Writer:
    """A DataStreamWriter whose queries end at once, each with the next of these errors."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.starts = 0

    def queryName(self, name):
        return self

    def trigger(self, **given):
        return self

    def start(self):
        self.starts += 1
        error = self.errors.pop(0) if self.errors else None
        return SimpleNamespace(isActive=False, lastProgress=None, exception=lambda: error, stop=lambda: None)


SLOW = Exception("terminated with exception: Python worker failed to connect back. SQLSTATE: XXKST")


def test_a_query_whose_python_was_slow_to_start_is_started_again():
    writer = Writer(SLOW)

    run({"bronze": writer}, reporter=Reporter(io.StringIO()))

    assert writer.starts == 2


@pytest.mark.parametrize("errors, starts", [([SLOW] * MOST_STARTS, MOST_STARTS), ([Exception("boom")], 1)])
def test_a_query_that_fails_otherwise_or_again_and_again_is_a_failed_job(errors, starts):
    writer = Writer(*errors)

    with pytest.raises(JobFailed, match="bronze: "):
        run({"bronze": writer}, reporter=Reporter(io.StringIO()))

    assert writer.starts == starts


def test_work_is_done_once_or_again_and_again():
    done = []
    repeat(lambda: done.append(1), None)
    assert done == [1]

    def fail_at_last():
        done.append(1)
        if len(done) == 4:
            raise ValueError
    with pytest.raises(ValueError):
        repeat(fail_at_last, 0)


@pytest.mark.parametrize("given, seconds", [
    ("1 second", 1), ("10 seconds", 10), ("2minutes", 120), (" 1 hour ", 3600)
])
def test_durations_are_understood(given, seconds):
    assert seconds_of(given) == seconds


@pytest.mark.parametrize("given", ["", "10", "-1 seconds", "1 day", "soon"])
def test_what_is_no_duration_is_said(given):
    with pytest.raises(OptionError, match="is no duration such as '10 seconds'"):
        seconds_of(given)
