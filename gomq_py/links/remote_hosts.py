"""Remote hosts: which addresses links may connect to, and connecting to them.

Whoever may set a shovel decides where this machine connects to, and an HTTP destination is a way to services
that trust it: those on the loopback, or a cloud's metadata on a link-local address. So the settings say which
addresses are refused, and each address that a name stands for is held against them at the moment when it is
connected to: a name that meant something else when the link was set gets nobody further.
"""
import time
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any

import gevent
from gevent import socket

from gomq_py.links.lookups import Lookups, is_address

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
        if is_address(host):
            self.check(host, host)


def connect(
    host: str, port: int, timeout_s: float, rules: HostRules, lookups: Lookups, keepalive: Any = None,
) -> Any:
    """A connected socket of gevent's, to the first address of the host that answers. ``timeout_s``: to find
    its addresses, and again to reach one of them; ``keepalive`` has idle_s, interval_s and probes, or is
    None.

    Raises OSError; where all of its addresses are refused, HostRefused. May switch.
    """
    failure: OSError | None = None
    found = lookups.find(host, port, timeout_s)
    until = time.monotonic() + timeout_s
    for number, (family, kind, protocol, _, address) in enumerate(found):
        # an address that does not answer leaves the others their share
        share_s = max(0.0, until - time.monotonic()) / (len(found) - number)
        try:
            rules.check(host, address[0])
            with gevent.Timeout(share_s, False):
                return _connected(family, kind, protocol, address, keepalive)
            failure = TimeoutError(f"no TCP connection to {host}:{port} within {timeout_s:g} s")
        except HostRefused as refused:
            failure = failure or refused
        except OSError as error:
            failure = error
    raise failure or OSError(f"{host} has no address")


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


def _connected(family: int, kind: int, protocol: int, address: Any, keepalive: Any) -> Any:
    connecting = socket.socket(family, kind, protocol)
    try:
        if keepalive:
            connecting.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, keepalive.idle_s)
            connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, keepalive.interval_s)
            connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, keepalive.probes)
        connecting.connect(address)
    except BaseException:
        connecting.close()
        raise
    return connecting
