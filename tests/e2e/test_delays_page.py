"""The example of docs/delays.md, run as it stands."""
import re
import subprocess
import sys

from tests.support.waiting import in_time
from tests.unit.source_tree import ROOT


def test_message_that_is_given_back_comes_again(broker):
    example = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "delays.md").read_text(), re.DOTALL)[1]
    assert "127.0.0.1:5672" in example

    finished = subprocess.run(
        [sys.executable, "-c", example.replace("127.0.0.1:5672", f"127.0.0.1:{broker.port}")],
        capture_output=True, text=True, timeout=in_time(60))

    assert (finished.returncode, finished.stdout) == (0, "a job done at attempt 3\n"), finished.stderr
