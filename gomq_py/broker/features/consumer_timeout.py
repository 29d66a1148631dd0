"""Consumer timeout: limits how long a message stays unacked. Applied by amqp.server.consumer_timeouts."""
from gomq_py.broker.features import checks, policy_checks
from gomq_py.broker.features.feature import NO_STREAM, Feature
from gomq_py.broker.features.merging import limits
from gomq_py.broker.values import MAX_TIMER_MS

POLICY_KEY = "consumer-timeout"


def _merge(feature, arguments, policy):
    """The smallest limit above 0 of argument and policy; else 0 (no limit) if one of them sets it; else None.
    """
    values = limits(feature, arguments, policy)
    values = [value for value in values if value] or values
    return min((min(value, MAX_TIMER_MS) for value in values), default=None)


ROWS = (
    Feature(
        argument="x-consumer-timeout", place=23, kinds=NO_STREAM, check=checks.milliseconds,
        policy=POLICY_KEY, check_policy=policy_checks.count, word="consumer timeout",
        setting="consumer_timeout_ms", merge=_merge, by_queue=False,
        effect="A channel that holds a message unacknowledged for so long is closed. 0: no limit.",
    ),
)
