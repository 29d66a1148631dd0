"""Delayed reopening: reopens the message store of a delayed exchange after a fault.

Never switches greenlets.
"""
from gomq_py.hub.scheduler import SliceClock
from gomq_py.hub.timers import RetryJob
from gomq_py.observability.log import logger

LOG = logger("broker")


class Reopening(RetryJob):
    """Job that reopens the store of a delayed exchange after a fault, and loads its messages in slices.
    Retries later after an error. ``make(store)`` returns a DelayQueue over the store.
    """

    name = "opening a delayed store again"

    def __init__(self, factory, exchange, make, changed):
        super().__init__(lambda: factory.timers)
        self._factory = factory
        self._exchange = exchange
        self._make = make
        self._changed = changed
        self._before = self._again = None

    def start(self):
        self._before = self._exchange.delayed_store
        if self._before.closed:
            self._factory.reopen_delayed_store(self._exchange, self._opened)

    def _opened(self, store, error):
        if error is not None:
            self.failed(error)
            return
        self._again = self._make(store)
        self._factory.scheduler.start(self)

    def step(self):
        if not self._factory.has_delayed_store(self._exchange, self._before):
            self._again.close()
            return False
        clock = SliceClock(every=1)
        while self._again.rebuild_some():
            if clock.is_over():
                return True
        self._factory.replace_delayed_store(self._exchange, self._again)
        self._changed(self._exchange)
        if self._again.closed:  # a fault closed it while it was read
            self.begin()
        return False

    def failed(self, error):
        LOG.error("%s cannot be opened again: %s", delayed_in_words(self._exchange), error)
        return super().failed(error)


def delayed_in_words(exchange):
    """Return the words by which the log names a delayed exchange."""
    return f"delayed exchange {exchange.name!r} in vhost {exchange.vhost!r}"
