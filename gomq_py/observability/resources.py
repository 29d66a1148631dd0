"""Measures the memory that this process uses and may use, and the space on its disk.

Reads /proc, cgroups and the file system. Alarms, the management API and metrics use the same figures. Reading
/proc takes some 20 us. ``free_disk`` may take as long as the file system needs, so call it in a thread.
"""
import ctypes
import os
import resource
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

_PAGE = resource.getpagesize()
# Without a limit a cgroup shows a number near 2**63 (v1) or the word max (v2).
_NO_LIMIT = 1 << 60
_ARENA_MAX = -8  # M_ARENA_MAX of malloc.h


def resident_memory(proc: str = "/proc") -> int:
    """Return the resident memory of this process in bytes, including pages of mapped files."""
    return _statm(proc)[0]


def used_memory(proc: str = "/proc") -> int:
    """Return the resident memory in bytes without the pages of mapped files."""
    # Mapped pages are message segments, which the system writes out and reclaims when it needs room: a
    # backlog on disk is not memory in use.
    resident, shared = _statm(proc)
    return resident - shared


def total_memory(proc: str = "/proc", cgroups: str = "/sys/fs/cgroup") -> int:
    """Return the bytes that this process may use: the machine's memory, or a lower cgroup limit (v1, v2)."""
    limits = list(_cgroup_limits(proc, cgroups))
    machine = _machine_memory(proc)
    if machine:
        limits.append(machine)
    return min(limits, default=0)


def descriptor_count(proc: str = "/proc") -> int:
    """Return the number of open file descriptors of this process."""
    # Linux 6.2 and later tell it as the folder's size. Reading 20 000 names takes 13 ms, in which no message
    # is delivered.
    path = os.path.join(proc, "self", "fd")
    return os.stat(path).st_size or len(os.listdir(path)) - 1  # the one that the names are read from


def free_disk(path: Any) -> tuple[int, int]:
    """Return (free, total) bytes of the file system of ``path``. Free is what users other than root may use.
    Raises OSError. May take long.
    """
    answer = os.statvfs(path)
    return answer.f_bavail * answer.f_frsize, answer.f_blocks * answer.f_frsize


def identity(path: Any) -> tuple[int, int] | None:
    """Return (device, inode) of ``path``; None if it does not exist. Raises OSError. May take long."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


def give_memory_back() -> None:
    """Return the allocator's free memory to the system, if the C library can (glibc). Takes milliseconds."""
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Any:
    # Cached, because each lookup makes a new class.
    return getattr(ctypes.CDLL(None), "malloc_trim", None)


def use_one_heap(environment: Mapping[str, str] = os.environ) -> None:
    """Make all threads allocate from one malloc heap, unless the environment sets the number of heaps."""
    # Otherwise glibc gives each thread a heap. The interpreter runs one thread at a time, so the threads do
    # not contend; and glibc returns to the system only the end of the first heap, so the heaps of threads
    # stayed at their peak. To be called before there are threads, and not in a process shared with other
    # programs.
    is_told = "MALLOC_ARENA_MAX" in environment or "arena_max" in environment.get("GLIBC_TUNABLES", "")
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and not is_told:
        mallopt(_ARENA_MAX, 1)


def _statm(proc: str) -> tuple[int, int]:
    with open(f"{proc}/self/statm", encoding="ascii") as file:
        _, resident, shared = file.read().split()[:3]
    return int(resident) * _PAGE, int(shared) * _PAGE


def _machine_memory(proc: str) -> int:
    """Return the machine's memory (MemTotal) in bytes; 0 if it cannot be read."""
    try:
        with open(f"{proc}/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemTotal:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def _cgroup_limits(proc: str, cgroups: str) -> Iterator[int]:
    """Yield the memory limits in bytes of this process's cgroup and its parents."""
    try:
        with open(f"{proc}/self/cgroup", encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            yield from _limits_up(cgroups, path, "memory.max")
        elif "memory" in controllers.split(","):
            yield from _limits_up(f"{cgroups}/memory", path, "memory.limit_in_bytes")


def _limits_up(root: str, path: str, name: str) -> Iterator[int]:
    """Yield the memory limits in bytes of the cgroup ``path`` and its parents up to ``root``."""
    # A container sees its own group as the root, whatever ``path`` says.
    parts = [part for part in path.split("/") if part and part != ".."]
    for depth in range(len(parts), -1, -1):
        try:
            with open("/".join([root, *parts[:depth], name]), encoding="ascii") as file:
                text = file.read().strip()
        except OSError:
            continue
        if text.isdigit() and int(text) < _NO_LIMIT:
            yield int(text)
