"""Remote hosts: resolves the names that links connect to, checks their addresses, and connects.

Lookups resolves names in threads of its own, because a name server that does not answer blocks a thread for
half a minute. Each lookup has a time limit; a slow one no longer counts among those allowed at once, and is
retried after all others. An account is (user who set the link, virtual host); accounts take turns. Beyond the
limit, an account may use up to half of what is left of a reserve, so that one user's names leave room for
others'.

A user who may set a shovel decides where this machine connects to, perhaps to services that trust it: on the
loopback, or a cloud's metadata on a link-local address. So the settings list refused addresses (HostRules).
Each resolved address is checked at the moment of connecting, because a name's address may change.
"""
import _socket
import time
from collections import Counter, OrderedDict
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any

import gevent
from gevent import socket
from gevent.event import Event

from gomq_py.hub import threads

# Places: names looked up at once for all accounts, and as many again in reserve. With 16, three hundred names
# at a server that answers in 20 ms are resolved in half a second.
AT_ONCE = 16
# A slower lookup gives its place to another; its thread waits on. Servers answer in a tenth of that.
SLOW_S = 2.0
# Threads for both kinds of lookup, the last quarter in reserve. An unanswered lookup ends after some 10 s.
THREADS_MOST = 64
# Threads for names whose last lookup was slow and failed; as many again in reserve.
LATE_AT_ONCE = 8
# A resolver asks its second server when the first has not answered for 5 s, the third after 10 s.
RESOLVE_S = 15.0
# Most slow and failed names remembered.
LATE_NAMES_MOST = 4096
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


class Unresolved(TimeoutError):
    """A name did not resolve in time."""


class Lookups:
    """Resolves host names for the links of one broker."""

    def __init__(
        self, getaddrinfo: Any = _socket.getaddrinfo, at_once: int = AT_ONCE, slow_s: float = SLOW_S,
        resolve_s: float = RESOLVE_S,
    ):
        self._getaddrinfo = getaddrinfo
        self._at_once = at_once
        self._slow_s = slow_s
        self._resolve_s = resolve_s
        self._waiting: dict[str, _Lookup] = {}
        # account: {name: lookup}, oldest request first; accounts in order of their last turn, oldest first. A
        # name that several accounts ask for is in each one's row.
        self._rows: dict[Any, dict[str, _Lookup]] = {}
        self._late_rows: dict[Any, dict[str, _Lookup]] = {}
        self._running: dict[str, _Lookup] = {}  # oldest first
        self._late: OrderedDict[str, bool] = OrderedDict()

    def find(self, host: str, port: int, timeout_s: float = RESOLVE_S, account: Any = None) -> list[Any]:
        """A list of addresses in getaddrinfo()'s form. Raises OSError (including Unresolved). May switch."""
        try:
            encoded = host if host.isascii() else host.encode("idna").decode()
        except UnicodeError:
            raise OSError(f"{host!r} is no name of a host") from None
        if is_address(encoded):
            return self._look_up(encoded, port)
        timeout_s = min(timeout_s, self._resolve_s)
        try:
            found = self._found(encoded, timeout_s, account)
        except UnicodeError:  # an empty or too long label
            raise OSError(f"{host!r} is no name of a host") from None
        if found is None:
            raise Unresolved(f"the name {host} did not resolve within {timeout_s:g} s")
        return [(*one[:4], (one[4][0], port, *one[4][2:])) for one in found]

    def _found(self, host: str, timeout_s: float, account: Any) -> list[Any] | None:
        """The addresses of a name, or None if its lookup does not end in time. May switch."""
        lookup = self._lookup_of(host, account)
        lookup.askers += 1
        try:
            self._begin_waiting()
            until = time.monotonic() + timeout_s
            while not lookup.ended.is_set() and (left_s := until - time.monotonic()) > 0:
                lookup.ended.wait(min(left_s, self._slow_s))
                self._begin_waiting()  # a lookup that has become slow gives up its place
            return lookup.work.get() if lookup.ended.is_set() else None
        finally:
            lookup.askers -= 1
            if not lookup.askers:
                self._left(lookup)

    def _lookup_of(self, host: str, account: Any) -> "_Lookup":
        """The running, waiting or new _Lookup of a name."""
        if host in self._running:
            return self._running[host]
        lookup = self._waiting.get(host)
        if lookup is None:
            lookup = self._waiting[host] = _Lookup(host, host in self._late)
        self._rows_of(lookup).setdefault(account, {})[host] = lookup
        lookup.accounts[account] = None
        return lookup

    def _rows_of(self, lookup: "_Lookup") -> dict[Any, dict[str, "_Lookup"]]:
        return self._late_rows if lookup.is_late else self._rows

    def _left(self, lookup: "_Lookup") -> None:
        """Drop a lookup whose result no caller wants any more."""
        if self._waiting.get(lookup.host) is lookup:  # else it has ended, and a new lookup of the name waits
            self._wait_no_more(lookup)
        if lookup.work is not None and not lookup.ended.is_set() and self._is_slow(lookup):
            self._note_late(lookup.host)

    def _wait_no_more(self, lookup: "_Lookup") -> None:
        del self._waiting[lookup.host]
        rows = self._rows_of(lookup)
        for account in lookup.accounts:
            del rows[account][lookup.host]
            if not rows[account]:
                del rows[account]

    def _note_late(self, host: str) -> None:
        self._late[host] = True
        self._late.move_to_end(host)
        if len(self._late) > LATE_NAMES_MOST:
            self._late.popitem(last=False)

    def _begin_waiting(self) -> None:
        """Begin waiting lookups, as far as the limits allow."""
        for rows in (self._rows, self._late_rows):
            while rows and self._begin_one(rows):
                pass

    def _begin_one(self, rows: dict[Any, dict[str, "_Lookup"]]) -> bool:
        """Begin one waiting lookup, of the first account in ``rows`` ({account: {name: lookup}}) whose limits
        allow it. Returns False if no account's limits do.
        """
        is_late = rows is self._late_rows
        running = list(self._running.values())
        kinds = [
            (Counter(one.account for one in running), THREADS_MOST - THREADS_MOST // 4, THREADS_MOST),
            (Counter(one.account for one in running if not self._is_slow(one)), self._at_once,
             2 * self._at_once),
        ]
        if is_late:
            lates = Counter(one.account for one in running if one.is_late)
            kinds.append((lates, LATE_AT_ONCE, 2 * LATE_AT_ONCE))
        for account, row in rows.items():
            if all(_has_place(account, *kind) for kind in kinds):
                rows[account] = rows.pop(account)  # behind other accounts
                # The newest first: under overload the oldest are the next to time out.
                self._begin(row[next(iter(row) if is_late else reversed(row))], account)
                return True
        return False

    def _is_slow(self, lookup: "_Lookup") -> bool:
        return time.monotonic() - lookup.began_s >= self._slow_s

    def _begin(self, lookup: "_Lookup", account: Any) -> None:
        self._wait_no_more(lookup)
        lookup.account = account
        lookup.began_s = time.monotonic()
        lookup.work = threads.begin_apart(self._look_up, lookup.host, 0)
        self._running[lookup.host] = lookup
        lookup.work.call_after(lambda: self._ended(lookup))

    def _ended(self, lookup: "_Lookup") -> None:
        del self._running[lookup.host]
        lookup.ended.set()
        if lookup.has_failed() and self._is_slow(lookup):
            self._note_late(lookup.host)
        else:
            self._late.pop(lookup.host, None)
        self._begin_waiting()

    def _look_up(self, host: str, port: int) -> list[Any]:
        return self._getaddrinfo(host, port, socket.AF_UNSPEC, socket.SOCK_STREAM, socket.IPPROTO_TCP)


class _Lookup:
    """The lookup of a name for all ``accounts`` that ask for it; it counts against the limits of ``account``.
    """

    __slots__ = ("host", "is_late", "askers", "accounts", "account", "began_s", "work", "ended")

    def __init__(self, host: str, is_late: bool):
        self.host = host
        self.is_late = is_late
        self.askers = 0
        self.accounts: dict[Any, None] = {}
        self.account: Any = None
        self.began_s = 0.0
        self.work: Any = None
        self.ended = Event()

    def has_failed(self) -> bool:
        """True if the lookup, which has ended, found no address."""
        try:
            self.work.get()
        except Exception:
            return True
        return False


def _has_place(account: Any, of_accounts: Counter[Any], limit: int, most: int) -> bool:
    """Whether ``account`` may begin another lookup. ``of_accounts``: count of running lookups by account. It
    may if fewer than ``limit`` run in all, or if then twice as many of the ``most`` places are free as it
    uses.
    """
    count = of_accounts.total()
    return count < limit or of_accounts[account] + 1 <= (most - count - 1) / 2


def is_address(host: str) -> bool:
    """True if ``host`` is an IP address and not a name."""
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


class HostRefused(OSError):
    """The settings refuse this address. An OSError, so that links retry: the name's address may change."""


class HostRules:
    """Refuses addresses in ``denied`` networks, except those also in ``allowed`` networks. ``key``: name of
    the setting, for errors.
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

    def check_literal(self, host: str) -> None:
        """Check ``host`` if it is an address; the addresses of a name are checked by connect()."""
        if is_address(host):
            self.check(host, host)


def connect(
    host: str, port: int, timeout_s: float, rules: HostRules, lookups: Lookups, keepalive: Any = None,
    account: Any = None,
) -> Any:
    """Return a gevent socket connected to the first address of the host that answers. Raises OSError;
    HostRefused if all addresses of the host are refused. May switch.

    ``timeout_s``: most time for resolving, and again for connecting; ``keepalive``: has idle_s, interval_s
    and probes, or None; ``account``: the link's account.
    """
    failure: OSError | None = None
    found = lookups.find(host, port, timeout_s, account)
    until = time.monotonic() + timeout_s
    for number, (family, kind, protocol, _, address) in enumerate(found):
        # each address gets an equal share of the time that is left
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
    """A list of the address and the IPv4 addresses embedded in it; for an IPv4-mapped address only the IPv4
    address.
    """
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
