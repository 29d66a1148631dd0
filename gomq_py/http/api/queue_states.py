"""/api/queues/<vhost>/<name>/pause, resume, restart: pauses, resumes and reopens a queue, as in LavinMQ."""
from flask import Blueprint

from gomq_py.broker.verbs import queues
from gomq_py.http.answers import no_content
from gomq_py.http.entities import caller, find_queue
from gomq_py.http.login import MANAGEMENT, access

blueprint = Blueprint("queue_states", __name__)


@blueprint.put("/api/queues/<vhost>/<name>/pause")
@access(MANAGEMENT)
def pause_queue(vhost, name):
    """Pause deliveries from the queue until it is resumed, even after a restart; publishing goes on."""
    _pause(vhost, name, True)
    return no_content()


@blueprint.put("/api/queues/<vhost>/<name>/resume")
@access(MANAGEMENT)
def resume_queue(vhost, name):
    """Resume deliveries from the paused queue."""
    _pause(vhost, name, False)
    return no_content()


@blueprint.put("/api/queues/<vhost>/<name>/restart")
@access(MANAGEMENT)
def restart_queue(vhost, name):
    """Reopen, with its messages, a queue that was closed after a fault of its files; 400 if it is open."""
    find_queue(vhost, name)
    queues.restart(caller(vhost), name)
    return no_content()


def _pause(vhost, name, paused):
    find_queue(vhost, name)
    queues.pause(caller(vhost), name, paused)
