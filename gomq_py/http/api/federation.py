"""/api/federation-links: state of the links of federated exchanges and queues, as in RabbitMQ's plugin, and a
restart for operators.

Upstreams and policies are set like other parameters and policies. No answer has a password.
"""
from flask import Blueprint, g

from gomq_py.http.answers import no_content, node
from gomq_py.http.errors import BadRequest, NoSuchObject, NotAuthorised
from gomq_py.http.entities import find_vhost, visible_vhosts
from gomq_py.http.login import MANAGEMENT, MONITORING, POLICYMAKER, REFUSALS, access, set_by
from gomq_py.http.paging import listing

blueprint = Blueprint("federation", __name__)
DOWN = "error", "stopped", "terminated", "waiting"


@blueprint.get("/api/federation-links")
@access(MANAGEMENT)
def list_federation_links():
    """The links in the vhosts that the user sees."""
    return _listed([vhost.name for vhost in visible_vhosts()])


@blueprint.get("/api/federation-links/state/down")
@access(MANAGEMENT)
def list_federation_links_down():
    """Those of them that do not run."""
    return _listed([vhost.name for vhost in visible_vhosts()], DOWN)


@blueprint.get("/api/federation-links/<vhost>")
@access(MANAGEMENT)
def list_vhost_federation_links(vhost):
    """The links in one vhost."""
    return _listed([find_vhost(vhost).name])


@blueprint.get("/api/federation-links/<vhost>/state/down")
@access(MANAGEMENT)
def list_vhost_federation_links_down(vhost):
    """Those of them that do not run."""
    return _listed([find_vhost(vhost).name], DOWN)


@blueprint.put("/api/federation-links/vhost/<vhost>/<link_id>/restart")
@blueprint.put("/api/federation-links/vhost/<vhost>/<link_id>/<node_name>/restart")
@blueprint.delete("/api/federation-links/vhost/<vhost>/<link_id>/<node_name>/restart")
@access(POLICYMAKER)
def restart_federation_link(vhost, link_id, node_name=""):
    """Connect anew; bindings upstream are made anew with it. What waits begins to be acted on.

    ``node_name`` is RabbitMQ's.
    """
    try:
        is_there = node().federation.restart(find_vhost(vhost).name, link_id, set_by())
    except ValueError as error:
        raise BadRequest(str(error)) from None
    if not is_there:
        raise NoSuchObject()
    return no_content()


def _listed(vhosts, states=None):
    """List the links. RabbitMQ asks for the tag monitoring, LavinMQ for policymaker. Raises NotAuthorised."""
    if not {MONITORING, POLICYMAKER} & g.tags:
        raise NotAuthorised(REFUSALS[MONITORING])
    shown = [link.described() for vhost in vhosts for link in node().federation.links(vhost)]
    return listing([one for one in shown if states is None or one["status"] in states])
