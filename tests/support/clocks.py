"""Clocks that tests move: slices are counted in looks at the clock,
because what passes on a busy machine says nothing.
"""


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
