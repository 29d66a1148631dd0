"""Disk: the files of one process over the power cuts' model of a disk, and what that disk does wrong.

Each call of the file seam is a moment: it is in the trace, the process may be killed in front of it, and a
thread gives way there. Which call fails, and whether the disk is full, says a Weather, which is the world's.
"""
import errno
import os
from collections import deque

from tests.simulation.threads import this_thread
from tests.support.power_cut import PowerCutFiles
from tests.support.watched_files import ANNOUNCEMENTS

# Calls that take room.
TAKE_ROOM = frozenset({"create", "create_unnamed", "make", "make_unnamed", "make_log", "append", "reserve",
                       "extend", "write_accepted", "write"})
# Calls by which a thread makes a file that messages may wait for.
MAKE_FILES = frozenset({"make", "make_unnamed"})
# Seconds that a flush takes.
FLUSH_S = (0.0, 100e-6, 1e-3, 10e-3)
SLOW_FLUSH_S = 20.0


class Weather:
    """How the disk is. ``is_full``: what takes room is refused. ``slow`` and ``failing``: so many of the next
    flushes take SLOW_FLUSH_S, or fail, of files with ``fails_in`` in their names. ``refusing``: so many of
    the next calls fail, of the kinds in ``refuses`` if that is not empty. ``takes_little``: each write takes
    a part of what it is given. ``deadly``: within so many calls behind the next one that fails the process is
    killed.
    """

    def __init__(self):
        self.clear_up()

    def clear_up(self):
        """The disk is well again."""
        self.is_full = self.takes_little = False
        self.fails_in = ""
        self.refuses = frozenset()
        self.slow = self.failing = self.refusing = self.deadly = 0

    def is_failing(self):
        """Whether calls are to fail."""
        return self.is_full or self.failing > 0 or self.refusing > 0


def is_of_disk(error):
    """Whether a disk that is full or fails is behind it."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EIO):
            return True
        error = error.__cause__ or error.__context__
    return False


class ProcessFiles(PowerCutFiles):
    """The Files of a process."""

    may_sync_in_hub = False  # or compiled modules would flush in threads that nobody steers

    def __init__(self, process, listeners=()):
        super().__init__(process.machine.disk, flush_pause=self._flushing, listeners=listeners)
        self._opened = deque(maxlen=0)  # nobody switches it off, and files that were closed are to be gone
        self._process = process
        self._weather = process.machine.weather
        self._random = process.world.random(f"disk of {process}")

    def about_to(self, call, subject):
        self._process.moment(f"{call} {self._name(subject)}")
        thread = this_thread()
        if thread is not None and call not in ANNOUNCEMENTS:
            thread.pause()
        if self._weather.is_full and call in TAKE_ROOM:
            self._fail(errno.ENOSPC, subject)
        if self._weather.refusing and call not in ANNOUNCEMENTS and (
                not self._weather.refuses or call in self._weather.refuses):
            self._weather.refusing -= 1
            self._process.has_failed_folder |= call == "sync_folder"
            self._fail(errno.EIO, subject)
        super().about_to(call, subject)

    def _write_once(self, file, at, octets):
        if self._weather.takes_little and len(octets) > 1:
            if self._weather.is_full:
                self._fail(errno.ENOSPC, file.path)
            part = octets[:self._random.randrange(1, len(octets))]
            super()._write_once(file, at, part)
            self._process.moment(f"wrote {len(part)} of {len(octets)}")
            return len(part)
        return super()._write_once(file, at, octets)

    def _flushing(self, path):
        """In the middle of a flush, or of a change of a name by a thread."""
        weather, flush_s = self._weather, self._random.choice(FLUSH_S)
        if weather.slow:
            weather.slow -= 1
            flush_s = SLOW_FLUSH_S
        thread = this_thread()
        if thread is not None:
            thread.pause(flush_s)
        self._process.moment(f"flushed {self._name(path)}")
        if weather.failing and weather.fails_in in os.fspath(path):
            weather.failing -= 1
            weather.fails_in = weather.fails_in if weather.failing else ""
            if os.path.isdir(path):
                self._process.has_failed_folder = True
            self._fail(errno.EIO, path)

    def _name(self, path):
        return os.fspath(path)[len(self.disk.root) + 1:] or "."

    def _fail(self, number, subject):
        self._process.moment(f"fails with {errno.errorcode[number]}")
        if self._weather.deadly:
            self._process.dies_at = self._process.moments + 1 + self._random.randrange(self._weather.deadly)
            self._weather.deadly = 0
        self._process.has_failed_disk = True
        self._process.world.counts["failed calls"] += 1
        raise OSError(number, os.strerror(number), subject)
