"""Commands that print a list, from one table: lavinmqctl's names and columns, and lists it lacks."""
import click

from gomq_py.ctl.commands import ctl
from gomq_py.ctl.completion import argument
from gomq_py.ctl.output import has

_POLICY = ("vhost", "name", "pattern", "apply-to", "definition", "priority")
# command: (title, path, columns); VHOST stands for the virtual host.
VHOST = object()
LISTS = {
    "list_users": ("Listing users", ("users",), ("name", "tags")),
    "list_vhosts": ("Listing vhosts", ("vhosts",), ("name",)),
    "list_queues": ("Listing queues", ("queues", VHOST), ("name", "messages")),
    "list_exchanges": ("Listing exchanges", ("exchanges", VHOST), ("name", "type")),
    "list_bindings": (
        "Listing bindings", ("bindings", VHOST),
        ("source", "destination_type", "destination", "routing_key", "arguments"),
    ),
    "list_consumers": ("Listing consumers", ("consumers", VHOST), (
        "queue.name", "channel_details.name", "consumer_tag", "ack_required", "prefetch_count", "active",
        "arguments")),
    "list_connections": (
        "Listing connections", ("connections",), ("user", "peer_host", "peer_port", "state")
    ),
    "list_channels": (
        "Listing channels", ("channels",), ("name", "user", "consumer_count", "messages_unacknowledged")
    ),
    "list_mqtt_connections": (
        "Listing MQTT connections", ("mqtt", "connections"),
        ("client_id", "user", "vhost", "protocol", "state"),
    ),
    "list_mqtt_sessions": ("Listing MQTT sessions", ("mqtt", "sessions", VHOST), (
        "client_id", "user", "connected", "expiry", "subscriptions", "messages")),
    "list_mqtt_subscriptions": (
        "Listing MQTT subscriptions", ("mqtt", "subscriptions", VHOST), ("client_id", "topic_filter", "qos")
    ),
    "list_policies": ("Listing policies", ("policies", VHOST), _POLICY),
    "list_operator_policies": ("Listing operator policies", ("operator-policies", VHOST), _POLICY),
    "list_permissions": (
        "Listing permissions", ("vhosts", VHOST, "permissions"), ("user", "configure", "write", "read")
    ),
    "list_topic_permissions": (
        "Listing topic permissions", ("vhosts", VHOST, "topic-permissions"),
        ("user", "exchange", "write", "read"),
    ),
    "list_parameters": ("Listing parameters", ("parameters",), ("vhost", "component", "name", "value")),
    "list_vhost_limits": ("Listing limits of virtual hosts", ("vhost-limits",), ("vhost", "value")),
    "list_shovels": ("Listing shovels", ("shovels", VHOST), ("name", "vhost", "state")),
    "shovel_status": ("Listing the state of shovels", ("shovels",), (
        "name", "vhost", "type", "state", "src_uri", "dest_uri", "rate", "moved", "lag", "error")),
    "federation_status": ("Listing the state of federation links", ("federation-links",), (
        "id", "vhost", "type", "exchange", "queue", "upstream", "status", "uri", "moved", "error")),
    "list_federations": (
        "Listing federation upstreams", ("parameters", "federation-upstream", VHOST),
        ("name", "component", "value"),
    ),
}
# Columns that are shown if any row has them: why something has no effect.
MAYBE = dict.fromkeys(("list_parameters", "list_federations"), ("state", "reason"))


def _listing(name, title, path, columns, maybe):
    @ctl.command(
        name,
        help=f"List {title.removeprefix('Listing ')}. COLUMNS choose other fields of the API than "
        f"{', '.join(columns)}.",
    )
    @click.argument("chosen", metavar="[COLUMNS]...", nargs=-1)
    @click.pass_obj
    def command(session, chosen):
        wanted, more = chosen or columns, () if chosen else maybe
        rows = session.api.get(
            *(session.vhost if part is VHOST else part for part in path), columns=",".join((*wanted, *more))
        )
        session.out.rows(
            title, rows, (*wanted, *(column for column in more if any(has(row, column) for row in rows))))


for _name, _what in LISTS.items():
    _listing(_name, *_what, MAYBE.get(_name, ()))


@ctl.command("list_user_permissions")
@argument("user")
@click.pass_obj
def list_user_permissions(session, user):
    """A user's rights in every virtual host."""
    session.out.rows(
        "Listing permissions", session.api.get("users", user, "permissions"),
        ("vhost", "configure", "write", "read"),
    )
