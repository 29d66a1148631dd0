"""The command that moves a whole broker's content to this one, while clients stay connected.

Imports the definitions first. Then moves each queue's messages by a shovel or, on request, back again. The
shovels are parameters of this broker, named ``migrate: <queue>`` in each vhost. They go on when this command
has ended, and a later run finds them again.
"""
import sys
import time
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import click

from gomq_py.broker.features.arguments import QUEUE_TYPE, STREAM
from gomq_py.ctl.api import APIError
from gomq_py.ctl.commands import command
from gomq_py.ctl.transfer import bring_in, definitions_of, from_other
from gomq_py.diagnosis.difference import ACTING
from gomq_py.global_names import CLUSTER_ID

PREFIX = "migrate: "
COLUMNS = ("vhost", "queue", "there", "here", "rate", "left", "state", "error")
HELD_COLUMNS = ("component", "vhost", "name")
# Seconds between two updates of the table.
LOOK_S = 2.0
# States of queues without a shovel.
NOT_MOVED, ONLY_THERE, ONLY_HERE = "not moved", "only there", "only here"
# Why a queue is not moved.
OF_A_STREAM = "a stream is read, not emptied"
AUTO_DELETE = "an auto-delete queue: its clients declare it"
UNNAMED = "a name that begins with amq.: its client declares another one"


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
    broker is empty, --finish deletes the shovels, and starts the old broker's own shovels and federation
    here. Until then --back reverses the shovels.
    """
    _check_is_another(session.api, there)
    moving = Migration(session.api, there, _with_login(amqp, there), back)
    definitions, held = (None, []) if back or no_import else _without_acting(definitions_of(there))
    if dry_run:
        if definitions is not None:
            bring_in(session, definitions, True, ())
        _show_held(session, "Started by --finish", held)
        session.out.rows("Queues", moving.rows(), ("vhost", "queue", "there", "here", "state", "error"))
    elif finish:
        _finish(session, moving, held)
    else:
        if definitions is not None:
            # bring_in() reports refused entries; the queues are moved all the same
            bring_in(session, definitions, False, (), leaves=False)
        _show_held(session, "Started by --finish", held)
        moving.start()
        while True:  # until interrupted
            session.out.rows("Moving", moving.rows(), COLUMNS)
            if once:
                return
            sys.stdout.flush()
            time.sleep(LOOK_S)


def _check_is_another(here, there):
    """Raise APIError if both APIs are of one broker: its shovels would consume from the queues they fill."""
    try:
        identity = _identity(there)
    except APIError:
        return  # a broker without identities, or a user who may not ask
    if identity == _identity(here):
        raise APIError(
            "the broker of --from is this broker, or has a copy of its data folder: give the management API "
            "of the old broker", 400)


def _identity(api):
    """Return (name of the broker's node, [id of its cluster]); the list is empty without an id."""
    ids = [one["value"] for one in api.get("global-parameters") if one["name"] == CLUSTER_ID]
    return api.get("overview")["node"], ids


def _without_acting(definitions):
    """Return (definitions without shovels and upstreams, list of the shovels and upstreams left out).

    --finish creates those in the list; earlier they would compete with the old broker's for messages. The
    list lacks the shovels of a migration.
    """
    parameters = definitions.get("parameters") or []
    held = [
        entry for entry in parameters
        if entry.get("component") in ACTING and not entry.get("name", "").startswith(PREFIX)]
    rest = [entry for entry in parameters if entry.get("component") not in ACTING]
    return {**definitions, "parameters": rest}, held


def _show_held(session, title, held):
    if held and session.out.form != "json":
        session.out.rows(title, held, HELD_COLUMNS)


def _finish(session, moving, held):
    back = moving.back  # without the shovels nobody knows
    left, stay = moving.finish()
    if left:
        session.out.rows("Not empty yet", left, COLUMNS)
        raise APIError(
            f"{len(left)} queue(s) not empty yet where messages are taken from: their shovels stay", 409)
    if held and not back:
        known = {_key_of(entry) for entry in session.api.get("parameters")}
        held = [entry for entry in held if _key_of(entry) not in known]
        bring_in(session, {"parameters": held}, False, (), leaves=False)
        _show_held(session, "Started here: stop them at the old broker", held)
    if not stay:
        session.out.said("nothing is left to move: the shovels are gone")
        return
    session.out.rows("Not moved", stay, COLUMNS)
    place = "here" if back else "at the old broker"
    session.out.said(f"the shovels are gone; {len(stay)} queue(s) keep messages {place}: see the table")


def _key_of(entry):
    return tuple(entry.get(field) for field in HELD_COLUMNS)


class Migration:
    """The shovels that move queues from the old broker (the API ``there``) to this one (``here``), or
    ``back``. ``uri_of(vhost)`` returns the old broker's AMQP URI. The property ``back`` is also true if a
    shovel of an earlier run moves back.
    """

    def __init__(self, here, there, uri_of, back=False):
        self._here, self._there, self._uri_of = here, there, uri_of
        self._errors = {}  # of queues that cannot be made there
        self._is_back_asked = back

    @property
    def back(self):
        return self._is_back_asked or any(map(_is_back, self._shovels().values()))

    def start(self):
        """Make a shovel per queue; with ``back``, also queues that the old broker lacks. Raises APIError."""
        back = self._is_back_asked
        here, there = _queues(self._here), _queues(self._there)
        for (vhost, name), queue in (here if back else there).items():
            if _why_not(queue) or back and (vhost, name) not in there and not self._make_there(queue):
                continue
            uris = [f"amqp:///{quote(vhost, safe='')}", self._uri_of(vhost)]
            source, destination = uris if back else reversed(uris)
            value = {
                "src-uri": source, "dest-uri": destination,
                "src-queue": name, "dest-queue": name, "src-predeclared": True, "dest-predeclared": True,
                "ack-mode": "on-confirm", "reconnect-delay": 1,
            }
            self._here.put("parameters", "shovel", vhost, PREFIX + name, body={"value": value})

    def _make_there(self, queue):
        """Create a queue at the old broker. Return False if the old broker refused it."""
        vhost, name = queue["vhost"], queue["name"]
        body = {key: queue.get(key) for key in ("durable", "auto_delete", "arguments")}
        try:
            self._there.put("queues", vhost, name, body=body)
        except APIError as error:
            self._errors[vhost, name] = str(error)
            return False
        return True

    def rows(self):
        """Return a dict for each queue, with the keys of COLUMNS and ``source``, the number of messages at
        the source, or None if that is unknown. ``there``, ``here``: messages at the old broker and at this
        one. ``rate``: messages per second.
        """
        shovels, back = self._shovels(), self.back
        here, there = _queues(self._here), _queues(self._there)
        source, target = (here, there) if back else (there, here)
        rows = []
        for key in sorted({*source, *shovels}):
            queue, shovel = source.get(key, {}), shovels.get(key, {})
            waiting, rate = queue.get("messages_ready"), shovel.get("rate") or 0
            reason = _why_not(queue)
            state, error = shovel.get("state"), shovel.get("error")
            if not shovel and reason:
                state, error = NOT_MOVED, reason
            elif not shovel and key not in target:
                state, error = ONLY_HERE if back else ONLY_THERE, self._errors.get(key)
            rows.append({
                "vhost": key[0], "queue": key[1], "there": there.get(key, {}).get("messages_ready"),
                "here": here.get(key, {}).get("messages_ready"), "rate": round(rate),
                "left": _left(waiting, rate) if shovel else None, "state": state, "error": error,
                "source": queue.get("messages") if queue else 0,
            })
        return rows

    def finish(self):
        """Delete the shovels whose source is empty. Returns two lists of rows: (queues that are not empty
        yet, queues with messages that cannot be moved). Raises APIError.
        """
        left, stay = [], []
        shovels = self._shovels()
        for row in self.rows():
            key, is_empty = (row["vhost"], row["queue"]), row["source"] == 0  # None: not counted yet
            if row["state"] == NOT_MOVED:
                stay += [] if is_empty else [row]
            elif not is_empty:
                left.append({**row, "state": row["state"] or "no shovel"})
            elif key in shovels:
                self._here.delete("parameters", "shovel", key[0], PREFIX + key[1])
        return left, stay

    def _shovels(self):
        return {
            (one["vhost"], one["name"].removeprefix(PREFIX)): one for one in self._here.get("shovels")
            if one["name"].startswith(PREFIX)}


def _queues(api):
    """Return {(vhost, name): queue} of a broker, without exclusive queues, which end with their clients."""
    return {(one["vhost"], one["name"]): one for one in api.get("queues") if not one.get("exclusive")}


def _why_not(queue):
    """Return why a queue's messages are not moved, or "" if they are."""
    if STREAM in (queue.get("type"), (queue.get("arguments") or {}).get(QUEUE_TYPE)):
        return OF_A_STREAM
    if queue.get("auto_delete"):
        return AUTO_DELETE
    return UNNAMED if queue.get("name", "").startswith("amq.") else ""


def _is_back(shovel):
    return shovel.get("src_uri", "").startswith("amqp:///")


def _left(waiting, rate):
    """Return the seconds until a shovel's source is empty, as a text; "?" below one message per second."""
    if not waiting:
        return "0 s"
    return f"{waiting / rate:.0f} s" if rate >= 1 else "?"


def _with_login(amqp, there):
    """Return a function(vhost) that returns the URI ``amqp`` for that vhost. If the URI has no login, it gets
    that of the API ``there``. Raises BadParameter, whose text has no part of the URI.
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
