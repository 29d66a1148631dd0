"""ChildBroker: runs a broker in a child process, which a test can kill, restart and make misbehave."""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Self

import gomq_py
from gomq_py.embedded import Addresses, Broker

if TYPE_CHECKING:
    from os import PathLike

    from pika import ConnectionParameters

STOP_TIMEOUT_S = 30
STOP = json.dumps({"verb": "stop"})
# The program of the child. With -P, a queue.py or select.py in the working folder, which may be a test's own
# project, does not take the place of the standard library's; this package may lie anywhere.
CHILD = (
    "import sys; sys.path.append(sys.argv.pop(1)); from gomq_py.testing.child import main; "
    "sys.exit(main(sys.argv[1:]))")
NOT_RUNNING = "the broker is not running: start() it first"
# Protocol -> its port in a container of RabbitMQ.
CONTAINER_PORTS = {"amqp": 5672, "amqps": 5671, "mqtt": 1883, "mqtts": 8883, "http": 15672, "https": 15671}
# Options with a port; 0: any free port.
PORTS = (*(f"{protocol}_port" for protocol in CONTAINER_PORTS), "metrics_http_port")


class ChildBroker(Addresses):
    """A broker in a child process: ``with ChildBroker() as broker: connect(broker.amqp_url)``.

    Takes the keywords of ``gomq_py.Broker``. By default it does not flush messages to disk (``sync=False``):
    a kill loses no message even so, but a power cut may. ``tls=True`` opens listeners with TLS for AMQP and
    MQTT, with a new certificate for localhost and 127.0.0.1. This needs the package trustme; ``ca_file`` is
    the path of the certificate of its authority.
    """

    def __init__(
        self, data_dir: "str | PathLike[str] | None" = None, *, tls: bool = False, **options: Any,
    ) -> None:
        """Check the options. Raises TypeError or ValueError if ``gomq_py.Broker`` refuses them."""
        Broker(data_dir, **options)  # only checks the options
        self._own_folder = ""
        self._owns_data = data_dir is None
        self._tls = tls
        self.data_dir = str(data_dir or "")
        self.ca_file = ""
        self._options = {
            "sync": False, "mqtt_port": 0, **({"amqps_port": 0, "mqtts_port": 0} if tls else {}),
            **{name: _plain(name, value) for name, value in options.items()},
        }
        self._process: subprocess.Popen[str] | None = None
        self._log: Any = None  # file of the child's standard error, from the first start on
        self._logged = ""  # the log's content when it was closed
        self._reserved: list[socket.socket] = []
        self._addresses = {}

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # life

    def start(self) -> Self:
        """Start the child, and return when clients can connect. A restarted child has the same ports. Raises
        RuntimeError, whose text has the reason, if the broker cannot start.
        """
        if self._process is not None:
            raise RuntimeError("this broker is running already")
        is_new = self._log is None  # since it was made or closed
        try:
            self._start()
        except BaseException:  # Ctrl-C, too
            if self._process is not None:
                self._process.kill()
                self._end()
            if is_new:  # no ``with`` block will close it
                self.close()
            raise
        for protocol, (_, port) in self._addresses.items():
            self._options[f"{protocol}_port"] = port
        return self

    def _start(self):
        self._make_own_folder()
        self._reserve_ports()
        self._log = self._log or tempfile.TemporaryFile(prefix="gomq-test-log-")
        self._process = subprocess.Popen(
            [
                sys.executable, "-P", "-c", CHILD, str(Path(gomq_py.__file__).parents[1]), self.data_dir,
                json.dumps(self._options), self._own_folder,
            ],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
            # Ctrl-C and a kill of the whole group are for the tests; the child ends when they have ended.
            start_new_session=True)
        self._addresses = {
            protocol: tuple(address) for protocol, address in self._answer()["addresses"].items()
        }

    def stop(self) -> None:
        """Shut the broker down. Connections are closed with code 320, and the data are kept."""
        if self._process is not None:
            with suppress(BrokenPipeError):
                print(STOP, file=self._process.stdin, flush=True)
            self._end()

    def kill(self) -> None:
        """Kill the broker with SIGKILL. Confirmed messages survive. Raises RuntimeError if none runs."""
        if self._process is None:
            raise RuntimeError(NOT_RUNNING)
        self._process.send_signal(signal.SIGKILL)
        self._end()

    def restart(self) -> Self:
        self.stop()
        return self.start()

    def close(self) -> None:
        """Cut all connections, stop the broker, and delete the data folder unless the caller supplied it."""
        try:
            if self.is_running:
                with suppress(RuntimeError):  # just ended
                    self.drop_connections()
            self.stop()
        finally:  # also after Ctrl-C
            if self._process is not None:
                self._process.kill()
                self._end()
            self._forget()

    def _forget(self):
        if self._log is not None:
            self._logged = self.log_text
            self._log.close()
            self._log = None
        while self._reserved:
            self._reserved.pop().close()
        if self._own_folder:
            shutil.rmtree(self._own_folder, ignore_errors=True)
            self._own_folder = ""

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log_text(self) -> str:
        """The broker's log since the first start. The option ``log_level`` decides how much is logged."""
        if self._log is None:
            return self._logged
        length = os.fstat(self._log.fileno()).st_size
        octets = os.pread(self._log.fileno(), length, 0)  # pread leaves the file position to the child
        return self._logged + octets.decode("utf-8", "replace")

    # addresses

    @property
    def mqtt_port(self) -> int:
        return self._address("mqtt")[1]

    # addresses, by the names that a testcontainers.rabbitmq.RabbitMqContainer has for them

    def get_connection_params(self) -> "ConnectionParameters":
        """Return the parameters of a pika connection to the default vhost, for the user guest."""
        import pika
        return pika.URLParameters(self.amqp_url)

    def get_container_host_ip(self) -> str:
        return self._address("amqp")[0]

    def get_exposed_port(self, port: int) -> int:
        """Return this broker's port for a port of a RabbitMQ container: 5672 for AMQP, 1883 for MQTT, 15672
        for management, and those with TLS. Raises ValueError for a port that such a container does not have.
        """
        for protocol, usual in CONTAINER_PORTS.items():
            if usual == int(port):
                return self._address(protocol)[1]
        raise ValueError(f"{port} is none of {', '.join(map(str, CONTAINER_PORTS.values()))}")

    # vhosts

    def create_vhost(self, name: str) -> "ChildVHost":
        """Create a vhost with all rights for guest, if missing. Returns a context manager that deletes it."""
        self._ask("create_vhost", name)
        return ChildVHost(self, name)

    # the switches of chaos.Chaos

    def drop_connections(self) -> int:
        """Cut all connections without a close handshake. Returns their number."""
        return int(self._ask("drop_connections"))

    def close_connections(self, reason: str = "closed by a test") -> int:
        """Close all connections: AMQP with 320 CONNECTION_FORCED, MQTT 5 with 0x98. Returns their number."""
        return int(self._ask("close_connections", reason))

    def refuse_logins(self, refuse: bool = True) -> None:
        """Refuse all logins from now on; ``refuse_logins(False)`` ends this."""
        self._ask("refuse_logins", refuse)

    def delay_confirms(self, seconds: float) -> None:
        """Delay each publisher confirm, and MQTT's PUBACK, PUBREC and PUBCOMP, by ``seconds``; 0 ends it."""
        self._ask("delay_confirms", seconds)

    def nack_confirms(self, every: int) -> None:
        """Refuse one in ``every`` publishes (2: every second publish), although it is stored; 0 ends this."""
        self._ask("nack_confirms", every)

    def trip_alarm(self, reason: str | None = "low on memory") -> None:
        """Raise a resource alarm, which blocks publishers by connection.blocked; None ends the alarm."""
        self._ask("trip_alarm", reason)

    def calm(self) -> None:
        self._ask("calm")

    def _reserve_ports(self):
        """Choose a free port for each port option that is 0, and hold it while no child runs.

        A bound socket that does not listen holds a port: the system gives the port to no other process, but
        the child can listen on it (SO_REUSEADDR).
        """
        for name in {"amqp_port", *self._options}:
            if name in PORTS and self._options.get(name, 0) == 0:
                holder = socket.socket()
                self._reserved.append(holder)
                holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                holder.bind(("127.0.0.1", 0))
                self._options[name] = holder.getsockname()[1]

    def _make_own_folder(self):
        """Make a temporary folder if the caller gave no data folder, or if TLS needs a certificate."""
        if self._own_folder or not (self._owns_data or self._tls):
            return
        self._own_folder = tempfile.mkdtemp(prefix="gomq-test-")
        if self._owns_data:
            self.data_dir = os.path.join(self._own_folder, "data")
        if self._tls:
            self._options |= self._make_certificate()

    def _make_certificate(self):
        """Make a certificate in the temporary folder. Returns the broker's options for it, a dict."""
        import trustme
        authority = trustme.CA()
        certificate = authority.issue_cert("localhost", "127.0.0.1", "::1")
        self.ca_file, chain, key = (
            os.path.join(self._own_folder, f"{name}.pem") for name in ("ca", "cert", "key"))
        authority.cert_pem.write_to_path(self.ca_file)
        certificate.private_key_pem.write_to_path(key)
        for pem in certificate.cert_chain_pems:
            pem.write_to_path(chain, append=True)
        return {"tls_cert": chain, "tls_key": key}

    def _ask(self, verb, *arguments):
        """Send a command to the child and return its answer. Raises ValueError if the child refuses the
        arguments, RuntimeError if no child runs.
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


class ChildVHost(Addresses):
    """A vhost of a ChildBroker, with the broker's URLs for it. An MQTT client logs in as ``NAME:guest``."""

    def __init__(self, broker: ChildBroker, name: str) -> None:
        self.broker = broker
        self.name = self._vhost = name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.delete()

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        return self.broker.addresses

    def delete(self) -> None:
        """Delete the vhost with its content, and close its connections."""
        self.broker._ask("delete_vhost", self.name)

    def _address(self, protocol: str) -> tuple[str, int]:
        return self.broker._address(protocol)


def _plain(name, value):
    """Return an option's value for JSON: a path as text, a port as a number, others unchanged."""
    if name in PORTS:
        return int(value)
    return str(value) if isinstance(value, PurePath) else value
