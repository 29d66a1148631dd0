"""Runs a broker in a child process, so that a test can kill it, restart it and make it misbehave."""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Self

from gomq_py.embedded import Broker, url_of

if TYPE_CHECKING:
    from os import PathLike

STOP_TIMEOUT_S = 30
NOT_RUNNING = "the broker is not running: start() it first"
# Options with a port; 0: any free port.
PORTS = (
    "amqp_port", "amqps_port", "mqtt_port", "mqtts_port", "http_port", "https_port", "metrics_http_port"
)


class ChildBroker:
    """A broker in a child process: ``with ChildBroker() as broker: connect(broker.amqp_url)``.

    Takes the keywords of ``gomq_py.Broker``. With ``sync=True`` it flushes messages to disk, otherwise not: a
    kill loses no message even so, but a power cut may.
    """

    def __init__(self, data_dir: "str | PathLike[str] | None" = None, **options: Any) -> None:
        """Raises TypeError or ValueError if ``gomq_py.Broker`` refuses the options."""
        Broker(data_dir, **options)  # only checks the options
        self._own_folder = tempfile.mkdtemp(prefix="gomq-test-") if data_dir is None else None
        self.data_dir = str(data_dir or self._own_folder)
        self._options: dict[str, Any] = {
            "sync": False, "mqtt_port": 0, **{name: _plain(value) for name, value in options.items()}
        }
        self._process: subprocess.Popen[str] | None = None
        self._log: Any = None  # file of the child's standard error, from the first start on
        self._logged = ""  # the log's content when it was closed
        self._reserved: list[socket.socket] = []
        self.addresses: dict[str, tuple[str, int]] = {}

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # life

    def start(self) -> Self:
        """Start the child, and return when clients can connect. A restarted child has the same ports.

        Raises RuntimeError, whose text has the reason, if the broker cannot start.
        """
        if self._process is not None:
            raise RuntimeError("this broker is running already")
        self._reserve_ports()
        self._log = self._log or tempfile.TemporaryFile(prefix="gomq-test-log-")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "gomq_py.testing.child", self.data_dir, json.dumps(self._options)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True)
        try:
            self.addresses = {
                protocol: tuple(address) for protocol, address in self._answer()["addresses"].items()
            }
        except BaseException:
            self._process.kill()
            self._end()
            raise
        for protocol, (_, port) in self.addresses.items():
            self._options[f"{protocol}_port"] = port
        return self

    def stop(self) -> None:
        """Stop the broker in order: connections are closed with code 320, and its data are kept."""
        if self._process is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
            self._end()

    def kill(self) -> None:
        """Kill the broker with SIGKILL, like a crash. Confirmed messages survive."""
        if self._process is None:
            raise RuntimeError(NOT_RUNNING)
        self._process.send_signal(signal.SIGKILL)
        self._end()

    def restart(self) -> Self:
        self.stop()
        return self.start()

    def close(self) -> None:
        """Cut all connections, stop the broker, and delete the data folder unless the caller supplied it."""
        if self.is_running:
            with suppress(RuntimeError):  # just ended
                self.drop_connections()
        self.stop()
        if self._log is not None:
            self._logged = self.log_text
            self._log.close()
            self._log = None
        while self._reserved:
            self._reserved.pop().close()
        if self._own_folder is not None:
            shutil.rmtree(self._own_folder, ignore_errors=True)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log_text(self) -> str:
        """The broker's log since the first start(). Option ``log_level`` decides how much is logged."""
        if self._log is None:
            return self._logged
        length = os.fstat(self._log.fileno()).st_size
        octets = os.pread(self._log.fileno(), length, 0)  # pread leaves the file position to the child
        return self._logged + octets.decode("utf-8", "replace")

    # addresses

    @property
    def amqp_url(self) -> str:
        """The AMQP URL of the default vhost, for the user guest."""
        return self.url()

    @property
    def mqtt_port(self) -> int:
        """The port of the MQTT listener."""
        if not self.addresses:
            raise RuntimeError(NOT_RUNNING)
        return self.addresses["mqtt"][1]

    @property
    def mqtt_url(self) -> str:
        """The MQTT URL of the default vhost, for the user guest: ``mqtt://guest:guest@HOST:PORT``."""
        return self.url(protocol="mqtt", vhost="")

    def url(
        self, user: str = "guest", password: str = "guest", vhost: str = "/", protocol: str = "amqp",
    ) -> str:
        """Return a URL of this broker with these parts, which are percent-encoded."""
        if not self.addresses:
            raise RuntimeError(NOT_RUNNING)
        host, port = self.addresses[protocol]
        return url_of(protocol, user, password, host, port, vhost)

    # switches: see chaos.Chaos

    def drop_connections(self) -> int:
        """Cut all connections without a close handshake. Returns their count."""
        return int(self._ask("drop_connections"))

    def close_connections(self, reason: str = "closed by a test") -> int:
        """Close all connections with 320 CONNECTION_FORCED, over MQTT 5 with 0x98. Returns their count."""
        return int(self._ask("close_connections", reason))

    def refuse_logins(self, refuse: bool = True) -> None:
        """Refuse every password from now on; ``refuse_logins(False)`` ends this."""
        self._ask("refuse_logins", refuse)

    def delay_confirms(self, seconds: float) -> None:
        """Delay each publisher confirm, on all channels, by ``seconds``; 0 ends this."""
        self._ask("delay_confirms", seconds)

    def nack_confirms(self, every: int) -> None:
        """Nack one in ``every`` publishes (2: every second publish); 0 ends this."""
        self._ask("nack_confirms", every)

    def trip_alarm(self, reason: str | None = "low on memory") -> None:
        """Raise a resource alarm, which blocks publishers by connection.blocked; None ends the alarm."""
        self._ask("trip_alarm", reason)

    def calm(self) -> None:
        self._ask("calm")

    def _reserve_ports(self):
        """Choose a free port for each port option that is 0, and hold it while no child runs: otherwise
        another process might take the port.

        A bound socket that does not listen holds a port: the system gives the port to nobody else, but the
        child can listen on it (SO_REUSEADDR).
        """
        for name in {"amqp_port", *self._options}:
            if name in PORTS and self._options.get(name, 0) == 0:
                holder = socket.socket()
                self._reserved.append(holder)
                holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                holder.bind(("127.0.0.1", 0))
                self._options[name] = holder.getsockname()[1]

    def _ask(self, verb, *arguments):
        """Send a command to the child and return its answer.

        Raises ValueError if the child refuses the arguments, RuntimeError if no child runs.
        """
        if self._process is None:
            raise RuntimeError(NOT_RUNNING)
        request = json.dumps({"verb": verb, "arguments": arguments})
        with suppress(BrokenPipeError):  # it has ended, as the answer shows
            print(request, file=self._process.stdin, flush=True)
        return self._answer()["value"]

    def _answer(self):
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait(STOP_TIMEOUT_S)
            raise RuntimeError(f"the broker is not running: its process ended with {code}")
        answer = json.loads(line)
        if "error" in answer:
            raise (ValueError if answer.get("is_value") else RuntimeError)(answer["error"])
        return answer

    def _end(self):
        process, self._process = self._process, None
        try:
            process.wait(STOP_TIMEOUT_S)
        finally:
            process.kill()
            process.stdout.close()
            with suppress(BrokenPipeError):  # the process has ended by itself
                process.stdin.close()


def _plain(value):
    """Return a path as text, because JSON has no paths; other values are returned unchanged."""
    return str(value) if isinstance(value, PurePath) else value
