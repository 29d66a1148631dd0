"""Calls of OpenSSL: reads what OpenSSL has, record by record, without a call of Python's for each.

A leaf below records; the compiled twin is ``ssl_calls.pxd``, and here is nothing: whoever runs interpreted
reads with the ssl module. Knows the library's functions and its object by their addresses only (net.openssl).
"""
from typing import Any


def is_native() -> bool:
    """Whether there are such calls."""
    return False


def __getattr__(name: str) -> Any:
    raise AttributeError(f"{name} is compiled only: ask is_native()")
