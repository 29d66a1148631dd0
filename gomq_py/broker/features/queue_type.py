"""Queue type: chooses classic queue, quorum queue or stream, and has arguments that only some types have.

Those arguments are priorities, single active consumer and version. Applied by broker.queues and
broker.topology.queue_factory.
"""
from gomq_py.broker.features import checks, policy_checks
from gomq_py.broker.features.feature import (
    CLASSIC, CLASSIC_ONLY, QUORUM, QUORUM_ONLY, STREAM, STREAM_ONLY, Feature, Flag,
)

QUEUE_TYPE, MAX_PRIORITY, SINGLE_ACTIVE_CONSUMER = (
    "x-queue-type", "x-max-priority", "x-single-active-consumer"
)
QUEUE_MODE_KEY = "queue-mode"

# Quorum queues have priorities without an argument, as in RabbitMQ 4.3: the highest one, and that of messages
# that name none.
QUORUM_MAX_PRIORITY, QUORUM_PRIORITY = 31, 4


def queue_type_of(arguments):
    """Return the x-queue-type in a queue's arguments; "classic" if none is given."""
    return arguments.get(QUEUE_TYPE) or CLASSIC


def _queue_version(value, arguments):
    checks.integer(value, arguments)
    if value != 2:  # 1 is refused since RabbitMQ 4.3
        raise checks.WrongValue(f"\"unsupported queue version '{value}'\"")


ROWS = (
    Feature(
        argument=QUEUE_TYPE, place=15,
        check=checks.one_of("\"unsupported queue type '{}'\"", CLASSIC, QUORUM, STREAM),
        flag=Flag(name="--stream-queue", value=STREAM, help="A stream."),
        value="`quorum`: `classic`, `quorum` or `stream`",
        default="The virtual host's default, or `classic`.",
        others="RabbitMQ: quorum queues are replicated by themselves. LavinMQ: takes `quorum` and "
        "ignores it.",
        effect="Kind of queue. A quorum queue is a durable queue of this node, with priorities "
        "from 0 to 31; a message without a priority has 4.",
    ),
    Feature(
        argument=MAX_PRIORITY, place=10, kinds=CLASSIC_ONLY, check=checks.up_to(255),
        flag=Flag(name="--max-priority", kind=int, help="Highest priority."),
        value="`10`: 0 to 255",
        default="No priorities.",
        others="Alike.",
        effect="Highest priority. Messages of higher priority are delivered first; one without a "
        "priority has 0.",
    ),
    Feature(
        argument=SINGLE_ACTIVE_CONSUMER, place=14, check=checks.boolean,
        value="`true`: boolean",
        default="`false`",
        others="RabbitMQ, LavinMQ: not for streams.",
        effect="One consumer gets all messages. When it ends, the next one takes over.",
    ),
    # Without effect here. Values are checked as RabbitMQ checks them, so that it accepts an export of them.
    Feature(
        argument="x-queue-mode", place=12, kinds=CLASSIC_ONLY,
        check=checks.one_of("\"unsupported queue mode '{}'\"", "default", "lazy"),
        policy=QUEUE_MODE_KEY, check_policy=policy_checks.one_of("default", "lazy"),
        effect="None: messages are in mapped files.",
    ),
    Feature(
        argument="x-queue-version", place=13, kinds=CLASSIC_ONLY, check=_queue_version,
        policy="queue-version", check_policy=policy_checks.anything,
        effect="None: there is one format.",
    ),
    Feature(
        argument="x-quorum-initial-group-size", place=16, kinds=QUORUM_ONLY, check=checks.not_negative,
        effect="None: there is one node.",
    ),
    Feature(
        argument="x-initial-cluster-size", place=20, kinds=STREAM_ONLY, check=checks.not_negative,
        policy="initial-cluster-size", check_policy=policy_checks.anything,
        effect="None: there is one node.",
    ),
    Feature(
        argument="x-queue-leader-locator", place=21,
        check=checks.one_of(
            "invalid_queue_locator_arg", "client-local", "balanced", "random", "least-leaders"
        ),
        policy="queue-leader-locator", check_policy=policy_checks.anything,
        effect="None: there is one node.",
    ),
)
