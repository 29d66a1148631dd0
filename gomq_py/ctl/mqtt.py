"""Commands about MQTT: closing clients, ending sessions, and retained messages."""
import click

from gomq_py.ctl.commands import ctl
from gomq_py.ctl.completion import argument

# Topics per request.
PAGE = 1000


@ctl.command("close_mqtt_client")
@argument("client_id")
@click.argument("reason", default="Closed by gomq-py-ctl")
@click.pass_obj
def close_mqtt_client(session, client_id, reason):
    """Close the connection of an MQTT client; its session stays if it is to be kept."""
    session.api.delete(
        "mqtt", "sessions", session.vhost, client_id, "connection", headers={"X-Reason": reason})


@ctl.command("delete_mqtt_session")
@argument("client_id")
@click.pass_obj
def delete_mqtt_session(session, client_id):
    """End the session of an MQTT client, with its subscriptions and messages."""
    session.api.delete("mqtt", "sessions", session.vhost, client_id)


@ctl.command("list_mqtt_retained")
@click.pass_obj
def list_mqtt_retained(session):
    """List the topics that messages are retained for, with the octets of their payloads."""
    rows, after = [], ""
    while after is not None:
        page = session.api.get("mqtt", "retained", session.vhost, limit=PAGE, after=after)
        rows += page["topics"]
        after = page["next"]
    session.out.rows("Listing retained messages", rows, ("topic", "payload_bytes"))


@ctl.command("get_mqtt_retained")
@argument("topic")
@click.pass_obj
def get_mqtt_retained(session, topic):
    """Show the message that is retained for a topic."""
    session.out.rows(
        "Retained message", [session.api.get("mqtt", "retained", session.vhost, topic)],
        ("topic", "payload", "payload_encoding", "payload_bytes", "properties"))


@ctl.command("delete_mqtt_retained")
@argument("topic")
@click.pass_obj
def delete_mqtt_retained(session, topic):
    """Retain nothing for a topic any more."""
    session.api.delete("mqtt", "retained", session.vhost, topic)
