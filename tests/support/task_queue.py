"""Task queues at a broker, for tests: each server has an exchange and a queue of its own."""

import contextlib
import os
import subprocess
import sys

from gomq_py.client.connection import Connection
from gomq_py.dispatcher import InitQueue, Server, ServerConfig
from tests.support.command import ROOT
from tests.support.waiting import TIMEOUT_S

# A part of a module ``jobs``: a task that adds a line to the file ``notes``.
NOTE = '''
@app.task
def note(text: str):
    with open("notes", "a") as file:
        file.write(text + "\\n")
'''


def server_of(broker, queue, arguments=None):
    """A connected Server, to be closed: tasks go to ``queue``, by the exchange ``<queue>.x``."""
    return Server(
        ServerConfig(
            broker.amqp_url,
            exchange=queue + ".x",
            default_routing_key=queue,
            init_queues=[InitQueue(queue, [queue], arguments or {})],
        )
    )


@contextlib.contextmanager
def workers(folder, app, url, queue=""):
    """Yield a function that starts gomq-py-worker with arguments, in a folder with the file ``notes`` and the
    module ``jobs`` of the text ``app``; its options are Popen's. All are killed at the end.
    """
    (folder / "jobs.py").write_text(app)
    (folder / "notes").touch()
    children = []

    def start(*arguments, **options):
        children.append(subprocess.Popen(
            [sys.executable, "-m", "gomq_py.dispatcher", *arguments], cwd=folder, text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TASKS_URL": url, "TASKS_QUEUE": queue}, **options))
        return children[-1]

    yield start
    (folder / "go").touch()
    for child in children:
        child.kill()
        child.communicate(timeout=TIMEOUT_S)


def cleared(broker, *queues):
    """The broker, without these queues and their dead letters: for tests that share one, and names."""
    with Connection(broker.amqp_url) as connection, connection.channel() as channel:
        for queue in queues:
            for name in (queue, f"{queue}.dead"):
                channel.queue_delete(name)
    return broker
