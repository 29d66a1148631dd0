"""Folders in memory, for tests that wait for a disk without asking it anything.

``python -m tests.support.memory`` prints a folder of tmpfs that has room for a run of the suite, or nothing.
"""
import os
import shutil

TMPFS = "/dev/shm"
# What the suite has on the disk at one time, four tests at once, with room to spare. Containers often have 64
# MiB.
ENOUGH_BYTES = 4 << 30


def folder():
    """The folder of tmpfs where it has room, else None."""
    if not os.access(TMPFS, os.W_OK) or shutil.disk_usage(TMPFS).free < ENOUGH_BYTES:
        return None
    return TMPFS


if __name__ == "__main__":
    print(folder() or "")
