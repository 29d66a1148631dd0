"""systemd: gets listening sockets from a service manager, and reports the broker's state to it.

The state is sent as a datagram to ``$NOTIFY_SOCKET`` (sd_notify(3)). The sockets are the descriptors from 3
on (sd_listen_fds(3)). Without a service manager nothing is done. The variables are removed from the
environment, so that no child process uses them.
"""
import os
import time
from collections.abc import MutableMapping
from typing import Any

from gevent import socket

from gomq_py.observability.log import logger

LOG = logger("systemd")
FIRST_DESCRIPTOR = 3
VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


class Systemd:
    """Communicates with the service manager that started this process, if any. ``sockets``: (name, listening
    socket) pairs; the code that serves a socket closes it. ``watchdog_s``: seconds after which the service
    manager takes a silent service for hung; 0: never.
    """

    def __init__(self, environment: MutableMapping[str, str]):
        """Take the service manager's descriptors. Raises OSError if one is no listening stream socket."""
        self._given = {name: environment[name] for name in VARIABLES if name in environment}
        self._kept: list[int] = []
        self._address = environment.pop("NOTIFY_SOCKET", "")
        self._socket: Any = None
        self.watchdog_s = _watchdog_s(environment)
        self.sockets = _inherited(environment)

    def ready(self, status: str) -> None:
        """Report to the service manager that the boot or a reload is done."""
        self._notify("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """Report to the service manager that a reload begins. Call ``ready`` at its end."""
        self._notify("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self) -> None:
        """Report to the service manager that the broker stops."""
        self._notify("STOPPING=1")

    def alive(self) -> None:
        """Report to the watchdog that the event loop runs. Call this at intervals shorter than watchdog_s."""
        self._notify("WATCHDOG=1")

    def keep_sockets(self) -> None:
        """Keep copies of the sockets for ``hand_on``, because the sockets may be closed before."""
        self._kept = [os.dup(listening.fileno()) for _, listening in self.sockets]

    def hand_on(self, environment: MutableMapping[str, str]) -> None:
        """Pass the service manager's sockets and variables to the program that replaces this process by exec.
        The exec must follow at once.
        """
        # Descriptors from FIRST_DESCRIPTOR on are overwritten.
        environment.update(self._given)
        for number, kept in enumerate(self._kept):
            os.dup2(kept, FIRST_DESCRIPTOR + number, inheritable=True)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _notify(self, *lines: str) -> None:
        if not self._address:
            return
        try:
            if self._socket is None:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                self._socket.setblocking(False)
            self._socket.sendto("\n".join(lines).encode(), _path(self._address))
        except OSError as error:
            LOG.warning("cannot tell the service manager %s: %s", lines[0], error.strerror or error)


def _path(address: str) -> str:
    """Return the socket path of an address, in which ``@`` stands for the abstract namespace."""
    return "\0" + address[1:] if address.startswith("@") else address


def _watchdog_s(environment: MutableMapping[str, str]) -> float:
    microseconds, process = environment.pop("WATCHDOG_USEC", ""), environment.pop("WATCHDOG_PID", "")
    if not microseconds.isdecimal() or process not in ("", str(os.getpid())):
        return 0.0
    return int(microseconds) / 1e6


def _inherited(environment: MutableMapping[str, str]) -> list[tuple[str, Any]]:
    process, count = environment.pop("LISTEN_PID", ""), environment.pop("LISTEN_FDS", "")
    names = environment.pop("LISTEN_FDNAMES", "").split(":")
    if process != str(os.getpid()) or not count.isdecimal():
        return []
    inherited = []
    for number in range(int(count)):
        descriptor = FIRST_DESCRIPTOR + number
        os.set_inheritable(descriptor, False)
        listening = socket.socket(fileno=descriptor)
        if (
            listening.type != socket.SOCK_STREAM
            or not listening.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        ):
            raise OSError(
                f"descriptor {descriptor}, handed over by the service manager, is no listening stream socket"
            )
        inherited.append((names[number] if number < len(names) and names[number] else "unknown", listening))
    return inherited
