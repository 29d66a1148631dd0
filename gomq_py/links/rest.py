"""Rest: what a link needs while its passage moves and no greenlet waits for it: signs of life in time, and an
end with the hub.

Beside links.link. Runs in callbacks of the loop, and never switches.
"""


class Rest:
    """Of one link. ``is_on``: it rests."""

    __slots__ = ("is_on", "_hub", "_passage", "_timer")

    def __init__(self, hub):
        self.is_on = False
        self._hub = hub
        self._passage = None
        self._timer = None

    def begin(self, passage):
        """The passage moves by itself until ``end``."""
        self.is_on = True
        self._passage = passage
        self._hub.at_close(self._cut_off)
        self._tick()

    def end(self):
        """Somebody else looks after the passage again."""
        self.is_on = False
        self._passage = None
        self._hub.not_at_close(self._cut_off)
        if self._timer is not None:
            self._timer.stop()
            self._timer = None

    def _tick(self):
        """Signs of life are due. The passage may end by that, and with it the rest."""
        self._timer = None
        due_s = self._passage.tick()
        if self.is_on and due_s is not None:
            self._timer = self._hub.timers.start(due_s * 1000, self._tick)

    def _cut_off(self):
        self._passage.abort()
