"""The examples of docs/delays.md, run as they stand."""
import re
import subprocess
import sys

from tests.support.waiting import in_time
from tests.unit.source_tree import ROOT


def run(broker, number):
    """Run an example. Returns the finished process."""
    page = (ROOT / "docs" / "delays.md").read_text()
    example = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[number]
    assert "127.0.0.1:5672" in example

    return subprocess.run(
        [sys.executable, "-c", example.replace("127.0.0.1:5672", f"127.0.0.1:{broker.port}")],
        capture_output=True, text=True, timeout=in_time(60))


def test_message_that_is_given_back_comes_again(broker):
    finished = run(broker, 0)

    assert (finished.returncode, finished.stdout) == (0, "a job done at attempt 3\n"), finished.stderr


def test_message_that_repeats_comes_until_it_is_deleted(broker):
    finished = run(broker, 1)

    assert (finished.returncode, finished.stdout) == (0, "often: the second\n" * 2), finished.stderr
