"""Brokers as child processes on free ports and empty folders, for the benchmark: ours on the shipped
configuration, and Debian's rabbitmq-server.
"""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

from load.veth import HOST, NAMESPACE, inside

ROOT = Path(__file__).resolve().parent.parent
SHIPPED_CONFIG = ROOT / "etc" / "gomq.ini"
_BOOT_S = 60
_LOOK_S = 0.05
_GUESTS = ["--default-user-only-loopback", "false"] if NAMESPACE else []


class BrokerFailed(Exception):
    """A broker did not start; the text holds the end of its log."""


class GomqBroker:
    """``gomq-py --config etc/gomq.ini`` with AMQP alone, or with the management API and the metrics too."""

    name = "gomq-py"

    def __init__(
            self, folder, management=False, metered=False, mqtt=False, tls=False, checkout=ROOT,
            arguments=()):
        """``metered``: with a meter inside, see ``pieces``. ``checkout``: another folder of gomq-py, which is
        run with its own interpreter where it has one in ``.venv``. ``arguments``: further flags.
        """
        self._folder = Path(folder)
        self._checkout = Path(checkout)
        if self._checkout != ROOT:
            self.name = f"{self.name} in {self._checkout.name}"
            self._folder = self._folder / self._checkout.name
            self._folder.mkdir(exist_ok=True)
        self._certificate = certified(self._folder) if tls else None
        self._metered = metered
        self._log = self._folder / "gomq-py.log"
        self._management_ports = ("0", "0") if management else ("-1", "-1")
        self._mqtt_port = "0" if mqtt else "-1"
        self._arguments = arguments
        self._process = None

    def start(self):
        """Start and wait until it is ready. Raises BrokerFailed."""
        command = [
            self._interpreter(), "-m", "load.metered" if self._metered else "gomq_py",
            "--config", str(SHIPPED_CONFIG), "--data-dir", str(self._folder / "gomq-data"),
            "--bind", HOST, "--port", "0", "--mqtt-port", self._mqtt_port, "--http-port",
            self._management_ports[0],
            "--metrics-http-port", self._management_ports[1], "--control-unix-path", "", *_GUESTS,
            *self._arguments,
        ]
        if self._certificate:
            command += [
                "--amqps-port", "0", "--https-port", "-1", "--mqtts-port", "-1", "--tls-cert",
                str(self._certificate.chain), "--tls-key", str(self._certificate.key),
            ]
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                inside(command), cwd=self._checkout,
                stdin=subprocess.PIPE if self._metered else subprocess.DEVNULL,
                stdout=subprocess.PIPE if self._metered else log, stderr=log, start_new_session=True)
        _wait(lambda: "ready after" in self._text(), self._process, self._text)
        return self

    @property
    def uri(self):
        """Its URL."""
        return f"amqp://guest:guest@{HOST}:{self._port('amqp')}/%2f"

    def pieces(self):
        """(the longest piece of the hub's CPU time, all of them) since the last call, in ms."""
        self._process.stdin.write(b"?\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return answer["longest_ms"], answer["total_ms"]

    @property
    def mqtt_uri(self):
        """Its URL over MQTT."""
        return f"mqtt://guest:guest@{HOST}:{self.mqtt_port}"

    @property
    def mqtt_port(self):
        """The port of MQTT; 0: there is none."""
        return self._port("mqtt")

    @property
    def amqps_port(self):
        """The port of AMQP over TLS; 0: there is none."""
        return self._port("amqps")

    def _port(self, protocol):
        # a node that is elected listens anew
        found = re.findall(rf"listening {protocol} {HOST}:([0-9]+)", self._text())
        return int(found[-1]) if found else 0

    @property
    def amqps_uri(self):
        """Its URL over TLS."""
        return _amqps_uri(self.amqps_port, self._certificate)

    @property
    def http_port(self):
        """The port of the management API."""
        return self._port("http")

    @property
    def metrics_port(self):
        """The port of the metrics."""
        return self._port("metrics")

    @property
    def pid(self):
        """The process to measure."""
        return self._process.pid

    def version(self):
        """Name, version and how it runs."""
        return re.search(r"gomq-py [^\n]*", self._text())[0].replace(f", process {self.pid}", "")

    def stop(self):
        """Stop it and delete what it stored."""
        _stop(self._process, self.pid)
        shutil.rmtree(self._folder / "gomq-data", ignore_errors=True)

    def _interpreter(self):
        own = self._checkout / ".venv" / "bin" / "python"
        return str(own) if self._checkout != ROOT and own.exists() else sys.executable

    def _text(self):
        return self._log.read_text(errors="replace")


class MosquittoBroker:
    """A Mosquitto without limits on what may wait, which by default it drops."""

    name = "Mosquitto"

    def __init__(self, folder):
        self._folder = Path(folder)
        self._log = self._folder / "mosquitto.log"
        self._process = None
        self.mqtt_uri = ""

    @classmethod
    def _program(cls):
        return shutil.which("mosquitto", path=os.environ.get("PATH", os.defpath) + ":/usr/sbin")

    @classmethod
    def is_installed(cls):
        """Whether there is a Mosquitto to compare with."""
        return cls._program() is not None

    def start(self):
        """Start and wait until it is ready. Raises BrokerFailed."""
        (port,) = free_ports(1)
        configuration = self._folder / "mosquitto.conf"
        lines = [
            f"listener {port} {HOST}", "allow_anonymous true", "max_queued_messages 0",
            "max_inflight_messages 0",
        ]
        # As root it would become the user "mosquitto", who may not look into a folder of root's.
        configuration.write_text("\n".join([*lines, *(["user root"] if os.geteuid() == 0 else []), ""]))
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                inside([self._program(), "-c", str(configuration)]), stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, start_new_session=True)
        _wait(lambda: " running" in self._text(), self._process, self._text)
        self.mqtt_uri = f"mqtt://{HOST}:{port}"
        return self

    @property
    def pid(self):
        """The process to measure."""
        return self._process.pid

    def version(self):
        """Name and version."""
        return f"Mosquitto {re.search(r'mosquitto version ([0-9.]+)', self._text())[1]}"

    def stop(self):
        """Stop it."""
        _stop(self._process, self.pid)

    def _text(self):
        return self._log.read_text(errors="replace")


class RabbitBroker:
    """A RabbitMQ node with its own Erlang port mapper, only the plugins named, and RabbitMQ's defaults."""

    name = "RabbitMQ"
    # Debian's; the one in /usr/sbin insists on the rabbitmq user
    _SERVER = "/usr/lib/rabbitmq/bin/rabbitmq-server"

    def __init__(self, folder, plugins=(), tls=False):
        self._tls = tls
        self.amqps_uri = ""
        self._plugins = plugins
        self.http_port = 0  # of the management API, where that is among the plugins
        self._folder = Path(folder) / "rabbitmq"
        self._log = self._folder / "log.txt"
        self._process = None
        self._environment: dict = {}
        self.uri = ""

    @classmethod
    def is_installed(cls):
        """Whether there is a RabbitMQ to compare with."""
        return os.access(cls._SERVER, os.X_OK)

    def start(self):
        """Start and wait until it is ready. Raises BrokerFailed."""
        self._folder.mkdir()
        (self._folder / "plugins").write_text(f"[{','.join(self._plugins)}].")
        port, distribution_port, mapper_port, self.http_port, amqps_port = free_ports(5)
        lines = ["loopback_users = none"] if NAMESPACE else []
        if self._plugins:
            # what the API collects is no plugin's cost
            lines += [
                f"management.tcp.ip = {HOST}", f"management.tcp.port = {self.http_port}",
                "management_agent.disable_metrics_collector = true",
            ]
        if self._tls:
            files = certified(self._folder)
            lines += [
                f"listeners.ssl.1 = {HOST}:{amqps_port}", f"ssl_options.cacertfile = {files.authority}",
                f"ssl_options.certfile = {files.chain}", f"ssl_options.keyfile = {files.key}",
            ]
            self.amqps_uri = _amqps_uri(amqps_port, files)
        if lines:
            (self._folder / "some.conf").write_text("\n".join([*lines, ""]))
        self._environment = {
            **os.environ, "HOME": str(self._folder), "RABBITMQ_NODENAME": f"bench{port}@localhost",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_NODE_IP_ADDRESS": HOST, "RABBITMQ_DIST_PORT": str(distribution_port),
            "ERL_EPMD_PORT": str(mapper_port),
            "RABBITMQ_MNESIA_BASE": str(self._folder / "data"),
            "RABBITMQ_LOG_BASE": str(self._folder / "log"),
            "RABBITMQ_PID_FILE": str(self._folder / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._folder / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(self._folder / "some"),
        }
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                inside([self._SERVER]), env=self._environment, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, start_new_session=True)
        _wait(lambda: "completed with" in self._text(), self._process, self._text)
        self.uri = f"amqp://guest:guest@{HOST}:{port}/%2f"
        return self

    @property
    def pid(self):
        """The process to measure: the virtual machine, not the scripts around it."""
        return int((self._folder / "pid").read_text())

    def version(self):
        """Name and version."""
        return f"RabbitMQ {re.search(r'RabbitMQ ([0-9.]+)', self._text())[1]}"

    def stop(self):
        """Stop it, its port mapper, and delete what it stored."""
        _stop(self._process, self.pid)
        subprocess.run(
            inside(["epmd", "-kill"]), env=self._environment, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, check=False,
        )
        shutil.rmtree(self._folder, ignore_errors=True)

    def _text(self):
        return self._log.read_text(errors="replace")


def certified(folder):
    """Files of a certificate for this machine: ``authority``, ``chain``, ``key``."""
    import trustme  # of the extra dev, which other loads do without

    files = SimpleNamespace(
        authority=folder / "authority.pem", chain=folder / "certificate.pem", key=folder / "key.pem")
    authority = trustme.CA()
    issued = authority.issue_cert(HOST)
    authority.cert_pem.write_to_path(files.authority)
    files.chain.write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(files.key)
    return files


def _amqps_uri(port, files):
    return f"amqps://guest:guest@{HOST}:{port}/%2f?cacertfile={quote(str(files.authority), safe='')}"


def free_ports(count):
    """Ports that nobody listens on just now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


def _wait(ready, process, text):
    deadline = time.monotonic() + _BOOT_S
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise BrokerFailed(text()[-2000:])
        time.sleep(_LOOK_S)


def _stop(process, pid):
    os.kill(pid, signal.SIGTERM)
    try:
        process.wait(_BOOT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
