"""Stream prefetch: limits the unacked bytes of a stream consumer. Applied by amqp.server.stream_consumer."""
from gomq_py.broker.features import checks
from gomq_py.broker.features.feature import STREAM_ONLY, ConsumerArgument

PREFETCH_BYTES = "x-stream-prefetch-bytes"


def prefetch_bytes_of(arguments):
    """Return the limit in bytes from checked consumer arguments; 0: no limit."""
    return arguments.get(PREFETCH_BYTES, 0)


CONSUMER_ROWS = (
    ConsumerArgument(
        argument=PREFETCH_BYTES, kinds=STREAM_ONLY, check=checks.not_negative,
        value="`1000000`: bytes, from 0; 0: no limit",
        default="No limit.",
        others="Neither.",
        effect="Most unacknowledged bytes of bodies, besides the prefetch count. One message is "
        "delivered in any case.",
    ),
)
