"""Pages: what of a file the process has mapped, and what of it stays."""
import mmap
import sys
from types import SimpleNamespace

import pytest

from gomq_py.storage.disk import pages
from gomq_py.storage.disk.files import Files

SIZE = 64 * mmap.PAGESIZE


@pytest.fixture
def file(tmp_path):
    file = Files().create(str(tmp_path / "file"), SIZE)
    yield file
    file.close()


def resident_kib(path):
    """How much of the mappings of a file the process has mapped."""
    count, counts = 0, False
    with open("/proc/self/smaps", encoding="utf-8") as lines:
        for line in lines:
            words = line.split()
            if "-" in words[0] and not words[0].endswith(":"):
                counts = words[-1] == path
            elif counts and words[0] == "Rss:":
                count += int(words[1])
    return count


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is let go of")
def test_nothing_of_a_file_that_was_let_go_of_is_mapped_until_it_is_touched(file):
    file.map[:] = b"x" * SIZE
    assert resident_kib(file.path) == SIZE // 1024

    pages.let_go(file)

    assert resident_kib(file.path) == 0
    assert file.map[SIZE - 1] == ord("x")
    assert resident_kib(file.path) > 0


def test_what_was_written_before_stays(file):
    file.map[:] = bytes(range(256)) * (SIZE // 256)

    pages.let_go(file)

    with open(file.path, "rb") as other:
        assert other.read() == bytes(range(256)) * (SIZE // 256)
    assert file.map[:] == bytes(range(256)) * (SIZE // 256)


def test_what_is_written_behind_it_is_flushed_as_ever(file):
    file.map[:5] = b"first"
    pages.let_go(file)
    file.map[SIZE - 6:] = b"second"

    Files().sync(file)

    with open(file.path, "rb") as other:
        octets = other.read()
    assert octets[:5] == b"first" and octets[-6:] == b"second"


def test_a_file_without_a_mapping_has_nothing_to_let_go_of():
    pages.let_go(SimpleNamespace(map=None))


def test_a_system_that_refuses_changes_nothing(file, monkeypatch):
    def refused(*arguments):
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(pages, "advise", refused)
    file.map[:5] = b"first"

    pages.let_go(file)

    assert file.map[:5] == b"first"
