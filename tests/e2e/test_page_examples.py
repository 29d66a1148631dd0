"""The examples of docs/streams.md and docs/delays.md, run as they stand."""
import re
import subprocess
import sys

import pytest

from tests.support.waiting import in_time
from tests.unit.source_tree import ROOT


@pytest.mark.parametrize("page, printed", [
    ("streams.md", "3 order 3\n4 order 4\n"),
    ("delays.md", "a job done at attempt 3\n"),
])
def test_example_does_what_its_page_says(broker, page, printed):
    example = re.search(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)[1]
    assert "127.0.0.1:5672" in example

    finished = subprocess.run(
        [sys.executable, "-c", example.replace("127.0.0.1:5672", f"127.0.0.1:{broker.port}")],
        capture_output=True, text=True, timeout=in_time(60))

    assert (finished.returncode, finished.stdout) == (0, printed), finished.stderr
