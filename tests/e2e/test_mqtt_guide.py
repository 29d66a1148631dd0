"""docs/mqtt.md: its examples run as they are printed, and what it names is there."""
import re

import pytest

from gomq_py.config.settings import OPTIONS
from gomq_py.ctl.commands import ctl
from tests.ctl import running  # noqa: F401 - commands register themselves
from tests.unit.source_tree import ROOT

TEXT = (ROOT / "docs" / "mqtt.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=[f"example {number}" for number in range(len(EXAMPLES))])
def test_example_runs_as_it_is_printed(example):
    exec(compile(example, "docs/mqtt.md", "exec"), {})


def test_commands_that_it_names_are_there():
    named = set(re.findall(r"`((?:list|close|delete|get)_mqtt_\w+)", TEXT))

    assert len(named) >= 8 and named - ctl.commands.keys() == set()


def test_settings_that_it_names_are_there():
    table = TEXT[TEXT.index("## Where it listens"):TEXT.index("## Users")]
    keys = {option.key for option in OPTIONS if option.section in ("mqtt", "main", "amqp")}

    assert set(re.findall(r"`(\w+)`", table)) - keys - {"mqtt", "mqtts"} == set()
