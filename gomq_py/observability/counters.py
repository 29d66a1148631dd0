"""Counters: numbers of 64 bits that lie in one piece of memory, and stay there while they grow.

A leaf. A number of Python's is made anew with each change, amid what a client has that comes or goes; once
thousands have gone, each such number still holds an arena of 1 MiB that could be given back to the system.
"""
import ctypes

Counters = ctypes.Structure


def counted(*names: str) -> list[tuple[str, type[ctypes.c_uint64]]]:
    """The ``_fields_`` of a class of Counters: each is 0 at first."""
    return [(name, ctypes.c_uint64) for name in names]
