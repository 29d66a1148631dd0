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

# Networks of IPv6 addresses that stand for IPv4 ones, and their octets: compatible (RFC 4291 §2.5.5.1),
# translated (RFC 2765 §2.1), of a gateway (RFC 6052 §2.1), of gateways of one's own, whose prefix may have
# 48, 56, 64 or 96 bits (RFC 8215, RFC 6052 §2.2), and 6to4 (RFC 3056 §2). The standard library knows
# mapped ones and Teredo's.
_LAST = (12, 13, 14, 15)
_EMBEDDING = (
    (IPv6Network("::/96"), (_LAST,)), (IPv6Network("::ffff:0:0:0/96"), (_LAST,)),
    (IPv6Network("64:ff9b::/96"), (_LAST,)),
    (IPv6Network("64:ff9b:1::/48"), (_LAST, (6, 7, 9, 10), (7, 9, 10, 11), (9, 10, 11, 12))),
    (IPv6Network("2002::/16"), ((2, 3, 4, 5),)),
)
# Behind any prefix (ISATAP, RFC 5214 §6.1).
_ISATAP = (b"\0\0\x5e\xfe", b"\2\0\x5e\xfe")


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
        if any(meant[0] in network for network in self._allowed):
            return
        for one in meant:
            if any(one in network for network in self._allowed):
                continue
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
    account: Any = None,
) -> Any:
    """A connected socket of gevent's, to the first address of the host that answers. ``timeout_s``: to find
    its addresses, and again to reach one of them; ``keepalive`` has idle_s, interval_s and probes, or is
    None; ``account``: whose link it is.

    Raises OSError; where all of its addresses are refused, HostRefused. May switch.
    """
    failure: OSError | None = None
    found = lookups.find(host, port, timeout_s, account)
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
    """An address, and the IPv4 ones that may be meant by it; instead of a mapped one what it means."""
    parsed = ip_address(address.partition("%")[0])
    if not isinstance(parsed, IPv6Address):
        return [parsed]
    if parsed.ipv4_mapped is not None:
        return [parsed.ipv4_mapped]
    packed = parsed.packed
    found = [
        IPv4Address(bytes(packed[at] for at in places))
        for network, layouts in _EMBEDDING if parsed in network
        for places in layouts if places is _LAST or packed[places[0]]  # 0.0.0.0/8 is what other layouts leave
    ]
    if packed[8:12] in _ISATAP:
        found.append(IPv4Address(packed[12:]))
    return [parsed, *found, *(parsed.teredo or ())]


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
