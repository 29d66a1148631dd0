"""Opened: calls functions that waited until a thread had opened the files of a queue's next message."""
from gomq_py.hub.scheduler import SliceClock
from gomq_py.observability.log import logger

LOG = logger("queue")


def tell_opened(queue, callbacks):
    """Call the callbacks of Queue.when_opened(), in order. Returns the callbacks that are left. Stops when
    the time slice is over, or when the queue waits for another file.
    """
    clock = SliceClock()
    for told, callback in enumerate(callbacks, 1):
        try:
            callback()
        except Exception:
            LOG.exception("queue '%s' in vhost '%s': a reader that waited for files", queue.name, queue.vhost)
        if queue.is_opening() or clock.is_over():
            return callbacks[told:]
    return []
