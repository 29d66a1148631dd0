"""Remote hosts: limits the addresses to which links may connect, by a check at the moment of connecting.

A user who may set a shovel decides where this machine connects to. An HTTP destination reaches services that
trust this machine: on the loopback, or a cloud's metadata on a link-local address. So the settings list
refused addresses (HostRules). Each resolved address is checked, so that a name cannot evade the check by
changing its address later.
"""
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any

from gomq_py.net import connecting
from gomq_py.net.connecting import Lookups, is_address
from gomq_py.net.socket_options import keepalive_options

# Networks of IPv6 addresses with an embedded IPv4 address, and the positions of its bytes: compatible (RFC
# 4291 §2.5.5.1), translated (RFC 2765 §2.1), NAT64 (RFC 6052 §2.1), local NAT64, whose prefix may have 48,
# 56, 64 or 96 bits (RFC 8215, RFC 6052 §2.2), and 6to4 (RFC 3056 §2). The standard library knows mapped
# addresses and Teredo's.
_LAST = (12, 13, 14, 15)
_EMBEDDING = (
    (IPv6Network("::/96"), (_LAST,)), (IPv6Network("::ffff:0:0:0/96"), (_LAST,)),
    (IPv6Network("64:ff9b::/96"), (_LAST,)),
    (IPv6Network("64:ff9b:1::/48"), (_LAST, (6, 7, 9, 10), (7, 9, 10, 11), (9, 10, 11, 12))),
    (IPv6Network("2002::/16"), ((2, 3, 4, 5),)),
)
# Embedded behind any prefix (ISATAP, RFC 5214 §6.1).
_ISATAP = (b"\0\0\x5e\xfe", b"\2\0\x5e\xfe")


class HostRefused(OSError):
    """The settings refuse this address. An OSError, so links retry: the name may get another address."""


class HostRules:
    """Refuses addresses in ``denied`` networks, except those also in ``allowed`` networks. ``key``: name of
    the setting that lists the denied networks, for errors.
    """

    def __init__(self, denied: Any, allowed: Any, key: str):
        self._denied = denied
        self._allowed = allowed
        self._key = key

    def check(self, host: str, address: str) -> None:
        """Raise HostRefused if links may not connect to this ``address`` of the host."""
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

    def allowed(self, host: str, found: list[Any]) -> list[Any]:
        """Return the entries of ``found`` to which links may connect. Raises HostRefused if all are refused.
        ``found``: getaddrinfo()'s result for the host.
        """
        allowed, refused = [], []
        for one in found:
            try:
                self.check(host, one[4][0])
                allowed.append(one)
            except HostRefused as error:
                refused.append(error)
        if refused and not allowed:
            raise refused[0]
        return allowed

    def check_literal(self, host: str) -> None:
        """Raise HostRefused if ``host`` is a refused IP address. ``connect`` checks a name's addresses."""
        if is_address(host):
            self.check(host, host)


def connect(
    host: str, port: int, timeout_s: float, rules: HostRules, lookups: Lookups, keepalive: Any = None,
    account: Any = None,
) -> Any:
    """Return a gevent socket connected to the first address of the host that answers. May switch greenlets.

    ``timeout_s``: time limit for resolving, and again for connecting. ``keepalive``: settings of TCP
    keepalive (attributes idle_s, interval_s and probes), or None. ``account``: (user who set the link,
    virtual host), by which name lookups take turns. Raises OSError; HostRefused if all addresses of the host
    are refused.
    """
    allowed = rules.allowed(host, lookups.find(host, port, timeout_s, account))
    return connecting.connect(host, allowed, timeout_s, keepalive_options(keepalive))


def meanings(address: str) -> list[IPv4Address | IPv6Address]:
    """Return the address and the IPv4 addresses embedded in it; only the latter if it is IPv4-mapped."""
    parsed = ip_address(address.partition("%")[0])
    if not isinstance(parsed, IPv6Address):
        return [parsed]
    if parsed.ipv4_mapped is not None:
        return [parsed.ipv4_mapped]
    packed = parsed.packed
    found = [
        IPv4Address(bytes(packed[at] for at in places))
        for network, layouts in _EMBEDDING if parsed in network
        for places in layouts if places is _LAST or packed[places[0]]  # 0.0.0.0/8: other layout
    ]
    if packed[8:12] in _ISATAP:
        found.append(IPv4Address(packed[12:]))
    return [parsed, *found, *(parsed.teredo or ())]
