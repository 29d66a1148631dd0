"""Reading a queue from within the broker's process as its doors do: a thread may have to open the files of what comes next."""
import gevent

from tests.support.waiting import wait_until


def get(queue, message, no_ack=False):
    """Queue.get, which False ends only where nothing is ready."""
    return _once_opened(queue, lambda: queue.get(message, no_ack))


def head(queue, message):
    """Queue.head, likewise."""
    return _once_opened(queue, lambda: queue.head(message))


def _once_opened(queue, look):
    while not look():
        if not queue.is_opening():
            return False
        wait_until(lambda: not queue.is_opening(), sleep=gevent.sleep)
    return True
