"""What the seam tells is enough to have the same data folder elsewhere:
a mirror built from events alone is compared byte for byte.

It is what clustering will stand on, and it finds every change that goes around the seam or is not announced.
"""
import os
from random import Random

import pytest

from gomq_py.storage.disk import atomic_file
from gomq_py.storage.disk.data_dir import DataDir
from gomq_py.storage.disk.files import Files
from gomq_py.storage.logs.framed_log import FramedLog
from tests.durability.seeds import seeds
from tests.support.mirror import Mirror, folder_content


@pytest.fixture
def mirror(tmp_path):
    (tmp_path / "data").mkdir()
    return Mirror(tmp_path / "data", tmp_path / "mirror")


def test_a_new_data_folder_is_mirrored(mirror):
    DataDir(mirror.source, Files((mirror,))).open().close()

    assert mirror.differences() == []


def test_a_definitions_log_is_mirrored_through_a_torn_end_and_a_compaction(mirror):
    files = Files((mirror,))
    path = os.path.join(mirror.source, "definitions")
    log = FramedLog(files, path)
    log.append_all([b"one", b"two"])
    log.close()
    for copy in (mirror.source, mirror.copy):
        os.truncate(os.path.join(copy, "definitions"), 100)

    log = FramedLog(files, path)
    assert list(log.replay()) == [b"one"]
    log.append(b"three")
    assert mirror.differences() == []

    log.rewrite([b"three"])
    log.append(b"four")
    assert mirror.differences() == []


def change_mapped(files, random, folder, mapped):
    """Grow, change, cut or rename a mapped file, announcing what is announced once per batch."""
    draw = random.random()
    if not mapped or draw < 0.2:
        mapped.append(files.create(
            os.path.join(folder, f"msgs.{random.getrandbits(40):010d}"), random.choice((4096, 10000, 65536))
        ))
        return
    file = random.choice(mapped)
    if draw < 0.7 and file.size:
        start = random.randrange(file.size)
        end = random.randrange(start, file.size) + 1
        file.map[start:end] = random.randbytes(end - start)
        (files.appended if random.random() < 0.5 else files.overwritten)(file, start, end)
    elif draw < 0.75:
        files.truncate(file, random.randrange(file.size + 1))
    elif draw < 0.8:
        files.extend(file, file.size + random.randrange(1, 9000))
    elif draw < 0.95:
        files.rename(file.path, os.path.join(folder, f"pool.{random.getrandbits(40):010d}"), file)
    else:
        mapped.remove(file)
        files.close(file)
        files.unlink(file.path)


@pytest.mark.parametrize("seed", seeds(5))
def test_any_changes_through_the_seam_are_mirrored(mirror, seed):
    random = Random(seed)
    files = Files((mirror,))
    mapped, folders = [], [mirror.source]
    log = files.open_log(os.path.join(mirror.source, "log"))

    for _ in range(300):
        draw = random.random()
        if draw < 0.05:
            folders.append(os.path.join(random.choice(folders), f"q{len(folders)}"))
            files.make_folder(folders[-1])
        elif draw < 0.2:
            files.append(log, random.randbytes(random.randrange(300)))
        elif draw < 0.25:
            atomic_file.replace(files, os.path.join(random.choice(folders), "users"), random.randbytes(100))
        elif draw < 0.3 and len(folders) > 1:
            gone = folders.pop()
            for file in [file for file in mapped if file.path.startswith(gone + os.sep)]:
                mapped.remove(file)
            folders = [folder for folder in folders if not folder.startswith(gone + os.sep)]
            files.remove_tree(gone)
        else:
            change_mapped(files, random, random.choice(folders), mapped)

    assert mirror.differences() == []
    register = files.register
    known = {os.path.relpath(path, mirror.source) for path in [*register.paths.values(), *register.folders]}
    assert known == set(folder_content(mirror.source))
    assert all(register.id_of(path) == file_id for file_id, path in register.paths.items())
