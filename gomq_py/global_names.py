"""Names of the global parameters that have a meaning to the broker: the only list of them.

Used by the broker, its exports and imports, the management API and ctl. Imports nothing.
"""
# The broker's note on what it imported with the setting load_definitions: {"path": ..., "sha256": ...}.
# Older notes are the path alone.
IMPORTED = "load_definitions"
# Notes of a broker about its own data folder. They are stored like global parameters, but neither shown nor
# exported, and neither users nor imports set or delete them: in another folder they would be untrue.
INTERNAL = frozenset((IMPORTED,))
# The id of a cluster, as RabbitMQ names it.
CLUSTER_ID = "internal_cluster_id"
# {name: reason} of global parameters that an import ignores. Each cluster keeps its own identity.
NOT_IMPORTED = {
    CLUSTER_ID: "the identity of another cluster",
    IMPORTED: "a broker's note about its own data folder",
}
