"""Every fuzz target by name."""
from tests.fuzz import (
    config_targets, door_targets, etcd_targets, link_targets, mqtt_session_target, mqtt_targets,
    session_target, store_targets, wire_targets,
)

TARGETS = {
    **wire_targets.TARGETS, **mqtt_targets.TARGETS, **session_target.TARGETS, **config_targets.TARGETS,
    **store_targets.TARGETS, **door_targets.TARGETS, **mqtt_session_target.TARGETS,
    **link_targets.TARGETS, **etcd_targets.TARGETS,
}
