"""/api/policies and /api/operator-policies: rules over names, applied to what is there and what will come."""
from flask import Blueprint

from gomq_py.broker.policies import OPERATOR_POLICY, POLICY
from gomq_py.http.answers import body, json_answer, no_content, node
from gomq_py.http.errors import BadRequest, NoSuchObject
from gomq_py.http.finding import find_vhost, visible_vhosts, writable_vhost
from gomq_py.http.login import ADMINISTRATOR, POLICYMAKER, access
from gomq_py.http.paging import listing

blueprint = Blueprint("policies", __name__)


def policies_of(vhost, component):
    """The user's or the operator's policies of a vhost, as RabbitMQ shows them."""
    chosen = vhost.policies.operator if component == OPERATOR_POLICY else vhost.policies.user
    return [{"vhost": vhost.name, "name": policy.name, **policy.as_value()} for policy in list(chosen.by_name.values())]


def _list_all(component):
    return listing([policy for vhost in visible_vhosts() for policy in policies_of(vhost, component)])


def _get(vhost, name, component):
    for policy in policies_of(find_vhost(vhost), component):
        if policy["name"] == name:
            return json_answer(policy)
    raise NoSuchObject()


def _put(vhost, name, component):
    there = writable_vhost(vhost)
    wanted = body(required=("pattern", "definition"))
    existed = (component, name) in there.parameters
    value = {
        "pattern": wanted["pattern"], "definition": wanted["definition"], "apply-to": wanted.get("apply-to", "all"),
        "priority": wanted.get("priority", 0),
    }
    try:
        node().broker.parameters.set(there, component, name, value)
    except ValueError as error:
        raise BadRequest(str(error)) from None
    return no_content(204 if existed else 201)


def _delete(vhost, name, component):
    if not node().broker.parameters.clear(find_vhost(vhost), component, name):
        raise NoSuchObject()
    return no_content()


@blueprint.get("/api/policies")
@access(POLICYMAKER)
def list_policies():
    """Every policy of every vhost that the user sees."""
    return _list_all(POLICY)


@blueprint.get("/api/policies/<vhost>")
@access(POLICYMAKER)
def list_vhost_policies(vhost):
    """The policies of one vhost."""
    return listing(policies_of(find_vhost(vhost), POLICY))


@blueprint.get("/api/policies/<vhost>/<name>")
@access(POLICYMAKER)
def get_policy(vhost, name):
    """One policy."""
    return _get(vhost, name, POLICY)


@blueprint.put("/api/policies/<vhost>/<name>")
@access(POLICYMAKER)
def put_policy(vhost, name):
    """Create or replace it; it is in force at once."""
    return _put(vhost, name, POLICY)


@blueprint.delete("/api/policies/<vhost>/<name>")
@access(POLICYMAKER)
def delete_policy(vhost, name):
    """Take it away; what it overrode is in force again."""
    return _delete(vhost, name, POLICY)


@blueprint.get("/api/operator-policies")
@access(POLICYMAKER)
def list_operator_policies():
    """Every operator policy of every vhost that the user sees."""
    return _list_all(OPERATOR_POLICY)


@blueprint.get("/api/operator-policies/<vhost>")
@access(POLICYMAKER)
def list_vhost_operator_policies(vhost):
    """The operator policies of one vhost."""
    return listing(policies_of(find_vhost(vhost), OPERATOR_POLICY))


@blueprint.get("/api/operator-policies/<vhost>/<name>")
@access(POLICYMAKER)
def get_operator_policy(vhost, name):
    """One operator policy."""
    return _get(vhost, name, OPERATOR_POLICY)


@blueprint.put("/api/operator-policies/<vhost>/<name>")
@access(ADMINISTRATOR)
def put_operator_policy(vhost, name):
    """Create or replace it; where it and a policy differ, the lower number holds."""
    return _put(vhost, name, OPERATOR_POLICY)


@blueprint.delete("/api/operator-policies/<vhost>/<name>")
@access(ADMINISTRATOR)
def delete_operator_policy(vhost, name):
    """Take it away."""
    return _delete(vhost, name, OPERATOR_POLICY)
