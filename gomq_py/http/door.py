"""Management listeners: serve the management API on sockets that the launcher opens.

    http, https     users log in; over TCP, TLS or a unix socket
    control         no login: a client that may connect to the socket's path may do everything
    metrics         /metrics and health checks, without a login

All listeners show one Node and share its rates, index and feed of changes.

Listeners accept from the start. The first request imports Flask and the routes, in a thread: they take 0.1 s
of CPU time and 14 MB, which a broker without requests saves.
"""
import socket as socket_module
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.util import find_spec

from gevent import monkey
from gevent.lock import BoundedSemaphore

from gomq_py.broker.signals.totals import CHURN
from gomq_py.errors import OutOfResources
from gomq_py.http.feed import Feed
from gomq_py.http.followers import Waker
from gomq_py.http.index import Index
from gomq_py.http.rates import Rates
from gomq_py.http.recorder import Recorder
from gomq_py.http.server import ManagementServer
from gomq_py.http.upgrades import UpgradeRefused, Upgrades
from gomq_py.hub import threads
from gomq_py.hub.turns import give_way
from gomq_py.late_imports import importing
from gomq_py.net.listener import format_address, path_id, remove_path
from gomq_py.observability import garbage, resources
from gomq_py.observability.log_ring import LogRing

HTTP, HTTPS, CONTROL, METRICS = "http", "https", "control", "metrics"
# Packages that the first request imports. A broker that lacks one does not start.
LATE_PACKAGES = (
    "blinker", "click", "flask", "itsdangerous", "jinja2", "markupsafe", "prometheus_client", "werkzeug",
)
# Modules that the routes share with the core, which imports them for the first stream, for example. If the
# thread imported them, the event loop could meet one half imported, and it must not wait.
SHARED = (
    "decimal", "unicodedata", "gomq_py.broker.queues.stream_queue", "gomq_py.broker.queues.quorum",
    "gomq_py.broker.topology.definitions", "gomq_py.broker.verbs.aliveness", "gomq_py.broker.verbs.moves",
    "gomq_py.broker.verbs.taking", "gomq_py.mqtt.model.administration",
)
# How long the importing thread keeps the interpreter from the event loop. A lone message took 0.2 ms beside
# it, 12 at most; with Python's 5 ms, for which each of its system calls may wait, up to 107 ms.
SWITCH_INTERVAL_S = 0.0005
# Pause after a failed import, which strangers' requests would repeat otherwise.
RETRY_S = 5.0
_UNAVAILABLE = UpgradeRefused(
    "503 Service Unavailable", "the management API could not be imported: see the broker's log")
_one_importer = monkey.get_original("_thread", "allocate_lock")()


def _change_nothing(*_):
    """Do nothing: the default of ``change_cluster`` for a broker without a cluster."""


class Management:
    """Makes the management listeners of one broker, and owns the state that they share."""

    def __init__(
        self, broker, hub, settings, listeners, serving, doors, shovels=None, federation=None,
        cluster_figures=dict, change_cluster=_change_nothing, backup=None,
    ):
        """Arguments:

            hub                         the event loop's owner; has the connected clients
            listeners()                 returns the open listeners of this process
            serving(protocol)           returns (handler, admission gate) of "amqp" or "mqtt" over a WebSocket
            doors                       has the options for the sockets of those WebSocket clients
            shovels, federation         the broker's supervisors (shovel.supervisor, federation.supervisor),
                                        or None
            cluster_figures()           returns the answer to /api/cluster, a dict
            change_cluster(what, ...)   carries out an operator's request (cluster.elected)
            backup()                    returns the cluster.backup.Backup
        """
        check_packages()
        self._upgrades = Upgrades(settings, serving, hub, doors.options)
        interval_s, log_source = settings.stats_interval / 1000, Waker()
        rates = Rates(interval_s, settings.stats_log_size, spawn=hub.spawn)
        self._node = Node(
            broker, hub.clients, settings, listeners, f"gomq@{socket_module.gethostname()}", rates,
            Index(hub.timers, interval_s),
            Feed(broker.events), shovels, federation, None,
            LogRing(partial(_wake, log_source, threading.get_native_id())), log_source, cluster_figures,
            change_cluster, backup, doors)
        self._recorder = Recorder(rates, self._node, hub.spawn)
        hub.at_close(self._node.index.close)
        self._apps = {}
        self._making = BoundedSemaphore(1)
        self._again_at_s = 0.0
        self._settings = settings

    def door(self, protocol, listening, tls=None):
        """Return a Door (listener) that does not accept clients yet. ``protocol`` is one of HTTP, HTTPS,
        CONTROL, METRICS. The Door owns ``listening``, a listening socket. ``tls``: an SSL context, an object
        with its method ``wrap_socket``, or None.
        """
        kind = HTTP if protocol == HTTPS else protocol
        if kind == HTTP:
            self._recorder.begin()
        # The control socket needs no login here, but its WebSockets would.
        upgrades = self._upgrades if kind == HTTP else None
        shown = HTTPS if tls is not None else protocol
        return Door(shown, listening, partial(self._answer, kind), self._settings, tls, upgrades)

    def _answer(self, kind, environ, start_response):
        """Answer a WSGI request to a ``kind`` listener. The first loads the routes. May switch greenlets."""
        if kind not in self._apps:
            self._make_app(kind)
        return self._apps.get(kind, _UNAVAILABLE.application)(environ, start_response)

    def _make_app(self, kind):
        with self._making:  # other first requests wait for this one's import
            if kind in self._apps or time.monotonic() < self._again_at_s:
                return
            with suppress(OutOfResources), importing("the management API"), garbage.held_while_making():
                for name in SHARED:
                    import_module(name)
                    give_way()
                # The threads of the hub's pool may all wait for a slow disk.
                self._apps[kind] = threads.begin_apart(_import_and_make, kind, self._node).get()
            if kind not in self._apps:
                self._again_at_s = time.monotonic() + RETRY_S

    def close(self):
        """Close the state that the listeners share, after the listeners are closed. May switch greenlets."""
        for part in (
            self._recorder, self._node.log, self._node.doctor, self._node.feed, self._node.index,
            self._node.rates,
        ):
            if part is not None:
                part.close()


def check_packages():
    """Raise ModuleNotFoundError if a package that the first request needs is missing. Imports no package."""
    for name in LATE_PACKAGES:
        if find_spec(name) is None:
            raise ModuleNotFoundError(
                f"the management API and metrics need the package {name}: install it, or switch their "
                "listeners off", name=name)


def _import_and_make(kind, node):
    """Import Flask and the routes, and return the WSGI app for listeners of ``kind``. Runs in a thread."""
    with _one_importer:  # the interval is the process's, which may run several brokers
        before_s = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        try:
            from gomq_py.http import app, doctor
            if node.doctor is None:
                node.doctor = doctor.Doctor()
            made = app.MAKERS[kind](node)
            made.url_map.update()  # sorts the routes, which the first request would do otherwise
            resources.give_memory_back()  # 1 MB
            return made
        finally:
            sys.setswitchinterval(before_s)


def _wake(source, thread_id):
    """Wake the event streams of the log. Does nothing in any thread but the event loop's, ``thread_id``."""
    if threading.get_native_id() == thread_id:
        source.wake()


class Door:
    """A management listener on one socket; ``protocol``, ``address`` and ``port`` describe the socket."""

    def __init__(self, protocol, listening, app, settings, tls=None, upgrades=None, forward=None):
        name = listening.getsockname()
        self.protocol = protocol
        self.address = format_address(name)
        self.port = name[1] if isinstance(name, tuple) else 0
        self._path = name if isinstance(name, str) else None
        self._path_id = path_id(name) if self._path else None
        self._server = ManagementServer(listening, app, settings, tls, upgrades, forward)

    def start(self):
        self._server.start()

    def has_room_for(self, _address):
        """Return whether a client that another node has accepted can be served now."""
        return self._server.has_room()

    def adopt(self, family, descriptor, address):
        """Serve a client that another node accepted, by its socket's address family and file descriptor."""
        self._server.adopt(family, descriptor, address)

    def abandon(self):
        """In a forked child: close the child's copy of the socket. The parent goes on accepting."""
        self._server.abandon()

    def close(self):
        """Stop accepting. Running requests get one second to end. May switch greenlets."""
        self._server.close()
        if self._path:
            remove_path(self._path, self._path_id)


class Node:
    """One running broker, as the management API sees it.

        clients               the connected clients of every protocol
        listeners()           returns the open listeners, with protocol, address and port
        name                  the node's name: ``gomq@host``
        shovels               a shovel.supervisor.Shovels, or None
        federation            a federation.supervisor.Federation, or None
        doctor                a http.doctor.Doctor; None before the first request
        log, log_source       a LogRing, and the Waker of the event streams of the log
        cluster_figures(), change_cluster(), backup(), doors
                              see Management
    """

    def __init__(
        self, broker, clients, settings, listeners, name, rates, index, feed, shovels=None, federation=None,
        doctor=None, log=None, log_source=None, cluster_figures=dict, change_cluster=_change_nothing,
        backup=None, doors=None,
    ):
        self.broker = broker
        self.clients = clients
        self.settings = settings
        self.listeners = listeners
        self.rates = rates
        self.index = index
        self.feed = feed
        self.shovels = shovels
        self.federation = federation
        self.doctor = doctor
        self.log = log
        self.log_source = log_source
        self.cluster_figures = cluster_figures
        self.change_cluster = change_cluster
        self.backup = backup
        self.doors = doors
        self.name = name
        self.started_monotonic = time.monotonic()

    def uptime_s(self):
        return time.monotonic() - self.started_monotonic

    def totals(self):
        """Return a list: the Totals of all deleted vhosts together, then the Totals of each vhost."""
        return [self.broker.totals, *(vhost.totals for vhost in list(self.broker.vhosts.values()))]

    def churn(self):
        """Return {event: count}: connections, channels and queues opened or closed since the start."""
        totals, churn = self.totals(), self.clients.churn
        return {
            name: getattr(churn, name)
            for name in ("connection_created", "connection_closed", "channel_created", "channel_closed")
        } | {name: sum(getattr(one, name) for one in totals) for name in CHURN}
