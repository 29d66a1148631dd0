"""What goes wrong between Spark and the broker, as texts that name the thing and say what to do. A leaf."""


class GomqError(Exception):
    """Any of these: its text is what the operator sees in Spark's log."""


class OptionError(GomqError, ValueError):
    """An option is missing, unknown or cannot be what it is."""


class Refused(GomqError):
    """The broker does not let this user in, or not at this."""


class Unreachable(GomqError):
    """Nobody answers, or not as a gomq-py does."""


class NoStream(GomqError):
    """There is no stream of this name."""


class DataLoss(GomqError):
    """Messages that were asked for are not there any more, or do not check."""

    ADVICE = "Set failOnDataLoss to false to go on without them."

    def __init__(self, text):
        super().__init__(f"{text}. {self.ADVICE}")
