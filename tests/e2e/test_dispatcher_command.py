"""gomq-py-worker: what it runs, how it is stopped, and what it shows."""

import json
import os
import signal
import socket
import subprocess
import sys
from urllib.request import urlopen

import pytest

from gomq_py.client.connection import Connection
from gomq_py.dispatcher import Task
from tests.support.command import ROOT
from tests.support.ports import reserve
from tests.support.waiting import TIMEOUT_S, in_time, wait_until

APP = """
import os, threading
from gomq_py.dispatcher import Dispatcher
app = Dispatcher(os.environ["TASKS_URL"], queue="q")

@app.task
def note(text: str):
    with open("notes", "a") as file:
        file.write(text + "\\n")

@app.task
def hold():
    note.function("held")
    while not os.path.exists("go"):
        threading.Event().wait(0.01)
    note.function("released")
"""


@pytest.fixture
def worker(broker, tmp_path):
    """A function that starts the command in a folder with the app above, and waits until it consumes."""
    (tmp_path / "jobs.py").write_text(APP)
    (tmp_path / "notes").touch()
    children = []

    def start(*arguments):
        children.append(
            subprocess.Popen(
                [sys.executable, "-m", "gomq_py.dispatcher", "jobs:app", *arguments],
                cwd=tmp_path,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": str(ROOT), "TASKS_URL": broker.amqp_url},
            )
        )
        wait_until(lambda: consumers(broker) or children[-1].poll() is not None)
        return children[-1]

    yield start
    (tmp_path / "go").touch()
    for child in children:
        child.terminate()
        if child.poll() is None:
            child.wait(TIMEOUT_S)
        child.communicate(timeout=TIMEOUT_S)


def consumers(broker, queue="q"):
    with Connection(broker.amqp_url) as connection:
        try:
            return connection.channel().queue_declare(queue, passive=True).consumer_count
        except Exception:  # it is not there yet
            return 0


def ready(broker):
    with Connection(broker.amqp_url) as connection:
        return connection.channel().queue_declare("q", passive=True).message_count


def send(broker, name, *args):
    with Connection(broker.amqp_url) as connection:
        channel = connection.channel()
        channel.confirm_select()
        channel.publish("", "q", Task(name, list(args)).encode())
        assert channel.wait_for_confirms()


@pytest.mark.parametrize("options", [(), ("--greenlets",), ("--run-in", "processes")])
def test_it_runs_tasks_and_leaves_on_sigterm(worker, broker, tmp_path, options):
    child = worker(*options)

    send(broker, "note", "hello")
    wait_until(lambda: "hello\n" in (tmp_path / "notes").read_text())
    child.send_signal(signal.SIGTERM)

    assert child.wait(TIMEOUT_S) == 0
    assert ready(broker) == 0


def test_the_first_ctrl_c_finishes_what_runs(worker, broker, tmp_path):
    child = worker("--concurrency", "1")
    send(broker, "hold")
    wait_until(lambda: "held\n" in (tmp_path / "notes").read_text())
    send(broker, "note", "later")

    child.send_signal(signal.SIGINT)
    wait_until(lambda: not consumers(broker))
    (tmp_path / "go").touch()

    assert child.wait(TIMEOUT_S) == 0
    assert (tmp_path / "notes").read_text() == "held\nreleased\n"
    assert ready(broker) == 1


def test_the_second_ctrl_c_gives_back_what_runs(worker, broker, tmp_path):
    child = worker()
    send(broker, "hold")
    wait_until(lambda: "held\n" in (tmp_path / "notes").read_text())

    child.send_signal(signal.SIGINT)
    wait_until(lambda: not consumers(broker))
    child.send_signal(signal.SIGINT)

    assert child.wait(TIMEOUT_S) == 3
    wait_until(lambda: ready(broker) == 1)


def test_health_file_metrics_and_status_line(worker, broker, tmp_path):
    port, health = reserve(), tmp_path / "health"
    child = worker("--health-file", str(health), "--prometheus-port", str(port), "--status")
    send(broker, "note", "hello")

    wait_until(lambda: health.exists() and json.loads(health.read_text())["done"] == 1)
    metrics = urlopen(f"http://127.0.0.1:{port}/metrics", timeout=TIMEOUT_S).read().decode()
    child.send_signal(signal.SIGTERM)
    _, told = child.communicate(timeout=TIMEOUT_S)

    assert 'gomq_worker_tasks_done_total{queue="q"} 1.0' in metrics and "gomq_worker_connected 1.0" in metrics
    assert "connected True  running 0  done 1  failed 0  rate" in told
    assert not health.exists()


def test_changed_code_is_loaded(worker, broker, tmp_path):
    worker("--reload")
    (tmp_path / "jobs.py").write_text(APP.replace("text + ", "'new ' + text + "))

    def heard():
        send(broker, "note", "hello")
        return "new hello" in (tmp_path / "notes").read_text()

    wait_until(heard)


@pytest.mark.parametrize(
    "place, text",
    [
        ("nothing:app", "No module named 'nothing'"),
        ("jobs:nobody", "nobody"),
        ("jobs:os", "and not a Dispatcher"),
    ],
)
def test_what_is_no_app_is_said(tmp_path, place, text):
    (tmp_path / "jobs.py").write_text(APP)
    child = subprocess.run(
        [sys.executable, "-m", "gomq_py.dispatcher", place],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TASKS_URL": "amqp://127.0.0.1:1"},
    )

    assert (child.returncode, text in child.stderr) == (2, True), child.stderr


def test_a_health_file_that_cannot_be_written_ages_and_tasks_go_on(worker, broker, tmp_path):
    """Its folder goes while the worker runs; at the start the command says that it is not there."""
    folder = tmp_path / "health"
    folder.mkdir()
    child = worker("--health-file", "health/alive")
    wait_until((folder / "alive").exists)

    folder.rename(tmp_path / "gone")
    for line in child.stderr:
        if "the health file cannot be written" in line:
            break
    send(broker, "note", "still here")

    wait_until(lambda: (tmp_path / "notes").read_text() == "still here\n")
    child.send_signal(signal.SIGTERM)
    assert child.wait(TIMEOUT_S) == 0


@pytest.mark.parametrize(
    "options, text",
    [
        (("--health-file", "nowhere/alive"), "there is no folder for the health file nowhere/alive"),
        (("--prometheus-port", "{taken}"), "metrics at port {taken}: "),
    ],
)
def test_what_it_cannot_show_it_says_at_the_start(broker, tmp_path, options, text):
    (tmp_path / "jobs.py").write_text(APP)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        finished = subprocess.run(
            [
                sys.executable, "-m", "gomq_py.dispatcher", "jobs:app",
                *(each.format(taken=port) for each in options),
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=in_time(60),
            env={**os.environ, "PYTHONPATH": str(ROOT), "TASKS_URL": broker.amqp_url},
        )

    assert finished.returncode == 2
    assert text.format(taken=port) in finished.stderr and "Traceback" not in finished.stderr
