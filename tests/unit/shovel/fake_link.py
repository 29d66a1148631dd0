"""A link that moves nothing: what a supervisor sees of links.link.Link."""
from types import SimpleNamespace


class FakeLink:
    """``started``, ``stopped``: how often. ``become`` is how a test has it change."""

    def __init__(self, shovel, user_of, begin_at, on_change, on_end):
        self.shovel, self.user_of, self.begin_at = shovel, user_of, begin_at
        self._on_change, self._on_end = on_change, on_end
        self.started = self.stopped = 0
        self.stream_offset = None
        self.status = SimpleNamespace(
            state="stopped", error="", moved=0, unconfirmed=0, refused=0, set_aside=0, reconnects=0, rate=0.0,
            source_uri="", target_uri="", blocked="")

    def start(self):
        self.started += 1
        self.become("starting")

    def stop(self):
        self.stopped += 1
        self.become("stopped")

    def become(self, state, error=""):
        self.status.state, self.status.error = state, error
        self._on_change(self)

    def end(self, reason, error=""):
        self.become(reason, error)
        self._on_end(self, reason)


class Links:
    """Opens FakeLinks, and has them all."""

    def __init__(self):
        self.opened = []

    def __call__(self, *arguments):
        self.opened.append(FakeLink(*arguments))
        return self.opened[-1]

    @property
    def last(self):
        return self.opened[-1]
