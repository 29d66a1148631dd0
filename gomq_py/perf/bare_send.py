"""Bare send: one system call per write, for a generator that makes one write per message.

A leaf, implemented in its compiled twin ``bare_send.pxd``; interpreted generators use Python's sockets, which
cost 0.5 us per call for a view, arguments and the interpreter's lock.
"""
from typing import Any


def is_native():
    """Whether the compiled call exists."""
    return False


def __getattr__(name: str) -> Any:
    raise AttributeError(f"{name} is compiled only: ask is_native()")
