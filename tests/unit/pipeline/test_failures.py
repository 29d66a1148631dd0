"""Failures: what is said of an error is its one line, however deep Spark has wrapped it."""
import pytest

from gomq_py.pipeline.failures import told

WRAPPED = """[STREAM_FAILED] Query [id = 4b0cc026] terminated with exception: [PYTHON_DATA_SOURCE_ERROR] Failed: Traceback (most recent call last):
  File "/x/planning.py", line 62, in shapes
    raise DataLoss(text)
gomq_py.spark.errors.DataLoss: stream 'orders' begins at offset 7 now. Set failOnDataLoss to false to go on without them.
 SQLSTATE: 38000
\tat org.apache.spark.Something(Some.scala:1)"""


@pytest.mark.parametrize("text, words", [
    (WRAPPED, "stream 'orders' begins at offset 7 now. Set failOnDataLoss to false to go on without them."),
    ("boom\n  File x\nKeyError: 'a'\nmore", "KeyError: 'a'"),
    ("java.io.IOException: No space left on device", "the disk (or its quota) is full where the job writes"),
    ("java.io.IOException: Disk quota exceeded", "the disk (or its quota) is full where the job writes"),
    ("java.io.IOException: File too large", "the disk (or its quota) is full where the job writes"),
    (
        "An error occurred while calling o89.start.\n: ExitCodeException exitCode=1: chmod: no such file\n\tat X",
        "ExitCodeException exitCode=1: chmod: no such file",
    ),
    ("[PATH_NOT_FOUND] Path does not exist\nmore", "[PATH_NOT_FOUND] Path does not exist"),
])
def test_the_line_that_helps_is_told(text, words):
    assert told(Exception(text)).startswith(words)


def test_an_error_without_words_is_told_by_its_kind():
    assert told(ValueError()) == "ValueError"


def test_a_full_disk_is_told_though_it_is_the_cause_of_a_cause():
    error = Exception("[TASK_WRITE_FAILED] Task failed while writing rows to file:/out. SQLSTATE: 58030")
    error._cause = Exception("Job aborted")
    error._cause._cause = Exception("Job aborted\nCaused by: java.io.IOException: No space left on device")

    assert told(error).startswith("the disk (or its quota) is full where the job writes")


def test_causes_that_go_round_come_to_an_end():
    error = Exception("boom")
    error._cause = error

    assert told(error) == "boom"
