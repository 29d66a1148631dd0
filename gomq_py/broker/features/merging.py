"""Merging: rules that combine a setting's argument and policy: ``merge(feature, arguments, policy)``.

As in RabbitMQ, of two numbers the smaller applies, of other values the argument. Values of a wrong type,
which old definitions may contain, count as not set.
"""
from gomq_py.broker.values import MAX_INTEGER, MAX_TIMER_MS, is_count


def smallest(feature, arguments, policy):
    """Return the smaller number of argument and policy; None if neither is set."""
    return min(limits(feature, arguments, policy), default=None)


def smallest_time(feature, arguments, policy):
    """Return the smaller time of argument and policy in ms, at most the longest timer; None if unset."""
    # A policy's value may exceed the longest timer, as in RabbitMQ.
    return min((min(value, MAX_TIMER_MS) for value in limits(feature, arguments, policy)), default=None)


def first_text(default=None):
    """Make a merge rule that returns the argument's text, or the policy's text, or else ``default``."""
    def merge(feature, arguments, policy):
        for value in (arguments.get(feature.argument), policy.get(feature.policy)):
            if isinstance(value, str):
                return value
        return default
    return merge


def limits(feature, arguments, policy):
    """List the limits that argument and policy set. Negative numbers, and numbers too large for a counter,
    mean no limit and are left out.
    """
    values = arguments.get(feature.argument), policy.get(feature.policy)
    return [value for value in values if _is_limit(value)]


def _is_limit(value):
    return is_count(value) or isinstance(value, float) and 0 <= value < MAX_INTEGER
