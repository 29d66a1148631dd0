"""Consumer priority: a queue serves its consumers of the highest priority first, while they have capacity.

Acted on by broker.queues.consumers.
"""
from gomq_py.broker.features import checks
from gomq_py.broker.features.feature import ConsumerArgument

PRIORITY = "x-priority"
# RabbitMQ's numbers, of which a compiled consumer holds 32 bits. Larger ones are cut to the nearest.
_MOST = (1 << 31) - 1


def priority_of(arguments):
    """The priority of a consumer with these arguments, which were checked. 0 without one."""
    return max(-_MOST, min(_MOST, arguments.get(PRIORITY, 0)))


CONSUMER_ROWS = (
    ConsumerArgument(
        argument=PRIORITY, check=checks.integer,
        effect="Consumers of higher priority are served first, while they have capacity. 0 where nothing is "
        "said.",
    ),
    # Without effect: no queue has a mirror that could take over. RabbitMQ refuses what is no boolean.
    ConsumerArgument(
        argument="x-cancel-on-ha-failover", check=checks.boolean, effect="None: no queue has a mirror.",
    ),
)
