"""Memory and disk, as /proc, cgroups and the file system tell of them."""
import ctypes
import mmap
import os
import subprocess
import sys

import pytest

from gomq_py.observability import resources
from tests.support.waiting import in_time

MIB = 1 << 20


@pytest.fixture
def machine(tmp_path):
    """A function that writes files of a /proc and a /sys/fs/cgroup; returns both folders."""
    def write(**files):
        for path, text in {"proc/meminfo": "MemTotal:       16384 kB\nMemFree: 1 kB\n", **files}.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        return str(tmp_path / "proc"), str(tmp_path / "cgroup")

    return write


@pytest.mark.parametrize(("files", "expected"), [
    ({}, 16 * MIB),
    ({"proc/self/cgroup": "0::/\n", "cgroup/memory.max": "8388608\n"}, 8 * MIB),
    ({"proc/self/cgroup": "0::/\n", "cgroup/memory.max": "max\n"}, 16 * MIB),
    (
        {
            "proc/self/cgroup": "0::/a.slice/b.service\n", "cgroup/a.slice/memory.max": "4194304",
            "cgroup/a.slice/b.service/memory.max": "max",
        },
        4 * MIB,
    ),
    (
        {
            "proc/self/cgroup": "0::/a.slice/b.service\n", "cgroup/a.slice/memory.max": "4194304",
            "cgroup/a.slice/b.service/memory.max": "2097152",
        },
        2 * MIB,
    ),
    ({"proc/self/cgroup": "0::/../outside\n", "cgroup/memory.max": "1048576"}, 1 * MIB),
    (
        {
            "proc/self/cgroup": "5:cpu,memory:/docker/x\n",
            "cgroup/memory/docker/x/memory.limit_in_bytes": "3145728\n",
        },
        3 * MIB,
    ),
    (
        {
            "proc/self/cgroup": "5:memory:/docker/x\n4:cpu:/\n",
            "cgroup/memory/memory.limit_in_bytes": "3145728\n",
        },
        3 * MIB,
    ),
    (
        {"proc/self/cgroup": "5:memory:/\n", "cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"},
        16 * MIB,
    ),
    ({"proc/self/cgroup": "0::/\n", "cgroup/memory.max": "1099511627776\n"}, 16 * MIB),
])
def test_total_memory_is_the_least_of_machine_and_containers(machine, files, expected):
    assert resources.total_memory(*machine(**files)) == expected


def test_this_machine_has_memory():
    assert resources.total_memory() > resources.resident_memory() > resources.used_memory() > 0


def test_pages_of_a_mapped_file_are_no_used_memory(tmp_path):
    before = resources.used_memory(), resources.resident_memory()
    with open(tmp_path / "file", "wb+") as file:
        file.truncate(64 * MIB)
        with mmap.mmap(file.fileno(), 64 * MIB) as mapped:
            for at in range(0, 64 * MIB, 4096):
                mapped[at] = 1
            used, resident = resources.used_memory() - before[0], resources.resident_memory() - before[1]

    assert resident > 48 * MIB > 16 * MIB > used


def test_free_disk_is_what_others_than_root_may_use(tmp_path):
    free, total = resources.free_disk(tmp_path)

    answer = os.statvfs(tmp_path)
    assert total == answer.f_blocks * answer.f_frsize
    assert 0 < free <= answer.f_bfree * answer.f_frsize


def test_memory_is_given_back():
    resources.give_memory_back()


def test_folder_that_replaces_another_has_another_identity(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    identity = resources.identity(folder)
    assert resources.identity(folder) == identity

    folder.rename(tmp_path / "old")
    assert resources.identity(folder) is None
    folder.mkdir()

    assert resources.identity(folder) not in (None, identity)
    assert resources.identity(tmp_path / "old") == identity


HEAPS = """
import ctypes, os, sys, threading
from gomq_py.observability import resources
resources.use_one_heap()
def allocate():
    [bytearray(1000) for _ in range(10)]
threads = [threading.Thread(target=allocate) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
stream = ctypes.c_void_p(libc.fdopen(1, b"w"))
libc.malloc_info(0, stream)
libc.fflush(stream)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="no heaps of glibc")
@pytest.mark.parametrize(("said", "several"), [
    ({}, False), ({"MALLOC_ARENA_MAX": "4"}, True), ({"GLIBC_TUNABLES": "glibc.malloc.arena_max=4"}, True)])
def test_threads_have_one_heap_unless_somebody_has_said_otherwise(said, several):
    environment = {
        name: value for name, value in os.environ.items()
        if name not in ("MALLOC_ARENA_MAX", "GLIBC_TUNABLES")}

    told = subprocess.run(
        [sys.executable, "-c", HEAPS], env={**environment, **said}, capture_output=True, check=True,
        timeout=in_time(60))

    assert (told.stdout.count(b"<heap nr=") > 1) is several


@pytest.mark.parametrize("is_told", [True, False])
def test_descriptors_are_counted_where_the_system_tells_no_number_too(tmp_path, monkeypatch, is_told):
    before = resources.descriptor_count()
    if not is_told:
        monkeypatch.setattr(resources.os, "stat", lambda path: os.stat_result([0] * 10))

    opened = [os.open(tmp_path, os.O_RDONLY) for _ in range(5)]

    assert resources.descriptor_count() == before + 5
    for number in opened:
        os.close(number)
