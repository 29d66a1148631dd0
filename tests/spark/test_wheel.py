"""The wheel: it holds what Spark finds by itself, and the command."""
import os
import shutil
import subprocess
import sys

from tests.support.waiting import TIMEOUT_S
from tests.unit.source_tree import ROOT, tracked_files


def test_what_is_installed_from_the_wheel_is_found_by_spark(tmp_path):
    for path in tracked_files():
        place = path.relative_to(ROOT)
        if place.parts[0] in ("gomq_py", "pyspark_gomq", "etc") or len(place.parts) == 1:
            (tmp_path / "copy" / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, tmp_path / "copy" / place)
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(
        [
            sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target",
            str(tmp_path / "site"), ".",
        ],
        cwd=tmp_path / "copy", env={**clean, "GOMQ_PURE_PYTHON": "1"}, check=True, timeout=8 * TIMEOUT_S)

    # As pyspark.sql.worker.lookup_data_sources looks.
    looked = subprocess.run(
        [sys.executable, "-c", (
            "from importlib import import_module; from pkgutil import iter_modules\nfor one in "
            "iter_modules():\n    if one.name.startswith('pyspark_'):\n        source = "
            "import_module(one.name).DefaultSource; print(one.name, source.name(), "
            "import_module(one.name).__file__)")],
        cwd=tmp_path, env={**clean, "PYTHONPATH": str(tmp_path / "site"), "GOMQ_PURE_PYTHON": "1"},
        capture_output=True, text=True, timeout=3 * TIMEOUT_S,
    )
    command = subprocess.run(
        [sys.executable, str(tmp_path / "site" / "bin" / "gomq-py-pipeline"), "--version"], cwd=tmp_path,
        env={**clean, "PYTHONPATH": str(tmp_path / "site"), "GOMQ_PURE_PYTHON": "1"}, capture_output=True,
        text=True, timeout=3 * TIMEOUT_S)

    assert looked.stdout.split()[:2] == ["pyspark_gomq", "gomq"], looked.stderr
    assert looked.stdout.split()[2].startswith(str(tmp_path / "site"))
    assert command.stdout.startswith("gomq-py-pipeline"), command.stderr
