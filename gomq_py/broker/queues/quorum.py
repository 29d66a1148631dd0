"""Stores of quorum queues, which deliver by priority, as RabbitMQ's do.

Used by queue.QuorumQueue, queue_factory and http.shapes; uses storage.stores.priority_store.
"""
from gomq_py.broker.features.queue_type import QUORUM_MAX_PRIORITY, QUORUM_PRIORITY
from gomq_py.storage.stores import priority_store
from gomq_py.storage.stores.message_store import MessageStore


def with_levels(store):
    """As priority_store.with_levels."""
    return priority_store.with_levels(store, QUORUM_MAX_PRIORITY, QUORUM_PRIORITY)


def open_with_levels(folder, files, pool, committer, incarnation, segment_bytes, durable):
    """As priority_store.open_with_levels."""
    return priority_store.open_with_levels(
        folder, files, pool, committer, incarnation, QUORUM_MAX_PRIORITY, QUORUM_PRIORITY, segment_bytes,
        durable)


def ready_by_priority(store):
    """(priority, number of ready messages) of each priority that has some, the highest first."""
    if isinstance(store, MessageStore):
        found = [(QUORUM_PRIORITY, store.ready_count)]
    else:
        found = [(store.priorities[each.level], each.ready_count) for each in store.browsed()]
    return [(priority, count) for priority, count in found if count]
