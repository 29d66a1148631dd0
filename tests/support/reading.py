"""Reading a queue from within the broker's process as its doors do:
a thread may have to open the files of what comes next.
"""
import gevent

from tests.support.waiting import wait_until


def get(queue, message, no_ack=False):
    """Queue.get, which False ends only where nothing is ready."""
    while not queue.get(message, no_ack):
        if not queue.is_opening():
            return False
        wait_until(lambda: not queue.is_opening(), sleep=gevent.sleep)
    return True
