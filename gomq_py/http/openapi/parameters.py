"""Tables of the parameters of paths and queries: meaning, type and an example."""
from typing import Any, NamedTuple

from gomq_py.broker.policies.limits import MAX_CHANNELS, MAX_CONNECTIONS, MAX_QUEUES

INTEGER, TEXT, TRUTH = {"type": "integer"}, {"type": "string"}, {"type": "boolean"}
COUNT, PLACE = {"type": "integer", "minimum": 1}, {"type": "integer", "minimum": 0}
SECONDS = {"type": "integer", "minimum": 1, "maximum": 86400}


class Parameter(NamedTuple):
    """A parameter of a path or query: its meaning, an example value, its schema if it is in a query."""

    text: str
    example: str = ""
    schema: dict[str, Any] = TEXT


# Of paths.
PATH = {
    "vhost": Parameter("Name of the vhost; the default one is written `%2F`.", "/"),
    "user": Parameter("Name of the user.", "anna"),
    "source": Parameter("Name of the exchange that the binding leads from.", "shop"),
    "destination": Parameter("Name of the queue or exchange that the binding leads to.", "jobs"),
    "key": Parameter("`properties_key` of the binding, or its routing key.", "order.new"),
    "connection": Parameter("Name of the connection.", "127.0.0.1:40000 -> 127.0.0.1:5672"),
    "link_id": Parameter("`id` of the link.", "5f2b7c10"),
    "node_name": Parameter("Any text; ignored.", "gomq@host"),
    "within": Parameter("A number of units.", "2"),
    "unit": Parameter("`days`, `weeks`, `months` or `years`.", "weeks"),
    "port": Parameter("Port number.", "5672"),
    "protocol": Parameter("Protocol, as in `listeners` of the overview.", "amqp"),
    "topic": Parameter("MQTT topic.", "house/door/state"),
    "client_id": Parameter("Client identifier of the session.", "door"),
    "topic_filter": Parameter("Topic filter of the subscription.", "house/+/set"),
    "component": Parameter("Component, such as `shovel` or `federation-upstream`.", "shovel"),
    "exchange": Parameter("Name of the exchange.", "shop"),
    "where": Parameter("Any text; ignored.", "gomq@host"),
    "password": Parameter("The password.", "secret"),
    "number": Parameter("Number of the segment.", "0"),
    "tag": Parameter("Consumer tag.", "worker-1"),
    "kind": Parameter(
        f"Limit: `{MAX_CONNECTIONS}` and, of a vhost, `{MAX_QUEUES}`, of a user, `{MAX_CHANNELS}`.",
        MAX_CONNECTIONS),
}
# Of paths, by the first part of the route behind /api/ where it tells more than the name; the longest first.
OWN_PATH = {
    ("bindings", "kind"): Parameter("`q`: the destination is a queue; `e`: an exchange.", "q"),
    ("exchanges", "name"): Parameter("Name of the exchange; `amq.default` is the default exchange.", "shop"),
    ("schedules", "name"): Parameter("Name of the schedule.", "hourly"),
    ("schedules", "exchange"): Parameter("Name of the delayed exchange.", "reminders"),
    ("delayed", "name"): Parameter("Name of the delayed exchange.", "reminders"),
    ("streams", "name"): Parameter("Name of the stream.", "events"),
    ("queues", "name"): Parameter("Name of the queue.", "jobs"),
    ("unacked", "name"): Parameter("Name of the queue.", "jobs"),
    ("connections", "name"): Parameter(
        "Name of the connection.", "127.0.0.1:40000 -> 127.0.0.1:5672"),
    ("channels", "name"): Parameter("Name of the channel.", "127.0.0.1:40000 -> 127.0.0.1:5672 (1)"),
    ("consumers", "number"): Parameter("Number of the channel.", "1"),
    ("users", "name"): Parameter("Name of the user.", "anna"),
    ("vhosts", "name"): Parameter("Name of the vhost.", "shop"),
    ("policies", "name"): Parameter("Name of the policy.", "limits"),
    ("operator-policies", "name"): Parameter("Name of the policy.", "limits"),
    ("parameters", "name"): Parameter("Name of the parameter.", "archive"),
    ("global-parameters", "name"): Parameter("Name of the parameter.", "cluster_name"),
    ("settings", "name"): Parameter("Name of the setting.", "log_level"),
    ("shovels", "name"): Parameter("Name of the shovel.", "archive"),
    ("feature-flags", "name"): Parameter("Name of the flag.", "quorum_queue"),
    ("cluster", "name"): Parameter("Name, address or id of the node.", "node-2"),
}
NAME = Parameter("Name of the node.", "gomq@host")

_AGE = "Seconds that the samples of {} cover; with `{}_incr`."
_INCREMENT = "Seconds between two samples of {}."
_KINDS = {
    "lengths": "queue lengths", "msg_rates": "messages", "data_rates": "bytes", "node_stats": "the node",
}
# Of queries.
QUERY = {
    "columns": Parameter(
        "Comma separated fields; the objects then have only these.",
        "name,messages"),
    "page": Parameter("Number of the page; without it the whole list is the answer.", "1", COUNT),
    "page_size": Parameter("Objects on a page: 100, or up to 500.", "50", COUNT),
    "name": Parameter("Only objects whose name contains this text.", "jobs"),
    "use_regex": Parameter("`name` is a regular expression.", "true", TRUTH),
    "sort": Parameter("Field to sort by, such as `messages`.", "messages"),
    "sort_reverse": Parameter("The largest first.", "true", TRUTH),
    "disable_stats": Parameter("Leaves out the statistics of queues.", "true", TRUTH),
    "enable_queue_totals": Parameter(
        "With `disable_stats`: the numbers of messages stay.", "true", TRUTH),
    **{f"{key}_age": Parameter(_AGE.format(of, key), "600", SECONDS) for key, of in _KINDS.items()},
    **{f"{key}_incr": Parameter(_INCREMENT.format(of), "60", SECONDS) for key, of in _KINDS.items()},
    "since": Parameter("Number of the last change that is known.", "1763860000000000", PLACE),
    "last": Parameter("Number of earlier lines.", "200", PLACE),
    "offset": Parameter("Place to begin at.", "0", PLACE),
    "length": Parameter("Number of bytes.", "65536", PLACE),
    "timestamp": Parameter("Unix milliseconds.", "1763860000000", PLACE),
    "truncate": Parameter("Most bytes of each body.", "50000", PLACE),
    "count": Parameter("Most messages.", "10", COUNT),
    "limit": Parameter("Most topics.", "100", COUNT),
    "after": Parameter("The topics behind this one.", "house/door"),
    "encoding": Parameter("Bodies as text if they are UTF-8 (`auto`), or as `base64`.", "auto"),
    "epoch": Parameter("Epoch of the stream that is meant.", "5f2b7c10"),
    "if-unused": Parameter("Only if nothing uses it.", "true", TRUTH),
    "if-empty": Parameter("Only if it has no messages.", "true", TRUTH),
    "kind": Parameter("`connections` or `channels`.", "connections"),
    "report": Parameter("The answer is a report of the import.", "true"),
    "prefix": Parameter("Beginning of the names, in place of `rabbitmq`.", "rabbitmq"),
    "family": Parameter("Name of a family; may be given several times.", "queue_coarse_metrics"),
    "vhost": Parameter("Name of a vhost; may be given several times.", "/"),
}


def path_parameter(route, name):
    """Return the Parameter of this name in the path of a route."""
    area = route.removeprefix("/api/").partition("/")[0]
    return OWN_PATH.get((area, name)) or PATH.get(name) or NAME
