"""Commands about the broker itself and its connections."""
import click

from gomq_py.ctl.api import APIError
from gomq_py.ctl.commands import command
from gomq_py.ctl.session import argument


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


@command()
def status(session):
    """Show the broker's version, uptime and totals."""
    overview = session.api.get("overview")
    totals, messages = overview.get("object_totals", {}), overview.get("queue_totals", {})
    session.out.fields({
        "Version": overview.get("product_version") or overview.get("rabbitmq_version"),
        "Node": overview.get("node"), "Uptime": _uptime(session.api),
        **{
            name.capitalize(): totals.get(name, 0)
            for name in ("connections", "channels", "consumers", "exchanges", "queues")
        },
        **{name.capitalize(): messages.get(name, 0) for name in ("messages", "messages_ready")},
        "Messages_unacked": messages.get("messages_unacknowledged", 0),
    })


def _uptime(api):
    try:
        nodes = api.get("nodes")
    except APIError:
        return ""  # this needs the tag monitoring, the overview does not
    return f"{nodes[0].get('uptime', 0) // 1000} s" if nodes else ""


def _idle_command(name, verb):
    @command(name, help=f"Does nothing, as in lavinmqctl: to {verb} a broker, {verb} its process.")
    def run(session):
        session.out.said(f"{name} does nothing: {verb} the broker's process, as your service manager does")


_idle_command("stop_app", "stop")
_idle_command("start_app", "start")
