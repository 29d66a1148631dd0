"""/api/policies and /api/operator-policies: rules over names, applied to what is there and what will come.

One implementation, registered twice.
"""
from flask import Blueprint

from gomq_py.broker.policies.policy import OPERATOR_POLICY, POLICY
from gomq_py.http.answers import body, json_answer, no_content, node
from gomq_py.http.errors import BadRequest, NoSuchObject, validation_failed
from gomq_py.http.finding import find_vhost, visible_vhosts, writable_vhost
from gomq_py.http.login import ADMINISTRATOR, MANAGEMENT, POLICYMAKER, access, set_by
from gomq_py.http.paging import listing
from gomq_py.observability.secrets import shown

blueprint = Blueprint("policies", __name__)


class Family:
    """The routes of one kind of policy: ``component`` is what parameters call it, ``writer`` the tag that may
    change it.
    """

    def __init__(self, component, writer):
        self._component = component
        self._writer = writer

    def register(self, path, name):
        """Add the routes below ``path``; ``name`` begins the names of their endpoints."""
        for rule, methods, tag, view in (
                (path, ("GET",), MANAGEMENT, self.list_all),
                (f"{path}/<vhost>", ("GET",), MANAGEMENT, self.list_of_vhost),
                (f"{path}/<vhost>/<name>", ("GET",), MANAGEMENT, self.get),
                (f"{path}/<vhost>/<name>", ("PUT",), self._writer, self.put),
                (f"{path}/<vhost>/<name>", ("DELETE",), self._writer, self.delete)):
            blueprint.add_url_rule(rule, f"{name}_{view.__name__}", access(tag)(view), methods=methods)

    def list_all(self):
        """Those of every vhost that the user sees."""
        return listing([policy for vhost in visible_vhosts() for policy in self.of_vhost(vhost)])

    def list_of_vhost(self, vhost):
        """Those of one vhost."""
        return listing(self.of_vhost(find_vhost(vhost)))

    def get(self, vhost, name):
        """One of them."""
        for policy in self.of_vhost(find_vhost(vhost)):
            if policy["name"] == name:
                return json_answer(policy)
        raise NoSuchObject()

    def put(self, vhost, name):
        """Create or replace it; it is in force at once.

        Where a policy and an operator policy differ, the lower number holds.
        """
        there = writable_vhost(vhost)
        wanted = body(required=("pattern", "definition"))
        existed = (self._component, name) in there.parameters
        value = {
            "pattern": wanted["pattern"], "definition": wanted["definition"],
            "apply-to": wanted.get("apply-to", "all"), "priority": wanted.get("priority", 0),
        }
        for key, why in node().broker.parameters.idle_parts(self._component, value).items():
            raise BadRequest(validation_failed(f"{key} is not a recognised policy setting: {why}"))
        try:
            node().broker.parameters.set(there, self._component, name, value, set_by())
        except ValueError as error:
            raise BadRequest(validation_failed(error)) from None
        return no_content(204 if existed else 201)

    def delete(self, vhost, name):
        """Take it away; what it overrode is in force again."""
        if not node().broker.parameters.clear(find_vhost(vhost), self._component, name):
            raise NoSuchObject()
        return no_content()

    def of_vhost(self, vhost):
        """The policies of a vhost, as RabbitMQ shows them."""
        chosen = vhost.policies.operator if self._component == OPERATOR_POLICY else vhost.policies.user
        return [
            {"vhost": vhost.name, "name": policy.name, **shown(policy.as_value())}
            for policy in list(chosen.by_name.values())
        ]


Family(POLICY, POLICYMAKER).register("/api/policies", "policies")
Family(OPERATOR_POLICY, ADMINISTRATOR).register("/api/operator-policies", "operator_policies")
