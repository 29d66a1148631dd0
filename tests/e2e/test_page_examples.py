"""The examples of docs/streams.md and docs/delays.md, run as they stand."""
import re
import subprocess
import sys

import pytest

from tests.support.waiting import in_time
from tests.unit.source_tree import ROOT


@pytest.mark.parametrize("page, number, printed", [
    ("streams.md", 0, "3 order 3\n4 order 4\n"),
    ("delays.md", 0, "a job done at attempt 3\n"),
    ("delays.md", 1, "often: the second\n" * 2),
], ids=["streams", "delays-retry", "delays-repeat"])
def test_example_does_what_its_page_says(broker, page, number, printed):
    example = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)[number]
    assert "127.0.0.1:5672" in example

    finished = subprocess.run(
        [sys.executable, "-c", example.replace("127.0.0.1:5672", f"127.0.0.1:{broker.port}")],
        capture_output=True, text=True, timeout=in_time(60))

    assert (finished.returncode, finished.stdout) == (0, printed), finished.stderr
