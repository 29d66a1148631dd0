"""Tee: a stream that gets what a queue or an exchange gets, as well. Acted on by broker.routing.routing.

For programs that read a queue's messages without taking them, such as Spark. Streams need none, and get
none.
"""
from gomq_py.broker.features import policy_checks
from gomq_py.broker.features.feature import NO_STREAM, Feature

POLICY_KEY = "tee-to-stream"

ROWS = (
    Feature(
        policy=POLICY_KEY, hands_on_to="queue",
        kinds=NO_STREAM, check_policy=policy_checks.name, word="stream name",
        effect="What is routed to a queue, or by an exchange, goes to this stream as well "
               "([spark.md](spark.md#queues)).",
    ),
)
