"""Virtual time: a clock and timers that a test moves on, for whatever takes ``clock`` and ``call_later``."""


class Call:
    """In place of a greenlet that begins later."""

    def __init__(self, at_s, function, arguments):
        self.at_s = at_s
        self.function = function
        self.arguments = arguments
        self.is_killed = False

    def kill(self, block=True):
        self.is_killed = True


class VirtualTime:
    """``calls``: those that have still to come."""

    def __init__(self):
        self.now_s = 1000.0
        self.calls = []

    def clock(self):
        return self.now_s

    def call_later(self, seconds, function, *arguments):
        call = Call(self.now_s + seconds, function, arguments)
        self.calls.append(call)
        return call

    def pass_time(self, seconds):
        """Let what is due in this time happen, in order."""
        end_s = self.now_s + seconds
        while due := [call for call in self.calls if call.at_s <= end_s and not call.is_killed]:
            call = min(due, key=lambda call: call.at_s)
            self.calls.remove(call)
            self.now_s = max(self.now_s, call.at_s)
            call.function(*call.arguments)
        self.now_s = end_s
