"""Consumer timeout: limits how long a message stays unacked. Applied by amqp.server.consumer_timeouts."""
from gomq_py.broker.features import checks, policy_checks
from gomq_py.broker.features.feature import NO_STREAM, QUORUM_ONLY, ConsumerArgument, Feature
from gomq_py.broker.features.merging import limits
from gomq_py.broker.values import MAX_TIMER_MS

POLICY_KEY, ARGUMENT = "consumer-timeout", "x-consumer-timeout"


def _merge(feature, arguments, policy):
    """Return the smallest limit above 0 that argument and policy set; 0 if they set only 0; None if unset."""
    values = limits(feature, arguments, policy)
    values = [value for value in values if value] or values
    return min((min(value, MAX_TIMER_MS) for value in values), default=None)


ROWS = (
    Feature(
        argument=ARGUMENT, place=23, kinds=NO_STREAM, check=checks.milliseconds,
        policy=POLICY_KEY, check_policy=policy_checks.count, word="consumer timeout",
        setting="consumer_timeout_ms", merge=_merge, by_queue=False,
        value="`1800000`: ms, 0 to ten years; 0: no limit",
        default="The setting `consumer_timeout`, 0.",
        others="RabbitMQ 4.3: quorum queues. LavinMQ: only as an argument.",
        effect="A consumer that holds a message unacknowledged for this time is cancelled (quorum "
        "queues), or its channel is closed; its messages are ready again.",
    ),
    Feature(
        argument="x-consumer-disconnected-timeout", place=31, kinds=QUORUM_ONLY, check=checks.not_negative,
        policy="consumer-disconnected-timeout", check_policy=policy_checks.count,
        effect="None: there is one node.",
    ),
)

CONSUMER_ROWS = (
    ConsumerArgument(
        argument=ARGUMENT, kinds=QUORUM_ONLY, check=checks.milliseconds,
        value="`60000`: ms, 0 to ten years; 0: no limit",
        default="The queue's timeout.",
        others="RabbitMQ: from 4.3. LavinMQ: no.",
        effect="The consumer's own timeout, instead of the queue's.",
    ),
)


def timeout_of(arguments):
    """Return the timeout in checked consumer arguments, in ms, at most MAX_TIMER_MS; -1 if there is none."""
    return min(arguments.get(ARGUMENT, -1), MAX_TIMER_MS)
