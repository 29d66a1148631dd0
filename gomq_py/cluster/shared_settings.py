"""Shared settings: those that should be alike on all nodes of a cluster, because any of them may lead.

Each node writes the values of its own into ``nodes/<id>``; the leader compares, and warns once of each
difference. Secrets, and what belongs to one machine (folders, addresses, sizes of its memory), are left out.
"""
from collections.abc import Mapping
from typing import Any, NamedTuple

import gomq_py
from gomq_py.cluster.core.records import MAX_TEXT, Kept, NodeRecord, decoded
from gomq_py.config.settings import BY_ATTRIBUTE, Settings
from gomq_py.digests import blake2b
from gomq_py.observability.log import logger

LOG = logger("cluster")
VERSION = "version"
# Attributes of Settings. What is promised, and how fast a leader is replaced; what queues and clients are
# given where they say nothing; limits by which a client is refused. No ports: a proxy may hide them.
SHARED = (
    "sync", "min_isr", "ack_timeout", "lease_ttl", "max_lag_bytes",
    "default_consumer_prefetch", "consumer_timeout", "default_consistent_hash_algorithm", "segment_size",
    "event_exchange", "log_exchange", "heartbeat", "frame_max", "channel_max", "max_message_size",
    "max_consumers_per_channel", "mqtt_default_vhost", "mqtt_exchange", "mqtt_permission_check_enabled",
    "mqtt_anonymous_user", "mqtt_client_id_validation", "mqtt_max_packet_size", "mqtt_max_session_expiry",
    "mqtt_session_overflow", "mqtt_max_topic_levels", "auth_backends", "oauth_issuer",
    "oauth_resource_server_id", "oauth_audience", "oauth_scope_prefix", "default_user_only_loopback",
)


class Difference(NamedTuple):
    """A setting of another node that differs from this one's. ``node``: the other's id; ``setting``: such as
    "[amqp] heartbeat".
    """

    node: str
    name: str
    setting: str
    here: str
    there: str


def told(settings: Settings) -> dict[str, str]:
    """{setting: its value as text}, and the version, for the other nodes."""
    found = {VERSION: gomq_py.__version__}
    for attribute in SHARED:
        option = BY_ATTRIBUTE[attribute]
        assert not option.kind.secret
        found[f"[{option.section}] {option.key}"] = _text(option.kind.show(getattr(settings, attribute)))
    return found


def differences(node: str, own: Mapping[str, str], nodes: Mapping[str, Kept]) -> list[Difference]:
    """Differences between this node's settings, which ``told`` has made, and those of all other nodes."""
    found = []
    for other, kept in sorted(nodes.items()):
        record = decoded(kept, NodeRecord.decode)
        if record is None or other == node:
            continue
        found += [
            Difference(other, record.name, setting, own[setting], there)
            for setting, there in sorted(record.settings.items()) if own.get(setting, there) != there]
    return found


class Warner:
    """Warns of each difference once, as long as it lasts. ``node``: this node's id; ``own``: see ``told``."""

    def __init__(self, node: str, own: Mapping[str, str]):
        self.found: list[Difference] = []
        self._node, self._own = node, own
        self._seen: Any = None

    def look(self, nodes: Mapping[str, Kept]) -> None:
        """Compare with what the other nodes have written: {id: value}. Does not switch."""
        seen = {other: kept.mod_revision for other, kept in nodes.items()}
        if seen == self._seen:
            return
        self._seen, before = seen, self.found
        self.found = differences(self._node, self._own, nodes)
        for one in self.found:
            if one not in before:
                LOG.warning(
                    "settings differ: %s is %r on this node and %r on %s, which may lead one day",
                    one.setting, one.here, one.there, one.name)


def _text(value: str) -> str:
    """A value that a NodeRecord takes; of a long or strange one its digest."""
    if len(value) <= MAX_TEXT and value.isprintable():
        return value
    return f"digest {blake2b(value.encode(), digest_size=8).hexdigest()}"
