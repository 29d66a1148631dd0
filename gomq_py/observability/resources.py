"""Resources: how much memory this process uses and may use, and how much room its disk has.

Reads /proc, cgroups and the file system; keeps nothing.

A leaf: the watch over alarms, the management API and metrics ask here, so that all of them say the same.
Reading /proc takes some 20 us; asking a file system may take as long as that file system likes, so
``free_disk`` belongs into a thread.
"""
import ctypes
import os
import resource
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

_PAGE = resource.getpagesize()
# A cgroup without a limit says so with a number near 2**63 (v1) or with the word max (v2).
_NO_LIMIT = 1 << 60
_ARENA_MAX = -8  # M_ARENA_MAX of malloc.h


def resident_memory(proc: str = "/proc") -> int:
    """Octets of memory that hold something of this process, file pages included."""
    return _statm(proc)[0]


def used_memory(proc: str = "/proc") -> int:
    """Octets that only freeing them gives back: resident memory without the pages of mapped files.

    Those are the messages' segments, which the system writes out and takes back when it needs room: a backlog
    on disk is no memory in use.
    """
    resident, shared = _statm(proc)
    return resident - shared


def total_memory(proc: str = "/proc", cgroups: str = "/sys/fs/cgroup") -> int:
    """Octets this process may use: the machine's memory, or less where a container or a service (cgroup v1 or
    v2) is limited to less.
    """
    limits = list(_cgroup_limits(proc, cgroups))
    machine = _machine_memory(proc)
    if machine:
        limits.append(machine)
    return min(limits, default=0)


def free_disk(path: Any) -> tuple[int, int]:
    """(free, total) octets of the file system that holds ``path``, free ones being those that need no root.

    May take long. Raises OSError.
    """
    answer = os.statvfs(path)
    return answer.f_bavail * answer.f_frsize, answer.f_blocks * answer.f_frsize


def identity(path: Any) -> tuple[int, int] | None:
    """What tells the file or folder at ``path`` from others that may come in its place; None where there is
    none.

    May take long. Raises OSError.
    """
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


def give_memory_back() -> None:
    """Return what the allocator keeps of freed memory to the system, where the C library can (glibc).

    Takes milliseconds.
    """
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Any:
    """The C library's function, or None. Made once: it has a class of its own, which is garbage each time."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None)


def use_one_heap(environment: Mapping[str, str] = os.environ) -> None:
    """Have all threads allocate from one heap, where the C library would give each its own (glibc), and
    nobody has said how many it may make.

    The interpreter lets one thread run at a time, so that they do not wait for each other here; and the end
    of another heap than the first is never given back to the system: what threads had once, each of them
    kept. Not for a process that others have a say in. Before there are threads.
    """
    is_told = "MALLOC_ARENA_MAX" in environment or "arena_max" in environment.get("GLIBC_TUNABLES", "")
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and not is_told:
        mallopt(_ARENA_MAX, 1)


def _statm(proc: str) -> tuple[int, int]:
    with open(f"{proc}/self/statm", encoding="ascii") as file:
        _, resident, shared = file.read().split()[:3]
    return int(resident) * _PAGE, int(shared) * _PAGE


def _machine_memory(proc: str) -> int:
    """MemTotal in octets; 0 where it cannot be read."""
    try:
        with open(f"{proc}/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemTotal:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def _cgroup_limits(proc: str, cgroups: str) -> Iterator[int]:
    """The memory limits of the cgroup that this process is in and of those around it."""
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
    """The limits from ``path`` up to the root.

    A container sees its own group as the root, whatever path it is told.
    """
    parts = [part for part in path.split("/") if part and part != ".."]
    for depth in range(len(parts), -1, -1):
        try:
            with open("/".join([root, *parts[:depth], name]), encoding="ascii") as file:
                text = file.read().strip()
        except OSError:
            continue
        if text.isdigit() and int(text) < _NO_LIMIT:
            yield int(text)
