"""Bare send: a system call for each write of a generator that makes one for each message, and nothing else.

A leaf; the compiled twin is ``bare_send.pxd``, and here is nothing: whoever runs interpreted sends as sockets
of Python's do. That takes 0.5 us beside the call, for a view of the octets, for arguments, and for the
interpreter's lock, which nobody else wants in such a process.
"""
from typing import Any


def is_native():
    """Whether there is such a call."""
    return False


def __getattr__(name: str) -> Any:
    raise AttributeError(f"{name} is compiled only: ask is_native()")
