"""/api/doctor: present and coming problems, with remedies; gomq-py's own."""
from flask import Blueprint, g

from gomq_py.http.answers import json_answer, node
from gomq_py.http.doctor import OF_LINKS, OF_NODE
from gomq_py.http.login import MANAGEMENT, MONITORING, POLICYMAKER, access, sees_vhost
from gomq_py.diagnosis.checks import BAD

blueprint = Blueprint("doctor", __name__)


@blueprint.get("/api/doctor")
@access(MANAGEMENT)
def examine():
    """What is wrong as far as the user may see it, the worst first: of the node with the tag monitoring, of
    queues in the vhosts that the user sees. An empty list: nothing was found.
    """
    found = [one for scope, one in node().doctor.examined(node()) if _is_seen(scope, one)]
    found.sort(key=lambda one: one.level != BAD)
    return json_answer({"findings": [one._asdict() for one in found]})


def _is_seen(scope, finding):
    if scope == OF_NODE:
        return MONITORING in g.tags
    if scope == OF_LINKS:
        return bool({MONITORING, POLICYMAKER} & g.tags) and sees_vhost(finding.vhost)
    return sees_vhost(scope)
