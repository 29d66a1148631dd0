"""Delivery limit: how often a message is requeued before it is dead-lettered. Applied by queues.limits.

In quorum queues only failures count, as in RabbitMQ 4.3: basic.reject, and the end of a channel that holds
the message. Returns by basic.nack and basic.recover do not count.
"""
from gomq_py.broker.features import checks, policy_checks
from gomq_py.broker.features.feature import NO_STREAM, QUORUM, Feature, Flag
from gomq_py.broker.features.merging import smallest
from gomq_py.broker.features.queue_type import queue_type_of

# RabbitMQ's default for quorum queues since 4.0.
OF_QUORUM_QUEUES = 20


def _merge(feature, arguments, policy):
    is_given = feature.argument in arguments or feature.policy in policy
    limit = smallest(feature, arguments, policy)
    if queue_type_of(arguments) == QUORUM and limit is None:
        return -1 if is_given else OF_QUORUM_QUEUES  # -1: no limit, but the queue counts deliveries
    return limit


ROWS = (
    Feature(
        argument="x-delivery-limit", place=22, kinds=NO_STREAM, check=checks.integer,  # -1: none
        policy="delivery-limit", operator=True, check_policy=policy_checks.number, word="delivery limit",
        setting="delivery_limit", merge=_merge,
        flag=Flag(name="--delivery-limit", kind=int, help="How often a message may come back."),
        value="`5`: returns; below 0: no limit",
        default="No limit; 20 for quorum queues.",
        others="RabbitMQ: quorum queues. LavinMQ: forgets counts at a restart.",
        effect="A message that was returned this often becomes a dead letter at the next return. In quorum "
        "queues only failures count: `basic.reject`, and the end of a channel.",
    ),
)
