"""Peeking: looks at ready messages without changing the queue, for servers without access to stores."""
from gomq_py.broker.features.arguments import STREAM, queue_type_of
from gomq_py.errors import Malformed
from gomq_py.storage.errors import StoreError
from gomq_py.storage.message import Message


def browse(queue):
    """Return a browser (storage.stores.browser) of the ready messages; None for a stream or closed queue."""
    if queue.closed or queue_type_of(queue.arguments) == STREAM:
        return None
    from gomq_py.storage.stores import browser  # imported here: only browsing needs it

    return browser.browse(queue.store)


def next_properties_length(queue, most):
    """Return the size in bytes of the next message's basic properties; 0 if they cannot be shown now.
    Properties of another protocol are translated, into at most ``most`` bytes.
    """
    message = Message()
    try:
        return len(message.get_properties(most)) if not queue.paused and queue.peek(message) else 0
    except (Malformed, StoreError):
        return 0  # get() reports the fault


def count_refusal(queue):
    """Count the next message as delivered and requeued. Does nothing if the queue has no delivery limit."""
    if queue.limits is None or queue.limits.settings.delivery_limit is None or queue.paused:
        return
    message = Message()
    try:
        if queue.peek(message):
            queue.take(message, False)
            queue.requeue(message.describe()["location"])
    except StoreError as error:
        queue.fail(error)


def describe_groups(queue):
    """Return a dict of figures about a queue's message groups; None without groups or if closed."""
    return queue.describe_groups() if hasattr(queue, "describe_groups") else None
