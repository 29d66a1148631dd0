"""The examples of users' pages, run as they stand."""
import re
import subprocess
import sys
from contextlib import ExitStack
from functools import cache

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.waiting import in_time
from tests.unit.source_tree import ROOT

AMQP, MQTT = "127.0.0.1:5672", '"127.0.0.1", 1883'
# What each example of a page prints, by its number; of a page named in WHOLE, of all of them.
PRINTED = {
    "streams.md": ["3 order 3\n4 order 4\n"],
    "delays.md": ["a job done at attempt 3\n", "often: the second\n" * 2],
    "first-steps.md": [
        "dig a hole\n", "dig a hole\n", "5\n", "dig a hole\n", "dig a hole\n", "dig a hole\n",
        "house/kitchen/temperature 21.5\n",
    ],
    "patterns.md": [
        "a job failed 4 times\n", "no address: rejected in parcels, 1 time\n", "the first: 49\n",
        "alarm\ninvoice\nnewsletter\n", "first\nsecond\n", "50\n",
    ],
    "arguments.md": ["10 messages of one customer from 1 queue\n"],
    "dispatcher.md": ["hello hello world\n", "a second has passed\n", "cat.png 640\n"],
    # the others are parts of a program with Celery
    "groups.md": {0: "1\n3\nNone\n2\n", 3: "acme 0\nacme 1\nacme 2\n"},
}
WHOLE = "first-steps.md", "patterns.md", "arguments.md"


def examples(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def broker_of(tmp_path_factory):
    """Returns the broker of a page: pages give queues of one name other arguments."""
    with ExitStack() as stack:
        yield cache(lambda page: stack.enter_context(
            BrokerProcess(tmp_path_factory.mktemp("examples") / "data", mqtt_port=0)))


@pytest.mark.parametrize("page, number, printed", [
    pytest.param(page, number, printed, id=f"{page}-{number}")
    for page, outputs in PRINTED.items()
    for number, printed in (outputs.items() if isinstance(outputs, dict) else enumerate(outputs))
])
def test_example_does_what_its_page_says(broker_of, page, number, printed):
    broker = broker_of(page)
    example = examples(page)[number]
    assert AMQP in example or MQTT in example

    here = example.replace(AMQP, f"127.0.0.1:{broker.port}").replace(
        MQTT, f'"127.0.0.1", {broker.ports["mqtt"]}')
    finished = subprocess.run(
        [sys.executable, "-c", here], capture_output=True, text=True, timeout=in_time(60))

    assert (finished.returncode, finished.stdout) == (0, printed), finished.stderr


@pytest.mark.parametrize("page", WHOLE)
def test_no_example_of_the_page_is_left_out(page):
    assert len(examples(page)) == len(PRINTED[page])
