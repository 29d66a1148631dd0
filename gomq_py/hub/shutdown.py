"""Shutdown: carries out all steps even if some fail. Used by the node, the broker and each vhost."""
from gomq_py.observability.log import logger

LOG = logger("boot")


class Shutdown:
    """Carries out all steps of a shutdown even if some fail. Call ``do`` for each, then ``raise_failure``."""

    def __init__(self):
        self._failure = None

    @property
    def has_failed(self):
        return self._failure is not None

    def do(self, step, *arguments, **options):
        """Call ``step(...)``; keep its exception for raise_failure(). May switch greenlets if it does."""
        # An interruption (KeyboardInterrupt, SystemExit, GreenletExit, a gevent.Timeout) is kept, too: it
        # ends this step only, so that the listeners, the logs and the lock of the data folder are still
        # closed.
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
        """Raise the first interruption of a step, else the first exception, if any."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
