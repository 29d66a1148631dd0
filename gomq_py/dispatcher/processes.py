"""Processes: runs tasks in a child process, one at a time, so that a slow task can be killed.

The child is a new interpreter (``python -m gomq_py.dispatcher.processes FD PARENT``: the pipe's file
descriptor and the parent's process id), because a fork would copy locks that other threads hold. The child
imports a function by its name, and ends when its parent closes the pipe.
"""

import contextlib
import ctypes
import importlib
import multiprocessing.connection
import os
import pickle
import signal
import socket
import subprocess
import sys
import traceback

from gomq_py.dispatcher.arguments import name_of, text_of
from gomq_py.dispatcher.errors import DispatcherError, ProcessDied
from gomq_py.dispatcher.tasks import check_has_run

_PR_SET_PDEATHSIG = 1  # of Linux's prctl


class Child:
    """A child process that runs tasks one by one. Any thread may call ``kill``."""

    def __init__(self):
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno()), str(os.getpid())],
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
            )
        self._pipe = multiprocessing.connection.Connection(ours.detach())
        self._pipe.send(sys.path)

    @property
    def has_ended(self):
        return self._process.poll() is not None

    def run(self, function, values):
        """Call ``function(*values)`` in the child and wait. Raises the function's error, ProcessDied, or
        DispatcherError if the child cannot import the function.
        """
        reference = reference_of(function)
        try:
            self._pipe.send((reference, values))
            error = self._pipe.recv()
        except (EOFError, OSError):
            code = self._process.wait()
            raise ProcessDied(f"the process of the task ended with {code} before the task did") from None
        if error is not None:
            raise error

    def kill(self):
        self._process.kill()

    def close(self):
        """Close the pipe, so that the process exits, and wait for that. Kills the process after 5 s."""
        self._pipe.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def reference_of(function):
    """Return (module, qualified name), by which another process can import the function. Raises
    DispatcherError if that is impossible.
    """
    bound_to = getattr(
        function, "__self__", None)  # AppTask.call: the name is that of the function it decorates
    target = getattr(bound_to, "function", function)
    module, name = target.__module__, target.__qualname__
    if module == "__main__" or "<" in name:
        raise DispatcherError(
            f"{module}.{name} cannot run in a process of its own: it must stand at the top level of a module "
            "that can be imported, not in the script that is run")
    return module, name


def _find(reference):
    module, name = reference
    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return getattr(found, "call", found)  # of an AppTask


def leave_fork(error):
    """End this process, forked by a task, after the task's function has returned or raised ``error``."""
    # Only the parent may go on as a worker, because connection and pipe are the parent's.
    code = 0
    with contextlib.suppress(Exception):
        if error is not None:
            code = 1
            cause = error.__cause__
            if isinstance(cause, SystemExit):
                code = cause.code if isinstance(cause.code, int) else 0 if cause.code is None else 1
            else:
                traceback.print_exception(error)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    os._exit(code & 0xFF)


def _serve(pipe):
    process = os.getpid()
    for path in pipe.recv():
        if path not in sys.path:
            sys.path.append(path)
    while True:
        try:
            reference, values = pipe.recv()
        except EOFError:
            return
        try:
            check_has_run(_find(reference)(*values))
            error = None
        except Exception as fault:
            error = fault
        if os.getpid() != process:
            leave_fork(error)
        pipe.send(None if error is None else _portable(error))


def _portable(fault):
    try:
        pickle.loads(pickle.dumps(fault))
        return fault
    except Exception as unpickled:  # an error that cannot be pickled is sent as name and text
        error = DispatcherError(f"{name_of(fault)}: {text_of(fault)}")
        error.__notes__ = [f"it cannot be pickled: {unpickled}"]
        return error


def _leave_signals_to(parent):
    """Ignore SIGINT and SIGTERM, which process ``parent`` (an id) handles. This process dies with it."""
    # The task then returns to the queue and must not run twice.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A handler, because an ignored signal would be inherited by programs that the task starts.
    signal.signal(signal.SIGTERM, lambda *_: None)
    os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))
    with contextlib.suppress(OSError, AttributeError):  # Linux only: elsewhere it exits after its task
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


if __name__ == "__main__":
    _leave_signals_to(int(sys.argv[2]))
    _serve(multiprocessing.connection.Connection(int(sys.argv[1])))
