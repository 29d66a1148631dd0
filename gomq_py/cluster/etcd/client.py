"""Client: sends requests to etcd's servers in turn; the cluster's Coordinator.

A call goes first to the server that answered last. After a failure it goes to the next server, within the
same time limit. A transaction goes to the next server only if it was certainly not carried out: there was no
connection, or the server saw no leader of etcd and refused.

Each server has a share of the time limit. If all servers were too slow, each of the next calls gives its
whole time to one server, in turn, until a server has answered.
"""
import json
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import gevent

from gomq_py.cluster.core.records import View
from gomq_py.cluster.core.transactions import CoordinatorError, Outcome, Transaction, Unanswered
from gomq_py.cluster.etcd import messages
from gomq_py.cluster.etcd.connection import MOST_OCTETS, OK, Connection, Endpoint, Failure, within
from gomq_py.cluster.etcd.messages import AnswerError, JSONObject, Refused
from gomq_py.cluster.etcd.watch import Watch
from gomq_py.config.kinds import endpoint_parts
from gomq_py.config.settings import Settings
from gomq_py.net.connecting import Lookups
from gomq_py.observability.histogram import Histogram
from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog

LOG = logger("cluster")
# Limit of a call over all servers. Keepalives are sent every second at the default lease_ttl, and the leader
# is fenced 4 s after the last good one was sent: two calls may fail.
TIMEOUT_S = 1.8
# Limit of a login: etcd hashes passwords slowly on purpose, on a busy machine for longer than a server's
# share of a call.
LOGIN_S = 10.0
# Time for another lookup of a name; after it the addresses that were found before are used.
LOOKUP_S = 0.5
# Connections that are kept between calls. Keepalives, reads and changes of the in-sync set go side by side.
IDLE_MOST = 3
# Text of a refusal -> what an operator can do about it.
ADVICE = {
    messages.WRONG_LOGIN: "see etcd_user and etcd_password of [clustering]",
    messages.LOGIN_NEEDED: "set etcd_user and etcd_password of [clustering]",
    messages.NO_RIGHTS: "it needs rights to read and write all keys below {prefix}, see etcd_prefix",
}
# Answers that are larger are told of in the log: MOST_OCTETS is not far then.
LARGE_OCTETS = 1024 * 1024
Result = TypeVar("Result")


class Etcd:
    """A Coordinator (``core.coordinator``) over etcd's servers.

        endpoints         host:port or an http:// or https:// URL of each server
        prefix            all keys begin with it and a slash
        user, password    of a login, or empty
        tls               a client's ``gevent.ssl.SSLContext``, for https
        timeout_s         limit of each call, in seconds
        call_seconds      Histogram of call durations, for metrics
    """

    def __init__(
        self, endpoints: Sequence[str], prefix: str, *, user: str = "", password: str = "", tls: Any = None,
        timeout_s: float = TIMEOUT_S,
    ):
        self._endpoints = [Endpoint(*endpoint_parts(text)) for text in endpoints]
        self._prefix = f"{prefix.rstrip('/')}/".encode()
        self._user, self._password = user, password
        self._tls = tls
        self._timeout_s = timeout_s
        self._at = 0  # the endpoint to ask first
        self._lookups = Lookups()
        self._found: dict[Endpoint, list[Any]] = {}  # addresses
        self._idle: list[Connection] = []
        self._token: str | None = None if user else ""  # None: a login is needed
        self._logins: dict[Endpoint, Any] = {}  # greenlets
        self._was_late = False  # no server has answered the last call in its share of the time
        self._is_closed = False
        self._quiet = QuietLog(LOG)
        self.call_seconds = Histogram()
        self.failures = 0  # calls that were refused, or not answered in time

    # the Coordinator (core.coordinator)

    def read(self) -> View:
        return self._call(
            messages.RANGE, messages.range_request(self._prefix), self._view)

    def _view(self, answer: JSONObject) -> View:
        view = messages.view_of(answer, self._prefix)
        octets, largest = messages.size_of(answer)
        if octets > LARGE_OCTETS:
            self._quiet.warning(
                "large", "the keys below %s in etcd have %d bytes, most of them %s; at most %d are read. "
                "Remove what is not the cluster's; forget_cluster_node removes nodes",
                self._prefix.decode(), octets, largest, MOST_OCTETS)
        return view

    def transact(self, transaction: Transaction) -> Outcome:
        body = messages.transaction_request(self._prefix, transaction)
        return self._call(
            messages.TRANSACT, body, lambda answer: messages.outcome_of(answer, self._prefix),
            is_repeatable=False)

    def grant(self, ttl_s: float) -> int:
        """Create a lease of ``ttl_s``, rounded up to whole seconds. Returns its id. May switch greenlets.

        The server may grant a longer one (etcd: at least 2 s). Raises CoordinatorError, Unanswered.
        """
        return self._call(messages.GRANT, {"TTL": str(math.ceil(ttl_s))}, messages.lease_of)

    def keep_alive(self, lease: int) -> bool:
        return self._call(
            messages.KEEP_ALIVE, {"ID": str(lease)}, lambda answer: messages.is_kept_alive(answer, lease))

    def revoke(self, lease: int) -> None:
        """End a lease, which may have ended already.

        Raises CoordinatorError, Unanswered. May switch greenlets.
        """
        try:
            self._call(messages.REVOKE, {"ID": str(lease)}, messages.check_header)
        except CoordinatorError as error:
            if not isinstance(error.__cause__, Refused) or error.__cause__.text != messages.NO_LEASE:
                raise

    def watch(self, wake: Callable[[], None]) -> Watch:
        """Call ``wake()`` after every change, and at least every few seconds, until the Watch is closed."""
        return Watch(self, messages.watch_request(self._prefix), wake)

    def close(self) -> None:
        """Refuse further calls. Watches stay open: the code that asked for them closes them."""
        self._is_closed = True
        gevent.killall(list(self._logins.values()))
        while self._idle:
            self._idle.pop().close()

    # for watches

    @property
    def endpoint(self) -> Endpoint:
        """The server to try first."""
        return self._endpoints[self._at]

    def connect(self) -> tuple[Connection, str]:
        """Connect to the server to try first, for a stream. Returns (connection, login token).

        The caller closes the connection. Raises Failure, CoordinatorError. May switch greenlets.
        """
        return self._ready(self.endpoint, self._timeout_s)

    def failed(self, endpoint: Endpoint) -> None:
        """Note that a server has failed, so that the next server is tried first."""
        if self.endpoint == endpoint:
            self._at = (self._at + 1) % len(self._endpoints)

    def forget_token(self, token: str) -> None:
        """Make the next request log in again, unless ``token`` has been replaced by a newer one."""
        if self._user and self._token == token:
            self._token = None

    # calls

    def _call(
        self, path: str, body: JSONObject, read: Callable[[JSONObject], Result], is_repeatable: bool = True,
    ) -> Result:
        began_s = time.monotonic()
        try:
            return self._ask_in_turn(path, body, read, is_repeatable)
        except (CoordinatorError, Unanswered):
            self.failures += 1
            raise
        finally:
            self.call_seconds.observe(time.monotonic() - began_s)

    def _ask_in_turn(
        self, path: str, body: JSONObject, read: Callable[[JSONObject], Result], is_repeatable: bool,
    ) -> Result:
        """Send a request to one server after another until one has answered. Returns ``read(answer)``.

        Raises CoordinatorError, Unanswered. May switch greenlets.
        """
        octets = json.dumps(body).encode()
        end_s = time.monotonic() + self._timeout_s
        failures: list[Failure] = []
        turns = self._endpoints[self._at:] + self._endpoints[:self._at]
        if self._was_late:
            del turns[1:]
        for left, endpoint in zip(range(len(turns), 0, -1), turns):
            if self._is_closed:
                raise CoordinatorError("the client of etcd is closed")
            share_s = (end_s - time.monotonic()) / left
            limit_s = share_s if is_repeatable else end_s - time.monotonic()
            try:
                result = self._ask(endpoint, path, octets, read, share_s, limit_s)
            except Failure as failure:
                self.failed(endpoint)
                failures.append(failure)
                if failure.is_open and not is_repeatable:
                    break
            else:
                self._at = self._endpoints.index(endpoint)
                self._was_late = False
                return result
        self._was_late = all(failure.is_late for failure in failures)
        kind = Unanswered if any(failure.is_open for failure in failures) else CoordinatorError
        raise kind("; ".join(str(failure) for failure in failures))

    def _refusing(self, endpoint: Endpoint, error: Refused) -> CoordinatorError:
        """Return the exception for a refusal. Its text names the user and a remedy."""
        text, login = f"{endpoint} refuses: {error}", f"user {self._user!r}" if self._user else "no etcd_user"
        advice = ADVICE.get(error.text)
        if advice is None:
            return CoordinatorError(text)
        return CoordinatorError(f"{text} ({login}; {advice.format(prefix=self._prefix.decode())})")

    def _ask(
        self, endpoint: Endpoint, path: str, octets: bytes, read: Callable[[JSONObject], Result],
        share_s: float, limit_s: float,
    ) -> Result:
        """Send a request to one server. Returns ``read(answer)``. May switch greenlets.

        ``share_s`` limits connect and login, ``limit_s`` the whole call. Raises Failure, CoordinatorError.
        """
        end_s = time.monotonic() + limit_s
        try:
            return self._attempt(endpoint, path, octets, read, share_s, end_s)
        except Refused as error:
            if not error.is_stale_token or not self._user:
                raise self._refusing(endpoint, error) from error
        try:  # its token was forgotten; nothing was done
            return self._attempt(endpoint, path, octets, read, end_s - time.monotonic(), end_s)
        except Refused as error:
            raise self._refusing(endpoint, error) from error

    def _attempt(
        self, endpoint: Endpoint, path: str, octets: bytes, read: Callable[[JSONObject], Result],
        share_s: float, end_s: float,
    ) -> Result:
        connection, token = self._ready(endpoint, share_s)
        try:
            answer = within(
                end_s - time.monotonic(), self._exchange, connection, path, octets, token)
            return read(answer)
        except Refused as error:
            if error.is_stale_token:
                self.forget_token(token)
            if error.is_certain:
                raise
            raise Failure(endpoint, error, not error.lacks_leader) from error
        except (OSError, AnswerError) as error:
            raise Failure(endpoint, error, True) from error

    def _ready(self, endpoint: Endpoint, limit_s: float) -> tuple[Connection, str]:
        """Return a connection and the login token. May switch greenlets.

        Raises Failure, CoordinatorError: no request was sent then.
        """
        try:
            return within(limit_s, self._connected, endpoint, limit_s)
        except Refused as error:
            if error.is_certain:
                raise self._refusing(endpoint, error) from error
            raise Failure(endpoint, error, False) from error
        except (OSError, AnswerError) as error:
            raise Failure(endpoint, error, False) from error

    def _connected(self, endpoint: Endpoint, limit_s: float) -> tuple[Connection, str]:
        token = self._log_in(endpoint) if self._token is None else self._token
        return self._take(endpoint, limit_s), token

    def _log_in(self, endpoint: Endpoint) -> str:
        """Log in and return the token. Raises Refused, OSError, AnswerError. May switch greenlets."""
        # The login goes on if the caller's time ends before: the next call needs it too.
        login = self._logins.get(endpoint)
        if login is None:
            login = self._logins[endpoint] = gevent.spawn(self._authenticate, endpoint)
            login.name = "cluster logs in at etcd"
        outcome = login.get()
        if isinstance(outcome, str):
            return outcome
        raise outcome if isinstance(outcome, Exception) else OSError("the client of etcd is closed")

    def _authenticate(self, endpoint: Endpoint) -> str | Exception:
        """Log in. Returns the token, or the exception after a failure."""
        body = json.dumps({"name": self._user, "password": self._password}).encode()
        try:
            connection = within(LOGIN_S, self._take, endpoint, LOGIN_S)
            answer = within(LOGIN_S, self._exchange, connection, messages.AUTHENTICATE, body, "")
            self._token = messages.token_of(answer)
        except Refused as error:
            if error.text != messages.NO_LOGINS:
                return error
            self._token = ""
        except (OSError, AnswerError) as error:
            return error
        finally:
            del self._logins[endpoint]
        return self._token

    def _exchange(self, connection: Connection, path: str, octets: bytes, token: str) -> JSONObject:
        """Send a request and return the answer. Keeps the connection for later calls, or closes it.

        Raises Refused, OSError, AnswerError. May switch greenlets.
        """
        is_whole = False
        try:
            status, received = connection.post(path, octets, token)
            is_whole = True
        finally:
            if is_whole and len(self._idle) < IDLE_MOST and not self._is_closed:
                self._idle.append(connection)
            else:
                connection.close()
        answer = messages.parse(received)
        if status != OK or "error" in answer:
            raise messages.refused_by(answer)
        return answer

    def _take(self, endpoint: Endpoint, limit_s: float) -> Connection:
        """Return a kept or new connection to the endpoint. Raises OSError. May switch greenlets."""
        while self._idle:
            connection = self._idle.pop()
            if connection.endpoint == endpoint and connection.is_reusable():
                return connection
            connection.close()
        return Connection(endpoint, self._addresses(endpoint, limit_s), self._tls, limit_s)

    def _addresses(self, endpoint: Endpoint, limit_s: float) -> list[Any]:
        """Return the endpoint's addresses; the last known ones if the lookup fails. May switch greenlets.

        Raises OSError if the lookup fails and none are known.
        """
        known = self._found.get(endpoint)
        try:
            self._found[endpoint] = self._lookups.find(
                endpoint.host, endpoint.port, limit_s if known is None else LOOKUP_S)
        except OSError:
            if known is None:
                raise
        return self._found[endpoint]


def of_settings(settings: Settings, timeout_s: float = TIMEOUT_S) -> Etcd:
    """Return an Etcd for the [clustering] settings. Blocks: reads certificate files. Raises TLSError."""
    context = None
    if any(text.startswith("https://") for text in settings.etcd_endpoints):
        from gomq_py.net import tls  # imported here: most talk to an etcd without TLS
        context = tls.client_context(
            settings.etcd_tls_ca_cert, settings.etcd_tls_cert, settings.etcd_tls_key)
    return Etcd(
        settings.etcd_endpoints, settings.etcd_prefix, user=settings.etcd_user,
        password=settings.etcd_password, tls=context, timeout_s=timeout_s)
