"""Tests of what measures time: a peer that gives up after seconds is right to do so when the machine lets
this process stand still for as long.
"""
import functools
import threading
import time

import pytest

EVERY_S = 0.02


class Standstill:
    """While it is entered: ``longest_s`` is the longest time for which this process did not
    run although it wanted to.
    """

    def __init__(self):
        self.longest_s = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="standstill", daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _look(self):
        before = time.monotonic()
        over = False
        while not over:
            over = self._over.wait(EVERY_S)
            now = time.monotonic()
            self.longest_s = max(self.longest_s, now - before)
            before = now


def again_when_held_up(limit_s, tries=5):
    """Decorator of a test whose peer counts seconds: a try that failed while this process stood still for
    ``limit_s`` proves nothing and is repeated.

    A try that failed without such a pause has failed, and so has the last one.
    """
    def decorate(test):
        @functools.wraps(test)
        def tried(*arguments, **options):
            for left in reversed(range(tries)):
                standstill = Standstill()
                try:
                    with standstill:
                        return test(*arguments, **options)
                except (Exception, pytest.fail.Exception):
                    if not left or standstill.longest_s < limit_s:
                        raise
        return tried
    return decorate
