"""Commands that show, move, copy and replay messages."""
import base64
import os
import sys

import click

from gomq_py.ctl.api import APIError
from gomq_py.ctl.commands import command
from gomq_py.ctl.output import Progress
from gomq_py.ctl.session import argument
from gomq_py.ctl.topology import object_of


def _filtering(function):
    for option in (
        click.option("--count", type=int, help="At most so many."),
        click.option("--exchange", help="Only those published to this exchange; * and ? stand for anything."),
        click.option("--routing-key", help="Only those with this routing key; * and ? stand for anything."),
        click.option("--headers", metavar="JSON", help="Only those whose headers have these values."),
        click.option("--dry-run", is_flag=True, help="Only count."),
    ):
        function = option(function)
    return function


def _wanted(count, exchange, routing_key, headers, dry_run):
    wanted = {
        "dry_run": dry_run, "count": count, "exchange": exchange, "routing_key": routing_key,
        "headers": None if headers is None else object_of(headers, "--headers"),
    }
    return {key: value for key, value in wanted.items() if value is not None}


@command()
@argument("queue")
@click.option("--offset", type=int, default=0, show_default=True, help="Pass over so many.")
@click.option("--count", type=int, default=10, show_default=True)
@click.option(
    "--truncate", type=int, default=200, show_default=True, help="Bytes of each body that are shown."
)
def peek(session, queue, offset, count, truncate):
    """Show messages of a queue without taking them from it."""
    rows = session.api.get(
        "queues", session.vhost, queue, "messages", offset=offset, count=count, truncate=truncate)
    if session.out.form == "json":
        session.out.json(rows)
    else:
        session.out.rows(f"Messages of {queue}", rows, (
            "position", "redelivered", "exchange", "routing_key", "properties", "payload_bytes", "payload"))


ACK_MODES = "ack_requeue_true", "ack_requeue_false", "reject_requeue_true", "reject_requeue_false"


@command("get")
@argument("queue")
@click.option("--count", type=int, default=1, show_default=True, help="At most so many.")
@click.option("--ackmode", type=click.Choice(ACK_MODES), default=ACK_MODES[0], show_default=True,
              help="Whether they come back as redelivered (…requeue_true), are consumed or dead-lettered.")
def get(session, queue, count, ackmode):
    """Take messages from a queue, as a consumer does. To look at messages without any effect, use peek."""
    rows = session.api.post("queues", session.vhost, queue, "get", body={
        "count": count, "ackmode": ackmode, "encoding": "auto"})
    session.out.rows(f"Messages of {queue}", rows, (
        "routing_key", "exchange", "message_count", "payload", "payload_bytes", "payload_encoding",
        "properties", "redelivered"))


@command("publish")
@click.argument("routing_key")
@click.argument("payload", required=False)
@click.option("--exchange", default="", help="The default exchange without it: ROUTING_KEY names a queue.")
@click.option("--properties", metavar="JSON", default="{}", help='Such as {"delivery_mode": 2}.')
def publish(session, routing_key, payload, exchange, properties):
    """Publish a message. Exit code 1 if no queue takes it. Without PAYLOAD, read it from a pipe."""
    octets = sys.stdin.buffer.read() if payload is None else os.fsencode(payload)
    routed = session.api.post(
        "exchanges", session.vhost, exchange or "amq.default", "publish", body={
            "routing_key": routing_key, "properties": object_of(properties, "--properties"),
            "payload": base64.b64encode(octets).decode(), "payload_encoding": "base64",
        })["routed"]
    if not routed:
        raise APIError("message published but NOT routed: no queue has taken it", 404)
    session.out.said("Message published")


def _move_command(verb, text):
    @command(verb, help=text)
    @argument("queue")
    @argument("destination")
    @click.option("--destination-vhost", help="Virtual host of the destination, when it is another.")
    @_filtering
    def run(session, queue, destination, destination_vhost, **options):
        wanted = {**_wanted(**options), "destination": destination}
        if destination_vhost is not None:
            wanted["destination_vhost"] = destination_vhost
        with Progress(session.out) as progress:
            moved = progress.during(
                verb, lambda: session.api.post("queues", session.vhost, queue, verb, body=wanted),
                _look_at(session, verb, queue, wanted) if progress.is_shown else None)
        session.out.fields(moved)


def _look_at(session, verb, queue, wanted):
    """Return a function that returns (number of messages moved or copied so far, expected number)."""
    place = session.vhost, queue
    if verb == "copy":
        place = wanted.get("destination_vhost", session.vhost), wanted["destination"]

    def waiting(*place):
        return session.api.get("queues", *place).get("messages") or 0

    try:
        total = min(waiting(session.vhost, queue), wanted.get("count", sys.maxsize))
        before = waiting(*place)
    except APIError:
        total = before = 0  # the request itself says what is wrong
    return lambda: (abs(waiting(*place) - before), total)


_move_command("move", "Move ready messages to another queue.")
_move_command("copy", "Copy ready messages to another queue.")


@command()
@argument("queue")
@click.option("--to", type=click.Choice(["queue", "exchange"]), default="queue", show_default=True,
              help="The queue they died in, or the exchange they had been published to.")
@click.option("--clean", is_flag=True, help="Without the headers about their death.")
@_filtering
def replay(session, queue, to, clean, **options):
    """Move dead letters back to the queues or exchanges that they came from. Dead tasks of gomq-py-worker go
    back to their queue and get all their attempts again.
    """
    session.out.fields(session.api.post("queues", session.vhost, queue, "replay", body={
        **_wanted(**options), "to": to, "x_death": "clean" if clean else "keep"}))
