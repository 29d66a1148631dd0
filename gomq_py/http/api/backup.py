"""/api/backup: lets gomq-py-ctl copy the running broker's data folder, on the same machine."""
from flask import Blueprint

from gomq_py.http.answers import json_answer, node
from gomq_py.http.login import ADMINISTRATOR, access

blueprint = Blueprint("backup", __name__)


@blueprint.get("/api/backup")
@access(ADMINISTRATOR)
def show_backup():
    """Return the backup's state (none, waiting, syncing or streaming), and its copied and total bytes."""
    return json_answer(node().backup().figures())


@blueprint.post("/api/backup")
@access(ADMINISTRATOR)
def begin_backup():
    """Open a port on the broker's loopback address, from which ``gomq-py-ctl backup`` copies the data folder
    once.

    The answer has the port, and a secret that is valid for this copy only. Refused while a backup is running.
    """
    return json_answer(node().backup().begin())
