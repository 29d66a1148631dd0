"""Running: what is told of a query's progress, on a terminal and elsewhere."""
import io
import json
from types import SimpleNamespace

from gomq_py.pipeline.running import Reporter, lag_of
from gomq_py.spark.offsets import Position, encode


def progress(batch, rows, read, there, epoch="e"):
    return {
        "runId": "r", "batchId": batch, "timestamp": f"t{batch}", "numInputRows": rows, "processedRowsPerSecond": 1234.5,
        "sources": [{"endOffset": json.dumps(encode({"s": Position("e", read)})), "latestOffset": json.dumps(encode({"s": Position(epoch, there)}))}]}


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


def test_a_terminal_sees_one_line_that_is_written_over():
    class Terminal(io.StringIO):
        def isatty(self):
            return True
    out = Terminal()
    reporter = Reporter(out)
    query = SimpleNamespace(recentProgress=[progress(0, 10, 10, 35)], lastProgress=progress(0, 10, 10, 35))

    reporter.look("bronze", query)

    assert out.getvalue() == "\r\033[Kbronze: batch 0, 10 rows, 1234 rows/s, 25 behind"


def test_lag_counts_a_stream_that_was_made_anew_from_its_beginning():
    assert lag_of(progress(0, 1, 50, 60)) == 10
    assert lag_of(progress(0, 1, 50, 60, epoch="other")) == 60
    assert lag_of({"sources": [{"endOffset": None, "latestOffset": None}]}) is None
