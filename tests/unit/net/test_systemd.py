"""What a service manager hears and hands over: datagrams on a socket of the test's own, and descriptors."""
import os
import socket
import sys

import pytest

from gomq_py.net.systemd import Systemd
from tests.support.command import ROOT
from tests.support.waiting import in_time

# What runs between this fork and the child's end or exec is safe beside threads;
# Python 3.12 and newer cannot know that.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


@pytest.fixture(params=["path", "abstract"])
def manager(request, tmp_path):
    """(address for NOTIFY_SOCKET, the socket behind it)."""
    address = str(tmp_path / "notify") if request.param == "path" else f"@gomq-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(address.replace("@", "\0"))
        listening.settimeout(in_time(30))
        yield address, listening


def test_each_word_is_a_datagram(manager):
    address, listening = manager
    environment = {"NOTIFY_SOCKET": address}
    systemd = Systemd(environment)

    systemd.ready("ready after 0.1 s")
    systemd.reloading()
    systemd.alive()
    systemd.stopping()

    assert listening.recv(1000) == b"READY=1\nSTATUS=ready after 0.1 s"
    assert listening.recv(1000).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
    assert (listening.recv(1000), listening.recv(1000)) == (b"WATCHDOG=1", b"STOPPING=1")
    assert environment == {}
    systemd.close()


def test_without_a_service_manager_nothing_is_said_or_handed_over():
    systemd = Systemd({})

    systemd.ready("")
    systemd.stopping()
    assert (systemd.watchdog_s, systemd.sockets) == (0, [])
    systemd.close()


def test_service_manager_that_has_gone_is_a_line_in_the_log(tmp_path, caplog):
    Systemd({"NOTIFY_SOCKET": str(tmp_path / "nobody")}).ready("")

    assert "cannot tell the service manager READY=1: No such file or directory" in caplog.text


@pytest.mark.parametrize("environment, seconds", [
    ({"WATCHDOG_USEC": "30000000"}, 30), ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": str(os.getpid())}, 0.5),
    ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": "1"}, 0), ({"WATCHDOG_USEC": "soon"}, 0),
])
def test_watchdog_is_for_the_process_that_it_names(environment, seconds):
    assert Systemd(environment).watchdog_s == seconds
    assert environment == {}


def test_sockets_of_another_process_are_left_alone():
    environment = {"LISTEN_PID": "1", "LISTEN_FDS": "2", "LISTEN_FDNAMES": "amqp:http"}

    assert Systemd(environment).sockets == []
    assert environment == {}


CHILD = """
import os
from gomq_py.net.systemd import Systemd
os.environ["LISTEN_PID"] = str(os.getpid())
try:
    for name, listening in Systemd(os.environ).sockets:
        print(name, listening.getsockname(), os.get_inheritable(listening.fileno()))
except OSError as error:
    print(error)
"""


def child_with(*sockets, names):
    """What a child says that was handed these sockets as descriptors from 3 on."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:  # only calls that are safe between fork and exec
        for number, one in enumerate(sockets):
            os.dup2(one.fileno(), 100 + number)
        os.dup2(writer, 1)
        for number in range(len(sockets)):
            os.dup2(100 + number, 3 + number)
        environment = {
            **os.environ, "PYTHONPATH": str(ROOT), "LISTEN_FDS": str(len(sockets)), "LISTEN_FDNAMES": names
        }
        os.execve(sys.executable, [sys.executable, "-c", CHILD], environment)
    os.close(writer)
    with os.fdopen(reader) as said:
        lines = said.read().splitlines()
    os.waitpid(pid, 0)
    return lines


def test_listening_sockets_are_handed_over_by_name(tmp_path):
    with socket.create_server(
        ("127.0.0.1", 0)
    ) as first, socket.socket(socket.AF_UNIX) as second, socket.create_server(("127.0.0.1", 0)) as third:
        second.bind(str(tmp_path / "amqp.sock"))
        second.listen()

        assert child_with(first, second, third, names="amqp:amqp:") == [
            f"amqp {first.getsockname()} False", f"amqp {second.getsockname()} False",
            f"unknown {third.getsockname()} False"]


def test_descriptor_that_is_no_listening_socket_is_named():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams, socket.socket() as silent:
        for one in (datagrams, silent):
            assert child_with(one, names="amqp") == [
                "descriptor 3, handed over by the service manager, is no listening stream socket"
            ]
