"""Expiry: time to live of messages, and deletion of unused queues. Applied by broker.queues.limits."""
from gomq_py.broker.features import checks, policy_checks
from gomq_py.broker.features.feature import NO_STREAM, Feature, Flag
from gomq_py.broker.features.merging import smallest_time

EXPIRES, MESSAGE_TTL = "x-expires", "x-message-ttl"
# Keys in policies and in upstreams (for queues on the upstream).
EXPIRES_KEY, MESSAGE_TTL_KEY = "expires", "message-ttl"

ROWS = (
    Feature(
        argument=EXPIRES, place=1, kinds=NO_STREAM, check=checks.positive_milliseconds,
        policy=EXPIRES_KEY, operator=True, check_policy=policy_checks.positive, word="queue expiry",
        setting="expires_ms", merge=smallest_time,
        flag=Flag(name="--expires", kind=int, help="Milliseconds without use after which the queue goes."),
        value="`1800000`: ms, 1 to ten years",
        default="The queue stays.",
        others="Alike.",
        effect="The queue is deleted after this time without a consumer, a get or a declare, with "
        "its messages.",
    ),
    Feature(
        argument=MESSAGE_TTL, place=2, kinds=NO_STREAM, check=checks.milliseconds,
        policy=MESSAGE_TTL_KEY, operator=True, check_policy=policy_checks.count, word="message TTL",
        setting="message_ttl_ms", merge=smallest_time,
        flag=Flag(name="--message-ttl", kind=int, help="Milliseconds after which messages expire."),
        value="`60000`: ms, 0 to ten years",
        default="Messages do not expire.",
        others="Alike.",
        effect="A message of this age expires once it is at the head of the queue: it becomes a "
        "dead letter, or is dropped. The message's own `expiration` counts if it is shorter.",
    ),
)
