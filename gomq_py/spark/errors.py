"""Errors between Spark and the broker, with texts that say what to do. A leaf."""


class GomqError(Exception):
    """Base class; its text is what the operator sees in Spark's log."""


class OptionError(GomqError, ValueError):
    """An option is missing, unknown or invalid."""


class Refused(GomqError):
    """The broker refuses this user the login or the operation."""


class Unreachable(GomqError):
    """The broker does not answer, or is not a gomq-py."""


class NoStream(GomqError):
    """There is no stream of this name."""


class DataLoss(GomqError):
    """Requested messages are missing or damaged."""

    ADVICE = "Set failOnDataLoss to false to go on without them."

    def __init__(self, text):
        super().__init__(f"{text}. {self.ADVICE}")
