"""Errors of the data source. Their texts tell the operator what to do."""


class GomqError(Exception):
    """Base of all errors of the data source. Operators see the text in Spark's log."""


class OptionError(GomqError, ValueError):
    """An option is missing, unknown or invalid."""


class Refused(GomqError):
    """The broker refuses the login, or the user lacks a permission."""


class Unreachable(GomqError):
    """The broker does not answer, or its answer is not that of a gomq-py broker."""


class NoStream(GomqError):
    """The stream does not exist."""


class DataLoss(GomqError):
    """Requested messages are missing or damaged."""

    ADVICE = "Set failOnDataLoss to false to go on without them."

    def __init__(self, text):
        super().__init__(f"{text}. {self.ADVICE}")
