"""A pipeline file: what it says, and what is said of one that makes no sense."""
import re

import pytest

from gomq_py.pipeline.plan import read_plan
from gomq_py.spark.errors import OptionError
from tests.unit.source_tree import ROOT

SCHEMA = 'device = "topic:0"\n[fields]\nt = "double"\n'


def written(folder, text):
    (folder / "devices.toml").write_text(SCHEMA)
    (folder / "pipeline.toml").write_text(text)
    return str(folder / "pipeline.toml")


def test_the_example_of_the_page_is_a_plan(tmp_path):
    text = next(
        block
        for block in re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "spark.md").read_text(), re.DOTALL)
        if "[[job]]" in block
    )

    plan = read_plan(written(tmp_path, text))

    assert (plan.memory, plan.master) == ("1g", "local[*]")
    bronze, telemetry = plan.jobs
    assert (bronze.kind, bronze.name, bronze.out) == ("bronze", "bronze", str(tmp_path / "tables" / "bronze"))
    assert bronze.reading == {"url": "http://127.0.0.1:15672", "subscribe": "orders,payments"}
    assert (
        telemetry.schema.fields == (("t", "double"),)
        and telemetry.reading["maxOffsetsPerTrigger"] == "200000"
    )


@pytest.mark.parametrize("text, words", [
    ("", "there is no .*job"), ("[jobs]", "key jobs, which is unknown"),
    ("[[job]]\nkind = \"gold\"", "kind 'gold'; there are bronze"),
    ("[[job]]\nkind = \"bronze\"\nstreams = \"a\"", "job bronze has no out"),
    ("[[job]]\nkind = \"bronze\"\nout = \"x\"", "job bronze: .*give option subscribe"),
    (
        "[[job]]\nkind = \"bronze\"\nout = \"x\"\nstream = \"a\"",
        "job bronze has the key stream, which is unknown",
    ),
    ("[[job]]\nkind = \"telemetry\"\nout = \"x\"\nstreams = \"a\"", "job telemetry needs a schema"),
    (
        "[[job]]\nkind = \"bronze\"\nout = \"x\"\nstreams = \"a\"\nschema = \"devices.toml\"",
        "job bronze takes no schema",
    ),
    (
        "[[job]]\nkind = \"bronze\"\nout = \"x\"\nstreams = \"a\"\noptions = { password = \"x\" }",
        "job bronze: option password is not taken",
    ),
    ("[[job]]\nkind = \"bronze\"\nout = \"x\"\nstreams = \"a\"\n" * 2, "two jobs have the name 'bronze'"),
    ("a = ", "pipeline.toml: "),
])
def test_a_file_that_makes_no_sense_is_refused_with_its_name(tmp_path, text, words):
    with pytest.raises(OptionError, match=words) as refused:
        read_plan(written(tmp_path, text))

    assert "pipeline.toml" in str(refused.value)


def test_a_file_that_is_not_there_is_said():
    with pytest.raises(OptionError, match="cannot be read"):
        read_plan("/nowhere/pipeline.toml")
