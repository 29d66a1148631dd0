"""Sends bytes by one bare system call, for load generators that make one write per message.

The call is in ``bare_send.pxd`` and exists only if this module is compiled. Python's sockets cost 0.5 us more
per call, for a view, arguments and the interpreter's lock.
"""
from typing import Any


def is_native():
    """Return True if this module is compiled, so that the bare system call can be used."""
    return False


def __getattr__(name: str) -> Any:
    raise AttributeError(f"{name} is compiled only: ask is_native()")
