"""The benchmark runs on our broker and prints its tables; what it measures is nobody's test."""
import os
import subprocess
import sys

from load import bench
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


def test_the_document_has_a_place_for_the_figures_and_every_row_a_limit():
    page = bench.DOCUMENT.read_text(encoding="utf-8")

    assert page.index(bench.BEGIN) < page.index(bench.END)
    assert all(row.cpu_us or row.rate or row.p99_ms for row in (*ROWS, *MQTT_ROWS))
