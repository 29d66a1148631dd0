"""Shutdown: the steps of an end. Each is carried out though one before it failed.

A leaf. The node, the broker and each vhost end by it, so that all three keep the same promise.
"""
from gomq_py.observability.log import logger

LOG = logger("boot")


class Shutdown:
    """``do`` the steps in order, then ``raise_failure``."""

    def __init__(self):
        self._failure = None

    @property
    def has_failed(self):
        """Whether a step did."""
        return self._failure is not None

    def do(self, step, *arguments, **options):
        """Call ``step``. What it raises is kept. May switch, if the step does.

        So is what was thrown into the greenlet that closes (KeyboardInterrupt, SystemExit, GreenletExit, a
        gevent.Timeout): it cuts this step short, and must not leave the listeners, the logs or the lock of
        the data folder open.
        """
        try:
            step(*arguments, **options)
        except BaseException as error:
            if self._failure is None:
                self._failure = error
            elif isinstance(self._failure, Exception) and not isinstance(error, Exception):
                LOG.error("an end that was interrupted had failed before", exc_info=self._failure)
                self._failure = error
            else:
                LOG.exception("%r failed at the end, too", step)

    def raise_failure(self):
        """Raise the first failure, if any; an interruption before any other,
        for it is an order to whoever closes.
        """
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
