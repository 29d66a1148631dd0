"""Clocks that tests move: slices are counted in looks at the clock,
because what passes on a busy machine says nothing.
"""
from gomq_py.hub.scheduler import Scheduler, SliceClock


class StepClock:
    """Seconds that go on by ``step_s`` with every look; ``looks`` counts them, ``now`` may be set."""

    def __init__(self, step_s=0.001):
        self.step_s = step_s
        self.now = 0.0
        self.looks = 0

    def __call__(self):
        self.looks += 1
        now = self.now
        self.now += self.step_s
        return now


def patient_scheduler(loop, clock=None):
    """A scheduler whose polls end with their work and their octets, and not where the machine is slow."""
    return Scheduler(loop, clock, budget=SliceClock(600.0), turns_clock=SliceClock(600.0))
