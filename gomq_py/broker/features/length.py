"""Length: limits the size of queues and streams, and chooses what happens when one is full.

Applied by broker.queues.limits, and for streams by broker.queues.stream_queue.
"""
from gomq_py.broker.features import checks, policy_checks
from gomq_py.broker.features.feature import NO_STREAM, QUORUM_ONLY, Feature, Flag
from gomq_py.broker.features.merging import first_text, smallest

MAX_BYTES_ARGUMENT, OVERFLOW_ARGUMENT = "x-max-length-bytes", "x-overflow"
DROP_HEAD, REJECT_PUBLISH, REJECT_PUBLISH_DLX = "drop-head", "reject-publish", "reject-publish-dlx"
_OVERFLOWS = DROP_HEAD, REJECT_PUBLISH, REJECT_PUBLISH_DLX

ROWS = (
    Feature(
        argument="x-max-length", place=6, check=checks.not_negative,
        policy="max-length", operator=True, check_policy=policy_checks.count, word="maximum length",
        setting="max_length", merge=smallest,
        flag=Flag(name="--max-length", kind=int, help="Messages it holds at most."),
        value="`10000`: messages, from 0",
        default="No limit.",
        others="Alike.",
        effect="Most ready messages in the queue; unacknowledged ones do not count. A stream "
        "counts all it keeps.",
    ),
    Feature(
        argument=MAX_BYTES_ARGUMENT, place=7, check=checks.not_negative,
        policy="max-length-bytes", operator=True, check_policy=policy_checks.count,
        word="maximum length in bytes", setting="max_bytes", merge=smallest,
        flag=Flag(name="--max-length-bytes", kind=int, help="Bytes of bodies it holds at most."),
        value="`1000000000`: bytes, from 0",
        default="No limit.",
        others="Alike.",
        effect="Most bytes of the bodies of ready messages; in a stream, of records with their "
        "headers.",
    ),
    Feature(
        argument=OVERFLOW_ARGUMENT, place=11, kinds=NO_STREAM,
        check=checks.one_of("invalid_overflow", *_OVERFLOWS),
        policy="overflow", operator=True, check_policy=policy_checks.one_of(*_OVERFLOWS),
        setting="overflow", merge=first_text(DROP_HEAD),
        flag=Flag(
            name="--reject-on-overflow", value=REJECT_PUBLISH,
            help="Refuse what does not fit instead of dropping the oldest."),
        value="`reject-publish`: `drop-head`, `reject-publish` or `reject-publish-dlx`",
        default="`drop-head`",
        others="LavinMQ: no `reject-publish-dlx`.",
        effect="A full queue drops its oldest messages with `drop-head`; `reject-publish` "
        "refuses new ones (a publisher with confirms gets a nack), `reject-publish-dlx` also "
        "dead-letters the refused ones.",
    ),
    # Without effect: no queue keeps messages in memory.
    Feature(
        argument="x-max-in-memory-length", place=8, kinds=QUORUM_ONLY, check=checks.not_negative,
        policy="max-in-memory-length", operator=True, check_policy=policy_checks.anything,
        effect="None: no queue keeps messages in memory.",
    ),
    Feature(
        argument="x-max-in-memory-bytes", place=9, kinds=QUORUM_ONLY, check=checks.not_negative,
        policy="max-in-memory-bytes", operator=True, check_policy=policy_checks.anything,
        effect="None: no queue keeps messages in memory.",
    ),
)
