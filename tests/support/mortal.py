"""MortalLoop: the hub's loop for a broker in this process that a test kills. Its timers end with it.

A dead broker whose timers went on would write into the mapped files of the one that comes after it.
"""
import gevent


class MortalLoop:
    """What a broker asks of a loop. ``die``: none of the timers fires any more."""

    def __init__(self):
        self._timers = []

    def timer(self, after_s):
        timer = gevent.get_hub().loop.timer(after_s)
        self._timers.append(timer)
        return timer

    def die(self):
        for timer in self._timers:
            timer.stop()
        self._timers.clear()
