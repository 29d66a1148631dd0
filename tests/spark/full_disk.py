"""A disk with little room, for what Spark's JVM writes.

``with little_disk(spark, folder) as disk``: ``folder`` takes OCTETS until ``disk.make_room()``. A file system
of that size where this process may mount one; elsewhere no file of the JVM may grow beyond a limit, which
the kernel refuses as it refuses a full disk.
"""
import os
import resource
import subprocess
from contextlib import contextmanager
from pathlib import Path

OCTETS = 1 << 20
ROOMY = 64 << 20


@contextmanager
def little_disk(spark, folder):
    """A disk; its room is made at the end, too."""
    folder.mkdir()
    disk = Mounted(folder) if may_mount(folder) else Limited(spark)
    try:
        yield disk
    finally:
        disk.close()


def may_mount(folder):
    """Mount it, or say that nobody may."""
    if os.geteuid():
        return False
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={OCTETS}", "tmpfs", str(folder)], stderr=subprocess.DEVNULL)
    return done.returncode == 0


class Mounted:
    """A file system in memory. ``too_much``: octets that it does not take."""

    too_much = 3 * OCTETS

    def __init__(self, folder):
        self._folder = folder

    def make_room(self):
        """It takes much more from now on."""
        subprocess.run(["mount", "-o", f"remount,size={ROOMY}", str(self._folder)], check=True)

    def close(self):
        """It is gone, whoever has a file of it open."""
        subprocess.run(["umount", "-l", str(self._folder)], check=True)


class Limited:
    """Files of the JVM end at a limit: behind all that it writes besides, such as the log of its events."""

    def __init__(self, spark):
        self._pid = spark._jvm.java.lang.ProcessHandle.current().pid()
        self._before = resource.prlimit(self._pid, resource.RLIMIT_FSIZE)
        events = Path(spark.conf.get("spark.eventLog.dir").removeprefix("file:"))
        longest = max(file.stat().st_size for file in events.rglob("events*"))
        limit = longest + 4 * OCTETS
        self.too_much = limit + OCTETS
        resource.prlimit(self._pid, resource.RLIMIT_FSIZE, (limit, self._before[1]))

    def make_room(self):
        """As before."""
        resource.prlimit(self._pid, resource.RLIMIT_FSIZE, self._before)

    def close(self):
        """As make_room()."""
        self.make_room()
