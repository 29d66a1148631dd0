"""Scheduler: gives queues a delivery round after each socket read, and runs long work in slices.

Each event loop (hub.context) has one. A queue is *touched* when it gets a message or its consumers may take
more. One socket read, the *batch*, may touch a queue many times. At the end of the batch the queue gets one
*turn* (docs/decisions/0003). Work beyond the budget of a turn goes on after the next poll of the event loop.
So no queue keeps a socket from being read. The scheduler never blocks or switches greenlets.
While it is idle no timer runs.

Long work is a Job: one slice of the job is done per poll until no work is left. All jobs share one budget of
time per poll and take turns. A fault in a slice is logged and counted under the job's ``name``, and the job's
``failed`` is called; other jobs go on.

While the scheduler is *shut* nothing is delivered: queues only write to files, and jobs that move messages
(``moves_messages``) rest (hub.gate). SliceClock limits how long a slice may keep the event loop.
"""
import time
from collections import Counter, deque

import gevent

from gomq_py.observability.log import logger
from gomq_py.observability.quiet_log import QuietLog

LOG = logger("queue")

# Others wait for a slice once per poll of the loop: as long as a read of slow frames may take (hub.turns).
SLICE_S = 0.002

# Octets written to sockets in one go before the loop is polled again:
# about the cost of reading four full buffers, some 0.3 ms.
BUDGET_OCTETS = 512 * 1024

# Time for the turns of one go if there are many: a queue that writes little costs a system call all the same,
# and 500 of them 5 ms.
TURNS_S = 0.004
# So few turns go without the clock.
FEW_TURNS = 16

# Time of all jobs together in one poll; a slice, as a rule of 2 to 5 ms, may begin before it is over.
JOBS_S = 0.004


class SliceClock:
    """Measures whether a slice of work has used up its time.

    Call ``begin()`` before a slice, and ``is_over()`` after each item. ``seconds``: time of a slice, SLICE_S
    by default. ``every``: items per look at the clock, more than 1 if an item costs less than a microsecond.
    ``clock``: returns seconds.
    """

    # A slice of a fixed number of items may last as long as its slowest item times that number; a slice by
    # the clock lasts its time and one item more. The time is wall-clock time and not the processor's, because
    # other work waits by the wall clock.
    __slots__ = ("_seconds", "_every", "_clock", "_until", "_left")

    def __init__(self, seconds=None, every=1, clock=time.perf_counter):
        self._seconds = SLICE_S if seconds is None else seconds
        self._every = every
        self._clock = clock
        self.begin()

    def begin(self):
        self._until = self._clock() + self._seconds
        self._left = self._every

    def is_over(self):
        """Return True from the end of the slice's time until begin(). Call this after each item."""
        self._left -= 1
        if self._left > 0:
            return False
        if self._clock() >= self._until:
            return True
        self._left = self._every
        return False


class Job:
    """Long work that the Scheduler does in slices, one per poll of the event loop. The Scheduler sets
    ``running``, and does not start a running job again. ``moves_messages``: the job pauses while the
    Scheduler is shut.
    """

    __slots__ = ("running",)

    name = ""
    moves_messages = False

    def __init__(self):
        self.running = False

    def step(self):
        """Do the next slice, a few milliseconds of work at most. Returns True if work is left."""
        raise NotImplementedError

    def failed(self, error):
        """Repair the job after a slice raised ``error``, which is logged. Returns True if the job goes on."""
        raise NotImplementedError


class TurnTaker:
    """An object, such as a queue, that works once after each batch (socket read) that touched it.

    The Scheduler sets ``touched``, True while the TurnTaker waits for its turn, and ``next``, the TurnTaker
    behind it in a TakerList.
    """

    __slots__ = ("name", "touched", "next")

    def __init__(self, name):
        self.name = name
        self.touched = False
        self.next = None

    def write_out(self):
        """Write all received messages to files, where they survive a kill. Called at a batch's end."""

    def turn(self):
        """Do a bounded amount of work, such as delivering. Called at a batch's end, after write_out().
        Returns about how many bytes were written to sockets.
        """
        return 0


class TakerList:
    """A linked list of TurnTakers in the order of their turns. A TurnTaker is in one list at a time."""

    # The TurnTakers themselves hold the links: a Python list would be allocated and freed in each batch.
    __slots__ = ("first", "last", "count")

    def __init__(self):
        self.first = self.last = None
        self.count = 0

    def append(self, taker):
        if self.last is None:
            self.first = taker
        else:
            self.last.next = taker
        self.last = taker
        self.count += 1

    def extend(self, other):
        """Move all TurnTakers of the list ``other`` to the end of this list."""
        last = other.last
        count = self.count + other.count
        first = other.take_all()
        if first is not None:
            self.append(first)
            self.last = last
            self.count = count

    def take_all(self):
        """Empty the list. Returns its first TurnTaker, whose ``next`` leads to the others, or None."""
        first = self.first
        self.first = self.last = None
        self.count = 0
        return first


class Scheduler:
    """Calls ``turn()`` of touched TurnTakers at the end of a batch (socket read), and runs jobs in slices.

        now_ms         time of the batch in Unix milliseconds, read once per batch
        failed_jobs    {name of a job: how many of its slices raised}
        is_shut        no message may be delivered now
    """

    __slots__ = (
        "now_ms", "failed_jobs", "walking", "touched", "late", "jobs", "budget", "quiet", "loop", "clock",
        "timer", "armed", "closed", "turns_clock", "is_shut", "resting",
    )

    def __init__(self, loop=None, clock=None, budget=None, turns_clock=None):
        """``budget``: limits the time of all jobs per poll. ``turns_clock``: limits the time of all turns."""
        self.clock = clock or unix_ms
        self.budget = budget or SliceClock(JOBS_S)
        self.turns_clock = turns_clock or SliceClock(TURNS_S, every=4)
        self.quiet = QuietLog(LOG)
        self.failed_jobs = Counter()
        self.now_ms = self.clock()
        self.walking = self.armed = self.closed = self.is_shut = False
        self.resting = []  # jobs that rest while it is shut
        self.touched = TakerList()
        self.late = TakerList()
        self.jobs = deque()
        self.loop = loop
        self.timer = None

    def begin(self, now_ms):
        """Begin a batch, before one socket read is parsed. The caller must call finish() afterwards."""
        self.now_ms = now_ms
        self.walking = True

    def touch(self, taker):
        """Give the TurnTaker a turn at the end of the batch; outside a batch, after the next poll."""
        if not taker.touched:
            taker.touched = True
            self.touched.append(taker)
            if not self.walking and not self.armed:
                self._arm()

    def later(self, taker):
        """Give the TurnTaker a turn after the next poll of the event loop."""
        if not taker.touched:
            taker.touched = True
            self.late.append(taker)
            if not self.armed:
                self._arm()

    def start(self, job):
        """Run a slice of the job after each poll, until no work is left. Ignores a running job."""
        # Within its own slice, the return value of ``step`` decides.
        if not job.running and not self.closed:
            job.running = True
            self.jobs.append(job)
            if not self.armed:
                self._arm()

    def shut(self):
        """Stop all turns, and all jobs that move messages, until open(). Takes effect within a batch, too."""
        self.is_shut = True

    def open(self):
        """Undo shut(). Waiting work continues after the next poll of the event loop."""
        self.is_shut = False
        resting, self.resting = self.resting, []
        self.jobs.extend(resting)
        if (self.jobs or self.late.count or self.touched.count) and not self.armed:
            self._arm()

    def close(self):
        """Drop all turns and jobs, waiting and later ones."""
        self.closed = True
        self.armed = False
        if self.timer is not None:
            self.timer.stop()
        self._let_go()

    def is_armed(self):
        """Return True if a turn or job waits for the next poll of the event loop."""
        return bool(self.armed)

    def finish(self):
        """End a batch: touched TurnTakers write to files, and have turns while the budget lasts."""
        self.walking = False
        if self.closed:
            self._let_go()
        if self.late.count:
            # The present batch may have acked messages of these TurnTakers, and once the client has an
            # answer, no kill may bring them back.
            self._write_out(self.late)
        if self.touched.count:
            if self.is_shut or self.late.count and self.touched.count > FEW_TURNS:
                self._put_behind()
            else:
                self._finish()

    def write_out(self):
        """Call ``write_out()`` of all TurnTakers that wait for a turn. Their messages then survive a kill."""
        self._write_out(self.touched)
        self._write_out(self.late)

    def _write_out(self, takers):
        taker = takers.first
        while taker is not None:
            try:
                taker.write_out()
            except Exception:
                LOG.exception("writing out %r failed", taker.name)
            taker = taker.next

    def _put_behind(self):
        """Write out all touched TurnTakers, and move them behind TurnTakers that waited before."""
        # A turn then writes more at once: in a flood to 5000 sinks, the messages of six polls instead of one.
        self._write_out(self.touched)
        if self.touched.count:
            self.late.extend(self.touched)
            if not self.armed:
                self._arm()

    def _finish(self):
        budget = BUDGET_OCTETS
        clock = None
        if self.touched.count > FEW_TURNS:
            clock = self.turns_clock
            clock.begin()
        # Takers without a turn come before those that have had one and ask for another: otherwise two queues
        # that write as much as they may would have all turns of each poll.
        late = None
        if self.late.count:
            late = self.late
            self.late = TakerList()
        following = self.touched.take_all()
        while following is not None and not self.closed:
            taker = following
            following = taker.next
            taker.next = None
            taker.touched = False
            try:
                taker.write_out()
                if budget > 0 and not self.is_shut and (clock is None or not clock.is_over()):
                    budget -= taker.turn()
                elif not taker.touched:
                    taker.touched = True
                    if late is None:
                        late = TakerList()
                    late.append(taker)
            except Exception as error:
                self.quiet.error((taker.name, "turn"), "turn of %r failed", taker.name, exc_info=error)
        if late is not None and not self.closed:
            late.extend(self.late)
            self.late = late
            if not self.armed:
                self._arm()

    def _arm(self):
        if self.closed:
            self._let_go()
            return
        if self.is_shut and not self.jobs and not self.touched.count:
            return  # what waits in ``late`` waits for open()
        if self.timer is None:
            if self.loop is None:
                self.loop = gevent.get_hub().loop
            # A timer of 0 s fires after the next poll; run_callback would run before it, up to a thousand
            # times. Kept and started anew for each poll; hub.timers, which stands above, makes one per call.
            self.timer = self.loop.timer(0.0)
        self.armed = True
        self.timer.start(self._run_late)

    def _let_go(self):
        self.touched.take_all()
        self.late.take_all()
        # Replaced, not emptied, because a caller may be iterating over them.
        self.jobs = deque()
        self.resting = []

    def _run_late(self):
        self.timer.stop()
        self.armed = False
        self.now_ms = self.clock()
        if self.is_shut:
            self._put_behind()
        else:
            self.touched.extend(self.late)
            self._finish()
        if self.jobs:
            self._run_jobs()
        if (self.jobs or self.late.count or self.touched.count) and not self.armed:
            self._arm()

    def _run_jobs(self):
        """Run a slice of each job while there is time. The remaining jobs come first after the next poll."""
        self.budget.begin()
        for _ in range(len(self.jobs)):
            job = self.jobs.popleft()
            if self.is_shut and job.moves_messages:
                self.resting.append(job)
                continue
            try:
                goes_on = self._step(job)
            except Exception as error:
                goes_on = self._failed(job, error)
            if self.closed:
                break
            if goes_on:
                self.jobs.append(job)
            else:
                job.running = False
            if self.budget.is_over():
                break

    def _step(self, job):
        """Do a slice of a job. Tests replace this method."""
        return job.step()

    def _failed(self, job, error):
        """Log and count a failed slice, and call job.failed(). Returns True if the job continues."""
        self.failed_jobs[job.name] += 1
        self.quiet.error(job.name, "%s: a slice of it failed; other work goes on", job.name, exc_info=error)
        try:
            return job.failed(error)
        except Exception as again:
            self.quiet.error(
                (job.name, "given up"), "%s is given up: it failed again when it was told", job.name,
                exc_info=again,
            )
            return False


def unix_ms():
    return int(time.time() * 1000)
