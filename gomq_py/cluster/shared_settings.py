"""Shared settings: settings that should be equal on all nodes of a cluster, because any node may lead.

The table of options marks them as ``shared``: settings of confirms and elections, defaults of queues and
clients, and limits for clients. Secrets and settings of one machine (folders, addresses, ports, sizes of
memory) are not ``shared``. Each node writes its own values into ``nodes/<id>``. The leader compares them, and
warns once of each difference.
"""
from collections.abc import Mapping
from typing import Any, NamedTuple

import gomq_py
from gomq_py.cluster.core.records import MAX_TEXT, Kept, NodeRecord, decoded
from gomq_py.config.settings import OPTIONS, Settings
from gomq_py.digests import blake2b
from gomq_py.observability.log import logger

LOG = logger("cluster")
VERSION = "version"


class Difference(NamedTuple):
    """A setting, such as "[amqp] heartbeat", that differs on another node.

    ``node``, ``name``: the other node's. ``here``, ``there``: the values as text.
    """

    node: str
    name: str
    setting: str
    here: str
    there: str


def told(settings: Settings) -> dict[str, str]:
    """Return this node's shared settings and its version: {"[section] key" or "version": value as text}."""
    found = {VERSION: gomq_py.__version__}
    for option in OPTIONS:
        if option.shared:
            shown = option.kind.show(getattr(settings, option.attribute))
            found[f"[{option.section}] {option.key}"] = _text(shown)
    return found


def differences(node: str, own: Mapping[str, str], nodes: Mapping[str, Kept]) -> list[Difference]:
    """Return the settings in which other nodes differ from this one. ``own``: result of ``told``."""
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
    """Logs each difference once, as long as it lasts. ``node``: this node's id. ``own``: from ``told``."""

    def __init__(self, node: str, own: Mapping[str, str]):
        self.found: list[Difference] = []
        self._node, self._own = node, own
        self._seen: Any = None

    def look(self, nodes: Mapping[str, Kept]) -> None:
        """Compare with the settings that the other nodes have written: {node id: Kept}.

        Does not switch greenlets.
        """
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
    """Return the value if a NodeRecord accepts it, otherwise its digest."""
    if len(value) <= MAX_TEXT and value.isprintable():
        return value
    return f"digest {blake2b(value.encode(), digest_size=8).hexdigest()}"
