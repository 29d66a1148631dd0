"""The examples of docs/dispatcher.md, run as they stand."""

import re
import subprocess
import sys

import pytest

from tests.support.waiting import in_time
from tests.unit.source_tree import ROOT

EXAMPLES = re.findall(
    r"```python\n(.*?)```", (ROOT / "docs" / "dispatcher.md").read_text(encoding="utf-8"), re.DOTALL
)


@pytest.mark.parametrize("number, output", [
    (0, "hello hello world\n"), (1, "a second has passed\n"), (2, "cat.png 640\n")])
def test_example_runs(shared_broker, number, output):
    example = EXAMPLES[number]
    assert "127.0.0.1:5672" in example

    finished = subprocess.run(
        [sys.executable, "-c", example.replace("127.0.0.1:5672", f"127.0.0.1:{shared_broker.port}")],
        capture_output=True,
        text=True,
        timeout=in_time(60),
    )

    assert (finished.returncode, finished.stdout) == (0, output), finished.stderr
