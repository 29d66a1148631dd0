"""SSL calls: reads TLS records by OpenSSL's functions, without a Python call for each record.

The functions are in ``ssl_calls.pxd``. An interpreted broker reads with the ssl module instead. Gets
OpenSSL's functions and object as addresses (net.openssl).
"""
from typing import Any


def is_native() -> bool:
    """Whether this module is compiled, so that its calls exist."""
    return False


def __getattr__(name: str) -> Any:
    raise AttributeError(f"{name} is compiled only: ask is_native()")
