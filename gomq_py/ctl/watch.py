"""The command watch: a live table of queues, like ``top`` for processes."""
import contextlib
import shutil
import sys
import time

import click

from gomq_py.ctl.api import APIError
from gomq_py.ctl.cluster import ALARMS
from gomq_py.ctl.commands import command
from gomq_py.ctl.output import at, shown
from gomq_py.ctl.session import Seconds

# Column: field of the API.
COLUMNS = {
    "name": "name", "ready": "messages_ready", "unacked": "messages_unacknowledged", "consumers": "consumers",
    "in/s": "message_stats.publish_details.rate", "out/s": "message_stats.deliver_get_details.rate",
    "ack/s": "message_stats.ack_details.rate",
}
LINES_ABOVE = 4  # head, empty line, names of the columns, and the cursor's line
CLEAR = "\x1b[H\x1b[J"


@command("watch")
@click.option("--sort", type=click.Choice(list(COLUMNS)), default="ready", show_default=True,
              help="Column by which the queues stand in order, the largest first.")
@click.option("--interval", type=Seconds(), default=2.0, show_default=True, help="Seconds.")
@click.option("--count", type=click.IntRange(1), help="Tables until the end; without it, until Ctrl-C.")
def watch(session, sort, interval, count):
    """Show the queues of the virtual host in a live table, as many as fit, below the broker's rates."""
    with contextlib.suppress(KeyboardInterrupt):
        _watch(session, sort, interval, count)


def _watch(session, sort, interval, count):
    is_terminal = sys.stdout.isatty() and session.out.form == "table"
    done = 0
    while True:
        width, height = shutil.get_terminal_size()
        try:
            found = _rows(session, sort, max(1, height - LINES_ABOVE))
            lines = [_head(session.api), "", *session.out.lines(found, COLUMNS)]
        except APIError as error:
            if not done:
                raise
            lines, found = [f"gomq-py-ctl: {shown(str(error))}"], []  # it may come back
        if session.out.form == "json":
            session.out.json(found)
        elif is_terminal:
            click.echo(CLEAR + "\n".join(line[:width] for line in lines))
        else:
            click.echo("\n".join(lines))
        done += 1
        if done == count:
            return
        time.sleep(interval)


def _rows(session, sort, most):
    page = session.api.get(
        "queues", session.vhost, page=1, page_size=most, sort=COLUMNS[sort],
        sort_reverse=str(sort != "name").lower(), columns=",".join(COLUMNS.values()))
    return [{column: _rounded(at(row, field)) for column, field in COLUMNS.items()} for row in page["items"]]


def _rounded(value):
    return round(value, 1) if isinstance(value, float) else value


def _head(api):
    overview = api.get("overview")
    totals, rates = overview["queue_totals"], overview["message_stats"]
    try:
        alarms = [name for node in api.get("nodes") for key, name in ALARMS.items() if node.get(key)]
    except APIError:
        alarms = []  # a user without the tag monitoring
    return shown(
        f"{overview['node']}: {totals.get('messages_ready', 0)} ready, "
        f"{totals.get('messages_unacknowledged', 0)} unacked, "
        f"{overview['object_totals'].get('connections', 0)} connections; "
        f"{_rounded(at(rates, 'publish_details.rate', 0))} in/s, "
        f"{_rounded(at(rates, 'deliver_get_details.rate', 0))} out/s"
        + (f"; ALARM: {', '.join(alarms)}" if alarms else ""))
