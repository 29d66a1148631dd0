"""Tests of what runs in Spark: left out where SPARK=0, or where the extra spark-test is not installed."""
import importlib.util
import os

import pytest

from gomq_py.spark.files_transport import folder_id
from tests.support import programs
from tests.support.stores import INCARNATION
from tests.support.streams import StreamBench

MISSING = [name for name in ("pyarrow", "pyspark") if importlib.util.find_spec(name) is None]
IS_LEFT_OUT = os.environ.get("SPARK") == "0" or bool(MISSING) and not programs.skips_are_forbidden()
if IS_LEFT_OUT:
    collect_ignore_glob = ["test_*.py"]


def pytest_collection_modifyitems(items):
    """All of them are a step of their own."""
    for item in items:
        if "tests/spark/" in str(item.path):
            item.add_marker(pytest.mark.spark)


@pytest.fixture
def data_dir(tmp_path):
    """A function that makes a data folder with one stream of a StreamBench in it: (its folder, the bench)."""

    def make(name="orders", **options):
        (tmp_path / "bench").mkdir()
        bench = StreamBench(tmp_path / "bench", **options)
        queues = tmp_path / "data" / "queues"
        queues.mkdir(parents=True, exist_ok=True)
        (queues / f"{folder_id('/', name)}.{INCARNATION[:8].hex()}").symlink_to(tmp_path / "bench" / "stream")
        return str(tmp_path / "data"), bench

    return make
