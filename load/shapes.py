"""Shapes of load over time: ``LOAD_SHAPE=spike make load``, or
``locust -f load/locustfile.py,load/shapes.py``.

Each says how many users there are at a second of the run. LOAD_USERS is the most, LOAD_SECONDS the length.
"""

import os

from locust import LoadTestShape

USERS = int(os.environ.get("LOAD_USERS", "300"))
SECONDS = float(os.environ.get("LOAD_SECONDS", "60"))


class _Shape(LoadTestShape):
    abstract = True

    def tick(self):
        """(users, users a second) now; None: the end."""
        part = self.get_run_time() / SECONDS
        if part >= 1:
            return None
        return max(1, round(USERS * self.share(part))), max(1, USERS / 5)

    def share(self, part):
        """The share of the users at this part of the run, from 0 to 1."""
        raise NotImplementedError


class Ramp(_Shape):
    """Up all the way."""

    def share(self, part):
        return part


class Spike(_Shape):
    """A tenth, then everybody for a fifth of the time, then a tenth."""

    def share(self, part):
        return 1.0 if 0.4 <= part < 0.6 else 0.1


class Soak(_Shape):
    """Everybody, all the time."""

    def share(self, part):
        return 1.0


class FanIn(_Shape):
    """Devices come in five waves and stay. load.locust_run has no others come."""

    def share(self, part):
        return min(1.0, (int(part * 5) + 1) / 5)


# Locust takes the one shape of a file that is not abstract.
for _each in (Ramp, Spike, Soak, FanIn):
    _each.abstract = _each.__name__.lower() != os.environ.get("LOAD_SHAPE", "").lower()
