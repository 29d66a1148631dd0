"""``python -m load.task_queues``: what a task costs in gomq_py.dispatcher, in Celery and in dramatiq,
at the same broker.

Tasks are persistent, sent one after the other with a confirm each, and acknowledged after they ran. First
they are sent, then a worker takes them; the systems take turns (A B C A B C). CPU time is the figure to
compare: user and system of the whole process from the first task to the last, divided by the tasks, so that
starting and loading do not count. Rates depend on what else the machine does. Latencies are from before the
send to the function's first line, of tasks that come one by one to a worker that waits. Systems that are not
installed are left out. Prints a table for docs/dispatcher.md.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from gomq_py.client.connection import Connection
from gomq_py.client.errors import ChannelClosed
from load.brokers import ROOT, GomqBroker

SYSTEMS = ("gomq_py.dispatcher", "celery", "dramatiq")
QUEUE = "tasks"
# The workers of all three may have so many tasks at hand for each that runs.
PREFETCH = 2
_ENDED_S, _LOOK_S = 300, 0.05


@dataclass(frozen=True)
class Load:
    """``count`` tasks that take ``work_ms``, ``concurrency`` at once;
    every ``pace_ms`` one, or before the worker comes.
    """

    title: str
    count: int
    concurrency: int
    work_ms: float = 0.0
    pace_ms: float = 0.0


LOADS = (
    Load("no work, 1 at once", 2000, 1),
    Load("no work, 8 at once", 2000, 8),
    Load("10 ms, 1 at once", 200, 1, work_ms=10),
    Load("10 ms, 8 at once", 800, 8, work_ms=10),
    Load("no work, one every 10 ms", 300, 8, pace_ms=10),
)


def main(arguments=None):
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m load.task_queues", description=__doc__)
    parser.add_argument("--rounds", type=int, default=2, help="the best of them counts (%(default)s)")
    parser.add_argument("--share", type=float, default=1.0, help="of the tasks (%(default)s)")
    parser.add_argument("--systems", nargs="*", default=[each for each in SYSTEMS if is_installed(each)])
    options = parser.parse_args(arguments)
    print(
        "| load | system | worker: CPU us a task | tasks/s | sender: CPU us | sent/s | latency p50 / p99 ms "
        "|\n|---|---|---|---|---|---|---|"
    )
    for load in LOADS:
        count = max(20, int(load.count * options.share))
        rounds = [[measure(each, load, count) for each in options.systems] for _ in range(options.rounds)]
        for number, system in enumerate(options.systems):
            print(row(load, system, [each[number] for each in rounds]), flush=True)
    return 0


def is_installed(system):
    """Whether there is such a package here; ours is."""
    return importlib.util.find_spec(system.partition(".")[0]) is not None


def row(load, system, figures):
    """A line of the table: of each figure the best."""
    least = {name: min(each[name] for each in figures) for name in figures[0]}
    latency = f"{least['p50_ms']:.1f} / {least['p99_ms']:.1f}" if load.pace_ms else ""
    return (
        f"| {load.title} | {system} | {least['worker_us']:.0f} | {1 / least['worker_s']:.0f} | "
        f"{least['sender_us']:.0f} | {1 / least['sender_s']:.0f} | {latency} |"
    )


def measure(system, load, count):
    """Figures of one run with a broker of its own: seconds and CPU microseconds for each task,
    and latencies.
    """
    with tempfile.TemporaryDirectory(prefix="gomq-tasks-") as folder:
        broker = GomqBroker(folder).start()
        result = Path(folder) / "result.json"
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "TASKS_SYSTEM": system,
            "TASKS_URL": broker.uri,
            "TASKS_COUNT": str(count),
            "TASKS_CONCURRENCY": str(load.concurrency),
            "TASKS_RESULT": str(result),
            "dramatiq_queue_prefetch": str(PREFETCH * load.concurrency),
        }
        worker = None
        try:
            if load.pace_ms:
                worker = start(system, load, environment, folder)
                wait_for(lambda: consumers(broker), worker, _ENDED_S)
            command = [
                sys.executable, "-m", "load.task_queue_jobs", str(count), str(load.work_ms / 1000),
                str(load.pace_ms / 1000),
            ]
            sent = json.loads(subprocess.check_output(command, env=environment, timeout=_ENDED_S, text=True))
            worker = worker or start(system, load, environment, folder)
            wait_for(result.exists, worker, _ENDED_S)
            return {**sent, **json.loads(result.read_text())}
        finally:
            if worker is not None:
                worker.kill()
                worker.wait()
            broker.stop()


def start(system, load, environment, folder):
    """The system's own command for workers, in threads."""
    commands = {
        "gomq_py.dispatcher": ["gomq_py.dispatcher", "load.task_queue_jobs:app", "--log-level", "error"],
        "celery": [
            "celery", "-A", "load.task_queue_jobs:app", "worker", "-P", "threads", "-c",
            str(load.concurrency), "--without-gossip", "--without-mingle", "--without-heartbeat", "-l",
            "error",
        ],
        "dramatiq": [
            "dramatiq", "load.task_queue_jobs:app", "--processes", "1", "--threads", str(load.concurrency),
            "--queues", QUEUE,
        ],
    }
    with open(Path(folder) / "worker.log", "wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", *commands[system]], env=environment, cwd=folder, stdout=log, stderr=log
        )


def consumers(broker):
    """How many there are, once there is the queue."""
    with Connection(broker.uri) as connection:
        try:
            return connection.channel().queue_declare(QUEUE, passive=True).consumer_count
        except ChannelClosed:
            return 0


def wait_for(condition, worker, seconds):
    """Look until it holds. Raises RuntimeError where the worker ends or the time does."""
    deadline = time.monotonic() + seconds
    while not condition():
        if worker.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(
                f"the worker {worker.args} ended with {worker.poll()}, or took over {seconds} s"
            )
        time.sleep(_LOOK_S)


if __name__ == "__main__":
    sys.exit(main())
