"""A table of the request bodies, query parameters and answers, by (endpoint, method)."""
from typing import NamedTuple

from gomq_py.http.openapi.schemas import COUNT, MAYBE_COUNT, TEXT, ref, record, some

# Queries of lists, of single things with counters, and of some deletes.
LIST = ("page", "page_size", "name", "use_regex", "sort", "sort_reverse", "columns")
CURVES = (
    "lengths_age", "lengths_incr", "msg_rates_age", "msg_rates_incr", "data_rates_age", "data_rates_incr",
    "node_stats_age", "node_stats_incr",
)
STATS = ("disable_stats", "enable_queue_totals")
OCTETS = {"type": "string", "format": "binary"}
METRICS = ("prefix", "family", "vhost")


class Operation(NamedTuple):
    """A request in OpenAPI. ``answers``: {status: schema, or None without a body}. ``body``: a key of BODIES,
    or None. ``query``: names of parameters. ``media``: the answers' content type.
    """

    answers: dict
    body: str | None = None
    query: tuple[str, ...] = ()
    media: str = "application/json"


def shows(schema, query=()):
    """Return the Operation of a GET that returns JSON of this schema."""
    return Operation({200: schema}, query=(*query, "columns"))


def lists(*names, query=()):
    """Return the Operation of a GET for a list or one of its pages. ``names``: schemas of the elements."""
    item = ref(names[0]) if len(names) == 1 else {"anyOf": [ref(name) for name in names]}
    page = record({**{key: {"type": "integer"} for key in (
        "filtered_count", "item_count", "page", "page_count", "page_size",
        "total_count")}, "items": some(item)})
    return Operation({200: {"anyOf": [some(item), page]}}, query=(*LIST, *query))


def puts(body):
    """Return the Operation of a PUT, which answers 201 for a new entity and 204 for an existing one."""
    return Operation({201: None, 204: None}, body)


def does(body=None, query=()):
    """Return the Operation of a request whose answer has no body."""
    return Operation({204: None}, body, query)


def moves(body, done):
    """Return the Operation of a POST that moves or copies messages. The answer counts them in ``done``."""
    counts = {"type": "object", "additionalProperties": {"type": "integer"}}
    return Operation({200: record({
        "dry_run": {"type": "boolean"}, "examined": {"type": "integer"}, "matched": {"type": "integer"},
        done: {"type": "integer"},
        "targets": counts, "stayed": counts})}, body)


STATUS = Operation({200: ref("Status"), 503: ref("Status")})
IMPORT = Operation({200: ref("Report"), 204: None}, "definitions", ("report",))
TEXT_METRICS = Operation({200: TEXT}, query=METRICS, media="text/plain")
# Every DELETE that is not among the OPERATIONS.
DELETE = does()
NONE_OF_THEM = shows({"type": "array", "maxItems": 0})

OPERATIONS = {
    ("identity.whoami", "GET"): shows(ref("Whoami")),
    ("identity.version", "GET"): shows(record({"version": TEXT, "product": TEXT})),
    ("identity.cluster_name", "GET"): shows(record({"name": TEXT})),
    ("identity.put_cluster_name", "PUT"): does("name"),
    ("identity.auth", "GET"): shows(ref("Auth")),
    ("identity.list_attempts", "GET"): shows(some(ref("Attempts"))),
    ("identity.list_attempt_sources", "GET"): NONE_OF_THEM,
    ("identity.hash_password", "GET"): shows(record({"ok": TEXT})),
    ("identity.put_hash_password", "PUT"): Operation({200: record({"password_hash": TEXT})}, "password"),
    ("identity.list_extensions", "GET"): NONE_OF_THEM,
    ("identity.list_feature_flags", "GET"): NONE_OF_THEM,
    ("identity.enable_feature_flag", "PUT"): does(),
    ("arguments.list_arguments", "GET"): shows(some(ref("Argument"))),
    ("overview.overview", "GET"): shows(ref("Overview"), CURVES),
    ("session.begin_session", "POST"): Operation({201: ref("Session")}, "session"),
    ("session.get_session", "GET"): shows(ref("Session")),
    ("changes.list_changes", "GET"): Operation({200: ref("Changes")}, query=("since", "columns")),
    ("changes.follow_changes", "GET"): Operation({200: ref("Changes")}, query=("since", "columns")),
    ("log.show_log", "GET"): shows(record({"last": COUNT, "lines": some(ref("LogLine"))}), ("last",)),
    ("settings.list_settings", "GET"): shows(some(ref("Setting"))),
    ("settings.put_setting", "PUT"): does("value"),
    ("doctor.examine", "GET"): shows(record({"findings": some(ref("Finding"))})),
    ("closed.list_closed", "GET"): shows(some(ref("Closed")), ("kind", "name")),
    ("cluster.cluster", "GET"): shows(ref("Cluster")),
    ("backup.show_backup", "GET"): shows(record({
        "state": TEXT, "done_bytes": COUNT, "total_bytes": COUNT})),
    ("backup.begin_backup", "POST"): shows(record({
        "host": TEXT, "port": COUNT, "secret": TEXT, "id": TEXT})),
    ("cluster.accept_damage", "POST"): does(),
    ("cluster.adopt", "POST"): does(),
    ("cluster.forget_node", "DELETE"): does(),
    ("cluster.transfer_leadership", "POST"): does("successor"),
    ("nodes.list_nodes", "GET"): shows(some(ref("Node")), CURVES),
    ("nodes.get_node", "GET"): shows(ref("Node"), CURVES),
    ("nodes.get_memory", "GET"): shows(ref("Memory")),
    ("nodes.gc_stats", "GET"): shows(some(ref("Generation"))),
    ("nodes.gc_collect", "POST"): does(),
    ("nodes.put_listeners", "PUT"): does("suspended"),
    ("health.aliveness", "GET"): STATUS,
    ("health.health_of_alarms", "GET"): STATUS,
    ("health.health_of_this_node", "GET"): STATUS,
    ("health.health", "GET"): STATUS,
    ("health.health_of_replicas", "GET"): STATUS,
    ("health.health_in_cluster", "GET"): STATUS,
    ("health.health_by_answering", "GET"): STATUS,
    ("health.health_of_port", "GET"): STATUS,
    ("health.health_of_protocol", "GET"): STATUS,
    ("health.health_of_certificates", "GET"): STATUS,
    ("metrics.overview", "GET"): TEXT_METRICS,
    ("metrics.per_object", "GET"): TEXT_METRICS,
    ("metrics.detailed", "GET"): TEXT_METRICS,
    ("connections.list_connections", "GET"): lists("Connection", query=CURVES),
    ("connections.get_connection", "GET"): shows(ref("Connection"), CURVES),
    ("connections.list_channels", "GET"): lists("Channel", query=CURVES),
    ("connections.get_channel", "GET"): shows(ref("Channel"), CURVES),
    ("connections.put_channel", "PUT"): does("prefetch"),
    ("connections.list_consumers", "GET"): lists("Consumer"),
    ("exchanges.list_exchanges", "GET"): lists("Exchange", query=CURVES),
    ("exchanges.get_exchange", "GET"): shows(ref("Exchange"), CURVES),
    ("exchanges.put_exchange", "PUT"): puts("exchange"),
    ("exchanges.delete_exchange", "DELETE"): does(query=("if-unused",)),
    ("exchanges.list_bindings_from", "GET"): lists("Binding"),
    ("exchanges.list_bindings_to", "GET"): lists("Binding"),
    ("exchanges.publish", "POST"): Operation({200: record({"routed": {"type": "boolean"}})}, "publish"),
    ("queues.list_queues", "GET"): lists("Queue", "QueueItself", query=(*STATS, *CURVES)),
    ("queues.get_queue", "GET"): shows(ref("Queue"), CURVES),
    ("queues.get_quorum_status", "GET"): Operation(
        {200: some(ref("Member")), 503: ref("Status")}, query=("columns",)),
    ("queues.put_queue", "PUT"): puts("queue"),
    ("queues.delete_queue", "DELETE"): does(query=("if-unused", "if-empty")),
    ("queues.purge_queue", "DELETE"): does(query=("count",)),
    ("queue_states.pause_queue", "PUT"): does(),
    ("queue_states.resume_queue", "PUT"): does(),
    ("queue_states.restart_queue", "PUT"): does(),
    ("messages.peek_messages", "GET"): shows(
        some(ref("Peeked")), ("offset", "count", "truncate", "encoding")
    ),
    ("search.search_messages", "POST"): Operation({200: record({
        "messages": some(ref("Peeked")), "examined": COUNT, "octets": COUNT, "next_offset": MAYBE_COUNT,
    })}, "search"),
    ("routes.try_route", "POST"): Operation({200: ref("Trial")}, "route"),
    ("unacked.list_unacked", "GET"): shows(some(ref("Holder"))),
    ("unacked.return_message", "POST"): does("return"),
    ("delayed.list_delayed", "GET"): shows(some(ref("Delayed"))),
    ("delayed.list_delayed_messages", "GET"): shows(some(ref("DelayedMessage")), ("count", "truncate")),
    ("schedules.list_schedules", "GET"): shows(some(ref("Schedule"))),
    ("schedules.get_schedule", "GET"): shows(ref("ShownSchedule")),
    ("messages.move_messages", "POST"): moves("move", "moved"),
    ("messages.copy_messages", "POST"): moves("move", "copied"),
    ("messages.replay_messages", "POST"): moves("replay", "moved"),
    ("queues.act_on_queue", "POST"): does("action"),
    ("queues.rebalance_queues", "POST"): does(),
    ("queues.list_unacked", "GET"): shows(some(ref("Unacked"))),
    ("queues.list_queue_bindings", "GET"): lists("Binding"),
    ("queues.get_messages", "POST"): Operation({200: some(ref("Message"))}, "get"),
    ("streams.list_streams", "GET"): shows(
        record({"streams": some(record({"name": TEXT, "vhost": TEXT, "epoch": TEXT}))})
    ),
    ("streams.get_stream", "GET"): shows(ref("Stream")),
    ("streams.list_segments", "GET"): shows(ref("Segments")),
    ("streams.read_segment", "GET"): Operation(
        {200: OCTETS}, query=("offset", "length", "epoch"), media="application/octet-stream"
    ),
    ("streams.peek_stream", "GET"): shows(
        some(ref("Peeked")), ("offset", "count", "truncate", "encoding")
    ),
    ("streams.find_offset", "GET"): Operation(
        {200: record({"epoch": TEXT, "offset": {"type": "integer"}})}, query=("timestamp",)
    ),
    ("mqtt.list_connections", "GET"): lists("MQTTConnection"),
    ("mqtt.list_sessions", "GET"): lists("MQTTSession"),
    ("mqtt.get_session", "GET"): shows(ref("MQTTSession")),
    ("mqtt.list_subscriptions", "GET"): lists("MQTTSubscription"),
    ("mqtt.list_retained", "GET"): shows(ref("MQTTRetainedPage"), query=("after", "limit")),
    ("mqtt.get_retained", "GET"): shows(ref("MQTTRetained"), query=("truncate",)),
    ("shovels.list_shovels", "GET"): lists("Shovel"),
    ("shovels.get_shovel", "GET"): shows(ref("Shovel")),
    ("shovels.pause_shovel", "PUT"): does(),
    ("shovels.resume_shovel", "PUT"): does(),
    ("shovels.restart_shovel", "PUT"): does(),
    ("federation.list_federation_links", "GET"): lists("FederationLink"),
    ("federation.restart_federation_link", "PUT"): does(),
    ("bindings.list_bindings", "GET"): lists("Binding"),
    ("bindings.list_between", "GET"): lists("Binding"),
    ("bindings.post_binding", "POST"): Operation({201: None}, "binding"),
    ("bindings.get_binding", "GET"): shows(ref("Binding")),
    ("vhosts.list_vhosts", "GET"): lists("VHost", query=CURVES),
    ("vhosts.get_vhost", "GET"): shows(ref("VHost"), CURVES),
    ("vhosts.put_vhost", "PUT"): puts("vhost"),
    ("vhosts.protect_vhost", "POST"): does(),
    ("vhosts.start_vhost", "POST"): does(),
    ("vhosts.list_vhost_connections", "GET"): lists("Connection", query=CURVES),
    ("vhosts.list_vhost_channels", "GET"): lists("Channel", query=CURVES),
    ("users.list_users", "GET"): lists("User"),
    ("users.list_users_without_permissions", "GET"): lists("User"),
    ("users.get_user", "GET"): shows(ref("User")),
    ("users.list_queues_of_user", "GET"): lists("Queue", query=CURVES),
    ("users.put_user", "PUT"): puts("user"),
    ("users.delete_users", "POST"): does("users"),
    ("users.authenticate", "POST"): Operation(
        {200: record({"authenticated": {"type": "boolean"}, "reason": TEXT})}, "password"),
    ("permissions.list_permissions", "GET"): lists("Permission"),
    ("permissions.list_user_permissions", "GET"): lists("Permission"),
    ("permissions.get_permission", "GET"): shows(ref("Permission")),
    ("permissions.put_permission", "PUT"): puts("permission"),
    ("permissions.list_topic_permissions", "GET"): lists("TopicPermission"),
    ("permissions.list_user_topic_permissions", "GET"): lists("TopicPermission"),
    ("permissions.get_topic_permissions", "GET"): shows(some(ref("TopicPermission"))),
    ("permissions.put_topic_permission", "PUT"): puts("topic_permission"),
    **{
        (f"policies.{kind}_{view}", method): operation for kind in ("policies", "operator_policies")
        for view, method, operation in (
            ("list_all", "GET", lists("Policy")), ("get", "GET", shows(ref("Policy"))),
            ("put", "PUT", puts("policy")),
            ("preview", "POST", Operation({200: ref("Preview")}, "policy")),
        )
    },
    ("parameters.list_parameters", "GET"): lists("Parameter"),
    ("parameters.get_parameter", "GET"): shows(ref("Parameter")),
    ("parameters.put_parameter", "PUT"): puts("value"),
    ("parameters.list_global_parameters", "GET"): lists("GlobalParameter"),
    ("parameters.get_global_parameter", "GET"): shows(ref("GlobalParameter")),
    ("parameters.put_global_parameter", "PUT"): puts("value"),
    ("limits.list_limits", "GET"): shows(some(ref("LimitsOfVHost"))),
    ("limits.put_limit", "PUT"): does("limit"),
    ("limits.list_user_limits", "GET"): shows(some(ref("LimitsOfUser"))),
    ("limits.put_user_limit", "PUT"): does("limit"),
    ("definitions.get_definitions", "GET"): shows(ref("Definitions")),
    ("definitions.compare_definitions", "POST"): Operation({200: ref("Difference")}, "definitions"),
    ("definitions.post_definitions", "POST"): IMPORT,
}
