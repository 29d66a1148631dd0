"""Virtual time: a clock and timers that a test moves on, for whatever takes ``clock`` and timers."""


class Call:
    """In place of a timer."""

    def __init__(self, at_s, function):
        self.at_s = at_s
        self.function = function
        self.is_stopped = False

    def stop(self):
        self.is_stopped = True


class VirtualTime:
    """``calls``: those that have still to come."""

    def __init__(self):
        self.now_s = 1000.0
        self.calls = []

    def clock(self):
        return self.now_s

    def start(self, after_ms, function):
        call = Call(self.now_s + after_ms / 1000, function)
        self.calls.append(call)
        return call

    def pass_time(self, seconds):
        """Let what is due in this time happen, in order."""
        end_s = self.now_s + seconds
        while due := [call for call in self.calls if call.at_s <= end_s and not call.is_stopped]:
            call = min(due, key=lambda call: call.at_s)
            self.calls.remove(call)
            self.now_s = max(self.now_s, call.at_s)
            call.function()
        self.now_s = end_s
