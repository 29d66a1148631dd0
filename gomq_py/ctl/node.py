"""Commands about the broker itself and its connections."""
import time

import click

from gomq_py.ctl.api import APIError
from gomq_py.ctl.commands import command
from gomq_py.ctl.session import argument

LEADER = "leader"
# Most time of a promotion, and between two looks whether it is over: a large folder is read meanwhile.
PROMOTION_S, LOOK_S = 120.0, 0.2


@command("close_connection")
@argument("connection")
@click.argument("reason", default="Closed by gomq-py-ctl")
def close_connection(session, connection, reason):
    """Close a connection; its client is told the reason."""
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


@command("promote")
@click.option("--force", is_flag=True, help="Also while a sync is under way: to the older state.")
def promote(session, force):
    """Make this follower the leader, on its machine; done when it serves clients. Stop the old leader first:
    two leaders would take messages that no copy has.
    """
    if session.api.get("cluster")["role"] == LEADER:
        session.out.said("this node leads already")
        return
    session.api.post("cluster", "promote", query={"force": "true"} if force else None)
    until = time.monotonic() + PROMOTION_S
    while _role(session.api) != LEADER:
        if time.monotonic() > until:
            raise APIError(f"this node does not lead after {PROMOTION_S:g} s: see its log")
        time.sleep(LOOK_S)
    session.out.said("this node leads now")


def _role(api):
    try:
        return api.get("cluster")["role"]
    except APIError:
        return ""  # its listeners are closed and opened again


@command("accept_damage")
def accept_damage(session):
    """Let followers sync from this leader, although it has found damage in its data folder. They lose what is
    damaged here.
    """
    session.api.post("cluster", "accept-damage")


@command("transfer_leadership")
def transfer_leadership(session):
    """Let another node that is in sync lead in place of this one, which follows then. Clients connect anew.
    """
    session.api.post("cluster", "transfer-leadership")


@command("cluster_adopt")
def cluster_adopt(session):
    """Write the cluster's keys, which etcd has lost, anew from this node's data folder. Do it on the node
    that led last: what only others have is lost.
    """
    session.api.post("cluster", "adopt")


@command("cluster_force_leader")
def cluster_force_leader(session):
    """Make this node the leader although it is not in sync, because no node that is can come back. Confirmed
    messages that it lacks are lost.
    """
    if session.api.get("cluster")["role"] == LEADER:
        session.out.said("this node leads already")
        return
    session.api.post("cluster", "force-leader")


def _idle_command(name, verb):
    @command(name, help=f"Does nothing, as in lavinmqctl: to {verb} a broker, {verb} its process.")
    def run(session):
        session.out.said(f"{name} does nothing: {verb} the broker's process, as your service manager does")


_idle_command("stop_app", "stop")
_idle_command("start_app", "start")
