"""Table: collects all descriptions of features, and indexes them by argument, policy key and setting."""
from gomq_py.broker.features import (
    alternate_exchange, consumer_priority, consumer_timeout, dead_lettering, deduplication, delivery_limit,
    elsewhere, expiry, federation, length, message_group, queue_type, retry, stream_filter, stream_offset,
    stream_prefetch, stream_retention, tee,
)

FEATURES = tuple(row for module in (
    expiry, length, delivery_limit, dead_lettering, consumer_timeout, retry, deduplication, stream_retention,
    message_group, queue_type, alternate_exchange, tee, federation, elsewhere,
) for row in module.ROWS)

# Rows by argument, in RabbitMQ's order of checks.
ARGUMENTS = {row.argument: row for row in sorted(FEATURES, key=lambda row: row.place) if row.argument}
# Rows by policy key.
POLICY_KEYS = {row.policy: row for row in FEATURES if row.policy is not None}
# Rows that are attributes of QueueSettings.
SETTINGS = tuple(row for row in FEATURES if row.setting is not None)
# Rows of consumer arguments, in the order of checks.
CONSUMER_ARGUMENTS = {
    row.argument: row for module in (
        consumer_priority, consumer_timeout, stream_offset, stream_filter, stream_prefetch,
    ) for row in module.CONSUMER_ROWS
}
