"""Elsewhere: policy keys of RabbitMQ's plugins, mirrors and clusters, which have no effect in this broker.

RabbitMQ's definitions contain these keys. This module checks the values that RabbitMQ checks, so that
RabbitMQ accepts definitions that this broker exports.
"""
from gomq_py.broker.features import policy_checks
from gomq_py.broker.features.feature import Feature

_OF_A_PLUGIN = "None: it belongs to a plugin of RabbitMQ."
_OF_A_CLUSTER = "None: there is one node."
SHARDING, DELAYED = "sharding", "delayed-message"

ROWS = (
    # Plugins of RabbitMQ act on these, LavinMQ on the last one.
    Feature(
        policy="shards-per-node", check_policy=policy_checks.anything, component=SHARDING, effect=_OF_A_PLUGIN
    ),
    Feature(
        policy="routing-key", check_policy=policy_checks.anything, component=SHARDING, effect=_OF_A_PLUGIN
    ),
    Feature(
        policy=DELAYED, check_policy=policy_checks.boolean, component=DELAYED,
        effect="None: an exchange delays by its type.",
    ),
    Feature(
        policy="ha-mode", operator=True, check_policy=policy_checks.one_of("all", "exactly", "nodes"),
        effect=_OF_A_CLUSTER,
    ),
    *(
        Feature(policy=key, operator=True, check_policy=policy_checks.anything, effect=_OF_A_CLUSTER)
        for key in (
            "ha-params", "ha-sync-mode", "ha-sync-batch-size", "ha-promote-on-shutdown",
            "ha-promote-on-failure", "target-group-size",
        )
    ),
    Feature(policy="queue-master-locator", check_policy=policy_checks.anything, effect=_OF_A_CLUSTER),
    Feature(
        policy="max-segment-size-bytes", check_policy=policy_checks.anything,
        effect="None: `stream-max-segment-size-bytes` says it.",
    ),
)
