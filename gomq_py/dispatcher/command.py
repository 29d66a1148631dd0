"""The command gomq-py-worker: loads an app, runs its workers, and shows their status.

At the first Ctrl-C or SIGTERM the command starts no more tasks and waits for running tasks. At the second it
ends; running tasks return to their queues. With --reload a parent process restarts it if a file changes.
"""

import argparse
import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from gomq_py import __version__
from gomq_py.client.errors import ClientError
from gomq_py.dispatcher.errors import DispatcherError
from gomq_py.dispatcher.runners import KINDS
from gomq_py.dispatcher.subcommands import COMMANDS, count_of, loaded, run_command, say

_LOG = logging.getLogger("gomq_py.dispatcher")
_LOOK_S = 0.5  # how often --reload checks the files
_SHOW_S = 1.0  # how often the status line and the health file are written
_CONNECTION_BROKEN, LEFT_BEHIND = 1, 3


def run(arguments=None):
    """Run the command with these arguments (None: those of the process). Returns its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    if given and given[0] in COMMANDS:
        return run_command(given)
    options = _parser().parse_args(given)
    if options.reload and not os.environ.get("GOMQ_WORKER_RELOADED"):
        return _reload_for_ever(given)
    logging.basicConfig(level=options.log_level.upper(), format="%(asctime)s %(levelname)s %(message)s")
    app = loaded(options.app)
    if app is None:
        return 2
    if options.url:
        app.url = options.url
    return _Run(app, options).run()


class _Run:
    def __init__(self, app, options):
        self._app = app
        self._options = options
        self._stop = threading.Event()
        self._asked = 0  # signals to stop so far
        self._server: Any = None
        self._finished: list = []
        self._shown = (time.monotonic(), 0)
        self._workers: list = []
        self._health_error = ""

    def run(self):
        """Run the workers until a signal comes or the Server stops reconnecting. Returns the exit code."""
        signal.signal(signal.SIGTERM, self._told)
        # A terminal's Ctrl-C also reaches the parent of --reload, which passes it on.
        parent = int(os.environ.get("GOMQ_WORKER_RELOADED", "0"))
        signal.signal(signal.SIGINT, (lambda *_: None) if parent else self._told)
        options = self._options
        if options.health_file and not Path(options.health_file).absolute().parent.is_dir():
            say(f"there is no folder for the health file {options.health_file}")
            return 2
        queues = options.queues.split(",") if options.queues else None
        try:
            if (server := self._connected()) is None:
                return 0
            self._server = server
            kind = "greenlets" if options.greenlets else options.run_in
            self._workers = self._app.workers(queues, options.concurrency, kind, options.name)
        except (ClientError, OSError, DispatcherError, ValueError) as error:
            say(error)
            return _CONNECTION_BROKEN
        if options.prometheus_port is not None:
            from gomq_py.dispatcher.metrics import serve

            try:
                serve(options.prometheus_port, options.prometheus_bind, server, self._workers)
            except (OSError, OverflowError) as error:
                say(f"metrics at port {options.prometheus_port}: {error}")
                server.abort()  # unfinished tasks return to their queues
                return 2
        names = ", ".join(each.config.queue for each in self._workers)
        _LOG.info("gomq-py-worker %s takes %d tasks from %s", __version__, len(self._app.tasks), names)
        broken = server.connection_broken
        while not self._stop.wait(_SHOW_S) and not broken.is_set():
            self._show()
            if parent and os.getppid() != parent:
                break  # the parent of --reload was killed
        return self._leave(server, broken.is_set())

    def _connected(self):
        """Return the connected Server, or None if a signal to stop comes first. Raises the error of the last
        attempt if all attempts have failed.
        """
        answer: Future = Future()

        def connect():
            try:
                answer.set_result(self._app.server)
            except BaseException as error:
                answer.set_exception(error)

        connecting = threading.Thread(target=connect, name="connecting", daemon=True)
        connecting.start()
        while connecting.is_alive() and not self._stop.is_set():
            connecting.join(0.1)
        return answer.result() if answer.done() else None

    def _told(self, *_):
        self._asked += 1
        self._stop.set()

    def _leave(self, server, is_broken):
        running = sum(each.running_count for each in self._workers)
        if running and not is_broken:
            _LOG.info("waits for %d tasks that run; once more to leave them", running)
        closing = threading.Thread(target=self._close, name="closing", daemon=True)
        closing.start()
        while closing.is_alive() and self._asked < 2:
            closing.join(0.1)
            self._show()
        if closing.is_alive():
            _LOG.warning("leaves tasks that run: they go back to their queues")
            server.abort()
        if self._options.health_file:
            with contextlib.suppress(OSError):  # anything else at that path is not ours
                Path(self._options.health_file).unlink(missing_ok=True)
        if is_broken:
            return _CONNECTION_BROKEN
        return 0 if self._finished == [True] else LEFT_BEHIND

    def _close(self):
        self._finished.append(self._app.close(self._options.stop_timeout))

    def _show(self):
        now = time.monotonic()
        then, done_then = self._shown
        if now - then < _SHOW_S * 0.9:
            return
        done = sum(each.done_count for each in self._workers)
        state = {
            "connected": self._server.is_connected,
            "running": sum(each.running_count for each in self._workers),
            "done": done,
            "failed": sum(each.failed_count for each in self._workers),
            "rate": round((done - done_then) / (now - then), 1),
        }
        self._shown = (now, done)
        if self._options.health_file:
            self._write_health(state)
        if self._options.status or (self._options.status is None and sys.stderr.isatty()):
            line = "  ".join(f"{name} {value}" for name, value in state.items())
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)

    def _write_health(self, state):
        """Write ``state`` to the health file atomically; delete it if not connected. Only logs failures."""
        # So a probe can check whether it exists and how old it is.
        path = Path(self._options.health_file)
        try:
            if not state["connected"]:
                path.unlink(missing_ok=True)
                return
            written = Path(f"{path}.new")
            written.write_text(json.dumps({**state, "time": time.time()}), encoding="utf-8")
            written.replace(path)
        except OSError as error:
            if self._health_error != str(error):
                _LOG.warning("the health file cannot be written: %s", error)
            self._health_error = str(error)


def _reload_for_ever(arguments):
    stop, child = threading.Event(), None

    def pass_on(*_):
        stop.set()
        if child is not None:
            child.send_signal(signal.SIGTERM)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, pass_on)
    while True:
        before = _sources()
        child = subprocess.Popen(
            [sys.executable, "-m", "gomq_py.dispatcher", *arguments],
            env={**os.environ, "GOMQ_WORKER_RELOADED": str(os.getpid())},
        )
        while not stop.wait(_LOOK_S) and _sources() == before:
            pass
        if not stop.is_set():
            child.terminate()
        code = child.wait()
        if stop.is_set():
            return code
        say("a file has changed, starting again")


def _sources():
    """Return {path: modification time in ns} of .py files below the current folder, not in hidden folders."""
    found = {}
    for folder, folders, names in os.walk("."):
        folders[:] = [each for each in folders if not each.startswith(".") and each != "__pycache__"]
        for name in names:
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                try:
                    found[path] = os.stat(path).st_mtime_ns
                except FileNotFoundError:
                    continue  # being rewritten
    return found


def _parser():
    parser = argparse.ArgumentParser(
        "gomq-py-worker", description="Runs the tasks of an app: docs/dispatcher.md.",
        epilog=f"Further commands, each with --help: gomq-py-worker {' | '.join(COMMANDS)}")
    add = parser.add_argument
    add("app", metavar="MODULE[:APP]", help="where the Dispatcher is; APP is 'app' by default")
    add("--url", help="of the broker, instead of the app's own")
    add("--queues", help="separated by commas; by default all of the app")
    add("--concurrency", type=count_of, help="tasks at once from each queue, instead of the app's own")
    add("--run-in", choices=[each for each in KINDS if each != "asyncio"],
        help="for functions that do not say")
    add("--greenlets", action="store_true", help="patch the standard library, and run functions in greenlets")
    add("--name", default="worker", help="of the workers, before the queue's name; the consumer tag")
    add("--reload", action="store_true", help="start again when a module below this folder changes")
    add("--stop-timeout", type=float, metavar="S",
        help="how long to wait for tasks that run when told to stop")
    add("--health-file", metavar="PATH", help="is there, and written every second, while connected")
    add("--prometheus-port", type=int, metavar="PORT", help="metrics over HTTP")
    add("--prometheus-bind", default="127.0.0.1", metavar="ADDRESS")
    add("--status", action=argparse.BooleanOptionalAction, help="the status line; by default on a terminal")
    add("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    add("--version", action="version", version=f"gomq-py-worker {__version__}")
    return parser
