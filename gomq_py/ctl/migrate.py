"""The command that moves a whole broker's content to this one while its clients go on: first definitions,
then the messages of each queue by a shovel, and back again on request.

Its shovels are parameters of this broker, named ``migrate: <queue>`` in each vhost: they run without this
command, and each later run finds them.
"""
import sys
import time
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import click

from gomq_py.broker.features.arguments import QUEUE_TYPE, STREAM
from gomq_py.ctl.api import APIError
from gomq_py.ctl.commands import command
from gomq_py.ctl.transfer import bring_in, definitions_of, from_other

PREFIX = "migrate: "
COLUMNS = ("vhost", "queue", "there", "here", "rate", "left", "state", "error")
# Seconds between two updates of the table.
LOOK_S = 2.0
# Queues that are not moved: their clients declare them again. Nor are streams, which are read, not emptied.
_STAYS = ("exclusive", "auto_delete")


@command("migrate")
@from_other("the old broker")
@click.option(
    "--amqp", required=True, metavar="URI",
    help="The old broker as this one reaches it: amqps://HOST?cacertfile=ca.pem; without a user that of "
    "--from.",
)
@click.option(
    "--dry-run", is_flag=True, help="Print what an import would do, and the queues; change nothing.",
)
@click.option("--no-import", is_flag=True, help="Definitions are here already.")
@click.option("--back", is_flag=True,
              help="Roll back: move what waits here to the old broker, for clients that go back there.")
@click.option("--once", is_flag=True, help="Show the table once and leave; the shovels go on.")
@click.option(
    "--finish", is_flag=True, help="Take the shovels away, once nothing is left where they take from.",
)
def migrate(session, there, amqp, dry_run, no_import, back, once, finish):
    """Move from a running RabbitMQ, LavinMQ or gomq-py to this broker.

    Definitions are imported, then a shovel for each queue brings its messages here, and a table counts the
    messages at the old broker and here. Move the publishers when you like, then the consumers; when the old
    broker is empty, --finish deletes the shovels. Until then --back reverses them.
    """
    moving = Migration(session.api, there, _with_login(amqp, there))
    if dry_run:
        bring_in(session, definitions_of(there), True, ())
        session.out.rows("Queues", moving.rows(), ("vhost", "queue", "there"))
        return
    if finish:
        left = moving.finish()
        if left:
            session.out.rows("Not empty yet", left, COLUMNS)
            raise APIError(
                f"{len(left)} queues are not empty yet where their shovels take from: they stay", 409)
        session.out.said("nothing is left to move: the shovels are gone")
        return
    if not (no_import or back):
        # bring_in() reports refused entries; the queues are moved all the same
        bring_in(session, definitions_of(there), False, (), leaves=False)
    moving.start(back)
    while True:  # until interrupted
        session.out.rows("Moving", moving.rows(), COLUMNS)
        if once:
            return
        sys.stdout.flush()
        time.sleep(LOOK_S)


class Migration:
    """Moves queues between the brokers ``there`` and ``here`` (APIs), by shovels over ``uri_of(vhost)``."""

    def __init__(self, here, there, uri_of):
        self._here, self._there, self._uri_of = here, there, uri_of

    def start(self, back):
        """Create a shovel for each queue; if ``back``, one that moves messages back. Raises APIError."""
        for queue in self.queues():
            vhost, name = queue["vhost"], queue["name"]
            here, there = f"amqp:///{quote(vhost, safe='')}", self._uri_of(vhost)
            value = {
                "src-uri": here if back else there, "dest-uri": there if back else here,
                "src-queue": name, "dest-queue": name, "src-predeclared": True, "dest-predeclared": True,
                "ack-mode": "on-confirm", "reconnect-delay": 1,
            }
            self._here.put("parameters", "shovel", vhost, PREFIX + name, body={"value": value})

    def queues(self):
        """The queues, as dicts, of the old broker whose messages can be moved."""
        return sorted(
            (
                queue for queue in self._there.get("queues")
                if not any(queue.get(key) for key in _STAYS) and queue.get("type") != STREAM
                and (queue.get("arguments") or {}).get(QUEUE_TYPE) != STREAM
            ), key=lambda queue: (queue["vhost"], queue["name"]))

    def rows(self):
        """A dict for each queue: its messages at both brokers, messages a second, seconds left, and so on."""
        shovels = {(one["vhost"], one["name"]): one for one in self._here.get("shovels")}
        here = {(one["vhost"], one["name"]): one for one in self._here.get("queues")}
        rows = []
        for queue in self.queues():
            key = queue["vhost"], queue["name"]
            shovel = shovels.get((key[0], PREFIX + key[1]), {})
            is_back = shovel.get("src_uri", "").startswith("amqp:///")
            waiting_here = here.get(key, {}).get("messages_ready")
            source = waiting_here if is_back else queue.get("messages_ready")
            rate = shovel.get("rate") or 0
            rows.append({
                "vhost": key[0], "queue": key[1], "there": queue.get("messages_ready"), "here": waiting_here,
                "rate": round(rate), "left": _left(source, rate), "state": shovel.get("state"),
                "error": shovel.get("error"), "source": queue.get("messages") if not is_back else here.get(
                    key, {}).get("messages"),
            })
        return rows

    def finish(self):
        """Delete shovels whose source is empty; returns the rows() of the remaining ones. Raises APIError."""
        left = []
        for row in self.rows():
            if row["state"] is None:
                continue
            if row["source"] != 0:  # None: messages not counted yet
                left.append(row)
            else:
                self._here.delete("parameters", "shovel", row["vhost"], PREFIX + row["queue"])
        return left


def _left(waiting, rate):
    """Seconds until a shovel's source is empty, as a text; "?" at less than one message a second."""
    if not waiting:
        return "0 s"
    return f"{waiting / rate:.0f} s" if rate >= 1 else "?"


def _with_login(amqp, there):
    """Return a function(vhost) that returns the URI ``amqp`` for that vhost; a URI without a login gets the
    login of ``there``. Raises BadParameter, whose text repeats nothing of the URI.
    """
    try:
        parts = urlsplit(amqp)
        is_one = parts.scheme in ("amqp", "amqps") and parts.hostname and not parts.path.strip("/")
        is_one = is_one and parts.port != 0 and not parts.fragment
    except ValueError:
        is_one = False
    if not is_one:
        raise click.BadParameter(
            "a URI such as amqp://rabbit:5672, without a virtual host: all of them are moved",
            param_hint="--amqp")
    place = parts.netloc.rpartition("@")[2]
    user, password = parts.username, parts.password
    if user is None:
        user, password = quote(there.user, safe=""), quote(there.password, safe="")
    else:
        user, password = quote(unquote(user), safe=""), quote(unquote(password or ""), safe="")
    login = f"{user}:{password}@{place}"
    return lambda vhost: urlunsplit((parts.scheme, login, f"/{quote(vhost, safe='')}", parts.query, ""))
