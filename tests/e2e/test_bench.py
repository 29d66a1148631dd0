"""The benchmark runs on our broker and prints its tables; what it measures is nobody's test."""
import os
import subprocess
import sys
from types import SimpleNamespace

from load import bench, shovels
from load.scenarios import MQTT_ROWS, ROWS
from tests.support.command import ROOT
from tests.support.waiting import in_time


def test_a_row_is_measured_and_printed():
    command = [
        sys.executable, "-m", "load.bench", "--alone", "--no-memory", "--rounds", "1", "--seconds", "0.5",
        "--rows", "small", "quiet",
    ]

    finished = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=in_time(100),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )

    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "| 1 publisher, 1 consumer, 16 octets, automatic acks | 0.4 | 2.00 M |" in finished.stdout
    assert "FAULT" not in finished.stdout


def test_a_row_over_mqtt_is_measured_and_printed():
    command = [
        sys.executable, "-m", "load.bench", "--alone", "--no-memory", "--rounds", "1", "--seconds", "0.5",
        "--rows", "mqtt-small",
    ]

    finished = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=in_time(100),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )

    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "| QoS 0, 1 publisher, 1 subscriber, 16 octets | 0.3 |" in finished.stdout
    assert "FAULT" not in finished.stdout


def test_the_best_of_each_figure_counts_and_all_faults_do():
    runs = [
        {"cpu_us": 0.4, "rate": 1e6, "p50_ms": None, "p99_ms": 3, "generator_us": 0.1, "faults": []},
        {"cpu_us": 0.3, "rate": 9e5, "p50_ms": None, "p99_ms": 2, "generator_us": 0.2, "faults": ["lost"]},
    ]

    assert bench.best(runs) == {
        "cpu_us": 0.3, "rate": 1e6, "p50_ms": None, "p99_ms": 2, "generator_us": 0.1, "faults": ["lost"]
    }


def test_rows_of_links_are_written_by_themselves_and_one_that_failed_is_left_out():
    page = bench.DOCUMENT.read_text(encoding="utf-8")
    best = {(row.key, "gomq-py"): {"cpu_us": 0.5, "rate": 2e5} for row in shovels.EVERY}
    best["federation-live", "gomq-py"] = None
    idle = [{"octets": 13.6 * 1024, "cpu": 0.01}, {"octets": 39 * 1024, "cpu": 0.02}]

    text = shovels.document(
        best, {"gomq-py": "gomq-py 1"}, idle, SimpleNamespace(rounds=3, idle=1000, load_before=0.0))

    assert page.index(shovels.BEGIN) < page.index(shovels.END)
    assert "| shovel, on-confirm, 16 octets | 3.0 | 100 k | 0.50 | 200 k |" in text
    assert "consumed meanwhile | 6.0 | 80 k | - | - |" in text
    assert "An idle shovel takes 13.6 KiB" in text and "link of an exchange 39.0 KiB" in text


def test_the_document_has_a_place_for_the_figures_and_every_row_a_limit():
    page = bench.DOCUMENT.read_text(encoding="utf-8")

    assert page.index(bench.BEGIN) < page.index(bench.END)
    assert all(row.cpu_us or row.rate or row.p99_ms for row in (*ROWS, *MQTT_ROWS))
