"""Counters: keeps 64-bit numbers in one fixed piece of memory.

A leaf. Python would make a new number object at each change, among the objects of clients. After thousands of
clients have gone, each such number would keep an arena of 1 MiB from the system.
"""
import ctypes

Counters = ctypes.Structure


def counted(*names: str) -> list[tuple[str, type[ctypes.c_uint64]]]:
    """The ``_fields_`` of a ctypes structure of counters with these names; each counter starts at 0."""
    return [(name, ctypes.c_uint64) for name in names]
