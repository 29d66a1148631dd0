"""Remote hosts: which addresses links may connect to, and connecting to them.

Whoever may set a shovel decides where this machine connects to, and an HTTP destination is a way to services
that trust it: those on the loopback, or a cloud's metadata on a link-local address. So the settings say which
addresses are refused, and each address that a name stands for is held against them at the moment when it is
connected to: a name that meant something else when the link was set gets nobody further.
"""
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any

import _socket
import gevent
from gevent import socket
from gevent.lock import BoundedSemaphore

from gomq_py.hub import threads

# Threads of the hub's pool that names may hold: where a name server does not answer, a thread waits for half
# a minute, and passwords and keys need threads too.
LOOKUPS_AT_ONCE = 3
# Where an IPv4 address stands in the last 32 bits of an IPv6 one: compatible (RFC 4291 §2.5.5.1) and
# translated by a gateway (RFC 6052 §2.1); mapped ones the standard library knows.
_EMBEDDING = (IPv6Network("::/96"), IPv6Network("64:ff9b::/96"))


class HostRefused(OSError):
    """The settings refuse this address. An OSError, because a name may stand for another one later."""


class HostRules:
    """Which addresses are refused. ``denied`` and ``allowed`` are networks, and ``allowed`` wins; ``key`` is
    the setting that an error names.
    """

    def __init__(self, denied: Any, allowed: Any, key: str):
        self._denied = denied
        self._allowed = allowed
        self._key = key

    def check(self, host: str, address: str) -> None:
        """Raises HostRefused unless this address of the host may be connected to."""
        meant = meanings(address)
        if any(one in network for one in meant for network in self._allowed):
            return
        for one in meant:
            for network in self._denied:
                if one in network:
                    shown = host if host == address else f"{host} ({address})"
                    raise HostRefused(f"{shown} is in {network}, which {self._key} in [links] denies")

    def check_literal(self, host: str) -> None:
        """The same where the host is an address already; a name is left to ``connect``."""
        try:
            ip_address(host.partition("%")[0])
        except ValueError:
            return
        self.check(host, host)


class Lookups:
    """Finds the addresses of names, a few at a time."""

    def __init__(self, at_once: int = LOOKUPS_AT_ONCE, getaddrinfo: Any = _socket.getaddrinfo):
        self._free = BoundedSemaphore(at_once)
        self._getaddrinfo = getaddrinfo

    def find(self, host: str, port: int) -> list[Any]:
        """As getaddrinfo() has them. Raises OSError. May switch."""
        try:
            encoded = host if host.isascii() else host.encode("idna").decode()
        except UnicodeError:
            raise OSError(f"{host!r} is no name of a host") from None
        arguments = (encoded, port, socket.AF_UNSPEC, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        if _is_address(encoded):
            return self._getaddrinfo(*arguments)
        self._free.acquire()
        work = None
        try:
            work = threads.begin(self._getaddrinfo, *arguments)
            return work.get()
        except UnicodeError:  # a label that is empty or too long
            raise OSError(f"{host!r} is no name of a host") from None
        finally:
            if work is None or work.ready():
                self._free.release()
            else:  # who asked has given up, but the thread still waits for the name server
                work.call_after(self._free.release)


def connect(host: str, port: int, timeout_s: float, rules: HostRules, lookups: Lookups) -> Any:
    """A connected socket of gevent's, to the first address of the host that answers. Raises OSError; where
    all of its addresses are refused, HostRefused. May switch.
    """
    failure: OSError | None = None
    with gevent.Timeout(timeout_s, False):
        for family, kind, protocol, _, address in lookups.find(host, port):
            try:
                rules.check(host, address[0])
                return _connected(family, kind, protocol, address)
            except HostRefused as refused:
                failure = failure or refused
            except OSError as error:
                failure = error
        raise failure or OSError(f"{host} has no address")
    raise TimeoutError(f"no connection to {host}:{port} within {timeout_s:g} s")


def meanings(address: str) -> list[IPv4Address | IPv6Address]:
    """An address, and the IPv4 one that is in it where there is one."""
    parsed = ip_address(address.partition("%")[0])
    if not isinstance(parsed, IPv6Address):
        return [parsed]
    if parsed.ipv4_mapped is not None:
        return [parsed.ipv4_mapped]
    if any(parsed in network for network in _EMBEDDING):
        return [parsed, IPv4Address(int(parsed) & 0xFFFFFFFF)]
    return [parsed]


def _connected(family: int, kind: int, protocol: int, address: Any) -> Any:
    connecting = socket.socket(family, kind, protocol)
    try:
        connecting.connect(address)
    except BaseException:
        connecting.close()
        raise
    return connecting


def _is_address(host: str) -> bool:
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
