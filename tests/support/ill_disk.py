"""Brokers, real processes, whose disk falls ill while clients are connected.

``IllDisk`` is a broker whose seam to the file system misbehaves as told (``ill_child``). ``SmallDisk`` is a
file system of a few octets in a namespace of its own; it outlives the brokers on it.
"""
import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.broker_process import BrokerProcess


class IllDisk(BrokerProcess):
    """``fall_ill("full")`` and ``recover("full")``; "broken" and "stuck" are about flushes."""

    def __init__(self, folder, **options):
        super().__init__(Path(folder, "data"), **options)
        self._switches = Path(folder, "switches")
        self._switches.mkdir()

    @property
    def arguments(self):
        python, flag, _, *flags = super().arguments
        return [python, flag, "tests.support.ill_child", str(self._switches), *flags]

    def fall_ill(self, how):
        (self._switches / how).touch()

    def recover(self, how):
        (self._switches / how).unlink()


class SmallDisk:
    """``with SmallDisk(folder, octets) as disk``; None where this machine lets nobody mount."""

    def __init__(self, folder, octets):
        self._mount = Path(folder)
        self._octets = octets
        self._keeper = None

    def __enter__(self):
        script = f'mount -t tmpfs -o size={self._octets} tmpfs "$0" && echo mounted && exec cat'
        if shutil.which("unshare") is None or shutil.which("nsenter") is None:
            return None
        self._keeper = subprocess.Popen(
            ["unshare", "-rm", "sh", "-c", script, str(self._mount)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return self if self._keeper.stdout.readline() == b"mounted\n" else None

    def __exit__(self, *_):
        if self._keeper is not None:
            self._keeper.stdin.close()
            self._keeper.stdout.close()
            self._keeper.wait()

    def broker(self, **options):
        """A broker whose data folder is on it."""
        return _OnSmallDisk(self._keeper.pid, self._mount / "data", **options)

    def fill(self):
        """Take all the room there is, as another program does.

        Whether there is none now: somebody may give some back at the same time.
        """
        with open(self._filler, "ab", buffering=0) as file:
            size = 1 << 20
            while size:
                try:
                    file.write(bytes(size))
                except OSError as error:
                    assert error.errno == errno.ENOSPC
                    size //= 2
        return self.free_octets() == 0

    def free(self):
        """Give it back."""
        self._filler.unlink()

    def free_octets(self):
        """What is left."""
        found = os.statvfs(self._filler.parent)
        return found.f_bavail * found.f_frsize

    @property
    def _filler(self):
        return Path(f"/proc/{self._keeper.pid}/root{self._mount}/filler")


class _OnSmallDisk(BrokerProcess):
    def __init__(self, keeper, data_dir, **options):
        super().__init__(data_dir, **options)
        self._keeper = keeper

    @property
    def arguments(self):
        return [
            "nsenter", "-t", str(self._keeper), "-U", "-m", "--preserve-credentials", f"--wd={os.getcwd()}",
            *super().arguments,
        ]


assert sys.platform == "linux"
