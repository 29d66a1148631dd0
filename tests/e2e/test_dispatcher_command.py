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
from tests.support.task_queue import NOTE, cleared, workers
from tests.support.waiting import TIMEOUT_S, in_time, wait_until


@pytest.fixture
def broker(module_broker):
    return cleared(module_broker, "q")


APP = """
import asyncio, os, threading
from gomq_py.dispatcher import Dispatcher
app = Dispatcher(os.environ["TASKS_URL"], queue="q")
""" + NOTE + """
@app.task
def pool():
    from concurrent.futures import ThreadPoolExecutor
    executor = ThreadPoolExecutor()
    executor.submit(threading.Event().wait)
    note.function("held")
    executor.shutdown()

@app.task
async def wait():
    note.function("held")
    await asyncio.Event().wait()

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
    with workers(tmp_path, APP, broker.amqp_url) as run:
        def start(*arguments, **options):
            child = run("jobs:app", *arguments, stderr=subprocess.PIPE, **options)
            wait_until(lambda: consumers(broker) or child.poll() is not None)
            return child

        yield start


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


@pytest.mark.parametrize(
    "options, task",
    [
        ((), "hold"), ((), "pool"), (("--greenlets",), "hold"), (("--run-in", "processes"), "hold"),
        ((), "wait"),
    ],
)
def test_the_second_ctrl_c_gives_back_what_runs(worker, broker, tmp_path, options, task):
    """Whatever it runs in; of what it has started nothing keeps the command alive."""
    child = worker(*options)
    send(broker, task)
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("option", ["--no-status", "--greenlets"])
def test_it_leaves_at_once_where_it_has_no_connection_yet(tmp_path, number, option):
    """There may be 25 attempts, and a broker that lets it in and says nothing keeps it for long."""
    (tmp_path / "jobs.py").write_text(APP)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(TIMEOUT_S)
        child = subprocess.Popen(
            [sys.executable, "-m", "gomq_py.dispatcher", "jobs:app", option], cwd=tmp_path,
            stderr=subprocess.PIPE, text=True,
            env={
                **os.environ, "PYTHONPATH": str(ROOT),
                "TASKS_URL": f"amqp://127.0.0.1:{silent.getsockname()[1]}",
            },
        )
        with child, silent.accept()[0]:
            child.send_signal(number)
            _, told = child.communicate(timeout=TIMEOUT_S)

    assert (child.returncode, "Traceback" in told) == (0, False), told


def test_it_ends_when_the_retries_are_used_up_and_asks_nobody_anew(tmp_path, broker_process):
    """Its status line looked for a connection, and so made another one, with as many retries."""
    own = broker_process(port=reserve()).start()
    retries = 'queue="q", reconnection_retries=1, reconnection_interval_s=0.01'
    (tmp_path / "jobs.py").write_text(APP.replace('queue="q"', retries))
    with open(tmp_path / "log", "w+", encoding="utf-8") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "gomq_py.dispatcher", "jobs:app", "--status"], cwd=tmp_path, stderr=log,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TASKS_URL": own.amqp_url},
        )
        try:
            wait_until(lambda: consumers(own))
            own.kill()

            code = child.wait(TIMEOUT_S)
        finally:
            child.kill()
            child.wait(TIMEOUT_S)
        log.seek(0)
        told = log.read()

    assert (code, told.count("gave up on"), told.count("once more in")) == (1, 1, 1), told


@pytest.fixture
def reloading(worker, tmp_path):
    """The command with --reload, in a group of its own as a shell makes one, and what it writes."""
    return worker("--reload", start_new_session=True)


def test_a_terminals_ctrl_c_is_one_with_reload_too(reloading, broker, tmp_path):
    """It reaches the parent and the worker; the parent passes it on. What runs is finished."""
    send(broker, "hold")
    wait_until(lambda: "held\n" in (tmp_path / "notes").read_text())

    os.killpg(reloading.pid, signal.SIGINT)
    wait_until(lambda: not consumers(broker))
    (tmp_path / "go").touch()

    assert reloading.wait(TIMEOUT_S) == 0
    assert (tmp_path / "notes").read_text() == "held\nreleased\n"


def test_a_terminals_second_ctrl_c_gives_back_with_reload_too(reloading, broker, tmp_path):
    send(broker, "hold")
    wait_until(lambda: "held\n" in (tmp_path / "notes").read_text())

    os.killpg(reloading.pid, signal.SIGINT)
    wait_until(lambda: not consumers(broker))
    os.killpg(reloading.pid, signal.SIGINT)

    assert reloading.wait(TIMEOUT_S) == 3
    wait_until(lambda: ready(broker) == 1)


def test_code_that_cannot_be_loaded_is_told_and_the_next_change_is_tried(reloading, broker, tmp_path):
    (tmp_path / "jobs.py").write_text("def broken(:\n")
    told = ""
    for line in reloading.stderr:
        told += line
        if "SyntaxError: " in line and line.startswith("gomq-py-worker: "):
            break
    assert 'File "' in told and "jobs.py" in told and "def broken(:" in told
    (tmp_path / "jobs.py").write_text(APP.replace("text + ", "'mended ' + text + "))
    send(broker, "note", "hello")

    wait_until(lambda: (tmp_path / "notes").read_text() == "mended hello\n")


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
