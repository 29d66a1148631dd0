"""Merging: combines argument and policy for QueueSettings by rules: ``merge(feature, arguments, policy)``.

RabbitMQ's rules: of numbers the smallest counts, of other values the argument's. Values of a wrong type,
which old definitions may hold, count as not set.
"""
from gomq_py.broker.values import MAX_INTEGER, MAX_TIMER_MS, is_count


def smallest(feature, arguments, policy):
    """The smaller number of argument and policy; None if both are not set."""
    return min(limits(feature, arguments, policy), default=None)


def smallest_time(feature, arguments, policy):
    """As smallest(), but at most the longest timer in ms: a policy's value may be larger, as in RabbitMQ."""
    return min((min(value, MAX_TIMER_MS) for value in limits(feature, arguments, policy)), default=None)


def first_text(default=None):
    """Make a rule that gives the argument's text, or else the policy's text, or else the default."""
    def merge(feature, arguments, policy):
        for value in (arguments.get(feature.argument), policy.get(feature.policy)):
            if isinstance(value, str):
                return value
        return default
    return merge


def limits(feature, arguments, policy):
    """List the limits that argument and policy set. Negative numbers (of delivery-limit, as in RabbitMQ) and
    numbers too large for a counter mean no limit and are left out.
    """
    values = arguments.get(feature.argument), policy.get(feature.policy)
    return [value for value in values if _is_limit(value)]


def _is_limit(value):
    return is_count(value) or isinstance(value, float) and 0 <= value < MAX_INTEGER
