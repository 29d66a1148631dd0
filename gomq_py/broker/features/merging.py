"""Merging: rules ``merge(feature, arguments, policy)`` that combine argument and policy for QueueSettings.

RabbitMQ's rules: of numbers the smallest counts, of other values the argument's. Values of a wrong type,
which old definitions may hold, count as not set.
"""
from gomq_py.broker.values import MAX_INTEGER, MAX_TIMER_MS, is_count


def smallest(feature, arguments, policy):
    """The smallest number, or None."""
    return min(limits(feature, arguments, policy), default=None)


def smallest_time(feature, arguments, policy):
    """The smallest number of milliseconds, or None. A policy may exceed the longest timer, as in RabbitMQ."""
    return min((min(value, MAX_TIMER_MS) for value in limits(feature, arguments, policy)), default=None)


def first_text(default=None):
    """A rule: the text of the argument, or else of the policy, or else the default."""
    def merge(feature, arguments, policy):
        for value in (arguments.get(feature.argument), policy.get(feature.policy)):
            if isinstance(value, str):
                return value
        return default
    return merge


def limits(feature, arguments, policy):
    """The valid limits in both: negative numbers (of delivery-limit) mean no limit, as in RabbitMQ, and so do
    numbers too large for a counter.
    """
    values = arguments.get(feature.argument), policy.get(feature.policy)
    return [value for value in values if _is_limit(value)]


def _is_limit(value):
    return is_count(value) or isinstance(value, float) and 0 <= value < MAX_INTEGER
