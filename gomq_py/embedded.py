"""Embedding: runs a broker in any program: ``with gomq_py.Broker() as broker: connect(broker.amqp_url)``.

Runs a launcher, as gomq_py.cli does, but in a native thread with its own event loop. So it works in any
program, monkey-patched or not, and several times in one process. Calls from other threads reach that thread
through one queue of functions. Importing this module imports neither gevent nor the broker.
"""
import atexit
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

if TYPE_CHECKING:
    import socket
    from os import PathLike

# Brokers of this process that were started and not closed.
_RUNNING: "set[Broker]" = set()
BOOT_TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 30.0
# Poll interval of a waiting greenlet: the caller's hub must run meanwhile, because its clients have to answer
# the broker's close.
LOOK_EVERY_S = 0.002


class Addresses:
    """The addresses of a broker's listeners, and URLs for clients. A URL raises RuntimeError if the broker
    does not run, or has no listener for it.
    """

    _vhost = "/"
    _addresses: dict[str, tuple[str, int]]
    _options: dict[str, Any]
    _failure: BaseException | None = None

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        """The listeners as {protocol: (host, port)}: amqp, amqps, mqtt, mqtts, http, cluster."""
        return dict(self._addresses)

    @property
    def amqp_url(self) -> str:
        """The AMQP URL, for the user guest."""
        return self.url()

    @property
    def amqps_url(self) -> str:
        """The AMQP URL of the listener with TLS, for the user guest."""
        return self.url(protocol="amqps")

    @property
    def mqtt_url(self) -> str:
        """The MQTT URL, for the user guest. Its path is the vhost, unless that is the default one."""
        return self.url(protocol="mqtt")

    @property
    def mqtts_url(self) -> str:
        """The MQTT URL of the listener with TLS, for the user guest; otherwise as ``mqtt_url``."""
        return self.url(protocol="mqtts")

    @property
    def http_url(self) -> str:
        """The URL of the management API, without a path."""
        host, port = self._address("http")
        return f"http://{_in_url(host)}:{port}"

    def url(
        self, user: str = "guest", password: str = "guest", vhost: str | None = None, protocol: str = "amqp",
    ) -> str:
        """Return a URL with these parts, percent-encoded. ``vhost`` None: the default; MQTT omits it."""
        host, port = self._address(protocol)
        if vhost is None:
            vhost = "" if protocol.startswith("mqtt") and self._vhost == "/" else self._vhost
        return url_of(protocol, user, password, host, port, vhost)

    def _address(self, protocol: str) -> tuple[str, int]:
        if protocol in self._addresses:
            return self._addresses[protocol]
        if not self._addresses:
            raise RuntimeError(
                "the broker is not running: it has an address once start() has returned, or inside of `with`"
            ) from self._failure
        port = self._options.get(f"{protocol}_port", -1)
        raise RuntimeError(f"the broker has no {protocol}: its {protocol}_port is {port} (0: any free port)")


class Broker(Addresses):
    """A broker that runs in a thread of this process, from ``start`` on.

    With ``data_dir`` None, all data are in a temporary folder that is deleted at close. Port 0: a free port;
    -1: no listener. Further keywords are settings by their names in docs/configuration.md (``heartbeat=10``,
    ``sync=False``).
    """

    def __init__(
        self, data_dir: "str | PathLike[str] | None" = None, *, bind: str = "127.0.0.1", amqp_port: int = 0,
        http_port: int = -1, mqtt_port: int = -1, tls_cert: str = "", tls_key: str = "", amqps_port: int = -1,
        mqtts_port: int = -1, **settings: Any,
    ) -> None:
        """Check the settings. Raises TypeError for an unknown setting, ValueError for an invalid value."""
        from gomq_py.config.settings import Settings  # not above: ``import gomq_py`` costs nothing
        self._options = {
            "amqp_bind": bind, "http_bind": bind, "amqp_port": amqp_port, "http_port": http_port,
            "mqtt_bind": bind, "mqtt_port": mqtt_port, "mqtts_port": mqtts_port, "tls_cert": tls_cert,
            "tls_key": tls_key, "amqps_port": amqps_port, "https_port": -1, "control_unix_path": "",
            "metrics_http_port": -1, "clustering_bind": bind, "clustering_port": 0, **settings,
        }
        Settings.checked(**self._options, **({} if data_dir is None else {"data_dir": data_dir}))
        self.data_dir = data_dir
        self._own_folder: str | None = None
        self._listening: Any = None
        self._inbox: deque[Callable[[], object]] = deque()
        self._knock: Any = None  # wakes the broker's hub; None while the hub does not run
        self._stopping: Any = None
        self._launcher: Any = None
        self._failure = None
        self._told = False  # whether the thread that waits for the boot has been released
        self._booted: Any = None
        self._ended: Any = None
        self._addresses = {}

    # life

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> Self:
        """Start the broker, and return this object when clients can connect. Raises BootError, RuntimeError
        if it runs already, and TimeoutError after BOOT_TIMEOUT_S seconds.
        """
        if self._is_running():
            raise RuntimeError("this broker is running already")
        _import_ahead(self._options["http_port"] >= 0 or self._options["metrics_http_port"] >= 0)
        start_new_thread, allocate_lock = _native_threads()
        self._failure = None
        self._told = False
        self._inbox.clear()
        self._booted, self._ended = allocate_lock(), allocate_lock()
        self._booted.acquire()
        self._ended.acquire()
        if self.data_dir is None:
            self.data_dir = self._own_folder = tempfile.mkdtemp(prefix="gomq-")
        _RUNNING.add(self)
        # An interpreter that ends under a running loop sometimes crashes.
        atexit.register(self._close_at_exit)
        start_new_thread(self._run, ())
        try:
            self.wait_until_listening(BOOT_TIMEOUT_S)
        except BaseException:  # after an interrupt nothing runs on, either
            self.close()
            raise
        return self

    def wait_until_listening(self, timeout_s: float = BOOT_TIMEOUT_S) -> None:
        """Wait until clients can connect. Raises TimeoutError, or the error that ended the boot."""
        if not _wait(self._booted, timeout_s):
            raise TimeoutError(f"the broker does not listen after {timeout_s} s")
        self._booted.release()
        if self._failure is not None:
            raise self._failure

    def serve_forever(self) -> None:
        """Start the broker, and return when another thread has called ``close``. KeyboardInterrupt closes it,
        too. Raises the errors of ``start``, and the error that ended the broker.
        """
        self.start()
        try:
            while not _wait(self._ended, 3600.0):
                pass
            self._ended.release()
        finally:
            self.close()
        if self._failure is not None:
            raise self._failure

    def serve(self, listener: "socket.socket") -> None:
        """Serve AMQP on the caller's listening TCP socket until another thread calls ``close``."""
        self._listening = listener
        self.serve_forever()

    def close(self) -> None:
        """Close all connections and files, and return when all are closed. May be called twice. Raises
        TimeoutError after CLOSE_TIMEOUT_S seconds. All confirmed messages are on disk, even if the close
        fails.
        """
        ended = True
        if self._is_running():
            self._tell(self._stop)
            ended = _wait(self._ended, CLOSE_TIMEOUT_S)
            if ended:
                self._ended.release()
        if ended:
            _RUNNING.discard(self)
            atexit.unregister(self._close_at_exit)
        if self._own_folder is not None:
            shutil.rmtree(self._own_folder, ignore_errors=True)
            self.data_dir = self._own_folder = None
        if not ended:
            raise TimeoutError(f"the broker did not close within {CLOSE_TIMEOUT_S} s")

    def __repr__(self) -> str:
        where = ", ".join(
            f"{protocol} on {host}:{port}" for protocol, (host, port) in self._addresses.items()
        )
        return (
            f"<gomq_py.Broker in {self.data_dir}: "
            f"{where or ('starting or stopping' if self._is_running() else 'not running')}>"
        )

    def _close_at_exit(self):
        warnings.warn(f"{self!r} was never closed: use `with`, or close()", ResourceWarning, source=self)
        self.close()

    def _forget(self):
        """Close the broker's sockets in a forked child; the broker goes on in the parent."""
        self._ended = self._knock = self._own_folder = None
        self._addresses = {}
        if self._launcher is not None:
            self._launcher.abandon()

    def _is_running(self):
        """Return True from the start of the broker's thread until the thread has released everything."""
        return self._ended is not None and self._ended.locked()

    def promote(self) -> None:
        """Make a follower (``cluster_leader="host:port"``) the leader; return when clients can connect.

        Raises RuntimeError if it is no follower, and BootError. After a BootError nothing is open, and the
        caller must still call ``close``.
        """
        self.call(self._promote)

    def _promote(self, launcher):
        try:
            launcher.promote()
        finally:
            self._note_addresses(launcher)

    # calls into the broker's thread

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call ``function(launcher, *arguments)`` in the broker's thread, and return its result or raise its
        error.

        The function may switch greenlets but must not block the thread. Raises RuntimeError if the broker
        does not run, and TimeoutError after CLOSE_TIMEOUT_S seconds.
        """
        if self._knock is None:
            raise RuntimeError("the broker is not running") from self._failure
        _, allocate_lock = _native_threads()
        done = allocate_lock()
        done.acquire()
        values, errors = [], []

        def run():
            try:
                values.append(function(self._launcher, *arguments))
            except Exception as error:
                errors.append(error)
            finally:
                done.release()

        self._tell(run)
        if not _wait(done, CLOSE_TIMEOUT_S):
            raise TimeoutError(f"the broker did not answer within {CLOSE_TIMEOUT_S} s")
        if errors:
            raise errors[0]
        return values[0]

    def _tell(self, job):
        knock = self._knock
        self._inbox.append(job)
        if knock is not None:
            knock()

    # the broker's thread

    def _run(self):
        import gevent
        from gevent.event import Event

        from gomq_py.hub.faults import log_faults

        hub = gevent.get_hub()
        log_faults()
        watcher = hub.loop.async_()
        try:
            self._stopping = Event()
            watcher.start(lambda: [gevent.spawn(self._inbox.popleft()) for _ in range(len(self._inbox))])
            self._serve_until_stopped(watcher)
        except BaseException as error:  # any error is reported to the thread that waits for the boot
            self._failure = error
        finally:
            self._knock = None
            self._addresses = {}
            if self._failure is not None and not self._told:
                self._booted.release()
            watcher.stop()
            watcher.close()
            hub.destroy(destroy_loop=True)
            # The hub's last frame still waits in a throw, with the whole broker in the traceback beside it,
            # where no collector looks.
            hub.throw(gevent.GreenletExit)
            self._ended.release()

    def _serve_until_stopped(self, watcher):
        from gomq_py.config.settings import Settings
        from gomq_py.launcher import Launcher

        launcher = self._launcher = Launcher(
            Settings.checked(data_dir=self.data_dir, **self._options), listening=self._adopted()
        )
        launcher.on_promoted = lambda: self._note_addresses(launcher)
        launcher.on_failed = self._end
        launcher.on_deposed = self._deposed
        launcher.start()
        try:
            self._note_addresses(launcher)
            self._knock = watcher.send
            self._told = True
            self._booted.release()
            if self._inbox:
                watcher.send()
            self._stopping.wait()
        finally:
            launcher.stop()

    def _note_addresses(self, launcher):
        self._addresses = {
            listener.protocol: (_host(listener.address), listener.port)
            for listener in launcher.listeners if listener.port
        }

    def _stop(self):
        self._stopping.set()

    def _deposed(self, reason):
        """Stop, because another node leads the cluster. To follow it, the program makes a new Broker."""
        self._end(RuntimeError(
            f"this broker has stopped, because it leads its cluster no more: {reason}"))

    def _end(self, failure):
        """Stop. ``serve_forever`` raises ``failure``, other calls raise errors caused by it."""
        self._failure = failure
        self._stopping.set()

    def _adopted(self):
        """Return the caller's listening socket as a gevent socket, or None if the caller gave none."""
        if self._listening is None:
            return None
        from gevent import socket
        given, self._listening = self._listening, None
        adopted = socket.socket(given.family, given.type, given.proto, fileno=given.detach())
        adopted.setblocking(True)
        return adopted


def _import_ahead(with_management):
    """Import the modules that the broker's thread needs, before that thread starts."""
    # If the calling thread runs greenlets, its hub is made here, too.
    import gomq_py.launcher  # noqa: F401
    if with_management:
        import gomq_py.http.door  # noqa: F401
    if _cooperative_sleep() is not None:
        import gevent

        import gomq_py.client.connection  # noqa: F401  (for links; the program may have its own clients)
        if with_management:
            import gomq_py.http.app  # noqa: F401  (late otherwise)
        gevent.get_hub()


def _native_threads():
    """Return the original (start_new_thread, allocate_lock), even if gevent has patched the program."""
    import _thread
    if "gevent.monkey" in sys.modules:
        from gevent import monkey
        return (
            monkey.get_original("_thread", "start_new_thread"),
            monkey.get_original("_thread", "allocate_lock")
        )
    return _thread.start_new_thread, _thread.allocate_lock


def _wait(lock, timeout_s):
    """Acquire a native lock. Returns False if that takes longer than ``timeout_s``. If the caller is a
    greenlet or the program is patched, other greenlets run meanwhile.
    """
    sleep = _cooperative_sleep()
    if sleep is None:
        return lock.acquire(True, timeout_s)
    deadline = time.monotonic() + timeout_s
    while not lock.acquire(False):
        if time.monotonic() >= deadline:
            return False
        sleep(LOOK_EVERY_S)
    return True


def _cooperative_sleep():
    """Return a sleep function that lets other greenlets of this thread run; None if the thread runs none."""
    if "gevent.monkey" in sys.modules:
        from gevent import monkey
        if monkey.is_module_patched("time"):
            return time.sleep
    if "greenlet" in sys.modules:
        import greenlet
        if greenlet.getcurrent().parent is not None:
            import gevent
            return gevent.sleep
    return None


def url_of(protocol: str, user: str, password: str, host: str, port: int, vhost: str) -> str:
    """Return ``protocol://user:password@host:port/vhost``, percent-encoded. MQTT: no path if no vhost."""
    login = f"{quote(user, safe='')}:{quote(password, safe='')}"
    path = f"/{quote(vhost, safe='')}" if vhost or protocol.startswith("amqp") else ""
    return f"{protocol}://{login}@{_in_url(host)}:{port}{path}"


def _host(address):
    return address.rpartition(":")[0].strip("[]")


def _in_url(host):
    """Return a host for a URL: IPv6 in brackets; loopback for 0.0.0.0 and ::, which clients cannot reach."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{host}]" if ":" in host else host


def _forget_all():
    for broker in _RUNNING:
        broker._forget()
    _RUNNING.clear()


os.register_at_fork(after_in_child=_forget_all)
