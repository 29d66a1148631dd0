"""Clock: what the time module says, in virtual seconds.

``install`` puts it there, before any module of the broker is imported, because some bind the functions at
import. Nothing passes by itself: the world sets the time of the next event, and each look costs some, or work
that goes on until its time is over would never end. ``time.process_time`` stays the machine's, for the
simulation's own figures.
"""
import time

START_S = 1_800_000_000.0  # Unix seconds at the beginning of every seed


class Clock:
    """``now_s`` counts from 0. ``jump_s``: how far wall time has been put on or back."""

    def __init__(self):
        self.now_s = 0.0
        self.jump_s = 0.0
        self.jumps = 0
        self.look_s = 1e-6
        self.thread_s = 0.0

    def jump(self, by_s):
        """Wall time is put on or back."""
        self.jump_s += by_s
        self.jumps += 1

    def monotonic(self):
        """In place of time.monotonic and time.perf_counter."""
        self.now_s += self.look_s
        return self.now_s

    def time(self):
        """In place of time.time."""
        return START_S + self.jump_s + self.monotonic()

    def monotonic_ns(self):
        """In place of time.monotonic_ns and time.perf_counter_ns."""
        return int(self.monotonic() * 1e9)

    def thread_time(self):
        """In place of time.thread_time: work takes none of the processor's time but for its looks at it."""
        self.thread_s += self.look_s
        return self.thread_s

    def time_ns(self):
        """In place of time.time_ns."""
        return int(self.time() * 1e9)


CLOCK = Clock()


def install():
    """Put the clock into the time module, for the rest of the process."""
    time.monotonic = time.perf_counter = CLOCK.monotonic
    time.monotonic_ns = time.perf_counter_ns = CLOCK.monotonic_ns
    time.time, time.time_ns = CLOCK.time, CLOCK.time_ns
    time.thread_time = CLOCK.thread_time
    time.sleep = _nobody_sleeps


def _nobody_sleeps(seconds):
    raise AssertionError(f"something slept {seconds} s of real time")
