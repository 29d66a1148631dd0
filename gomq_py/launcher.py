"""Launcher: boots a node in this process, runs it until a signal comes, and stops it.

The boot opens the data folder and recovers the broker, or follows another node; then it writes the pidfile
and opens the listeners. A follower that is promoted becomes the leader in the same process. The stop first
closes the listeners, so that no client connects any more, then the connections, the broker, and the data
folder's lock. Never parses flags (cli) and never monkey-patches (``__main__``).
"""
import contextlib
import faulthandler
import os
import posix
import resource
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import gevent
from gevent import socket
from gevent.event import Event

import gomq_py
from gomq_py import build_info
from gomq_py.auth.errors import BackendError
from gomq_py.config.settings import PASSWORD_HASH_OF_IT, Settings
from gomq_py.errors import ClusterError, DefinitionsError
from gomq_py.hub.faults import log_faults, log_unraisable
from gomq_py.hub.threads import in_thread
from gomq_py.net.listener import BindError, abandon_socket
from gomq_py.net.systemd import Systemd
from gomq_py.node import FOLLOWER, LEADER, Node
from gomq_py.observability import garbage, resources
from gomq_py.observability.log import logger
from gomq_py.reload import Reloader
from gomq_py.state_dump import StateDump
from gomq_py.storage.errors import DataDirError, StoreError
from gomq_py.storage.logs.framed_log import LogError

LOG = logger("boot")
PIDFILE_OCTETS = 64  # ours is shorter; another file may be endless
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
EXIT_STOPPED, EXIT_ABORTED = 0, 1
# Time limit for the last line on standard error when the broker stops at once.
LAST_LINE_S = 1.0
# Time for an orderly end of a node that leads no more; what it has is replaced by its successor's anyway.
DEMOTION_S = 10.0


# What an operator can mend: one line is logged, without a traceback.
BOOT_ERRORS = (
    BackendError, BindError, ClusterError, DataDirError, LogError, StoreError, DefinitionsError,
    ModuleNotFoundError,
)


class BootError(Exception):
    """The broker cannot start. The text is one line with the reason and what to do."""


class Launcher:
    """Runs one broker in this process. The command calls ``run``; programs call ``start`` and ``stop``.

        on_promoted()          called when a follower has become the leader
        on_failed(error)       called when a follower was elected or promoted, but could not become the leader
                               and was closed; by default ``run`` then ends
        on_deposed(reason)     called when an elected node no longer leads; by default the program restarts in
                               this process, as a follower
    """

    def __init__(
        self, settings: Settings, listening: Any = None,
        reread: Callable[[], tuple[Settings, list[str]]] | None = None,
    ):
        """``listening``: a listening socket for AMQP instead of the configured address; the launcher owns it.
        ``reread()`` reads the configuration again and returns (settings, warnings); None if there is none.
        """
        self.settings = settings
        self._reread = reread
        self._listening = listening
        self._systemd = Systemd({})
        self._node: Node | None = None
        self._asked_to_stop: Any = None
        self._pidfile = ""
        self._wakeup: Any = None
        self._limit: Any = None
        self._asked_to_promote: Any = None
        self._promotion: Any = None
        self._is_promoting = self._has_failed = False
        self.on_promoted: Callable[[], None] = _do_nothing
        self.on_failed: Callable[[Exception], None] = self._end_run
        self.on_deposed: Callable[[str], None] | None = None
        self._demotion: Any = None

    def run(self) -> int:
        """Start, serve until a signal stops the broker, and stop. Returns the exit code. Raises BootError.
        May switch greenlets.
        """
        self._asked_to_stop = Event()
        log_faults()
        log_unraisable()
        raise_descriptor_limit()
        resources.use_one_heap()
        asked_to_reload = Event()  # a signal during the boot counts after it
        watchers = [gevent.signal_handler(number, self._on_stop_signal, number) for number in STOP_SIGNALS]
        watchers.append(gevent.signal_handler(signal.SIGHUP, self._on_hangup, asked_to_reload, os.isatty(0)))
        watchers.append(gevent.signal_handler(signal.SIGUSR1, self._dump))
        helpers: list[Any] = []
        try:
            self._systemd = _service_manager()
            if self.settings.clustering:
                self._systemd.keep_sockets()
            self.start()
            garbage.freeze()
            self._systemd.ready(self._where())
            helpers.append(_named("reload", self._reload_when_asked, asked_to_reload))
            if self._systemd.watchdog_s:  # without a service manager it would wake an idle broker
                helpers.append(_named("watchdog", self._tell_watchdog))
            self._asked_to_stop.wait()
            self._systemd.stopping()
            if self._node is not None:
                self._node.drain()
            return EXIT_ABORTED if self._has_failed else EXIT_STOPPED
        finally:
            gevent.killall(helpers)
            if self._demotion is not None:  # it has begun to stop the node
                self._demotion.join(DEMOTION_S)
            self.stop()
            self._lift_limit()
            self._systemd.close()
            for watcher in watchers:
                watcher.cancel()

    def _tell_watchdog(self) -> None:
        """Tell the service manager's watchdog regularly that the loop runs. May switch greenlets."""
        while True:
            self._systemd.alive()
            gevent.sleep(self._systemd.watchdog_s / 2)

    def _on_hangup(self, asked_to_reload: Any, had_terminal: bool) -> None:
        """Handle SIGHUP: stop if the broker's terminal was closed; otherwise request a reload."""
        if had_terminal and not os.isatty(0):
            self._on_stop_signal(signal.SIGHUP)
        else:
            asked_to_reload.set()

    def _reload_when_asked(self, asked: Any) -> None:
        """Reload each time that the Event ``asked`` is set, even during a reload. May switch greenlets."""
        while True:
            asked.wait()
            asked.clear()
            self._systemd.reloading()
            assert self._node is not None
            applied = self.broker.resource_watch.look_now if self.broker is not None else _do_nothing
            reloader = Reloader(
                self.settings, self._reread or (lambda: (self.settings, [])), self._node.doors, applied)
            try:
                good = reloader.reload()
            except Exception:
                LOG.exception("fault while reloading the configuration")
                good = False
            self._systemd.ready(
                self._where() if good else f"{self._where()}; the last reload failed, see the log"
            )

    def _dump(self) -> None:
        StateDump(self.broker, self.hub, self._durability, self.listeners).write()

    def start(self) -> None:
        """Open the data folder, recover, listen. After a BootError nothing is open. May switch greenlets."""
        began = time.monotonic()
        speed = build_info.speed()  # walks the package's folders
        LOG.info("gomq-py %s, process %d, %s", gomq_py.__version__, os.getpid(), speed)
        self._say_what_is_unusual(speed)
        missing = self.settings.missing()
        if missing is not None:
            raise BootError(missing)
        try:
            self._node = Node(self.settings)
            self._boot(self._node)
        except BOOT_ERRORS as error:
            self.stop()
            raise BootError(str(error)) from error
        except OSError as error:
            self.stop()
            raise BootError(
                f"cannot use {error.filename or self.settings.data_dir}: {error.strerror or error}"
            ) from error
        except BaseException:
            self.stop()
            raise
        # Imports leave 1 MB to give back, a large recovery more. The thread, which later calls reuse, is made
        # before clients come.
        in_thread(resources.give_memory_back)
        LOG.info(
            "ready after %.2f s: %s, data in %s", time.monotonic() - began, self._where(),
            os.path.abspath(self.settings.data_dir),
        )

    def _boot(self, node: Node) -> None:
        if not node.must_follow():
            node.lead()
            self._write_pidfile()
            node.open_doors(self._inherited())
            return
        node.follow()
        self._write_pidfile()
        self._asked_to_promote = Event()
        node.open_follower_doors(self._asked_to_promote.set, self._deposed, self._inherited())
        self._promotion = _named("promotion", self._promote_when_asked)

    def promote(self) -> None:
        """Make this follower the leader; return when it serves clients. Raises RuntimeError for a node that
        is no follower, is being promoted, or is in an elected cluster; and BootError, after which the node is
        closed. May switch greenlets.
        """
        if self._node is not None and self.settings.clustering:
            raise RuntimeError(self._node.why_not_promote(True))
        self._promote()

    def _promote(self) -> None:
        if self._node is None or self._node.role != FOLLOWER or self._is_promoting:
            raise RuntimeError("this node is no follower, or is being promoted already")
        began = time.monotonic()
        self._is_promoting = True
        try:
            self._node.promote()
        except Exception as error:
            self.stop()
            raise BootError(f"this follower cannot become the leader: {error}") from error
        finally:
            self._is_promoting = False
        LOG.warning(
            "this node leads now, after %.2f s: %s%s", time.monotonic() - began, self._where(),
            "" if self.settings.clustering else
            f". It no longer follows {self.settings.cluster_leader}, also after a restart")
        self.on_promoted()

    def _promote_when_asked(self) -> None:
        """When asked or elected, promote this follower; on error call ``on_failed``. May switch greenlets."""
        self._asked_to_promote.wait()
        try:
            self._promote()
        except (BootError, RuntimeError) as error:
            expected = isinstance(error.__cause__, (*BOOT_ERRORS, OSError))
            LOG.critical("%s", error, exc_info=None if expected else error.__cause__)
            self.on_failed(error)
            return
        garbage.freeze()
        self._systemd.ready(self._where())
        _run_command(self.settings.on_leader_elected)

    def _deposed(self, reason: str) -> None:
        self._demotion = _named("demotion", self._begin_anew, reason)

    def _begin_anew(self, reason: str) -> None:
        """Call ``on_deposed(reason)``. If that is None, stop the node and run the program again in this
        process: a follower must not keep a leader's state. May switch greenlets.
        """
        if self._node is not None and self._node.role == LEADER:
            _run_command(self.settings.on_leader_lost)
        if self.on_deposed is not None:
            self.on_deposed(reason)
            return
        LOG.warning("this node begins anew as a follower: %s", reason)
        _named("stop", self.stop).join(DEMOTION_S)
        if self._asked_to_stop is not None and self._asked_to_stop.is_set():
            return
        environment = dict(os.environ)
        if self.settings.origin("default_password_hash") != "default":
            environment[PASSWORD_HASH_OF_IT] = self.settings.default_password_hash
        try:
            self._systemd.hand_on(environment)
            os.execve(sys.executable, sys.orig_argv, environment)
        except OSError as error:  # the program was replaced, for example: who has started it starts it anew
            LOG.critical("the program cannot begin anew, and ends: %s", error)
            self._end_run(error)

    def _end_run(self, _error: Exception) -> None:
        """Have ``run`` end with the exit code of a failure."""
        self._has_failed = True
        if self._asked_to_stop is not None:
            self._asked_to_stop.set()

    def _where(self) -> str:
        return (
            ", ".join(f"{listener.protocol} on {listener.address}" for listener in self.listeners)
            or "nothing: every port is off"
        )

    @property
    def listeners(self) -> list[Any]:
        """The open listeners, each with ``protocol``, ``address`` and ``port``."""
        return self._node.listeners if self._node is not None else []

    # parts of the node while it runs, else None; mqtt also None before its first use
    broker: Any = property(lambda self: getattr(self._node, "broker", None))
    amqp: Any = property(lambda self: getattr(self._node, "amqp", None))
    mqtt: Any = property(lambda self: getattr(self._node, "mqtt", None))
    connector: Any = property(lambda self: getattr(self._node, "connector", None))
    hub: Any = property(lambda self: getattr(self._node, "hub", None))
    _durability: Any = property(lambda self: getattr(self._node, "durability", None))

    def stop(self) -> None:
        """Close listeners, connections, broker and data folder, in this order, once. May switch greenlets."""
        node, self._node = self._node, None
        promotion, self._promotion = self._promotion, None
        if promotion is not None and promotion is not gevent.getcurrent():
            promotion.kill()
        if node is not None:
            node.close(self._remove_pidfile)
            LOG.info("stopped")

    def abandon(self) -> None:
        """Close the broker's sockets in a forked child, without telling the clients.

        While a child holds the sockets, the parent cannot bind a port again, and clients do not notice that
        the broker has closed their connections.
        """
        for listener in self.listeners:
            listener.abandon()
        if self.hub is not None:
            for connection in self.hub.clients:
                abandon_socket(connection.socket)

    def _inherited(self) -> list[tuple[str, Any]]:
        """Return (name, listening socket) pairs that the caller or the service manager has opened."""
        inherited = list(self._systemd.sockets)
        if self._listening is not None:
            inherited.append((self.settings.amqp_systemd_socket_name, self._listening))
            self._listening = None
        return inherited

    def _say_what_is_unusual(self, speed: str) -> None:
        if speed != "compiled":
            LOG.warning(
                "the hot modules run %s: about 30 times slower than compiled; a C compiler at installation "
                "mends that", speed,
            )
        if not self.settings.sync:
            LOG.warning("running without sync: what was confirmed may be lost when the machine loses power")
        if self.settings.tcp_proxy_protocol and not self.settings.proxy_protocol_trusted_sources:
            LOG.warning(
                "tcp_proxy_protocol is on without proxy_protocol_trusted_sources: only proxies on this "
                "machine are believed"
            )

    def _on_stop_signal(self, number: int) -> None:
        """Begin an orderly stop at the first SIGTERM or SIGINT. A second signal ends the process at once."""
        if self._asked_to_stop.is_set() and number in STOP_SIGNALS:
            _abort(number, None)
        self._wakeup = _abort_on_next_signal()
        LOG.info("%s: stopping; once more to stop at once", signal.Signals(number).name)
        self._limit_stop()
        self._asked_to_stop.set()

    def _limit_stop(self) -> None:
        """Set a limit of ``stop_timeout`` seconds on the stop, which may hang, for example, on a disk. At the
        limit the process ends at once. Confirmed messages are on disk already.
        """
        limit_s = self.settings.stop_timeout
        if limit_s:
            # no timer of the hub: the stop closes those
            self._limit = gevent.spawn_later(limit_s, _leave, limit_s, self._durability)
            # The hub may hang in a system call and then logs nothing.
            faulthandler.dump_traceback_later(limit_s + LAST_LINE_S, exit=True, file=2)

    def _lift_limit(self) -> None:
        if self._limit is not None:
            self._limit.kill(block=False)
            faulthandler.cancel_dump_traceback_later()

    def _write_pidfile(self) -> None:
        """Write the pidfile. The data folder's lock ensures that no other running broker uses this file."""
        if self.settings.pidfile:
            try:
                with open(self.settings.pidfile, "w", encoding="ascii") as file:
                    file.write(f"{os.getpid()}\n")
            except OSError as error:
                error.filename = self.settings.pidfile  # the error of a full disk does not name the file
                raise
            self._pidfile = self.settings.pidfile

    def _remove_pidfile(self) -> None:
        """Delete the pidfile, if it holds this process's id."""
        path, self._pidfile = self._pidfile, ""
        if not path:
            return
        try:
            with open(path, encoding="ascii") as file:
                ours = file.read(PIDFILE_OCTETS) == f"{os.getpid()}\n"
            if ours:
                os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            LOG.warning("cannot remove the pidfile %s: %s", path, error.strerror or error)


def _do_nothing() -> None:
    """Do nothing: the default of callbacks."""


def _run_command(command: str) -> None:
    """Start a shell command of the configuration, and do not wait for its end. May switch greenlets."""
    if command:
        LOG.info("runs %r", command)
        try:
            in_thread(_begin_command, command)
        except OSError as error:
            LOG.error("cannot run %r: %s", command, error.strerror or error)


def _begin_command(command: str) -> None:
    # Not subprocess: where gevent has patched os.close, it waits for ever. The first shell ends at once, and
    # leaves the second one to init, so that nobody has to wait for it.
    shell = ["sh", "-c", '"$@" </dev/null &', "sh", "/bin/sh", "-c", command]
    number = posix.posix_spawn("/bin/sh", shell, os.environ)
    with contextlib.suppress(ChildProcessError):
        posix.waitpid(number, 0)


def _named(name: str, function: Callable[..., None], *arguments: Any) -> Any:
    greenlet = gevent.spawn(function, *arguments)
    greenlet.name = name
    return greenlet


def _service_manager() -> Systemd:
    """Return the service manager of the environment. Raises BootError if sockets it passes are unusable."""
    try:
        return Systemd(os.environ)
    except OSError as error:
        raise BootError(str(error)) from error


def raise_descriptor_limit() -> None:
    """Raise this process's limit of open files to the hard limit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _abort_on_next_signal() -> Any:
    """Let the next stop signal end the process by the interpreter's handler, even if the event loop is busy.

    Returns an object that the caller must keep alive: its socket wakes a sleeping event loop if the system
    delivers the signal to another thread.
    """
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    watcher = gevent.get_hub().loop.io(reader.fileno(), 1)
    watcher.start(reader.recv, 64)
    signal.set_wakeup_fd(writer.fileno())
    for number in STOP_SIGNALS:
        signal.signal(number, _abort)
    return reader, writer, watcher


def _leave(limit_s: int, durability: Any) -> None:
    """Log that the stop took longer than ``limit_s`` and which flushes it waits for, and end the process."""
    LOG.error(
        "the stop has not ended after %d s (stop_timeout), so the broker leaves without it, as after a kill: "
        "what was confirmed is on the disk, and the next boot reads what is there. Flushes were %s",
        limit_s, "not asked for: the boot had not ended" if durability is None else durability.describe(),
    )
    _abort(signal.SIGTERM, None)


def _abort(_number: int, _frame: Any) -> None:
    """End the process at once, because of a second signal or a stop that takes too long.

    Confirmed messages are on disk already. If standard error is blocked, writing the last line there delays
    the end by at most LAST_LINE_S.
    """
    signal.signal(signal.SIGALRM, lambda *_: os._exit(EXIT_ABORTED))
    signal.setitimer(signal.ITIMER_REAL, LAST_LINE_S)
    print("gomq-py: stopped at once", file=sys.stderr, flush=True)
    os._exit(EXIT_ABORTED)
