"""Peeking: a look at the ready messages of a queue that changes nothing.

For doors, which do not see stores.
"""
from gomq_py.broker.features.arguments import STREAM, queue_type_of
from gomq_py.storage import browser


def browse(queue):
    """A browser over the queue's ready messages (storage.browser), or None where it has none to show: closed,
    or not that kind of queue.
    """
    if queue.closed or queue_type_of(queue.arguments) == STREAM:
        return None
    return browser.browse(queue.store)
