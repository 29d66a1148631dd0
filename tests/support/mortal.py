"""MortalLoop: the hub's loop for a broker in this process that a test kills. Its timers end with it.

A dead broker whose timers went on would write into the mapped files of the one that comes after it.
"""
import gevent


class MortalLoop:
    """What a broker asks of a loop. ``die``: none of the timers fires any more, not even one that is started later."""

    def __init__(self):
        self.is_dead = False
        self._timers = []

    def timer(self, after_s):
        self._timers.append(_Timer(self, gevent.get_hub().loop.timer(after_s)))
        return self._timers[-1]

    def die(self):
        self.is_dead = True
        for timer in self._timers:
            timer.stop()
        self._timers.clear()


class _Timer:
    """A timer of the hub's that its broker can start while it lives."""

    def __init__(self, loop, timer):
        self._loop, self._timer = loop, timer

    def start(self, callback):
        if not self._loop.is_dead:
            self._timer.start(callback)

    def stop(self):
        self._timer.stop()
