"""make load: starts a broker, has Locust's users at it, prints what they saw and what it cost,
and says whether that is enough.

    python -m load.locust_run [--account-only] [--ui]     LOAD_USERS=300 LOAD_SECONDS=60 LOAD_SHAPE=spike

Fails when the account of confirmed messages does not balance, a request failed, or a target is missed: 3000
confirmed messages a second of 300 users, of fewer in proportion, where they are there all the time (no shape
but soak); 250 ms from publish to delivery (p99); and after ten minutes memory that has not grown by more than
5 MB since minute 2. ``--account-only`` judges the account alone: what a busy machine can be held to.
"""

import argparse
import csv
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import psutil

from load.brokers import ROOT, GomqBroker

SHAPES = ("ramp", "spike", "soak", "fanin")
# Confirmed messages a second of so many users, and how many of the users are there whatever the number:
# they publish nothing.
CONFIRMED_PER_S, OF_USERS, FIXED_USERS = 3000, 300, 12
# The users of the shape fanin: devices, and who takes what they report.
FAN_IN = ("Device", "MqttDevice", "StreamReader", "Listening", "Worker")
RAMP_S = 5  # in which the users come
LATENCY_MS = 250
GROWN_MB, FROM_S, LATE_S = 5, 120, 600
# Of so many looks the median counts: what a collection of garbage is about to free comes and goes.
LOOKS = 15
LOOK_S = 2.0


class Watch:
    """CPU, anonymous memory and loop lag of the broker, looked at every two seconds."""

    def __init__(self, broker):
        self._process = psutil.Process(broker.pid)
        self._metrics_url = f"http://127.0.0.1:{broker.metrics_port}/metrics"
        self._stop = threading.Event()
        self._began = time.monotonic()
        self._cpu_s = self._cpu_then_s = sum(self._process.cpu_times()[:2])
        self.has_ended = False  # the broker, in the middle
        self.memory: list = []  # (seconds, MB)
        self.lags: list = []  # seconds
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def end(self):
        """CPU seconds it used meanwhile, and how long that was."""
        self._stop.set()
        self._thread.join()
        self._look_once(self._look_at_cpu)
        return self._cpu_s - self._cpu_then_s, time.monotonic() - self._began

    def grown_mb(self):
        """Between minute 2 and the end, where the run lasts ten; None for a shorter one."""
        if not self.memory or self.memory[-1][0] < LATE_S - 2 * LOOK_S:
            return None
        early = [megabytes for seconds, megabytes in self.memory if seconds >= FROM_S][:LOOKS]
        late = [megabytes for _, megabytes in self.memory[-LOOKS:]]
        return statistics.median(late) - statistics.median(early)

    def _look(self):
        while not self._stop.wait(LOOK_S) and not self.has_ended:
            for look in (self._look_at_cpu, self._look_at_memory, self._look_at_lag):
                self._look_once(look)

    def _look_once(self, look):
        """A broker that is gone shows nothing: that is told at the end of the run."""
        try:
            look()
        except (OSError, psutil.Error):
            self.has_ended = not self._process.is_running() or self._process.status() == psutil.STATUS_ZOMBIE

    def _look_at_cpu(self):
        self._cpu_s = sum(self._process.cpu_times()[:2])

    def _look_at_memory(self):
        with open(f"/proc/{self._process.pid}/status", encoding="ascii") as file:
            found = re.search(r"RssAnon:\s+(\d+)", file.read())
        if found is None:
            raise ProcessLookupError("the process has ended, and nobody has asked how")
        self.memory.append((time.monotonic() - self._began, int(found[1]) / 1024))

    def _look_at_lag(self):
        with urllib.request.urlopen(self._metrics_url, timeout=30) as answer:
            lag = re.search(r"^\w*event_loop_lag_seconds (\S+)", answer.read().decode(), re.MULTILINE)
        if lag:
            self.lags.append(float(lag[1]))


def confirmed_per_s(count, seconds):
    """The rate of a run in which they come in the first seconds,
    as if all had been there from the middle of these on.
    """
    return count / (seconds - min(RAMP_S, seconds) / 2)


def wanted_per_s(users, shape=""):
    """Confirmed messages a second that so many users must reach;
    None for a shape in which they are not all there.
    """
    if shape not in ("", "soak"):
        return None
    return CONFIRMED_PER_S * max(0, users - FIXED_USERS) / (OF_USERS - FIXED_USERS)


def run(options):
    """The exit code."""
    try:
        users, seconds = int(os.environ.get("LOAD_USERS", "300")), float(os.environ.get("LOAD_SECONDS", "60"))
    except ValueError as error:
        print(f"LOAD_USERS and LOAD_SECONDS are numbers: {error}", file=sys.stderr)
        return 2
    shape = os.environ.get("LOAD_SHAPE", "").lower()
    if users < 1 or not 1 <= seconds < 1e6 or shape not in ("", *SHAPES):
        print(
            f"LOAD_USERS and LOAD_SECONDS are from 1 on, LOAD_SHAPE is one of {', '.join(SHAPES)}",
            file=sys.stderr,
        )
        return 2
    with tempfile.TemporaryDirectory(prefix="gomq-load-") as folder:
        broker = GomqBroker(folder, management=True, mqtt=True).start()
        try:
            environment = {
                **os.environ,
                "LOAD_SHAPE": shape,
                "LOAD_AMQP_URL": broker.uri,
                "LOAD_MQTT_URL": broker.mqtt_uri,
                "LOAD_HTTP_URL": f"http://127.0.0.1:{broker.http_port}",
                "LOAD_ACCOUNT": f"{folder}/account.json",
                "PYTHONPATH": str(ROOT),
            }
            command = [
                sys.executable,
                "-m",
                "locust",
                "-f",
                "load/locustfile.py,load/shapes.py" if shape else "load/locustfile.py",
                "--host",
                f"http://127.0.0.1:{broker.http_port}",
                *(FAN_IN if shape == "fanin" else ()),
            ]
            if options.ui:
                print(f"the broker is at {broker.uri}; Ctrl-C ends both", flush=True)
                return subprocess.call(
                    [*command, "--web-host", "127.0.0.1", "--web-port", str(options.port)],
                    cwd=ROOT,
                    env=environment,
                )
            watch = Watch(broker)
            shaped = (
                []
                if shape
                else ["-u", str(users), "-r", str(max(1, users // RAMP_S)), "-t", f"{seconds:g}s"]
            )
            code = subprocess.call(
                [*command, "--headless", "--only-summary", "--csv", f"{folder}/load", *shaped],
                cwd=ROOT,
                env=environment,
            )
            cpu_s, lasted_s = watch.end()
            wanted = None if options.account_only else wanted_per_s(users, shape)
            return _judge(Path(folder), watch, cpu_s, lasted_s, seconds, code, wanted, options.account_only)
        finally:
            broker.stop()


def _judge(folder, watch, cpu_s, lasted_s, seconds, code, wanted, account_only):
    path = folder / "account.json"
    account = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    lines = _statistics(folder / "load_stats.csv")
    rate = confirmed_per_s(account["confirmed"], seconds) if account else 0
    # In a fan-in nobody publishes but devices.
    latency = lines.get("publish to delivery") or lines.get("MQTT report to delivery")
    latency_ms = float(latency["99%"]) if latency else None
    failed = int(lines["Aggregated"]["Failure Count"]) if "Aggregated" in lines else None
    grown_mb = watch.grown_mb()
    memory = [megabytes for _, megabytes in watch.memory] or [0.0]
    print(
        f"\nbroker: {cpu_s:.1f} s of CPU in {lasted_s:.0f} s ({100 * cpu_s / lasted_s:.0f}%), anonymous "
        f"memory {memory[0]:.0f} to {memory[-1]:.0f} MB, loop lag up to "
        f"{1000 * max(watch.lags, default=0):.0f} ms"
    )
    print(
        f"confirmed: {rate:.0f} a second; publish to delivery p99 {latency_ms} ms; "
        f"{failed} failures; account {account}"
    )
    missed = []
    if watch.has_ended:
        missed.append("the broker ended before the run did")
    if not lines:
        missed.append(f"Locust ended with {code} and left no statistics")
    if account is None or account["missing"] or account["delivered"] < account["confirmed"]:
        missed.append(f"the account of confirmed messages does not balance: {account}")
    if not account_only:
        if failed or code:
            missed.append(f"{failed} requests failed, and Locust ended with {code}")
        if wanted is not None and rate < wanted:
            missed.append(f"{rate:.0f} confirmed messages a second, {wanted:.0f} wanted")
        if latency_ms is None or latency_ms > LATENCY_MS:
            missed.append(f"{latency_ms} ms from publish to delivery (p99), {LATENCY_MS} allowed")
        if grown_mb is not None and grown_mb > GROWN_MB:
            missed.append(f"memory grew by {grown_mb:.1f} MB after minute 2, {GROWN_MB} allowed")
    for line in missed:
        print(f"FAILED: {line}")
    return 1 if missed else 0


def _statistics(path):
    """{name of a line: its row}; none where Locust had not begun."""
    if not path.exists():
        return {}
    with open(path, encoding="utf-8", newline="") as file:
        return {row["Name"]: row for row in csv.DictReader(file)}


def main():
    """The command."""
    parser = argparse.ArgumentParser("python -m load.locust_run", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--account-only", action="store_true")
    parser.add_argument("--ui", action="store_true")
    parser.add_argument("--port", type=int, default=8089)
    try:
        sys.exit(run(parser.parse_args()))
    except KeyboardInterrupt:
        sys.exit(130)  # as a shell says it; Locust had the same Ctrl-C, and the broker is stopped


if __name__ == "__main__":
    main()
