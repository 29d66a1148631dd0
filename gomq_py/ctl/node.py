"""Commands about the broker itself and its connections."""
import contextlib
import sys
from dataclasses import replace

import click

from gomq_py.config.kinds import MEMORY
from gomq_py.ctl.api import APIError
from gomq_py.ctl.cluster import ALARMS
from gomq_py.ctl.commands import command, ctl
from gomq_py.ctl.output import Output, say, shown
from gomq_py.ctl.session import argument
from gomq_py.observability import secrets


@command("close_connection")
@argument("connection")
@click.argument("reason", default="Closed by gomq-py-ctl")
def close_connection(session, connection, reason):
    """Close a connection; its client gets the reason."""
    session.api.delete("connections", connection, headers={"X-Reason": reason})


@command("close_mqtt_client")
@argument("client_id")
@click.argument("reason", default="Closed by gomq-py-ctl")
def close_mqtt_client(session, client_id, reason):
    """Close the connection of an MQTT client. A persistent session stays."""
    session.api.delete(
        "mqtt", "sessions", session.vhost, client_id, "connection", headers={"X-Reason": reason})


@command("close_all_connections")
@click.argument("reason", default="Closed by gomq-py-ctl")
def close_all_connections(session, reason):
    """Close every connection."""
    closed = 0
    for connection in session.api.get("connections", columns="name"):
        try:
            session.api.delete("connections", connection["name"], headers={"X-Reason": reason})
            closed += 1
        except APIError as error:
            if error.status != 404:  # closed by itself meanwhile
                raise
    session.out.said(f"{closed} connections closed")


@command("close_all_user_connections")
@argument("user")
@click.argument("reason", default="Closed by gomq-py-ctl")
def close_all_user_connections(session, user, reason):
    """Close every connection of a user."""
    session.api.delete("connections", "username", user, headers={"X-Reason": reason})


@command("set_vm_memory_high_watermark")
@click.argument("words", nargs=-1, required=True, metavar="FRACTION | absolute SIZE")
def set_vm_memory_high_watermark(session, words):
    """Block publishers above a fraction of the memory (0.6) or an amount (absolute 2GB), until the next
    reload or start; 0: never.
    """
    is_absolute = words[0] == "absolute"
    if len(words) != 1 + is_absolute:
        raise click.UsageError("give a fraction, such as 0.6, or: absolute 2GB")
    value = click.FLOAT.convert(words[0], None, None) if not is_absolute else _size(words[1])
    if not is_absolute and not 0 <= value <= 1:
        raise click.UsageError("a fraction is between 0 and 1; an amount is given as: absolute 2GB")
    session.api.put("settings", "memory_high_watermark", body={"value": value})


@command("set_disk_free_limit")
@click.argument("limit")
def set_disk_free_limit(session, limit):
    """Block publishers when less disk than LIMIT is free (2GB, or bytes), until the next reload or start."""
    session.api.put("settings", "free_disk_min", body={"value": _size(limit)})


def _size(text):
    """Return the number of bytes of a size such as 2GB. Raises UsageError."""
    try:
        size = MEMORY.parse(text)
        if isinstance(size, int):
            return size
    except ValueError:
        pass
    raise click.UsageError(f"{text} is no size, as 512MiB, 2GB and 1000000 are")


@command()
def status(session):
    """Show the broker's version, uptime, alarms, listeners and totals."""
    overview, node = session.api.get("overview"), _node(session.api)
    totals, messages = overview.get("object_totals", {}), overview.get("queue_totals", {})
    session.out.fields({
        "Version": overview.get("product_version") or overview.get("rabbitmq_version"),
        "Node": overview.get("node"), "Uptime": f"{node['uptime'] // 1000} s" if "uptime" in node else "",
        **{
            name.capitalize(): totals.get(name, 0)
            for name in ("connections", "channels", "consumers", "exchanges", "queues")
        },
        **{name.capitalize(): messages.get(name, 0) for name in ("messages", "messages_ready")},
        "Messages_unacked": messages.get("messages_unacknowledged", 0),
        "Alarms": [name for key, name in ALARMS.items() if node.get(key)],
        "Listeners": [
            "{protocol} {ip_address}:{port}".format_map(one) for one in overview.get("listeners", ())],
    })


def _node(api):
    """Return the first row of /api/nodes, a dict; {} for a user without the tag monitoring."""
    try:
        nodes = api.get("nodes")
    except APIError:
        return {}
    return nodes[0] if nodes else {}


# What a report has, of the broker and of each virtual host: rabbitmqctl's parts.
REPORT = (
    "status", "cluster_status", "environment", "list_users", "list_vhosts", "list_connections",
    "list_channels", "list_user_limits", "list_vhost_limits", "list_global_parameters", "list_parameters",
    "doctor",
)
REPORT_OF_VHOST = (
    "list_queues", "list_exchanges", "list_bindings", "list_consumers", "list_permissions", "list_policies",
    "list_operator_policies", "list_mqtt_sessions", "list_shovels", "list_schedules",
)


class _WithoutSecrets(Output):
    """An Output with asterisks in place of secrets, even in arguments. Other lists show all arguments."""

    def rows(self, title, rows, columns):
        super().rows(title, secrets.shown(rows), columns)

    def fields(self, values):
        super().fields(secrets.shown(values))


@command("report")
@click.pass_context
def report(context, session):
    """Print status, settings and the lists of every virtual host, for a report of a problem. Secrets are
    replaced by asterisks; names are not.
    """
    api = session.api
    session = replace(session, connect=lambda: api, out=_WithoutSecrets())
    with contextlib.redirect_stderr(sys.stdout):  # titles of lists stand above their lists
        _report(context, session, REPORT)
        for vhost in session.api.get("vhosts", columns="name"):
            _report(context, replace(session, vhost=vhost["name"]), REPORT_OF_VHOST)


def _report(context, session, names):
    context.obj = session
    for name in names:
        place = "" if names is REPORT else f" of virtual host {session.vhost}"
        click.echo(f"\n== {name}{shown(place)}")
        try:
            context.invoke(ctl.commands[name])
        except APIError as error:
            say(f"gomq-py-ctl: {error}")  # of another broker, or without the tag
        except SystemExit:
            pass  # doctor has found something


def _idle_command(name, verb):
    @command(name, help=f"Does nothing, as in lavinmqctl: to {verb} a broker, {verb} its process.")
    def run(session):
        session.out.said(f"{name} does nothing: {verb} the broker's process, as your service manager does")


_idle_command("stop_app", "stop")
_idle_command("start_app", "start")
