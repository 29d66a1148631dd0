"""Consumer priority: a queue serves consumers of the highest priority first, while they have capacity.
Applied by broker.queues.consumers.
"""
from gomq_py.broker.features import checks
from gomq_py.broker.features.feature import ConsumerArgument

PRIORITY = "x-priority"
# RabbitMQ's numbers, clamped to the 32 bits of a compiled consumer.
_MOST = (1 << 31) - 1


def priority_of(arguments):
    """Return the priority in checked consumer arguments; the default is 0."""
    return max(-_MOST, min(_MOST, arguments.get(PRIORITY, 0)))


CONSUMER_ROWS = (
    ConsumerArgument(
        argument=PRIORITY, check=checks.integer,
        value="`10`: integer, also below 0",
        default="0",
        others="Alike.",
        effect="Consumers of higher priority are served first, while their prefetch has room.",
    ),
    # Without effect: queues have no mirrors. RabbitMQ accepts booleans only.
    ConsumerArgument(
        argument="x-cancel-on-ha-failover", check=checks.boolean, effect="None: no queue has a mirror.",
    ),
)
