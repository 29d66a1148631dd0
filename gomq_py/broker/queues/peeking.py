"""Peeking: a look at the ready messages of a queue that changes nothing.

For doors, which do not see stores.
"""
from gomq_py.broker.features.arguments import STREAM, queue_type_of
from gomq_py.errors import Malformed
from gomq_py.storage.errors import StoreError
from gomq_py.storage.message import Message


def browse(queue):
    """A browser over the queue's ready messages (storage.stores.browser), or None where it has none to show:
    closed, or not that kind of queue.
    """
    if queue.closed or queue_type_of(queue.arguments) == STREAM:
        return None
    from gomq_py.storage.stores import browser  # whoever only takes messages has no need of it

    return browser.browse(queue.store)


def next_properties_length(queue, most):
    """Octets of the properties of the message that ``queue.get()`` would take now, up to ``most`` if it came
    by another protocol; 0 where it would take none.
    """
    message = Message()
    try:
        return len(message.get_properties(most)) if not queue.paused and queue.peek(message) else 0
    except (Malformed, StoreError):
        return 0  # get() meets it, too


def count_refusal(queue):
    """The message that ``queue`` delivers next was offered to a client that cannot take it. Where the queue
    limits deliveries that is one, which has come back.
    """
    if queue.limits is None or queue.limits.settings.delivery_limit is None or queue.paused:
        return
    message = Message()
    try:
        if queue.peek(message):
            queue.take(message, False)
            queue.requeue(message.describe()["location"])
    except StoreError as error:
        queue.fail(error)
