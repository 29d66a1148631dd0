"""Cancelling: very many consumers of a queue that is gone are told so, in slices.

Beside queue. The queue has let go of them before: it delivers to none of them, whoever has been told.
"""
from gomq_py.broker.slice_clock import SliceClock

# Consumers that are told at once: some 5 us each.
FEW = 64


def cancel_all(queue, consumers, reason):
    """Cancel the consumers of a queue that has no ring any more, in their order. The list is used up."""
    consumers.reverse()

    def slice_():
        clock = SliceClock()
        while consumers:
            consumers.pop().cancelled_by(queue, reason)
            if clock.is_over():
                break
        return bool(consumers)

    if len(consumers) > FEW:
        queue.scheduler.run_sliced(slice_, lambda error: True, "cancelling consumers")
    else:
        while consumers:
            slice_()
