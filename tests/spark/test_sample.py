"""etc/spark-pipeline: what its tables are made of runs as it stands.

By this session: the command that runs such projects needs Spark Connect and its packages (grpcio, pandas).
"""
import re

import pytest
from pyspark.pipelines.graph_element_registry import GraphElementRegistry, graph_element_registration_context

from tests.spark.sessions import run_available
from tests.unit.source_tree import ROOT

PROJECT = ROOT / "etc" / "spark-pipeline"
SPECIFICATION = (PROJECT / "spark-pipeline.yml").read_text(encoding="utf-8")
CONFIGURATION = dict(re.findall(r"^  (gomq\.\w+): (\S+)$", SPECIFICATION, re.MULTILINE))


class Registry(GraphElementRegistry):
    """Keeps what a project declares: {target: function that gives its rows}."""

    def __init__(self):
        self.kinds = {}
        self.flows = {}

    def register_output(self, output):
        self.kinds[output.name] = type(output).__name__

    def register_flow(self, flow):
        self.flows[flow.target] = flow.func

    def register_auto_cdc_flow(self, flow):
        raise NotImplementedError

    def register_sql(self, sql_text, file_path):
        raise NotImplementedError


@pytest.fixture
def project(spark, broker):
    """The Registry of the sample, configured for the stream "sample" of this broker."""
    here = {"gomq.url": broker.url, "gomq.streams": "sample"}
    assert set(CONFIGURATION) == set(here)
    for name, value in here.items():
        spark.conf.set(name, value)
    registry = Registry()
    with graph_element_registration_context(registry):
        for path in sorted((PROJECT / "transformations").glob("**/*.py")):
            exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), {"__name__": path.stem})
    yield registry
    spark.catalog.dropTempView("messages")
    for name in CONFIGURATION:
        spark.conf.unset(name)


def test_the_sample_has_every_message_once_over_two_runs_and_counts_them(spark, broker, project, tmp_path):
    broker.stream("sample")

    for run in range(2):
        broker.publish("sample", [b"12345"] * 20)
        writer = project.flows["messages"]().writeStream.format("parquet").option(
            "path", str(tmp_path / "messages")
        )
        run_available(writer, tmp_path / "checkpoint")
        table = spark.read.parquet(str(tmp_path / "messages"))
        table.createOrReplaceTempView("messages")

        offsets = sorted(row.offset for row in table.select("offset").collect())
        assert offsets == list(range(20 * (run + 1)))
    assert project.kinds == {"messages": "StreamingTable", "routing_keys": "MaterializedView"}
    assert [tuple(row) for row in project.flows["routing_keys"]().collect()] == [
        ("sample", "sample", 40, 200)
    ]
