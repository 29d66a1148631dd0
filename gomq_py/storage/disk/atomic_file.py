"""Atomic files: replaces a small file (users, policies, a compacted log). Readers find the old or the new
content.

Uses ``storage.disk.files``. The new content is written to a temporary file in the same folder and flushed.
Then the file is renamed and the folder is flushed. Without the first flush a power failure may leave an empty
file; without the second it may restore the old content.
"""
import os
from contextlib import suppress
from itertools import count

TEMPORARY = ".new"  # followed by a number, unique among replacements under way

_numbers = count(1)


def replace(files, path, octets):
    """Write ``octets`` into the file at ``path``, which is created if missing. They are on disk on return.

    Blocks during two flushes, so call it at boot, at shutdown or in a thread. Raises OSError; the file then
    has its old content, or perhaps the new if only the last flush failed.
    """
    path = os.fspath(path)
    file = write_temporary(files, path, octets)
    try:
        files.sync(file)
        files.register.flushed()
        files.rename(file.path, path, file)
    except OSError:
        discard(files, file)
        raise
    files.close(file)
    files.sync_folder(os.path.dirname(path))


def write_temporary(files, path, octets):
    """Write the new content into a temporary file beside ``path``, without a flush. Returns the open LogFile.
    Raises OSError, leaving no temporary file.
    """
    file = files.open_log(f"{path}{TEMPORARY}.{next(_numbers)}")
    try:
        if file.size:  # left by a dead process: numbers start anew in each
            files.truncate(file, 0)
        files.append(file, octets)
    except OSError:
        discard(files, file)
        raise
    return file


def discard(files, file):
    """Close and remove a temporary file. If that fails, the next boot removes it."""
    files.close(file)
    with suppress(OSError):
        files.unlink(file.path)


def sweep(files, folder):
    """Remove the temporary files that a crash has left in the folder. For boot. Their content was never
    confirmed.
    """
    with os.scandir(folder) as entries:
        left = sorted(entry.path for entry in entries if is_temporary(entry.name))
    for path in left:
        files.unlink(path)


def is_temporary(name):
    """Return whether this is the name of a temporary file."""
    stem, dot, number = name.rpartition(".")
    return bool(dot) and number.isdecimal() and stem.endswith(TEMPORARY)
