"""A real broker under a service manager: the test's own socket for notifications,
and systemd's tool that hands sockets over.
"""
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import pika
import pytest
import requests

from tests.support import certificates
from tests.support.command import ROOT
from tests.support.ports import reserve
from tests.support.waiting import in_time, wait_until

ACTIVATE = shutil.which("systemd-socket-activate")


@pytest.fixture
def manager(tmp_path):
    """The socket that a broker notifies."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(in_time(60))
        yield listening


def told(manager):
    """The next datagram as {name: value}."""
    return dict(line.split("=", 1) for line in manager.recv(4096).decode().splitlines())


def test_service_manager_hears_of_the_boot_and_the_stop(broker_process, manager):
    broker = broker_process(environment={"NOTIFY_SOCKET": manager.getsockname()}).start()

    ready = told(manager)
    assert ready["READY"] == "1"
    assert ready["STATUS"] == f"amqp on 127.0.0.1:{broker.port}"
    broker.signal(signal.SIGTERM)
    assert told(manager) == {"STOPPING": "1"}
    assert broker.wait() == 0


def test_nothing_is_said_before_clients_can_connect(broker_process, manager):
    """Ready is what Type=notify waits for: the port answers then."""
    broker = broker_process(environment={"NOTIFY_SOCKET": manager.getsockname()})
    broker.spawn()
    told(manager)

    port = broker.wait_for_log(r"listening amqp 127\.0\.0\.1:(\d+)")[1]
    socket.create_connection(("127.0.0.1", int(port)), timeout=in_time(30)).close()


def test_boot_that_fails_is_never_ready(broker_process, manager, broker):
    second = broker_process(data_dir=broker.data_dir, environment={"NOTIFY_SOCKET": manager.getsockname()})
    second.spawn()
    assert second.wait() == 1

    manager.settimeout(0)
    with pytest.raises(BlockingIOError):
        manager.recv(100)


def test_watchdog_is_told_twice_in_its_time(broker_process, manager):
    broker_process(environment={"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "400000"}).start()
    assert told(manager)["READY"] == "1"

    def four_took_s():
        began = time.monotonic()
        assert [told(manager) for _ in range(4)] == [{"WATCHDOG": "1"}] * 4
        return time.monotonic() - began

    assert any(four_took_s() < 10 for _ in range(3)), "on a machine that does not stand still"


class Activated:
    """A broker behind systemd-socket-activate: started by the first connection,
    with the sockets that the tool has opened.
    """

    def __init__(self, folder, sockets, *flags):
        """``sockets``: (name, address) pairs, the address as the tool takes it."""
        command = [
            ACTIVATE, *(f"--listen={address}" for _, address in sockets),
            "--fdname=" + ":".join(name for name, _ in sockets), "-E", f"PYTHONPATH={ROOT}", sys.executable,
            "-m", "gomq_py", "--data-dir", str(folder), "--mqtt-port", "-1",
            "--metrics-http-port", "-1", *flags,
        ]
        self.lines = []
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, start_new_session=True, cwd=ROOT
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line)

    def wait_for(self, pattern):
        return wait_until(
            lambda: next((found for line in list(self.lines) if (found := re.search(pattern, line))), None),
            in_time(60), self.lines,
        )

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(in_time(60))
        self._reader.join(in_time(60))
        self.process.stderr.close()


@pytest.fixture
def activated(tmp_path):
    if not ACTIVATE:
        pytest.skip("systemd-socket-activate is not installed")
    made = []

    def start(sockets, *flags):
        made.append(Activated(tmp_path / "data", sockets, *map(str, flags)))
        made[-1].wait_for("Listening on")
        return made[-1]

    yield start
    for one in made:
        one.stop()


def test_sockets_that_are_handed_over_are_served(activated, tmp_path):
    """Two for AMQP, one for the management API; the first client waits in its socket until the broker is
    there. No other port is opened.
    """
    ports, path = [reserve() for _ in range(2)], tmp_path / "amqp.sock"
    broker = activated(
        [("amqp", ports[0]), ("amqp", path), ("http", ports[1])], "--port", reserve(), "--http-port",
        reserve(),
    )

    connection = pika.BlockingConnection(pika.ConnectionParameters(port=ports[0]))
    connection.channel().queue_declare("kept", durable=True)

    assert requests.get(
        f"http://127.0.0.1:{ports[1]}/api/whoami", auth=("guest", "guest"), timeout=in_time(60)
    ).json()["name"] == "guest"
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(b"AMQP\x00\x00\x09\x01")
        assert client.recv(11)[7:11] == b"\x00\x0a\x00\x0a"
    connection.close()
    broker.wait_for("ready after")
    listening = re.findall(r"listening (\w+)", "".join(broker.lines))
    assert sorted(protocol for protocol in listening if protocol != "control") == ["amqp", "amqp", "http"]
    broker.stop()
    assert path.exists(), "the path is the service manager's"


def test_tls_on_a_socket_that_is_handed_over(activated, tmp_path):
    import ssl
    files = certificates.make(tmp_path / "files")
    port = reserve()
    activated(
        [("amqps", port)], "--port", -1, "--http-port", -1, "--https-port", -1, "--tls-cert",
        files.certificate, "--tls-key", files.key,
    )

    options = pika.SSLOptions(ssl.create_default_context(cafile=files.authority), "localhost")
    pika.BlockingConnection(pika.ConnectionParameters(port=port, ssl_options=options)).close()


@pytest.mark.parametrize("name, says", [
    ("smtp", "a socket named 'smtp' on .*, which nobody serves"),
    ("amqps", "gomq-py: the service manager handed over a socket for amqps, but there is no tls_cert"),
])
def test_socket_that_cannot_be_served_is_said(activated, name, says):
    port = reserve()
    broker = activated([(name, port)], "--port", 0, "--http-port", -1)

    socket.create_connection(("127.0.0.1", port), timeout=in_time(30)).close()

    broker.wait_for(says)


def test_own_names_may_be_given_to_the_sockets(activated, tmp_path):
    config = tmp_path / "gomq.ini"
    config.write_text("[amqp]\namqp_systemd_socket_name = lavinmq-amqp.socket\n")
    port = reserve()
    activated([("lavinmq-amqp.socket", port)], "--http-port", -1, "--config", config)

    pika.BlockingConnection(pika.ConnectionParameters(port=port)).close()


def test_children_do_not_inherit_what_is_the_brokers(broker_process, manager):
    broker = broker_process(
        environment={"NOTIFY_SOCKET": manager.getsockname(), "LISTEN_PID": "1", "LISTEN_FDS": "3"}
    ).start()

    told(manager)
    assert os.path.exists(f"/proc/{broker.pid}")
    assert "refused" not in broker.log_text
