"""A broker as a child process on free ports, which a test may stop, kill and start again on the same data.

    with BrokerProcess(tmp_path / "data") as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.amqp_url))

Options are the broker's flags with underscores: ``BrokerProcess(folder, log_level="debug", no_sync=True)``.
"""
import os
import re
import signal
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

from tests.support import telltale
from tests.support.waiting import TIMEOUT_S, in_time

ROOT = Path(__file__).resolve().parents[2]
BOOT_TIMEOUT_S = in_time(60.0)
STOP_TIMEOUT_S = in_time(40.0)
ANNOUNCEMENT = re.compile(r"listening (\w+) (\S+):(\d+)(?:\"})?\s*$")
READY = re.compile(r"\bready after ")
# All that there are: each test ends with a look at their logs.
MADE = weakref.WeakSet()


class BrokerProcess:
    """One ``python -m gomq_py``. Started by ``start`` or ``with``; its log is kept in ``log``."""

    pipe = subprocess.DEVNULL  # of standard input and output

    def __init__(self, data_dir, config=None, environment=None, faults=False, **options):
        """``config`` is an INI file's path; ``environment`` is added to this process's own.

        ``faults``: the test makes the broker fail, and its log may hold tracebacks.
        """
        self.data_dir = Path(data_dir)
        self._config = config
        self._environment = {
            **os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            telltale.CANARY_NAME: telltale.CANARY, **(environment or {}),
        }
        self._faults = faults
        self._checked = 0
        self._options = {
            "port": 0, "amqps_port": -1, "mqtt_port": -1, "mqtts_port": -1, "http_port": -1,
            "https_port": -1, "metrics_http_port": -1, "control_unix_path": "", **options,
        }
        self.process = None
        self.ports = {}
        self.log = []
        self._reader = None
        self._changed = threading.Condition()
        MADE.add(self)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        if self.is_running:
            self.stop()

    def __repr__(self):
        return f"<BrokerProcess {self.pid} on {self.data_dir}>"

    @property
    def arguments(self):
        """The command line of the child."""
        arguments = [sys.executable, "-m", "gomq_py", "--data-dir", str(self.data_dir)]
        if self._config:
            arguments += ["--config", str(self._config)]
        for name, value in self._options.items():
            flag = "--" + name.replace("_", "-")
            arguments += [flag] if value is True else [flag, str(value)]
        return arguments

    def start(self, timeout_s=BOOT_TIMEOUT_S):
        """Start the child and wait until it is ready; AssertionError with its log when it is not.

        Returns itself.
        """
        self.spawn()
        try:
            self.wait_for_log(READY, timeout_s)
        except BaseException:
            self.kill()
            raise
        return self

    def spawn(self):
        """Start the child and return at once, for a broker that logs elsewhere or is to fail."""
        telltale.note_passwords_of_clients()
        self.ports, self.log, self._checked = {}, [], 0
        self.process = subprocess.Popen(
            self.arguments, env=self._environment, cwd=ROOT, text=True, errors="replace",
            start_new_session=True, stdin=self.pipe, stdout=self.pipe, stderr=subprocess.PIPE)
        self._reader = threading.Thread(target=self._read_log, args=(self.process.stderr,), daemon=True)
        self._reader.start()

    def restart(self):
        """An orderly stop and a start on the same data; free ports are chosen anew."""
        self.stop()
        return self.start()

    def stop(self, timeout_s=STOP_TIMEOUT_S):
        """SIGTERM, wait, and return the exit code; AssertionError with the log when
        the broker does not leave.
        """
        self.process.send_signal(signal.SIGTERM)
        return self.wait(timeout_s)

    def kill(self):
        """SIGKILL, and wait until it is gone."""
        if self.is_running:
            self.process.kill()
        return self.wait()

    def signal(self, number):
        """Send any other signal."""
        self.process.send_signal(number)

    def wait(self, timeout_s=STOP_TIMEOUT_S):
        """Wait until the child has left; returns its exit code."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"the broker did not leave within {timeout_s} s\n{self.log_text}") from None
        self._reader.join(timeout_s)
        self.check_log()
        return code

    def check_log(self):
        """Nothing that has been logged since the last call tells a traceback, the environment or a password.

        AssertionError where it does.
        """
        first, self._checked = self._checked, len(self.log)
        told = telltale.told(self.log[first:self._checked], not self._faults)
        assert not told, "the broker's log tells " + "\n".join([*told, self.log_text])

    def wait_for_log(self, pattern, timeout_s=TIMEOUT_S):
        """Wait for a log line that matches ``pattern`` (compiled or text); returns the match.

        Lines from before the call count.
        """
        pattern = re.compile(pattern)
        deadline = time.monotonic() + timeout_s
        with self._changed:
            seen = 0
            while True:
                for line in self.log[seen:]:
                    if found := pattern.search(line):
                        return found
                seen = len(self.log)
                ended = not self._reader.is_alive() and seen == len(self.log)
                if (
                    ended
                    or not self._changed.wait(min(0.5, max(0.0, deadline - time.monotonic())))
                    and time.monotonic() >= deadline
                ):
                    why = (
                        f"the broker left with {self.process.wait()}" if ended
                        else f"not within {timeout_s} s"
                    )
                    raise AssertionError(f"no log line {pattern.pattern!r}: {why}\n{self.log_text}")

    @property
    def is_running(self):
        """True while the child lives."""
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self):
        """The child's process id, None before the first start."""
        return self.process and self.process.pid

    @property
    def port(self):
        """The AMQP port."""
        return self.ports["amqp"]

    @property
    def amqp_url(self):
        """URL of the default vhost for guest."""
        return self.url()

    def url(self, user="guest", password="guest", vhost="%2F"):
        """An AMQP URL; ``vhost`` is percent-encoded already."""
        telltale.note_password(password, user)
        return f"amqp://{user}:{password}@127.0.0.1:{self.port}/{vhost}"

    @property
    def log_text(self):
        """Everything it has logged since the last start."""
        return "\n".join(["--- log of the broker", *self.log, "---"])

    def _read_log(self, stream):
        for line in stream:
            line = line.rstrip("\n")
            with self._changed:
                if found := ANNOUNCEMENT.search(line):
                    self.ports[found[1]] = int(found[3])
                self.log.append(line)
                self._changed.notify_all()
        stream.close()
        with self._changed:
            self._changed.notify_all()
