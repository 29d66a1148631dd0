"""Commands about what there is: users, vhosts, queues, exchanges, bindings, policies, connections, shovels, federation. lavinmqctl's names."""
import json
import sys

import click

from gomq_py.ctl.commands import ctl

TAGS_HELP = "administrator, monitoring, policymaker, management, impersonator"


def listing(name, title, path, columns, per_vhost=True, text=None):
    """A command that prints a list; its optional arguments choose the columns."""

    @ctl.command(name, help=text or f"{title}. COLUMNS choose fields of the API; there are more than the default ones.")
    @click.argument("chosen", metavar="[COLUMNS]...", nargs=-1)
    @click.pass_obj
    def command(session, chosen):
        where = (*path, session.vhost) if per_vhost else path
        session.out.rows(title, session.api.get(*where), chosen or columns)

    return command


listing("list_users", "Listing users", ("users",), ("name", "tags"), per_vhost=False)
listing("list_vhosts", "Listing vhosts", ("vhosts",), ("name",), per_vhost=False)
listing("list_queues", "Listing queues", ("queues",), ("name", "messages"))
listing("list_exchanges", "Listing exchanges", ("exchanges",), ("name", "type"))
listing("list_bindings", "Listing bindings", ("bindings",), ("source", "destination_type", "destination", "routing_key", "arguments"))
listing("list_consumers", "Listing consumers", ("consumers",),
        ("queue.name", "channel_details.name", "consumer_tag", "ack_required", "prefetch_count", "active", "arguments"))
listing("list_connections", "Listing connections", ("connections",), ("user", "peer_host", "peer_port", "state"), per_vhost=False)
listing("list_channels", "Listing channels", ("channels",), ("name", "user", "consumer_count", "messages_unacknowledged"), per_vhost=False)
listing("list_policies", "Listing policies", ("policies",), ("vhost", "name", "pattern", "apply-to", "definition", "priority"))
listing("list_operator_policies", "Listing operator policies", ("operator-policies",),
        ("vhost", "name", "pattern", "apply-to", "definition", "priority"))
listing("list_parameters", "Listing parameters", ("parameters",), ("vhost", "component", "name", "value"), per_vhost=False)
listing("list_shovels", "Listing shovels", ("parameters", "shovel"), ("name", "vhost", "value"))
listing("list_federations", "Listing federation upstreams", ("parameters", "federation-upstream"), ("name", "component"))


# users

def _password(given):
    """The password that was given, or one asked for without showing it; from a pipe: its first line."""
    if given is not None:
        return given
    if sys.stdin.isatty():
        return click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    return sys.stdin.readline().rstrip("\n")


@ctl.command("add_user")
@click.argument("name")
@click.argument("password", required=False)
@click.pass_obj
def add_user(session, name, password):
    """Make a user; the password is asked for when it is not given, or read from a pipe."""
    session.api.put("users", name, body={"password": _password(password), "tags": ""})


@ctl.command("delete_user")
@click.argument("name")
@click.pass_obj
def delete_user(session, name):
    """Take a user away; its connections are closed."""
    session.api.delete("users", name)


@ctl.command("change_password")
@click.argument("name")
@click.argument("password", required=False)
@click.pass_obj
def change_password(session, name, password):
    """Give a user another password; the tags stay."""
    user = session.api.get("users", name)
    session.api.put("users", name, body={"password": _password(password), "tags": user["tags"]})


@ctl.command("set_user_tags", help=f"Replace a user's tags: {TAGS_HELP}.")
@click.argument("name")
@click.argument("tags", nargs=-1)
@click.pass_obj
def set_user_tags(session, name, tags):
    """Replace the tags of a user; the password stays."""
    user = session.api.get("users", name)
    tags = [tag for given in tags for tag in given.split(",") if tag]
    session.api.put("users", name, body={
        "password_hash": user["password_hash"], "hashing_algorithm": user.get("hashing_algorithm", ""), "tags": ",".join(tags)})


@ctl.command("set_permissions")
@click.argument("user")
@click.argument("configure")
@click.argument("write")
@click.argument("read")
@click.pass_obj
def set_permissions(session, user, configure, write, read):
    """Grant rights in the virtual host: three regular expressions."""
    session.api.put("permissions", session.vhost, user, body={"configure": configure, "write": write, "read": read})


@ctl.command("clear_permissions")
@click.argument("user")
@click.pass_obj
def clear_permissions(session, user):
    """Take a user's rights in the virtual host away."""
    session.api.delete("permissions", session.vhost, user)


@ctl.command("list_permissions")
@click.pass_obj
def list_permissions(session):
    """Who may do what in the virtual host."""
    session.out.rows("Listing permissions", session.api.get("vhosts", session.vhost, "permissions"), ("user", "configure", "write", "read"))


@ctl.command("list_user_permissions")
@click.argument("user")
@click.pass_obj
def list_user_permissions(session, user):
    """A user's rights in every virtual host."""
    session.out.rows("Listing permissions", session.api.get("users", user, "permissions"), ("vhost", "configure", "write", "read"))


@ctl.command("hash_password")
@click.argument("password", required=False)
@click.pass_obj
def hash_password(session, password):
    """Print the hash of a password, for definitions and configuration."""
    session.out.fields({"password_hash": session.api.put("auth", "hash_password", body={"password": _password(password)})["password_hash"]})


# vhosts

@ctl.command("add_vhost")
@click.argument("name")
@click.option("--description", default="")
@click.pass_obj
def add_vhost(session, name, description):
    """Make a virtual host."""
    session.api.put("vhosts", name, body={"description": description})


@ctl.command("delete_vhost")
@click.argument("name")
@click.pass_obj
def delete_vhost(session, name):
    """Delete a virtual host with everything in it."""
    session.api.delete("vhosts", name)


@ctl.command("set_vhost_limits")
@click.argument("limits", metavar="JSON")
@click.pass_obj
def set_vhost_limits(session, limits):
    """Set max-connections and max-queues of the virtual host, as JSON; negative: no limit."""
    for name, value in object_of(limits, "LIMITS").items():
        session.api.put("vhost-limits", session.vhost, name, body={"value": value})


def object_of(text, what):
    """A JSON object given on the command line. Raises click.BadParameter."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"{what} is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise click.BadParameter(f"{what} must be a JSON object")
    return value


# queues and exchanges

def _queue_command(name, text, act):
    @ctl.command(name, help=text)
    @click.argument("queue")
    @click.pass_obj
    def command(session, queue):
        act(session.api, session.vhost, queue)


_queue_command("purge_queue", "Drop every ready message of a queue.", lambda api, vhost, name: api.delete("queues", vhost, name, "contents"))
_queue_command("pause_queue", "Deliver nothing from a queue until it is resumed.", lambda api, vhost, name: api.put("queues", vhost, name, "pause"))
_queue_command("resume_queue", "Deliver again.", lambda api, vhost, name: api.put("queues", vhost, name, "resume"))
_queue_command("restart_queue", "Open a queue again that a fault closed.", lambda api, vhost, name: api.put("queues", vhost, name, "restart"))


@ctl.command("delete_queue")
@click.argument("queue")
@click.option("--if-unused", is_flag=True, help="Only without consumers.")
@click.option("--if-empty", is_flag=True, help="Only without messages.")
@click.pass_obj
def delete_queue(session, queue, if_unused, if_empty):
    """Delete a queue."""
    conditions = {name: "true" for name, wanted in (("if_unused", if_unused), ("if_empty", if_empty)) if wanted}
    session.api.delete("queues", session.vhost, queue, **conditions)


QUEUE_ARGUMENTS = {
    "--expires": ("x-expires", int, "Milliseconds without use after which the queue goes."),
    "--max-length": ("x-max-length", int, "Messages it holds at most."),
    "--max-length-bytes": ("x-max-length-bytes", int, "Octets of bodies it holds at most."),
    "--message-ttl": ("x-message-ttl", int, "Milliseconds after which messages expire."),
    "--delivery-limit": ("x-delivery-limit", int, "How often a message may come back."),
    "--max-priority": ("x-max-priority", int, "Highest priority."),
    "--reject-on-overflow": ("x-overflow", None, "Refuse what does not fit instead of dropping the oldest."),
    "--dead-letter-exchange": ("x-dead-letter-exchange", str, "Exchange for messages that die."),
    "--dead-letter-routing-key": ("x-dead-letter-routing-key", str, "Their routing key."),
    "--stream-queue": ("x-queue-type", None, "A stream."),
}
_FLAG_VALUES = {"x-overflow": "reject-publish", "x-queue-type": "stream"}


def with_arguments(table):
    """Options of a command for arguments of a queue or exchange; the command gets them as ``options``."""

    def decorate(function):
        for flag, (_, kind, text) in reversed(table.items()):
            function = click.option(flag, type=kind, is_flag=kind is None, default=None, help=text)(function)
        return function

    return decorate


def arguments_of(table, options):
    """The arguments that were given."""
    arguments = {}
    for flag, (key, kind, _) in table.items():
        value = options[flag.removeprefix("--").replace("-", "_")]
        if value is not None and value is not False:
            arguments[key] = _FLAG_VALUES[key] if kind is None else value
    return arguments


@ctl.command("create_queue")
@click.argument("queue")
@click.option("--durable/--transient", default=True, show_default=True)
@click.option("--auto-delete", is_flag=True)
@with_arguments(QUEUE_ARGUMENTS)
@click.pass_obj
def create_queue(session, queue, durable, auto_delete, **options):
    """Declare a queue."""
    session.api.put("queues", session.vhost, queue, body={
        "durable": durable, "auto_delete": auto_delete, "arguments": arguments_of(QUEUE_ARGUMENTS, options)})


@ctl.command("create_exchange")
@click.argument("type_", metavar="TYPE")
@click.argument("exchange")
@click.option("--durable/--transient", default=True, show_default=True)
@click.option("--auto-delete", is_flag=True)
@click.option("--internal", is_flag=True)
@click.option("--delayed", is_flag=True, help="Messages with x-delay wait here.")
@click.option("--alternate-exchange", help="Exchange for messages that no queue takes.")
@click.pass_obj
def create_exchange(session, type_, exchange, durable, auto_delete, internal, delayed, alternate_exchange):
    """Declare an exchange: direct, fanout, topic, headers, x-consistent-hash..."""
    arguments = {} if alternate_exchange is None else {"alternate-exchange": alternate_exchange}
    if delayed:
        type_, arguments["x-delayed-type"] = "x-delayed-message", type_
    session.api.put("exchanges", session.vhost, exchange, body={
        "type": type_, "durable": durable, "auto_delete": auto_delete, "internal": internal, "arguments": arguments})


@ctl.command("delete_exchange")
@click.argument("exchange")
@click.option("--if-unused", is_flag=True, help="Only without bindings.")
@click.pass_obj
def delete_exchange(session, exchange, if_unused):
    """Delete an exchange."""
    session.api.delete("exchanges", session.vhost, exchange, **({"if_unused": "true"} if if_unused else {}))


# policies

def _policy_commands(word, path):
    @ctl.command(f"set_{word}", help="Create or replace; DEFINITION is JSON.")
    @click.argument("name")
    @click.argument("pattern")
    @click.argument("definition")
    @click.option("--priority", type=int, default=0, show_default=True)
    @click.option("--apply-to", default="all", show_default=True, help="all, queues, exchanges, classic_queues, quorum_queues or streams")
    @click.pass_obj
    def set_policy(session, name, pattern, definition, priority, apply_to):
        session.api.put(path, session.vhost, name, body={
            "pattern": pattern, "definition": object_of(definition, "DEFINITION"), "priority": priority, "apply-to": apply_to})

    @ctl.command(f"clear_{word}", help="Take it away.")
    @click.argument("name")
    @click.pass_obj
    def clear_policy(session, name):
        session.api.delete(path, session.vhost, name)


_policy_commands("policy", "policies")
_policy_commands("operator_policy", "operator-policies")


# connections

@ctl.command("close_connection")
@click.argument("name")
@click.argument("reason", default="Closed by gomq-py-ctl")
@click.pass_obj
def close_connection(session, name, reason):
    """Close a connection; its client is told the reason."""
    session.api.delete("connections", name, headers={"X-Reason": reason})


@ctl.command("close_all_connections")
@click.argument("reason", default="Closed by gomq-py-ctl")
@click.pass_obj
def close_all_connections(session, reason):
    """Close every connection."""
    connections = session.api.get("connections", columns="name")
    for connection in connections:
        session.api.delete("connections", connection["name"], headers={"X-Reason": reason})
    session.out.said(f"{len(connections)} connections closed")


# shovels and federation

def _parameter_commands(word, component):
    @ctl.command(f"add_{word}", help="Create or replace; VALUE is the definition as JSON.")
    @click.argument("name")
    @click.argument("value", metavar="VALUE")
    @click.pass_obj
    def add(session, name, value):
        session.api.put("parameters", component, session.vhost, name, body={"value": object_of(value, "VALUE")})

    @ctl.command(f"delete_{word}", help="Take it away.")
    @click.argument("name")
    @click.pass_obj
    def delete(session, name):
        session.api.delete("parameters", component, session.vhost, name)


_parameter_commands("shovel", "shovel")
_parameter_commands("federation", "federation-upstream")


# the broker

@ctl.command()
@click.pass_obj
def status(session):
    """Version, uptime and totals."""
    overview = session.api.get("overview")
    totals, messages = overview.get("object_totals", {}), overview.get("queue_totals", {})
    session.out.fields({
        "Version": overview.get("product_version") or overview.get("rabbitmq_version"), "Node": overview.get("node"),
        "Uptime": _uptime(session.api),
        **{name.capitalize(): totals.get(name, 0) for name in ("connections", "channels", "consumers", "exchanges", "queues")},
        **{name.capitalize(): messages.get(name, 0) for name in ("messages", "messages_ready", "messages_unacknowledged")},
    })


def _uptime(api):
    nodes = api.get("nodes")
    return f"{nodes[0].get('uptime', 0) // 1000} s" if nodes else ""
