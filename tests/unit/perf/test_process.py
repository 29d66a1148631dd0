"""CPU time and memory of a process as /proc tells them."""
import os
import time

import pytest

from gomq_py.perf.process import cpu_seconds, memory_octets


def test_cpu_time_is_that_of_the_process():
    before = cpu_seconds(os.getpid())
    spent = time.process_time()
    while time.process_time() - spent < 0.1:
        pass

    assert 0.08 <= cpu_seconds(os.getpid()) - before < 5


def test_memory_is_that_of_the_process():
    memory = memory_octets(os.getpid())

    assert 0 < memory["anonymous"] < memory["rss"]


def test_a_process_that_is_not_there_is_an_os_error():
    with pytest.raises(OSError):
        cpu_seconds(2**22 + 1)
