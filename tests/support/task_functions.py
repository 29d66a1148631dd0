"""Functions that tasks in processes of their own run: the process finds them by module and name, so that they
stand where little else is loaded.
"""

import os
import signal
import threading


def fork_and_come_back():
    """Parent and child both return; the parent after the child."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)


def refuse():
    """Says that it ran."""
    raise LookupError("it ran")


def sign_off():
    """Has SIGTERM do nothing here, and end a process that is forked here."""
    os.kill(os.getpid(), signal.SIGTERM)
    child = os.fork()
    if not child:
        os.kill(os.getpid(), signal.SIGTERM)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM


def wait_for_ever():
    """Tells that it has begun."""
    os.write(1, b"begun\n")
    threading.Event().wait()


async def coroutine():
    """Runs nowhere but in an event loop."""
