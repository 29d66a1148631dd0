"""Commands that print a list: those of lavinmqctl, with its columns, and further ones."""
import click

from gomq_py.ctl.columns import check
from gomq_py.ctl.commands import command
from gomq_py.ctl.output import has, path_of
from gomq_py.ctl.session import argument

_POLICY = "vhost name pattern apply-to definition priority"
# command: (title of its list, path, columns)
LISTS = {
    "list_users": ("users", "users", "name tags"),
    "list_vhosts": ("vhosts", "vhosts", "name"),
    "list_queues": ("queues", "queues/{vhost}", "name messages"),
    "list_exchanges": ("exchanges", "exchanges/{vhost}", "name type"),
    "list_bindings": (
        "bindings", "bindings/{vhost}", "source destination_type destination routing_key arguments"
    ),
    "list_consumers": (
        "consumers", "consumers/{vhost}",
        "queue.name channel_details.name consumer_tag ack_required prefetch_count active arguments"),
    "list_connections": ("connections", "connections", "user peer_host peer_port state"),
    "list_channels": ("channels", "channels", "name user consumer_count messages_unacknowledged"),
    "list_mqtt_connections": (
        "MQTT connections", "mqtt/connections", "client_id user vhost protocol state"
    ),
    "list_mqtt_sessions": (
        "MQTT sessions", "mqtt/sessions/{vhost}", "client_id user connected expiry subscriptions messages"
    ),
    "list_mqtt_subscriptions": (
        "MQTT subscriptions", "mqtt/subscriptions/{vhost}", "client_id topic_filter qos"
    ),
    "list_policies": ("policies", "policies/{vhost}", _POLICY),
    "list_operator_policies": ("operator policies", "operator-policies/{vhost}", _POLICY),
    "list_permissions": ("permissions", "vhosts/{vhost}/permissions", "user configure write read"),
    "list_topic_permissions": (
        "topic permissions", "vhosts/{vhost}/topic-permissions", "user exchange write read"
    ),
    "list_parameters": ("parameters", "parameters", "vhost component name value"),
    "list_global_parameters": ("global parameters", "global-parameters", "name value"),
    "list_feature_flags": ("feature flags", "feature-flags", "name state"),
    "environment": ("settings", "settings", "section key value origin"),
    "list_schedules": (
        "schedules", "schedules/{vhost}", "exchange name cron timezone every missed user next"
    ),
    "list_shovels": ("shovels", "shovels/{vhost}", "name vhost state"),
    "shovel_status": (
        "the state of shovels", "shovels", "name vhost type state src_uri dest_uri rate moved lag error"
    ),
    "federation_status": (
        "the state of federation links", "federation-links",
        "id vhost type exchange queue upstream status uri moved error"
    ),
    "list_federations": (
        "federation upstreams", "parameters/federation-upstream/{vhost}", "name component value"
    ),
}
# Columns that are shown if any row has them: why something has no effect.
MAYBE = dict.fromkeys(("list_parameters", "list_federations"), ("state", "reason"))
# Topics of retained messages per request.
PAGE = 1000


def _listing(name, what, path, columns, maybe):
    @command(
        name,
        help=f"List {what}. COLUMNS choose other fields of the API than {', '.join(columns)}.",
    )
    @click.argument("chosen", metavar="[COLUMNS]...", nargs=-1)
    def run(session, chosen):
        wanted, more = chosen or columns, () if chosen else maybe
        rows = session.api.get(
            *(part.format(vhost=session.vhost) for part in path.split("/")),
            columns=",".join(".".join(path_of(column)) for column in (*wanted, *more)))
        check(session, path, chosen, rows)
        session.out.rows(
            f"Listing {what}", rows,
            (*wanted, *(column for column in more if any(has(row, column) for row in rows))))


for _name, (_what, _path, _columns) in LISTS.items():
    _listing(_name, _what, _path, _columns.split(), MAYBE.get(_name, ()))


def _list_of_user(name, what, path, columns):
    @command(name, help=f"List a user's {what} in every virtual host.")
    @argument("user")
    def run(session, user):
        session.out.rows(f"Listing {what}", session.api.get("users", user, path), columns)


_list_of_user(
    "list_user_permissions", "permissions", "permissions", ("vhost", "configure", "write", "read"))
_list_of_user(
    "list_user_topic_permissions", "topic permissions", "topic-permissions",
    ("vhost", "exchange", "write", "read"))


@command("list_mqtt_retained")
def list_mqtt_retained(session):
    """List the topics that have a retained message, with the size of its payload in octets."""
    rows, after = [], ""
    while after is not None:
        page = session.api.get("mqtt", "retained", session.vhost, limit=PAGE, after=after)
        rows += page["topics"]
        after = page["next"]
    session.out.rows("Listing retained messages", rows, ("topic", "payload_bytes"))


@command("get_mqtt_retained")
@argument("topic")
def get_mqtt_retained(session, topic):
    """Show the retained message of a topic."""
    session.out.rows(
        "Retained message", [session.api.get("mqtt", "retained", session.vhost, topic)],
        ("topic", "payload", "payload_encoding", "payload_bytes", "properties"))
