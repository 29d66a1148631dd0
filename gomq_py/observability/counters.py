"""Keeps 64-bit counters in one fixed piece of memory.

Python would make a new number object at each change, in memory between clients' objects. After thousands of
clients have gone, each such number would keep 1 MiB of memory (an arena) in use.
"""
import ctypes

Counters = ctypes.Structure


def counted(*names: str) -> list[tuple[str, type[ctypes.c_uint64]]]:
    """Return the ``_fields_`` of a ctypes.Structure with these counters. Each counter starts at 0."""
    return [(name, ctypes.c_uint64) for name in names]
