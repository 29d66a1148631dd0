"""Deposit: publishes a fast lane's message to every destination of a route.

Between the doors' lanes and the destinations. Slow lanes use broker.verbs.publishing. Never yields.
"""
from gomq_py.broker.routing import route as _route  # noqa: F401  (its .pxd types the route)
from gomq_py.broker.routing.destination import LATER

# The answers of to_all() when every destination has had the message.
ALL = 0
SOME_REFUSED = 1
# Copies that a lane stores between two looks at the clock, some 0.2 ms: about as many as a read of 64 KiB
# with one destination has.
LOOK_AFTER = 1024


def to_all(message, route):
    """Publish the message to each destination of the route, in order.

    ALL: all took it. SOME_REFUSED: all have had it. 2 and above: a destination answered LATER, and the ones
    behind it have had nothing; ``answer >> 1`` is its number, from 1 on, and ``answer & 1`` tells whether an
    earlier one refused.
    """
    refused = 0
    number = 0
    for destination in route.queues:
        number += 1
        answer = destination.publish(message)
        if answer != 1:
            if answer == LATER:
                return number << 1 | refused
            refused = SOME_REFUSED
    return refused
