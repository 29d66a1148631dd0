"""A process in which tasks run one after the other, so that one that takes too long can be ended.

The child is a fresh interpreter (``python -m gomq_py.dispatcher.processes FD``), not a fork: a fork of a
program with threads keeps their locks. It finds the function by its module and name, and leaves when the pipe
closes.
"""

import importlib
import multiprocessing.connection
import pickle
import signal
import socket
import subprocess
import sys

from gomq_py.dispatcher.arguments import name_of, text_of
from gomq_py.dispatcher.errors import DispatcherError, ProcessDied


class Child:
    """The parent's end: ``run`` one call at a time, ``kill`` from any thread."""

    def __init__(self):
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self._pipe = multiprocessing.connection.Connection(ours.detach())
        self._pipe.send(sys.path)

    @property
    def has_ended(self):
        """Whether it was killed or died."""
        return self._process.poll() is not None

    def run(self, function, values):
        """Call it there. Raises what it raises, as it is where it can be pickled; ProcessDied."""
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
        """End it at once."""
        self._process.kill()

    def close(self):
        """Have it leave, and wait for that."""
        self._pipe.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def reference_of(function):
    """(module, qualified name) by which another process finds it.

    Raises DispatcherError where it would not.
    """
    bound_to = getattr(
        function, "__self__", None
    )  # AppTask.call: the name is that of the function it decorates
    target = getattr(bound_to, "function", function)
    module, name = target.__module__, target.__qualname__
    if module == "__main__" or "<" in name:
        raise DispatcherError(
            f"{module}.{name} cannot run in a process of its own: it must stand at the top level of a module "
            "that can be imported, not in the script that is run"
        )
    return module, name


def _find(reference):
    module, name = reference
    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return getattr(found, "call", found)  # of an AppTask


def _serve(pipe):
    for path in pipe.recv():
        if path not in sys.path:
            sys.path.append(path)
    while True:
        try:
            reference, values = pipe.recv()
        except EOFError:
            return
        try:
            _find(reference)(*values)
            error = None
        except Exception as fault:
            error = _portable(fault)
        pipe.send(error)


def _portable(fault):
    try:
        pickle.loads(pickle.dumps(fault))
        return fault
    except Exception as unpickled:  # an error that has no copy is told by its name and text
        error = DispatcherError(f"{name_of(fault)}: {text_of(fault)}")
        error.__notes__ = [f"it cannot be pickled: {unpickled}"]
        return error


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group: the parent decides
    _serve(multiprocessing.connection.Connection(int(sys.argv[1])))
