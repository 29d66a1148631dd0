"""/api/backup: lets gomq-py-ctl copy the running broker's data folder, on the same machine."""
from flask import Blueprint

from gomq_py.http.answers import json_answer, node
from gomq_py.http.login import ADMINISTRATOR, access

blueprint = Blueprint("backup", __name__)


@blueprint.get("/api/backup")
@access(ADMINISTRATOR)
def show_backup():
    """Return how far the present backup is: none, waiting, syncing or streaming, and its bytes."""
    return json_answer(node().backup().figures())


@blueprint.post("/api/backup")
@access(ADMINISTRATOR)
def begin_backup():
    """Open a port on the broker's loopback address, where gomq-py-ctl backup copies the data folder once.

    The answer has a secret for that copy alone. Refused while a backup is running.
    """
    return json_answer(node().backup().begin())
