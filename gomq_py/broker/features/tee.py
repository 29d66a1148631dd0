"""Tee: names the stream that gets a copy of all messages of a queue or exchange. Applied by broker.routing.

Programs such as Spark read the tee to see a queue's messages without consuming them. Streams have no tee.
"""
from gomq_py.broker.features import policy_checks
from gomq_py.broker.features.feature import NO_STREAM, Feature

POLICY_KEY = "tee-to-stream"

ROWS = (
    Feature(
        policy=POLICY_KEY, hands_on_to="queue",
        kinds=NO_STREAM, check_policy=policy_checks.name, word="stream name",
        value="`orders-log`: name of a stream",
        default="No copy.",
        others="Neither.",
        effect="Messages that are routed to the queue, or by the exchange, go to this stream as "
        "well ([spark.md](spark.md#queues)).",
    ),
)
