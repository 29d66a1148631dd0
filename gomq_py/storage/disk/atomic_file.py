"""Atomic files: the only way to replace a small file (users, policies, a compacted log).

A reader finds the old content or the new.

Below whoever keeps a small file, above ``storage.disk.files``. The new content goes to a temporary name in
the same folder, is flushed, takes the file's name, and the folder is flushed: without the first flush a power
cut may leave the name on an empty file, without the second it may bring the old one back.
"""
import os
from contextlib import suppress
from itertools import count

TEMPORARY = ".new"  # followed by a number, so that two replacements on their way do not share a file

_numbers = count(1)


def replace(files, path, octets):
    """Replace the file, or create it; it is on disk when this returns.

    Blocks for two flushes: for boot, shutdown and threads, not for the hub.

    Raises OSError; the old content is then still there, unless only the last flush failed (then either is).
    """
    path = os.fspath(path)
    file = write_temporary(files, path, octets)
    try:
        files.sync(file)
        files.rename(file.path, path, file)
    except OSError:
        discard(files, file)
        raise
    files.close(file)
    files.sync_folder(os.path.dirname(path))


def write_temporary(files, path, octets):
    """The new content in an open log beside ``path``, not flushed yet.

    Raises OSError and leaves nothing behind.
    """
    file = files.open_log(f"{path}{TEMPORARY}.{next(_numbers)}")
    try:
        if file.size:  # left by a process that died; the numbers start anew with each
            files.truncate(file, 0)
        files.append(file, octets)
    except OSError:
        discard(files, file)
        raise
    return file


def discard(files, file):
    """Close and remove a temporary file; one that cannot be removed is swept at the next boot."""
    files.close(file)
    with suppress(OSError):
        files.unlink(file.path)


def sweep(files, folder):
    """Remove the temporary files that a crash has left in the folder; nobody was promised their content.

    For boot.
    """
    with os.scandir(folder) as entries:
        left = sorted(entry.path for entry in entries if is_temporary(entry.name))
    for path in left:
        files.unlink(path)


def is_temporary(name):
    """Whether a file name is that of a temporary file of ours."""
    stem, dot, number = name.rpartition(".")
    return bool(dot) and number.isdecimal() and stem.endswith(TEMPORARY)
