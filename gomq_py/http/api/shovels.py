"""/api/shovels: shows, pauses, restarts and deletes shovels, with RabbitMQ's and LavinMQ's routes.

Shovels are defined as parameters (api.parameters). No answer contains a password.
"""
from flask import Blueprint, g

from gomq_py.http.answers import json_answer, no_content, node, sliced
from gomq_py.http.errors import BadRequest, NoSuchObject, NotAuthorised, Unprocessable
from gomq_py.http.entities import find_vhost, vhosts_named
from gomq_py.http.login import ADMINISTRATOR, MANAGEMENT, MONITORING, POLICYMAKER, REFUSALS, access, set_by
from gomq_py.http.paging import listing

blueprint = Blueprint("shovels", __name__)


@blueprint.get("/api/shovels")
@blueprint.get("/api/shovels/<vhost>")
@access(MANAGEMENT)
def list_shovels(vhost=None):
    """Return the shovels of one vhost, or of all vhosts that the user sees."""
    _may_look()
    shovels, names = node().shovels, [one.name for one in vhosts_named(vhost)]
    if shovels is None:
        return listing([])
    if vhost is None and ADMINISTRATOR in g.tags:
        names += shovels.missing_vhosts()
    return listing(sliced([one for name in names for one in shovels.all(name)], _described))


@blueprint.get("/api/shovels/<vhost>/<name>")
@blueprint.get("/api/shovels/vhost/<vhost>/<name>")
@access(MANAGEMENT)
def get_shovel(vhost, name):
    """Return one shovel."""
    _may_look()
    return json_answer(_described(_find(vhost, name)))


@blueprint.delete("/api/shovels/<vhost>/<name>")
@blueprint.delete("/api/shovels/vhost/<vhost>/<name>")
@access(POLICYMAKER)
def delete_shovel(vhost, name):
    """Delete the shovel and its definition."""
    _done(node().shovels.delete, _find(vhost, name))
    return no_content()


@blueprint.put("/api/shovels/<vhost>/<name>/pause")
@access(POLICYMAKER)
def pause_shovel(vhost, name):
    """Pause the shovel until it is resumed, even after a restart. 422 if it is paused already."""
    if not _done(node().shovels.pause, _find(vhost, name)):
        raise Unprocessable("The shovel is paused already")
    return no_content()


@blueprint.put("/api/shovels/<vhost>/<name>/resume")
@access(POLICYMAKER)
def resume_shovel(vhost, name):
    """Resume the paused shovel. 422 if it is not paused."""
    if not _done(node().shovels.resume, _find(vhost, name), set_by()):
        raise Unprocessable("The shovel is not paused")
    return no_content()


@blueprint.put("/api/shovels/<vhost>/<name>/restart")
@blueprint.delete("/api/shovels/vhost/<vhost>/<name>/restart")
@access(POLICYMAKER)
def restart_shovel(vhost, name):
    """Reconnect the shovel, unless it is paused. A new definition that waits for a restart takes effect."""
    _done(node().shovels.restart, _find(vhost, name), set_by())
    return no_content()


def _may_look():
    """Raise NotAuthorised without the tag monitoring (as in RabbitMQ) or policymaker (as in LavinMQ)."""
    if not {MONITORING, POLICYMAKER} & g.tags:
        raise NotAuthorised(REFUSALS[MONITORING])


def _described(shovel):
    return {"node": node().name, **node().shovels.described(shovel)}


def _find(vhost_name, name):
    shovels, vhost = node().shovels, find_vhost(vhost_name)
    shovel = shovels.find(vhost.name, name) if shovels is not None else None
    if shovel is None:
        raise NoSuchObject()
    return shovel


def _done(verb, *arguments):
    try:
        return verb(*arguments)
    except ValueError as error:
        raise BadRequest(str(error)) from None
