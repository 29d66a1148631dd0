"""Scheduler: does the work of queues at the end of a read, and long work in slices after later polls of the
loop.

Each hub (hub.context) has one. It gives turns to TurnTakers, such as queues. A queue is touched when it gets
a message or its consumers may take again, perhaps many times while a protocol's server parses one read, the
batch. At the batch's end it gets one turn (docs/decisions/0003). Work beyond a turn's budget goes on after
the next poll of the loop, so that no queue keeps a socket from being read. Never blocks, never switches; an
idle scheduler has no timer running.

Long work is a Job: one slice of the job is done per poll until no work is left. All jobs share one budget of
time per poll and take turns. A fault in a slice is logged and counted, under the name of the job's class, and
the job's ``failed`` is called; other jobs go on.

While the scheduler is *shut* nothing is delivered: TurnTakers only write to files, and jobs that move
messages (``moves_messages``) rest (hub.gate). SliceClock limits how long a slice may keep the hub.
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
    """Measures whether a slice of work has used up its time. Call ``begin()`` before a slice, and
    ``is_over()`` after each item.

    ``seconds``: the slice's time, by default SLICE_S. ``every``: items between two looks at the clock, more
    than 1 if items cost less than a microsecond. ``clock``: in seconds.
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
        """Start the time of a new slice."""
        self._until = self._clock() + self._seconds
        self._left = self._every

    def is_over(self):
        """Whether the slice has used up its time. Call this after each item. Stays True until begin()."""
        self._left -= 1
        if self._left > 0:
            return False
        if self._clock() >= self._until:
            return True
        self._left = self._every
        return False


class Job:
    """A piece of long work that the Scheduler does in slices, one per poll of the loop.

    ``running`` is set by the scheduler, which does not start a running job a second time. ``moves_messages``:
    whether the job pauses while the scheduler is shut.
    """

    __slots__ = ("running",)

    name = ""
    moves_messages = False

    def __init__(self):
        self.running = False

    def step(self):
        """Do the next slice of the work, a few milliseconds of it at most.

        Returns True if more work is left for after the next poll of the loop.
        """
        raise NotImplementedError

    def failed(self, error):
        """Repair the job's state after a slice that raised ``error``, which has been logged and counted.

        Returns True if the job shall go on.
        """
        raise NotImplementedError


class TurnTaker:
    """An object that does further work once per batch (the messages of one read), such as a queue.

    ``touched`` and ``next`` belong to the scheduler: whether the TurnTaker waits for its turn, and the
    TurnTaker behind it in its TakerList.
    """

    __slots__ = ("name", "touched", "next")

    def __init__(self, name):
        self.name = name
        self.touched = False
        self.next = None

    def write_out(self):
        """Write all messages received so far into files, where they survive a kill of the process. Called at
        the end of a batch.
        """

    def turn(self):
        """Do a bounded amount of work, such as delivering. Called at the end of a batch, after write_out().

        Returns about how many octets were written to sockets.
        """
        return 0


class TakerList:
    """A linked list of TurnTakers, in the order of their turns. A TurnTaker is in one list at a time."""

    # The TurnTakers themselves hold the links: a Python list would be allocated and freed in each batch.
    __slots__ = ("first", "last", "count")

    def __init__(self):
        self.first = self.last = None
        self.count = 0

    def append(self, taker):
        """Add ``taker`` at the end."""
        if self.last is None:
            self.first = taker
        else:
            self.last.next = taker
        self.last = taker
        self.count += 1

    def extend(self, other):
        """Move all TurnTakers of another TakerList to the end of this one."""
        last = other.last
        count = self.count + other.count
        first = other.take_all()
        if first is not None:
            self.append(first)
            self.last = last
            self.count = count

    def take_all(self):
        """Empty the list. Returns its first TurnTaker, or None; ``next`` leads to the others."""
        first = self.first
        self.first = self.last = None
        self.count = 0
        return first


class Scheduler:
    """Calls ``turn()`` of touched TurnTakers, such as queues, at the end of a batch (one read of a socket),
    and does jobs in slices, one per poll of the loop.

        now_ms         time of the batch in Unix milliseconds, read once per batch
        failed_jobs    {name of a job: how many of its slices raised}
        is_shut        nothing must be delivered now
    """

    __slots__ = (
        "now_ms", "failed_jobs", "walking", "touched", "late", "jobs", "budget", "quiet", "loop", "clock",
        "timer", "armed", "closed", "turns_clock", "is_shut", "resting",
    )

    def __init__(self, loop=None, clock=None, budget=None, turns_clock=None):
        """``budget``: the SliceClock that limits all jobs of a poll together; ``turns_clock``: the SliceClock
        that limits all turns of a poll together.
        """
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
        """Begin a batch: the caller starts to parse one read, and must call finish() at the end."""
        self.now_ms = now_ms
        self.walking = True

    def touch(self, taker):
        """Let the TurnTaker have a turn at the end of the batch; outside a batch, after the next poll."""
        if not taker.touched:
            taker.touched = True
            self.touched.append(taker)
            if not self.walking and not self.armed:
                self._arm()

    def later(self, taker):
        """Let the TurnTaker have a turn after the next poll of the loop."""
        if not taker.touched:
            taker.touched = True
            self.late.append(taker)
            if not self.armed:
                self._arm()

    def start(self, job):
        """Do a slice of the job per poll of the loop, from the next poll on, until no work is left. No effect
        on a running job.
        """
        # Within its own slice, the return value of ``step`` decides.
        if not job.running and not self.closed:
            job.running = True
            self.jobs.append(job)
            if not self.armed:
                self._arm()

    def shut(self):
        """Give no turns, and no slices to jobs that move messages, until open(). Works within a batch, too.
        """
        self.is_shut = True

    def open(self):
        """Undo shut(): waiting work goes on after the next poll of the loop."""
        self.is_shut = False
        resting, self.resting = self.resting, []
        self.jobs.extend(resting)
        if (self.jobs or self.late.count or self.touched.count) and not self.armed:
            self._arm()

    def close(self):
        """Drop all waiting turns and jobs, and drop new ones, too."""
        self.closed = True
        self.armed = False
        if self.timer is not None:
            self.timer.stop()
        self._let_go()

    def is_armed(self):
        """Whether any turn or job waits for the next poll of the loop."""
        return bool(self.armed)

    def finish(self):
        """End a batch: touched TurnTakers write to files, and as many as the budget allows have a turn."""
        self.walking = False
        if self.closed:
            self._let_go()
        if self.late.count:
            self._write_out_late()
        if self.touched.count:
            if self.is_shut or self.late.count and self.touched.count > FEW_TURNS:
                self._put_behind()
            else:
                self._finish()

    def write_out(self):
        """Call ``write_out()`` of all TurnTakers that wait for a turn: their messages then survive a kill."""
        self._write_out(self.touched)
        self._write_out_late()

    def _write_out_late(self):
        """Call ``write_out()`` of the TurnTakers whose turn comes after the next poll."""
        # The present batch may have acked messages of these TurnTakers, and once the client has an answer, no
        # kill may bring them back.
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
        """Write out many touched TurnTakers, and put them behind earlier waiting TurnTakers."""
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
        """Drop all waiting work."""
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
        """Do a slice of each job until the time for jobs is over; the remaining jobs come first after the
        next poll.
        """
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
        """Log and count a slice that raised, and call the job's failed(). Returns True if the job goes on."""
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
    """Return the time in Unix milliseconds."""
    return int(time.time() * 1000)
