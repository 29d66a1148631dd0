"""Resource watch: measures used memory and free disk regularly, and raises and lifts the broker's alarms.

One greenlet checks every few seconds, and more often if a resource may soon be used up, as RabbitMQ's disk
monitor does. A thread queries the file system, which may hang, so that memory is still checked.
observability.resources measures; broker.signals.alarms informs the protocol servers.
"""

import gevent
from gevent.event import Event

from gomq_py.broker.signals.alarms import DISK, MEMORY
from gomq_py.hub.threads import begin, in_thread
from gomq_py.observability import resources
from gomq_py.observability.garbage import collect_everything
from gomq_py.observability.log import logger

LOG = logger("alarm")
# Bounds of the interval. The shortest costs at most a hundredth of one core; the longest is the age of an
# idle broker's measurements.
INTERVAL_MIN_S, INTERVAL_MAX_S = 0.25, 5.0
# Worst octets per second at which disk or memory may fill: what one core takes from the fastest likely
# network.
FILL_RATE = 512 * 1024 * 1024
# A disk that does not answer is logged after this time.
DISK_PATIENCE_S = 10.0
# LavinMQ's floors: the disk must have room for three segments whatever the settings say, because every queue
# that writes may need another.
MIN_SEGMENTS, WARN_SEGMENTS = 3, 6


class ResourceWatch:
    """The watch over memory and disk of one broker. Changed ``settings`` apply from the next check on."""

    def __init__(self, alarms, settings, path, probe=resources):
        """``path``: the data folder. ``probe``: the module that measures; tests replace it."""
        self.used_memory = self.memory_limit = self.free_disk = self.total_disk = 0
        """What the last look found, in octets; ``memory_limit`` is where the alarm is raised, 0 for never."""
        self._alarms = alarms
        self._settings = settings
        self._path = path
        self._probe = probe
        self._wake = Event()
        self._greenlet = self._asking = None
        self._warned = self._silent = False
        self._identity = None  # of the data folder that the broker has opened

    def start(self):
        """Check once, then start the greenlet that checks. Blocks until the file system answers."""
        self.look_at_memory()
        try:
            self._identity = self._probe.identity(self._path)
            self.judge_disk(*self._probe.free_disk(self._path))
        except OSError as error:
            LOG.error("cannot ask for the room in %s: %s", self._path, error)
        self._greenlet = gevent.spawn(self._run)
        self._greenlet.name = "resource watch"

    def stop(self):
        """Stop checking. Alarms stay as they are."""
        if self._greenlet is not None:
            self._greenlet.kill(block=False)
            self._greenlet = None

    def look_now(self):
        """Make the greenlet check at once, because a configured limit has changed."""
        self._wake.set()

    @property
    def is_silent(self):
        """True if the file system has not answered for DISK_PATIENCE_S."""
        return self._silent

    @property
    def disk_limit(self):
        """The free bytes below which the disk alarm is raised."""
        return max(self._settings.free_disk_min, MIN_SEGMENTS * self._settings.segment_size)

    def interval_s(self):
        """Return the seconds until the next check: the time in which memory or disk could reach its limit,
        but at least INTERVAL_MIN_S (also the result during an alarm), and at most INTERVAL_MAX_S.
        """
        rooms = [self.free_disk - self.disk_limit]
        if self.memory_limit:
            rooms.append(self.memory_limit - self.used_memory)
        return min(max(min(rooms) / FILL_RATE, INTERVAL_MIN_S), INTERVAL_MAX_S)

    def look_at_memory(self):
        """Raise or lift the memory alarm. Returns True if memory is over its limit."""
        watermark = self._settings.memory_high_watermark
        self.memory_limit = (
            int(watermark * self._probe.total_memory()) if isinstance(watermark, float) else watermark
        )
        self.used_memory = self._probe.used_memory()
        over = bool(self.memory_limit) and self.used_memory > self.memory_limit
        detail = f"{shown(self.used_memory)} used, memory_high_watermark allows {shown(self.memory_limit)}"
        if over:
            self._alarms.set("memory watch", MEMORY, detail)
        else:
            self._alarms.clear("memory watch", detail)
        return over

    def judge_disk(self, free, total):
        """Raise the disk alarm if ``free`` bytes are too few, otherwise lift it. Warn if disk runs low."""
        self.free_disk, self.total_disk = free, total
        limit = self.disk_limit
        if free < limit:
            self._alarms.set(
                "disk watch", DISK,
                f"{shown(free)} free in {self._path}, needed are {shown(limit)} (free_disk_min)",
            )
        else:
            self._alarms.clear("disk watch", f"{shown(free)} free in {self._path}")
        low = free < max(self._settings.free_disk_warn, WARN_SEGMENTS * self._settings.segment_size)
        if low and not self._warned and free >= limit:
            LOG.warning("%s free in %s: publishers are held below %s", shown(free), self._path, shown(limit))
        self._warned = low

    def judge_folder(self, identity):
        """Raise an alarm if the data folder's ``identity`` (None: gone) is not that of boot; else lift it."""
        # Messages would be lost.
        if self._identity is None or identity == self._identity:
            self._alarms.clear("data folder", f"{self._path} is there again")
        else:
            what = "is gone" if identity is None else "is not the folder any more that was opened"
            self._alarms.set(
                "data folder", DISK,
                f"{self._path} {what}: nothing that is published would outlive the broker",
            )

    def _ask(self):
        identity = self._probe.identity(self._path)
        return (None, 0, 0) if identity is None else (identity, *self._probe.free_disk(self._path))

    def _run(self):
        while True:
            self._wake.wait(self.interval_s())
            self._wake.clear()
            try:
                self._look()
            except Exception:
                LOG.exception("the watch over memory and disk failed; it goes on")

    def _look(self):
        was_on = self._alarms.is_on(MEMORY)
        if self.look_at_memory():
            # Garbage and the allocator's reserves could keep the alarm on for ever. A collection holds up
            # everything, so it runs once per alarm.
            if not was_on:
                collect_everything()
            in_thread(self._probe.give_memory_back)
            self.look_at_memory()
        if self._asking is None:
            self._asking = begin(self._ask)
        self._asking.wait(DISK_PATIENCE_S)
        if not self._asking.ready():
            if not self._silent:
                LOG.error("the file system of %s has not answered for %d s", self._path, DISK_PATIENCE_S)
            self._silent = True
            return
        asking, self._asking, self._silent = self._asking, None, False
        identity, free, total = asking.get()
        self.judge_folder(identity)
        if identity is not None:
            self.judge_disk(free, total)


def shown(octets):
    """Return a number of bytes as a text such as "1.5 GiB" or "20.0 MiB"."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if abs(octets) >= size:
            return f"{octets / size:.1f} {unit}"
    return f"{octets / 1024:.0f} KiB"
