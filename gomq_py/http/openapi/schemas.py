"""Tables: every JSON object of the management API, field by field (JSON Schema 2020-12).

Tests validate live answers against these schemas. A field that is missing here fails them.
"""
from gomq_py.http.statistics import (
    CHANNEL_STATS, CHURN, EXCHANGE_STATS, LENGTH_NAMES, NODE_STATS, OCTETS, QUEUE_STATS, VHOST_STATS,
)

TEXT, NUMBER, COUNT, TRUTH, NOTHING = (
    {"type": "string"}, {"type": "number"}, {"type": "integer"}, {"type": "boolean"}, {"type": "null"}
)
MAYBE_TEXT = {"type": ["string", "null"]}
MAYBE_COUNT = {"type": ["integer", "null"]}
OPEN = {"type": "object"}
ANYTHING = {}


def ref(name):
    """Return a reference to the component schema of this name."""
    return {"$ref": f"#/components/schemas/{name}"}


def some(items):
    """Return the schema of an array whose elements have the schema ``items``."""
    return {"type": "array", "items": items}


def record(fields, optional=None):
    """Return the schema of an object with all ``fields``, perhaps some of ``optional``, and no others."""
    return {
        "type": "object", "properties": {**fields, **(optional or {})}, "required": list(fields),
        "additionalProperties": False,
    }


def counted(names, kind=COUNT):
    """Return {name: schema} of counters with these names, and of each counter's ``_details``."""
    return {name: kind for name in names} | {f"{name}_details": ref("Details") for name in names}


def texts(*names):
    """Return {name: schema} of text fields with these names."""
    return dict.fromkeys(names, TEXT)


def counts(*names):
    """Return {name: schema} of integer fields with these names."""
    return dict.fromkeys(names, COUNT)


def truths(*names):
    """Return {name: schema} of boolean fields with these names."""
    return dict.fromkeys(names, TRUTH)


PROCESS = {
    "garbage_collection": record(
        counts("fullsweep_after", "max_heap_size", "min_bin_vheap_size", "min_heap_size", "minor_gcs")
    ),
    "reductions": COUNT, "reductions_details": ref("Details"),
}
POLICIES_IN_FORCE = {"policy": MAYBE_TEXT, "operator_policy": MAYBE_TEXT, "effective_policy_definition": OPEN}
TALLY = {"type": "object", "additionalProperties": COUNT}
SET_ASIDE = {"messages_set_aside": COUNT, "set_aside_reasons": TALLY}
SCHEDULE = {
    **dict.fromkeys(("vhost", "exchange", "name", "routing_key"), TEXT),
    **dict.fromkeys(("cron", "timezone", "user"), MAYBE_TEXT),
    **dict.fromkeys(("every", "start", "end"), MAYBE_COUNT),
    **dict.fromkeys(("jitter", "time", "next", "payload_bytes"), COUNT),
    "missed": {"enum": ["once", "all", "none"]},
}
MESSAGE_GROUPS = record({
    **counts("groups_out", "messages_out", "groups_waiting", "messages_waiting", "deepest_group_messages"),
    "longest_wait_s": NUMBER, "deepest_group": MAYBE_TEXT, "is_full": TRUTH,
})
QUEUE_ITSELF = {
    **texts("name", "vhost", "type", "node", "state"), **truths("durable", "auto_delete", "exclusive"),
    "arguments": OPEN,
}
DESTINATION = {"enum": ["queue", "exchange", "client"]}
NAMED = {"name": TEXT, "description": TEXT, "enabled": TRUTH}
CHANNEL_DETAILS = record(
    {**texts("name", "user", "connection_name", "peer_host", "node"), **counts("number", "peer_port")}
)

COMPONENTS = {
    "Error": record(texts("error", "reason")),
    "Details": record({"rate": NUMBER}, {
        "samples": some(record({"sample": NUMBER, "timestamp": COUNT})), "avg": NUMBER, "avg_rate": NUMBER}),
    "Status": record({"status": {"enum": ["ok", "failed"]}}, {
        "reason": TEXT, "port": COUNT, "protocol": TEXT, "missing": {"type": ["string", "integer"]},
        "ports": some(COUNT), "protocols": some(TEXT),
        "alarms": some(record(texts("node", "resource"))), "queues": some(TEXT),
        "expired": some(record({**texts("node", "protocol", "ip"), "port": COUNT, "not_after": NUMBER}))}),
    "Listener": record(
        {
            **texts("node", "protocol", "ip_address"), "port": COUNT,
            "socket_opts": record({"backlog": COUNT, "nodelay": TRUTH}),
        }
    ),
    "Context": record(
        {**texts("node", "description", "path", "cowboy_opts", "ip", "port"), "ssl_opts": some(ANYTHING)}
    ),
    "Overview": record({
        **texts(
            "management_version", "rabbitmq_version", "product_name", "product_version", "cluster_name",
            "node", "rates_mode", "erlang_version", "erlang_full_version", "release_series_support_status",
            "default_queue_type",
        ),
        "statistics_db_event_queue": COUNT,
        **truths("disable_stats", "enable_queue_totals", "is_op_policy_updating_enabled"),
        "cluster_tags": OPEN, "node_tags": OPEN, "exchange_types": some(record(NAMED)),
        "object_totals": record(counts("channels", "connections", "consumers", "exchanges", "queues")),
        "queue_totals": record(counted(LENGTH_NAMES)), "message_stats": record(counted(VHOST_STATS)),
        **counted(OCTETS),
        "churn_rates": record({}, counted(CHURN)),
        "listeners": some(ref("Listener")), "contexts": some(ref("Context")),
        "sample_retention_policies": record(dict.fromkeys(("global", "basic", "detailed"), some(COUNT))),
    }),
    "Node": record({
        **texts("name", "type", "os_pid", "rates_mode", "mem_calculation_strategy", "db_dir"),
        **truths("running", "mem_alarm", "disk_free_alarm", "being_drained"),
        **counts(
            "uptime", "processors", "fd_total", "sockets_total", "mem_limit", "disk_total", "disk_free_limit",
            "proc_total", "run_queue", "net_ticktime", "gc_num",
        ),
        "partitions": some(ANYTHING),
        **dict.fromkeys(("log_files", "config_files", "enabled_plugins"), some(TEXT)),
        "applications": some(record(texts("name", "description", "version"))),
        "auth_mechanisms": some(record(NAMED)),
        "exchange_types": some(record(NAMED)), "contexts": some(ref("Context")),
        "cluster_links": some(ANYTHING), "followers": some(ref("Follower")),
        "failed_jobs": TALLY, **counted(NODE_STATS, NUMBER), **counted(CHURN),
    }),
    "Follower": record({
        **texts("node", "name", "address", "state"),
        **counts("received", "flushed", "lag_bytes", "sync_done_bytes", "sync_total_bytes"),
        "lag_seconds": NUMBER,
    }),
    "Cluster": record({
        "role": {"enum": ["leader"]}, "node": TEXT, "replicates": TRUTH,
        "followers": some(ref("Follower")),
    }, {
        **texts("cluster", "node_id", "leader_node", "decision", "reason", "etcd_error", "state"),
        **truths("damaged", "elects", "fenced"),
        **counts("epoch", "position", "promises", "lag_bytes", "min_isr"),
        "lag_seconds": NUMBER, "lease_seconds_left": NUMBER, "in_sync": some(TEXT),
        "nodes": some(record({
            **texts("node", "name", "address", "version", "role"), "in_sync": TRUTH, "state": MAYBE_TEXT,
            "epoch": MAYBE_COUNT, "lag_bytes": MAYBE_COUNT, "lag_seconds": {"type": ["number", "null"]}})),
        "settings_differ": some(record(texts("node", "name", "setting", "here", "there"))),
        "etcd_calls": record({
            "buckets": some(some(ANYTHING)), "seconds": NUMBER, "failures": COUNT}),
    }),
    "Memory": record({"memory": {
        **record({
            "strategy": TEXT, "total": record(counts("rss", "allocated", "erlang")), "mapped_files": COUNT}),
        "additionalProperties": COUNT}}),
    "VHost": record({
        **texts("name", "description", "default_queue_type"), "tags": some(TEXT),
        **truths("tracing", "protected_from_deletion"),
        "metadata": record(
            {**texts("description", "default_queue_type"), "tags": some(TEXT)},
            {"protected_from_deletion": {"const": True}},
        ),
        "cluster_state": {"type": "object", "additionalProperties": TEXT},
        **counted(LENGTH_NAMES), **counted(OCTETS), "message_stats": record(counted(VHOST_STATS)),
    }),
    "User": record(
        {**texts("name", "password_hash", "hashing_algorithm"), "tags": some(TEXT), "limits": ref("Limits")}
    ),
    "Limits": {"type": "object", "additionalProperties": COUNT},
    "Whoami": record({"name": TEXT, "tags": some(TEXT), "is_internal_user": TRUTH}),
    "Permission": record(texts("user", "vhost", "configure", "write", "read")),
    "TopicPermission": record(texts("user", "vhost", "exchange", "write", "read")),
    "Binding": record({
        **texts("source", "vhost", "destination", "routing_key", "properties_key"),
        "destination_type": {"enum": ["queue", "exchange"]},
        "arguments": OPEN}),
    "Exchange": record({
        **texts("name", "vhost", "type", "user_who_performed_action"),
        **truths("durable", "auto_delete", "internal"), "arguments": OPEN,
        **POLICIES_IN_FORCE,
    }, {
        "message_stats": record(counted(EXCHANGE_STATS)), **SET_ASIDE, "incoming": some(ANYTHING),
        "outgoing": some(ANYTHING),
    }),
    "QueueItself": record(QUEUE_ITSELF, counts(*LENGTH_NAMES)),
    "Queue": record({
        **QUEUE_ITSELF,
        **counts(
            "consumers", "message_bytes", "message_bytes_ready", "message_bytes_unacknowledged",
            "message_bytes_persistent", "message_bytes_ram", "message_bytes_paged_out", "messages_persistent",
            "messages_ram", "messages_ready_ram", "messages_unacknowledged_ram", "messages_paged_out",
            "memory", "storage_version", "messages_delayed",
        ), **SET_ASIDE,
        "consumer_utilisation": NUMBER, "consumer_capacity": NUMBER, "head_message_timestamp": NOTHING,
        "recoverable_slaves": NOTHING,
        **POLICIES_IN_FORCE, "exclusive_consumer_tag": MAYBE_TEXT, "single_active_consumer_tag": MAYBE_TEXT,
        **PROCESS,
        "slave_nodes": some(TEXT), "synchronised_slave_nodes": some(TEXT), **counted(LENGTH_NAMES),
        "message_stats": record(counted(QUEUE_STATS)),
    }, {
        "owner_pid_details": record({}, {**texts("name", "peer_host"), "peer_port": COUNT}),
        "consumer_details": some(ref("Consumer")), "incoming": some(ANYTHING), "deliveries": some(ANYTHING),
        "delivery_limit": COUNT, "messages_by_priority": OPEN, "messages_active_priorities": COUNT,
        **texts("leader", "delayed_retry"), "members": some(TEXT), "online": some(TEXT),
        "message_groups": MESSAGE_GROUPS,
    }),
    "Member": record({
        **texts("Node Name", "Raft State", "Membership"),
        **counts(
            "Last Log Index", "Last Written", "Last Applied", "Commit Index", "Snapshot Index", "Term",
            "Machine Version"),
    }),
    "Consumer": record({
        **texts("consumer_tag", "activity_status"), "queue": record(texts("name", "vhost")),
        **truths("exclusive", "ack_required", "active"),
        "prefetch_count": COUNT, "arguments": OPEN, "channel_details": CHANNEL_DETAILS,
        "consumer_timeout": MAYBE_COUNT}),
    "Channel": record({
        **texts("name", "node", "vhost", "user", "user_who_performed_action", "state"),
        **truths("confirm", "transactional"),
        **counts(
            "number", "consumer_count", "prefetch_count", "global_prefetch_count", "messages_unacknowledged",
            "messages_unconfirmed", "messages_uncommitted", "acks_uncommitted", "pending_raft_commands",
        ),
        "connection_details": record({**texts("name", "peer_host"), "peer_port": COUNT}),
        "message_stats": record(counted(CHANNEL_STATS)),
        **PROCESS,
    }, {
        "consumer_details": some(ref("Consumer")), "publishes": some(ANYTHING), "deliveries": some(ANYTHING),
    }),
    "Connection": record({
        **texts(
            "name", "node", "vhost", "user", "user_who_performed_action", "protocol", "type", "state",
            "auth_mechanism", "host", "peer_host",
        ),
        **dict.fromkeys(
            (
                "user_provided_name", "ssl_protocol", "ssl_cipher", "ssl_hash", "ssl_key_exchange",
                "peer_cert_subject", "peer_cert_issuer", "peer_cert_validity",
            ), MAYBE_TEXT,
        ),
        **counts(
            "channels", "channel_max", "frame_max", "timeout", "connected_at", "port", "peer_port",
            "recv_cnt", "send_cnt", "send_pend",
        ),
        "ssl": TRUTH, "client_properties": OPEN, **PROCESS, **counted(OCTETS)}, {"client_id": TEXT}),
    "MQTTConnection": record({
        **texts("name", "node", "vhost", "user", "client_id", "protocol", "peer_host", "state"),
        **counts("peer_port", "connected_at", "keep_alive", "subscriptions"), **truths("websocket", "ssl"),
    }),
    "MQTTSession": record({
        **texts("client_id", "vhost", "user", "protocol"), **truths("connected", "durable"),
        "connection": MAYBE_TEXT, "queue": MAYBE_TEXT, "expiry": MAYBE_COUNT,
        **counts("subscriptions", "messages", "message_bytes"),
    }),
    "MQTTSubscription": record({
        **texts("client_id", "vhost", "topic_filter"), **counts("qos", "retain_handling"),
        **truths("no_local", "retain_as_published"), "subscription_identifier": MAYBE_COUNT,
    }),
    "MQTTRetainedPage": record({
        "topics": some(record({**texts("topic", "vhost"), "payload_bytes": COUNT})), "next": MAYBE_TEXT,
    }),
    "MQTTRetained": record({
        **texts("topic", "vhost", "payload", "payload_encoding"), **counts("payload_bytes", "timestamp"),
        "expires_at": MAYBE_COUNT, "properties": OPEN,
    }),
    "FederationLink": record({
        **texts(
            "node", "vhost", "upstream", "id", "uri", "timestamp", "consumer_tag", "ack_mode",
            "local_connection"),
        "type": {"enum": ["exchange", "queue"]},
        "status": {"enum": ["starting", "running", "stopped", "terminated", "error", "waiting"]},
        **counts("moved", "unconfirmed", "refused", "set_aside", "reconnects"), "rate": NUMBER,
        "blocked": {"type": "boolean"},
    }, texts("exchange", "upstream_exchange", "queue", "upstream_queue", "error", "note")),
    "Shovel": record({
        **texts(
            "name", "vhost", "node", "timestamp", "error", "src_uri", "dest_uri", "blocked_status"),
        "type": {"enum": ["dynamic", "static"]},
        "state": {"enum": [
            "starting", "running", "stopped", "terminated", "error", "paused", "waiting"]},
        **counts("moved", "unconfirmed", "refused", "set_aside", "reconnects"), "rate": NUMBER,
        "lag": MAYBE_COUNT,
    }, {
        **texts(
            "src_protocol", "dest_protocol", "src_queue", "src_exchange", "src_exchange_key", "dest_queue",
            "dest_exchange", "dest_exchange_key", "ack_mode", "reason"),
        "prefetch_count": COUNT, "delete_after": {"type": ["string", "integer"]},
    }),
    "Stream": record({
        **texts("name", "vhost", "epoch", "state"),
        **counts("first_offset", "next_offset", "synced_offset", "messages", "message_bytes", "segments"),
        "consumers": some(
            record({"consumer_tag": TEXT}, counts("offset", "position", "lag", "unacknowledged"))
        ),
        "offsets": some(record({"consumer_tag": TEXT, **counts("offset", "updated_ms")})),
    }),
    "Segments": record(
        {
            "epoch": TEXT, **counts("first_offset", "next_offset", "synced_offset"),
            "segments": some(
                record(
                    {
                        **counts(
                            "number", "first_offset", "next_offset", "count", "body_bytes", "bytes",
                            "first_timestamp_ms", "last_timestamp_ms",
                        ), "sealed": TRUTH, "file": TEXT,
                    }
                )
            ),
        }
    ),
    "Argument": record({
        "of": {"enum": ["queue", "exchange", "consumer", "policy"]}, "kinds": some(TEXT),
        "also": some(TEXT), "operator": TRUTH,
        **texts("name", "example", "values", "default", "effect")}),
    "Auth": record(
        {**truths("enable_uaa", "oauth_enabled"), **texts("uaa_client_id", "uaa_location")},
        texts("oauth_client_id", "oauth_provider_url", "oauth_scopes", "oauth_redirect_url")),
    "Finding": record({
        **texts("kind", "subject", "text", "remedy"), "level": {"enum": ["warning", "bad"]},
        "vhost": MAYBE_TEXT, "name": MAYBE_TEXT}),
    "Closed": record({
        "what": {"enum": ["connection", "channel"]}, **texts("name", "vhost", "user", "reason"),
        **counts("number", "closed_at"),
    }, {"protocol": TEXT, "user_provided_name": MAYBE_TEXT, "connected_at": COUNT, "channel": COUNT}),
    "LogLine": record({**texts("level", "source", "message"), **counts("number", "at")}),
    "Preview": record({
        "matched": record(counts("queues", "exchanges")), "changed": COUNT,
        "changes": some(record({
            "type": {"enum": ["queue", "exchange"]}, "name": TEXT, "matched": TRUTH,
            **dict.fromkeys((
                "policy_before", "policy_after", "operator_policy_before", "operator_policy_after",
            ), MAYBE_TEXT),
            "settings": some(record({"key": TEXT, "before": ANYTHING, "after": ANYTHING})),
        })),
    }),
    "Difference": record({
        "counts": {"type": "object", "additionalProperties": COUNT},
        "differences": some(record({
            "action": {"enum": ["new", "differs", "same", "ignored", "refused"]},
            **texts("kind", "vhost", "name", "note")})),
    }),
    "Unacked": record(
        {**texts("consumer_tag", "channel_name"), **counts("delivery_tag", "unacked_for_seconds")}
    ),
    "Holder": record({
        **texts("vhost", "queue", "channel", "connection", "user"), "consumer_tag": MAYBE_TEXT,
        **counts("prefetch_count", "count"), "oldest_delivery_tag": MAYBE_COUNT,
        "oldest_seconds": MAYBE_COUNT}),
    "Delayed": record({
        **texts("vhost", "exchange"), "messages": COUNT, "next_due": MAYBE_COUNT, **SET_ASIDE}),
    "DelayedMessage": record({
        **counts("due", "timestamp", "payload_bytes"), **texts("routing_key", "payload"),
        "payload_encoding": {"enum": ["string", "base64"]}, "properties": OPEN}, {"unreadable": TEXT}),
    "Schedule": record(SCHEDULE),
    "ShownSchedule": record({
        **SCHEDULE, "payload": TEXT, "payload_encoding": {"enum": ["string", "base64"]}, "properties": OPEN},
        {"unreadable": TEXT}),
    "Trial": record({
        "matches": some(record({
            **texts("destination", "why"), "destination_type": DESTINATION, "via": some(TEXT),
            "due": MAYBE_COUNT,
        }, {**texts("type", "state"), **counts("messages", "consumers")})),
        "steps": some(record({
            **texts("source", "destination", "why"), "source_type": DESTINATION,
            "destination_type": DESTINATION, "routing_key": MAYBE_TEXT, "arguments": OPEN,
            "properties_key": MAYBE_TEXT,
        })),
        "delayed": some(record({"exchange": TEXT, "due": COUNT})), **truths("unroutable", "complete"),
    }),
    "Message": record({
        **texts("exchange", "routing_key", "payload"), "payload_encoding": {"enum": ["string", "base64"]},
        "redelivered": TRUTH,
        **counts("payload_bytes", "message_count"), "properties": OPEN}),
    "Policy": record(
        {**texts("vhost", "name", "pattern", "apply-to"), "priority": COUNT, "definition": OPEN}
    ),
    "Parameter": record(
        {**texts("vhost", "component", "name"), "value": ANYTHING},
        {"state": {"enum": ["waiting", "error"]}, "reason": TEXT}),
    "GlobalParameter": record({"name": TEXT, "value": ANYTHING}),
    "Setting": record(texts("section", "name", "key", "value", "origin")),
    "LimitsOfVHost": record({"vhost": TEXT, "value": ref("Limits")}),
    "LimitsOfUser": record({"user": TEXT, "value": ref("Limits")}),
    "Session": record({
        "name": TEXT, "tags": some(TEXT), "csrf_token": TEXT, "expires_at": COUNT,
        "permissions": some(record(texts("vhost", "configure", "write", "read"))), "vhosts": some(TEXT),
    }),
    "Changes": record(
        {
            "last": COUNT, "too_old": TRUTH,
            "changes": some(
                record(
                    {"what": TEXT, **counts("number", "at")},
                    texts(
                        "vhost", "user", "name", "source", "destination", "destination_type", "routing_key",
                        "queue", "exchange", "component", "reason",
                    ),
                )
            ),
        }
    ),
    "Attempts": record(
        {"protocol": TEXT, **counts("auth_attempts", "auth_attempts_failed", "auth_attempts_succeeded")}
    ),
    "Generation": record(counts("generation", "collections", "collected", "uncollectable")),
    "Definitions": record({
        "rabbit_version": TEXT, "rabbitmq_version": TEXT, "product_name": TEXT, "product_version": TEXT,
        **dict.fromkeys(("parameters", "policies", "queues", "exchanges", "bindings"), some(OPEN)),
        "rabbitmq_definition_format": {"enum": ["cluster", "single_virtual_host"]},
    }, {
        **dict.fromkeys(
            ("users", "vhosts", "permissions", "topic_permissions", "global_parameters"), some(OPEN)),
        **texts("original_cluster_name", "original_vhost_name"),
    }),
    "Peeked": record({
        **texts("exchange", "routing_key", "payload"), "payload_encoding": {"enum": ["string", "base64"]},
        "properties": OPEN,
        **{key: {"type": "integer"} for key in ("position", "payload_bytes", "delivery_count", "timestamp")},
        **truths("redelivered"),
    }),
    "Report": record({"imported": {"type": "object", "additionalProperties": COUNT}, **{
        key: some(TEXT) for key in ("changed", "ignored", "refused", "problems")}}),
}


def wanted(required=None, optional=None):
    """Return the schema of a request's body with these fields. Other fields are ignored, as in RabbitMQ."""
    required = required or {}
    return {"type": "object", "properties": {**required, **(optional or {})}, "required": list(required)}


TEXT_OR_LIST = {"anyOf": [TEXT, some(TEXT)]}
ARGUMENTS = {"type": "object", "description": "as in a declare over AMQP"}
MOVED_BY = {
    "count": {"type": "integer", "minimum": 1}, "exchange": TEXT, "routing_key": TEXT, "headers": OPEN,
    **truths("dry_run"),
}
BODIES = {
    "vhost": wanted(optional={
        "description": TEXT, "tags": TEXT_OR_LIST, "tracing": TRUTH,
        "default_queue_type": {"enum": ["classic", "quorum", "stream"]},
        "protected_from_deletion": TRUTH}),
    "user": wanted(
        {"tags": TEXT_OR_LIST}, {"password": TEXT, "password_hash": TEXT, "hashing_algorithm": TEXT}
    ),
    "users": wanted({"users": some(TEXT)}),
    "successor": wanted(optional={"node": TEXT}),
    "permission": wanted(texts("configure", "write", "read")),
    "topic_permission": wanted(texts("exchange", "write", "read")),
    "exchange": wanted(
        optional={
            "type": TEXT, "node": TEXT, **truths("durable", "auto_delete", "internal"), "arguments": ARGUMENTS
        }
    ),
    "queue": wanted(optional={"node": TEXT, **truths("durable", "auto_delete"), "arguments": ARGUMENTS}),
    "binding": wanted(optional={"routing_key": TEXT, "arguments": ARGUMENTS}),
    "publish": wanted(
        {
            "properties": OPEN, "routing_key": TEXT, "payload": TEXT,
            "payload_encoding": {"enum": ["string", "base64"]},
        }
    ),
    "get": wanted({
        "count": {"type": "integer", "minimum": -1, "maximum": 10000},
        "encoding": {"enum": ["auto", "base64"]},
        "ackmode": {
            "enum": ["ack_requeue_true", "ack_requeue_false", "reject_requeue_true", "reject_requeue_false"]
        },
    }, {"truncate": {"type": "integer", "minimum": 0}}),
    "return": wanted({"channel": TEXT, "delivery_tag": {"type": "integer", "minimum": 1}}),
    "route": wanted({"routing_key": TEXT}, {"headers": OPEN, "properties": OPEN}),
    "search": wanted(optional={
        **texts("text", "pattern", "exchange", "routing_key", "json_path"), "json_value": ANYTHING,
        "headers": OPEN, "ignore_case": TRUTH,
        "offset": {"type": "integer", "minimum": 0},
        **{name: {"type": "integer", "minimum": 1} for name in ("count", "examined_max", "octets_max")},
    }),
    "action": wanted({"action": {"enum": ["sync", "cancel_sync"]}}),
    "policy": wanted({"pattern": TEXT, "definition": OPEN}, {"priority": COUNT, "apply-to": TEXT}),
    "value": wanted({"value": ANYTHING}),
    "limit": wanted({"value": COUNT}),
    "suspended": wanted({"suspended": TRUTH}),
    "name": wanted({"name": {"type": "string", "minLength": 1, "maxLength": 255}}),
    "password": wanted({"password": TEXT}),
    "session": wanted(optional=texts("username", "password")),
    "prefetch": wanted({"prefetch": {"type": "integer", "minimum": 0, "maximum": 65535}}),
    "definitions": OPEN,
    "move": wanted({"destination": TEXT}, {"destination_vhost": TEXT, **MOVED_BY}),
    "replay": wanted(
        optional={"to": {"enum": ["queue", "exchange"]}, "x_death": {"enum": ["keep", "clean"]}, **MOVED_BY}
    ),
}
