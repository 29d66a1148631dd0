"""The launcher: builds the rooms of a broker, hands them to each other, opens the doors, and closes all of it in order.

The only place that knows every room. Boot: data folder, files, group commit, broker, doors, listeners. Stop: listeners first, so that nobody new
comes; then the connections, then the broker, and the data folder's lock last. Never parses flags (cli) and never patches (``__main__``).
"""
import os
import resource
import signal
import sys
import time
from typing import Any

import gevent
from gevent import socket
from gevent.event import Event

import gomq_py
from gomq_py import build_info
from gomq_py.amqp.server.server import AMQPServer
from gomq_py.auth.errors import BackendError
from gomq_py.broker import definitions
from gomq_py.broker.broker import Broker
from gomq_py.config.settings import Settings
from gomq_py.net.listener import BindError, Listener, SocketOptions, bind_tcp, bind_unix
from gomq_py.net.proxy_protocol import Proxies
from gomq_py.observability.log import logger
from gomq_py.storage.data_dir import DataDir, DataDirError
from gomq_py.storage.errors import StoreError
from gomq_py.storage.files import Files
from gomq_py.storage.framed_log import LogError
from gomq_py.storage.replication import NullReplicator
from gomq_py.storage.sync import GroupCommit

LOG = logger("boot")
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
EXIT_STOPPED, EXIT_ABORTED = 0, 1


class BootError(Exception):
    """The broker cannot start; one line that says what and what to do."""


class Launcher:
    """One broker in this process. ``start`` and ``stop`` for tests and embedders, ``run`` for the command."""

    def __init__(self, settings: Settings, listening: Any = None):
        """``listening``: a listening socket to serve AMQP on instead of the configured address; it is owned from here on."""
        self.settings = settings
        self._listening = listening
        self.listeners: list[Any] = []
        self.broker: Any = None
        self._data_dir: Any = None
        self._committer: Any = None
        self._amqp: Any = None
        self._asked_to_stop: Any = None
        self._proxies = Proxies()
        self._pidfile = ""
        self._wakeup: Any = None

    def run(self) -> int:
        """Start, serve until a signal says otherwise, stop; returns the exit code. Raises BootError. May switch."""
        self._asked_to_stop = Event()
        raise_descriptor_limit()
        watchers = [gevent.signal_handler(number, self._on_stop_signal, number) for number in STOP_SIGNALS]
        try:
            self.start()
            self._asked_to_stop.wait()
            return EXIT_STOPPED
        finally:
            self.stop()
            for watcher in watchers:
                watcher.cancel()

    def start(self) -> None:
        """Open the data folder, recover, and listen. Raises BootError; nothing stays open then. May switch."""
        began = time.monotonic()
        LOG.info("gomq-py %s, process %d, %s", gomq_py.__version__, os.getpid(), build_info.speed())
        self._say_what_is_unusual()
        try:
            self._build()
            self._write_pidfile()
            self._listen()
        except (BackendError, BindError, DataDirError, LogError, StoreError, definitions.DefinitionsError) as error:
            self.stop()
            raise BootError(str(error)) from error
        except OSError as error:
            self.stop()
            raise BootError(f"cannot use {error.filename or self.settings.data_dir}: {error.strerror or error}") from error
        except BaseException:
            self.stop()
            raise
        doors = ", ".join(f"{listener.protocol} on {listener.address}" for listener in self.listeners) or "nothing: every port is off"
        LOG.info("ready after %.2f s: %s, data in %s", time.monotonic() - began, doors, os.path.abspath(self.settings.data_dir))

    @property
    def amqp(self) -> Any:
        """The AMQP door while the broker runs."""
        return self._amqp

    def stop(self) -> None:
        """Close everything that is open, in order; a second call does nothing. May switch."""
        for listener in self.listeners:
            listener.close()
        self.listeners = []
        for name in ("_amqp", "broker"):
            room = getattr(self, name)
            if room is not None:
                setattr(self, name, None)
                room.close()
        if self._committer is not None:
            self._committer.stop()
            self._committer = None
        if self._pidfile:
            os.unlink(self._pidfile)
            self._pidfile = ""
        if self._data_dir is not None:
            self._data_dir.close()
            self._data_dir = None
            LOG.info("stopped")

    def _build(self) -> None:
        settings, files = self.settings, Files((NullReplicator(),))
        self._data_dir = DataDir(settings.data_dir, files, lock=settings.data_dir_lock)
        self._data_dir.open()
        self._committer = GroupCommit(files, enabled=settings.sync)
        self.broker = Broker(self._data_dir, files, self._committer, settings)
        if settings.load_definitions:
            definitions.load(self.broker, settings.load_definitions)
        self._amqp = AMQPServer(self.broker, settings)
        self.broker.resource_watch.start()

    def _listen(self) -> None:
        """Bind every address before accepting on any, so that a port in use leaves no client half served."""
        settings = self.settings
        options = SocketOptions(settings.tcp_nodelay, settings.tcp_keepalive, settings.tcp_recv_buffer_size, settings.tcp_send_buffer_size)
        self._proxies.update(bool(settings.tcp_proxy_protocol), settings.proxy_protocol_trusted_sources, settings.login_timeout)
        self._bind_amqp("amqp", settings.amqp_port, options)
        if settings.tls_cert:
            self._bind_amqp("amqps", settings.amqps_port, options, self._tls_handshake())
        if settings.amqp_unix_path:
            bound = bind_unix(settings.amqp_unix_path, settings.listen_backlog, settings.amqp_unix_mode)
            self.listeners.append(Listener(bound, "amqp", self._amqp.handle, options, proxies=self._proxies,
                                           admission=self._amqp.admission))
        self._open_management()
        for listener in self.listeners:
            listener.start()
            LOG.info("listening %s %s", listener.protocol, listener.address)

    def _bind_amqp(self, protocol: str, port: int, options: SocketOptions, handshake: Any = None) -> None:
        if port >= 0:
            listening, self._listening = self._listening, None
            if listening is None or handshake is not None:
                listening = bind_tcp(self.settings.amqp_bind, port, self.settings.listen_backlog, self.settings.reuse_port)
            self.listeners.append(Listener(listening, protocol, self._amqp.handle, options, handshake, self._proxies,
                                           admission=self._amqp.admission))

    def _open_management(self) -> None:
        settings = self.settings
        if settings.http_port < 0 and settings.metrics_http_port < 0:
            return
        from gomq_py.http.door import ManagementDoor, MetricsDoor  # here, because a broker without them should not carry Flask
        for door, host, option in ((ManagementDoor, settings.http_bind, "http_port"), (MetricsDoor, settings.metrics_http_bind, "metrics_http_port")):
            listening = self._bind_side_door(host, option)
            if listening is not None:
                self.listeners.append(door(listening, self.broker, self._amqp, settings, lambda: self.listeners))

    def _bind_side_door(self, host: str, option: str) -> Any:
        """A listening socket, or None where the port is off, or is taken and nobody asked for it: a second broker on a machine still serves AMQP."""
        port = getattr(self.settings, option)
        if port < 0:
            return None
        try:
            return bind_tcp(host, port, self.settings.listen_backlog)
        except BindError as error:
            if option in self.settings.origins:
                raise
            LOG.warning("going on without %s: %s", option.replace("_", " "), error)
            return None

    def _tls_handshake(self) -> Any:
        from gomq_py.net import tls  # here, because a broker without certificate should not carry the library
        settings = self.settings
        try:
            context = tls.server_context(
                settings.tls_cert, settings.tls_key, settings.tls_ciphers, settings.tls_min_version, settings.tls_keylog_file)
        except tls.TLSError as error:
            raise BootError(str(error)) from error
        return tls.handshaker(context, settings.login_timeout)

    def _say_what_is_unusual(self) -> None:
        speed = build_info.speed()
        if speed != "compiled":
            LOG.warning("the hot modules run %s: about 30 times slower than compiled; a C compiler at installation mends that", speed)
        if not self.settings.sync:
            LOG.warning("running without sync: what was confirmed may be lost when the machine loses power")
        if self.settings.tcp_proxy_protocol and not self.settings.proxy_protocol_trusted_sources:
            LOG.warning("tcp_proxy_protocol is on without proxy_protocol_trusted_sources: only proxies on this machine are believed")

    def _on_stop_signal(self, number: int) -> None:
        """First signal: an orderly stop. From then on the next one ends the process at once."""
        self._wakeup = _abort_on_next_signal()
        LOG.info("%s: stopping; once more to stop at once", signal.Signals(number).name)
        self._asked_to_stop.set()

    def _write_pidfile(self) -> None:
        """Only now that the data folder is ours: a second broker must not overwrite the first one's."""
        if self.settings.pidfile:
            with open(self.settings.pidfile, "w", encoding="ascii") as file:
                file.write(f"{os.getpid()}\n")
            self._pidfile = self.settings.pidfile


def raise_descriptor_limit() -> None:
    """Take as many descriptors as the system lets this process have: the limit it was started with is one for programs that use select()."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _abort_on_next_signal() -> Any:
    """Let the interpreter's own handler take the next stop signal: it needs no turn of the hub, which may be busy. Returns what must be kept alive.

    The system may deliver the signal to a thread of a pool, which would leave the hub asleep; the interpreter's wakeup socket ends its sleep.
    """
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    watcher = gevent.get_hub().loop.io(reader.fileno(), 1)
    watcher.start(reader.recv, 64)
    signal.set_wakeup_fd(writer.fileno())
    for number in STOP_SIGNALS:
        signal.signal(number, _abort)
    return reader, writer, watcher


def _abort(_number: int, _frame: Any) -> None:
    """Second signal. Confirmed messages are on disk already, so leaving without a word to anybody loses nothing."""
    print("gomq-py: stopped at once", file=sys.stderr, flush=True)
    os._exit(EXIT_ABORTED)
