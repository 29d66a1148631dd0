"""/api/federation-links: shows and restarts the links of federated exchanges and queues, as RabbitMQ's plugin
does.

Upstreams and policies are set like other parameters and policies. No answer contains a password.
"""
from flask import Blueprint, g

from gomq_py.http.answers import no_content, node
from gomq_py.http.errors import BadRequest, NoSuchObject, NotAuthorised
from gomq_py.http.entities import find_vhost, vhosts_named
from gomq_py.http.login import MANAGEMENT, MONITORING, POLICYMAKER, REFUSALS, access, set_by
from gomq_py.http.paging import listing

blueprint = Blueprint("federation", __name__)
DOWN = "error", "stopped", "terminated", "waiting"


@blueprint.get("/api/federation-links")
@blueprint.get("/api/federation-links/<vhost>")
@blueprint.get("/api/federation-links/state/down", defaults={"states": DOWN})
@blueprint.get("/api/federation-links/<vhost>/state/down", defaults={"states": DOWN})
@access(MANAGEMENT)
def list_federation_links(vhost=None, states=None):
    """Return the federation links in one vhost, or in all that the user sees; if the path ends in
    ``state/down``, only links that do not run. Needs the tag monitoring, as in RabbitMQ, or policymaker, as
    in LavinMQ.
    """
    vhosts = vhosts_named(vhost)
    if not {MONITORING, POLICYMAKER} & g.tags:
        raise NotAuthorised(REFUSALS[MONITORING])
    shown = [link.described() for one in vhosts for link in node().federation.links(one.name)]
    return listing([one for one in shown if states is None or one["status"] in states])


@blueprint.put("/api/federation-links/vhost/<vhost>/<link_id>/restart")
@blueprint.put("/api/federation-links/vhost/<vhost>/<link_id>/<node_name>/restart")
@blueprint.delete("/api/federation-links/vhost/<vhost>/<link_id>/<node_name>/restart")
@access(POLICYMAKER)
def restart_federation_link(vhost, link_id, node_name=""):
    """Reconnect the federation link, and create its bindings at the upstream again. Changes of its upstream
    or policy that wait for a restart take effect. ``node_name`` is for RabbitMQ's clients, and ignored.
    """
    try:
        is_there = node().federation.restart(find_vhost(vhost).name, link_id, set_by())
    except ValueError as error:
        raise BadRequest(str(error)) from None
    if not is_there:
        raise NoSuchObject()
    return no_content()
