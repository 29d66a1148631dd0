"""Commands that list the folders in set-aside/, and give the messages of a folder to a queue."""
import os
import secrets
import tempfile
import time
from urllib.parse import quote

import click

from gomq_py import Broker
from gomq_py.broker.features.length import ROWS as LIMITS
from gomq_py.ctl.api import API, APIError
from gomq_py.ctl.checks import in_folder
from gomq_py.ctl.commands import command
from gomq_py.ctl.output import Progress
from gomq_py.ctl.session import QUEUES

PREFIX = "recover: "
USER = "recover"
# Between two looks how far the messages are.
LOOK_S = 0.2
# Setting of a length limit: the field of a queue that it limits, and its unit.
_LIMITED = {"max_length": ("messages_ready", "messages"), "max_bytes": ("message_bytes_ready", "bytes")}


@command("list_set_aside")
@click.argument("data_dir", type=click.Path())
def list_set_aside(session, data_dir):
    """List the folders in set-aside/ of a data folder, with the queue that each belonged to, if that is
    known, and its messages. The broker may run.
    """
    from gomq_py.ctl import recover
    with in_folder():
        rows = recover.list_set_aside(data_dir)
    rows = [{name: "unknown" if value is None else value for name, value in row.items()} for row in rows]
    session.out.rows("Listing set-aside folders", rows, ("folder", "vhost", "queue", "messages"))


@command("recover")
@click.argument("folder", type=click.Path())
@click.option("--to", "queue", required=True, shell_complete=QUEUES, help="A queue of the virtual host (-p).")
def recover(session, folder, queue):
    """Publish the messages of FOLDER, a folder in set-aside/, to a queue of the running broker.

    Each publish is confirmed. FOLDER stays as it is: delete it when you have what you want; a second run
    publishes all of it again. Run it on the broker's machine, as its user; $TMPDIR needs room for a copy of
    FOLDER.
    """
    from gomq_py.ctl import recover as folders
    target = session.api.get("queues", session.vhost, queue)
    password = secrets.token_hex(16)
    with in_folder(), tempfile.TemporaryDirectory(prefix="gomq-recover-") as root:
        arguments = folders.lend(folder, root, USER, password)
        if folders.is_stream(arguments):
            raise APIError("the folder is of a stream, which is read, not emptied: use recover_queue")
        with Broker(root, http_port=0) as lender, Progress(session.out) as progress:
            source = API(lender.http_url, USER, password)

            def left():
                return source.get("queues", "/", folders.RECOVERED)["messages"]

            total = max(left(), folders.count_in(folder))
            _check_room(target, source.get("queues", "/", folders.RECOVERED))
            moved = total and _move(
                session, lender.url(USER, password), PREFIX + os.path.basename(os.path.abspath(folder)),
                queue, left, total, progress)
    said = f"{moved} of {total} messages of {folder} are in queue {queue} of virtual host {session.vhost}"
    session.out.said(f"{said}; the folder stays as it is")
    if moved < total:
        raise APIError("the other messages have expired or are damaged", 400)


def _check_room(target, source):
    """Raise APIError if a limit of queue ``target`` leaves no room for the messages of queue ``source``."""
    policy = target.get("effective_policy_definition") or {}
    for limit in LIMITS:
        field, unit = _LIMITED.get(limit.setting, ("", ""))
        given = target["arguments"].get(limit.argument), policy.get(limit.policy)
        wanted, set_ = source.get(field, 0), [value for value in given if value is not None]
        if not unit or not set_:
            continue
        room = max(0, min(set_) - target.get(field, 0))
        if wanted > room:
            raise APIError(
                f"queue {target['name']} has {limit.policy} {min(set_)}, and so room for {room} of {wanted} "
                f"{unit}: it would drop or refuse the others. Raise the limit, or name another queue", 400)


def _move(session, source, name, queue, left, total, progress):
    """Move ``total`` messages by a shovel ``name`` from the broker at the URI ``source`` to the queue, until
    ``left()`` is 0. Return how many arrived: expired and damaged ones do not. Raises APIError.
    """
    api, vhost = session.api, session.vhost
    api.put("parameters", "shovel", vhost, name, body={"value": {
        "src-uri": source, "src-queue": "recovered", "src-predeclared": True, "ack-mode": "on-confirm",
        "dest-uri": f"amqp:///{quote(vhost, safe='')}", "dest-queue": queue, "dest-predeclared": True}})
    try:
        while True:
            is_empty = not left()  # asked first, so that the shovel's figures have all
            shovel = api.get("shovels", vhost, name)
            progress("recovering", shovel["moved"], total)
            if is_empty:
                return shovel["moved"]
            if shovel["error"]:
                raise APIError(f"{shovel['moved']} of {total} messages are published: {shovel['error']}", 400)
            time.sleep(LOOK_S)
    finally:
        api.delete("parameters", "shovel", vhost, name)
