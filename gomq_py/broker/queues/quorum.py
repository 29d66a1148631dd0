"""Stores of quorum queues, which deliver by priority, as in RabbitMQ."""
from gomq_py.broker.features.queue_type import QUORUM_MAX_PRIORITY, QUORUM_PRIORITY
from gomq_py.storage.stores import priority_store
from gomq_py.storage.stores.message_store import MessageStore


def with_levels(store):
    """Return a PriorityStore with the messages of ``store`` and the priorities of quorum queues."""
    return priority_store.with_levels(store, QUORUM_MAX_PRIORITY, QUORUM_PRIORITY)


def open_with_levels(folder, files, pool, committer, incarnation, segment_bytes, durable):
    """Open a quorum queue's store, by priority_store.open_with_levels(). Returns (store, RecoveryReport)."""
    return priority_store.open_with_levels(
        folder, files, pool, committer, incarnation, QUORUM_MAX_PRIORITY, QUORUM_PRIORITY, segment_bytes,
        durable)


def ready_by_priority(store):
    """List (priority, count of ready messages) for each priority with messages, the highest first."""
    if isinstance(store, MessageStore):
        found = [(QUORUM_PRIORITY, store.ready_count)]
    else:
        found = [(store.priorities[each.level], each.ready_count) for each in store.browsed()]
    return [(priority, count) for priority, count in found if count]
