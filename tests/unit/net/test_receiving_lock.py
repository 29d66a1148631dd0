"""Who may run while octets are copied from and to a socket: other threads if the copy is long."""
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gomq_py.hub.buffers import FLOOD_OCTETS, INPUT_OCTETS
from gomq_py.net import stream
from tests.support.waiting import in_time

ROOT = Path(__file__).resolve().parents[3]
LOCKED_DATA_MAX = 4096  # receiving.pxd has it for compiled modules only
# recv and send of a process: the longest buffers that were passed with the interpreter's lock held, and the
# longest ones that were passed without it, are printed at its end.
WATCH = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
extern int PyGILState_Check(void) __attribute__((weak));
static size_t received[2], sent[2];

static void note(size_t *longest, size_t count) {
    int is_held = PyGILState_Check && PyGILState_Check();
    if (count > longest[is_held]) longest[is_held] = count;
}

ssize_t recv(int descriptor, void *octets, size_t count, int flags) {
    static ssize_t (*real)(int, void *, size_t, int);
    if (!real) real = (ssize_t (*)(int, void *, size_t, int))dlsym(RTLD_NEXT, "recv");
    note(received, count);
    return real(descriptor, octets, count, flags);
}

ssize_t send(int descriptor, const void *octets, size_t count, int flags) {
    static ssize_t (*real)(int, const void *, size_t, int);
    if (!real) real = (ssize_t (*)(int, const void *, size_t, int))dlsym(RTLD_NEXT, "send");
    note(sent, count);
    return real(descriptor, octets, count, flags);
}

__attribute__((destructor)) static void tell(void) {
    FILE *file = fopen(getenv("WATCH_FILE"), "w");
    fprintf(file, "%zu %zu %zu %zu\n", received[1], received[0], sent[1], sent[0]);
    fclose(file);
}
"""


@pytest.mark.needs_program("cc")
def test_the_interpreter_is_released_for_long_copies_only(tmp_path):
    """Threads that wait for the interpreter make the next files ready. They got it 5 ms later where a flood
    is copied with the lock held, and what was not ready in time cost a fifth of a flood.
    """
    (tmp_path / "watch.c").write_text(WATCH)
    library = tmp_path / "watch.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "watch.c", "-ldl"], check=True)
    names = ("test_stream.py::test_who_floods_alone_is_read_more_at_a_time",
             "test_output.py::test_writing_to_a_full_socket_neither_waits_nor_loses",
             "test_output.py::test_what_is_written_arrives_in_order")
    environment = {
        **os.environ, "LD_PRELOAD": f"{os.environ.get('LD_PRELOAD', '')} {library}".strip(),
        "WATCH_FILE": str(tmp_path / "sizes")}

    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
         *(str(Path(__file__).parent / name) for name in names)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=in_time(100))

    assert run.returncode == 0, run.stdout
    received_held, received_free, sent_held, sent_free = map(int, (tmp_path / "sizes").read_text().split())
    assert received_free >= FLOOD_OCTETS and sent_free > LOCKED_DATA_MAX
    if not stream.__file__.endswith(".py"):
        assert received_held == INPUT_OCTETS and 0 < sent_held <= LOCKED_DATA_MAX
