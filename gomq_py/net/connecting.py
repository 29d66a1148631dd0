"""Connecting: resolves host names, and connects to the first of a host's addresses that answers.

Lookups resolves names in threads of its own, because a name server that does not answer blocks a thread for
half a minute. Each lookup has a time limit. A slow lookup no longer counts among the lookups allowed at once.
A name whose lookup was slow and failed comes after all others. An account is the party for which a name is
looked up; for a link, (user who set the link, virtual host). Accounts take turns. When AT_ONCE lookups run,
an account may begin another only if this leaves twice as many places in reserve as the account has lookups.
So one user's names leave room for others' names.
"""
import _socket
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any

import gevent
from gevent import socket
from gevent.event import Event

from gomq_py.hub import threads

# (level, name, value) of a socket option.
Option = tuple[int, int, int]
# For small requests, which leave at once, to a peer whose end is noticed though it has not said so.
PROMPT: tuple[Option, ...] = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1))
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
        """Return addresses in getaddrinfo()'s form. Raises OSError (including Unresolved). May switch
        greenlets. ``account``: the party that counts for the limits (see the module).
        """
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
        """Return a name's addresses, or None if the lookup does not end in time. May switch greenlets."""
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
        for rows in (self._rows, self._late_rows):
            while rows and self._begin_one(rows):
                pass

    def _begin_one(self, rows: dict[Any, dict[str, "_Lookup"]]) -> bool:
        """Begin one waiting lookup of the first account whose limits allow it. Returns False if there is
        none. ``rows``: {account: {name: lookup}}.
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
    """The lookup of a name for all ``accounts`` that want it. Counts against the limits of ``account``."""

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
    """Whether ``account`` may begin another lookup: if fewer than ``limit`` run, or if it then has at most
    half as many lookups as places are left of ``most``. ``of_accounts``: number of lookups by account.
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


def connect(host: str, found: list[Any], timeout_s: float, options: Iterable[Option] = PROMPT) -> Any:
    """Return a gevent socket connected to the first address in ``found`` that answers.

    ``found``: getaddrinfo's result for ``host``. Each address has an equal share of the time that is left.
    Raises OSError. May switch greenlets. A greenlet that is killed during the call leaves no socket behind.
    """
    failure = OSError(f"{host} has no address")
    until = time.monotonic() + timeout_s
    for number, (family, kind, protocol, _, address) in enumerate(found):
        share_s = max(0.0, until - time.monotonic()) / (len(found) - number)
        try:
            with gevent.Timeout(share_s, False):
                return _connected(family, kind, protocol, address, options)
            failure = TimeoutError(f"no TCP connection to {host}:{address[1]} within {timeout_s:g} s")
        except OSError as error:
            failure = error
    raise failure


def _connected(family: int, kind: int, protocol: int, address: Any, options: Iterable[Option]) -> Any:
    connecting = socket.socket(family, kind, protocol)
    try:
        for option in options:
            connecting.setsockopt(*option)
        connecting.connect(address)
    except BaseException:
        connecting.close()
        raise
    return connecting
