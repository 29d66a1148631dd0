"""Mutants: faults that the simulation must find, put back into the interpreted broker.

``python -m tests.simulation --mutant NAME 1-100`` stops at the first seed that finds it. test_mutants says
how many seeds that may take, and what the finding says.
"""
from gomq_py.mqtt.model.inflight import Inflight
from gomq_py.storage.durability import Durability
from gomq_py.storage.requeued import LocationHeap


def confirm_before_the_flush():
    """Clients are answered at once, and the flush comes later."""
    when_safe = Durability.when_safe

    def at_once(durability, callback, *arguments, **options):
        when_safe(durability, lambda error: None, *arguments, **options)
        callback(None)

    Durability.when_safe = at_once


def pubrec_before_its_record():
    """The identifier of what comes at QoS 2 is not on the disk when it is answered, or ever."""
    Inflight.begun = lambda inflight, key, identifier, destinations, message: 0


def requeue_out_of_order():
    """Of the messages that came back, the last one goes first."""
    def newest(heap):
        return max(range(heap.count), key=heap._items.__getitem__)

    def first(heap):
        return heap._items[newest(heap)]

    def pop(heap):
        location = first(heap)
        heap.discard(location)
        return location

    LocationHeap.first, LocationHeap.pop = first, pop


MUTANTS = {
    mutant.__name__: mutant
    for mutant in (confirm_before_the_flush, pubrec_before_its_record, requeue_out_of_order)
}
