"""A program that takes its own place in the process gets what the service manager gave to the first one."""
import socket
import subprocess
import sys

from tests.support.command import ROOT
from tests.support.waiting import in_time

# The first program gets the socket as descriptor 3, closes it, and begins anew as the second one.
FIRST = """
import os, sys
from gomq_py.net.systemd import Systemd
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", LISTEN_FDNAMES="amqp")
systemd = Systemd(os.environ)
systemd.keep_sockets()
systemd.sockets[0][1].close()
environment = dict(os.environ)
systemd.hand_on(environment)
os.execve(sys.executable, [sys.executable, "-c", sys.argv[2]], environment)
"""
SECOND = """
import os
from gomq_py.net.systemd import Systemd
(name, listening), = Systemd(os.environ).sockets
print(name, listening.getsockname()[1])
"""


def test_sockets_and_variables_are_handed_on():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        finished = subprocess.run(
            [sys.executable, "-c", FIRST, str(listening.fileno()), SECOND], cwd=ROOT, text=True,
            pass_fds=[listening.fileno()], capture_output=True, timeout=in_time(60))

        assert finished.stdout == f"amqp {listening.getsockname()[1]}\n", finished.stderr
