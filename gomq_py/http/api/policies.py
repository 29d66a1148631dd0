"""/api/policies, /api/operator-policies: lists, sets, previews and deletes policies and operator policies."""
from flask import Blueprint, g

from gomq_py.broker.policies.policy import EXCHANGE, OPERATOR_POLICY, POLICY
from gomq_py.broker.policies.setter_rights import HANDS_ON
from gomq_py.broker.policies.vhost_policies import previewed, would_be
from gomq_py.http.answers import body, json_answer, no_content, node
from gomq_py.http.errors import BadRequest, NoSuchObject, validation_failed
from gomq_py.http.entities import find_vhost, vhosts_named, writable_vhost
from gomq_py.http.login import ADMINISTRATOR, MANAGEMENT, POLICYMAKER, access, set_by
from gomq_py.http.paging import listing
from gomq_py.hub.turns import paced
from gomq_py.observability.secrets import shown

blueprint = Blueprint("policies", __name__)
# Changes that a preview shows.
PREVIEWED = 200


class Family:
    """The routes of policies or of operator policies. Users need the tag ``writer`` to change these."""

    def __init__(self, component, writer):
        self._component = component
        self._writer = writer

    def register(self, path, name):
        """Add the routes below the URL ``path``. The names of their Flask endpoints begin with ``name``."""
        one = f"{path}/<vhost>/<name>"
        for rules, method, tag, view in (
                ((path, f"{path}/<vhost>"), "GET", MANAGEMENT, self.list_all),
                ((one,), "GET", MANAGEMENT, self.get), ((one,), "PUT", self._writer, self.put),
                ((one,), "DELETE", self._writer, self.delete),
                ((f"{one}/preview",), "POST", self._writer, self.preview)):
            guarded = access(tag)(view)
            for rule in rules:
                blueprint.add_url_rule(rule, f"{name}_{view.__name__}", guarded, methods=(method,))

    def list_all(self, vhost=None):
        """Return the policies of one vhost, or of all vhosts that the user sees."""
        return listing([policy for one in vhosts_named(vhost) for policy in self.of_vhost(one)])

    def get(self, vhost, name):
        """Return one policy."""
        for policy in self.of_vhost(find_vhost(vhost)):
            if policy["name"] == name:
                return json_answer(policy)
        raise NoSuchObject()

    def put(self, vhost, name):
        """Create or replace the policy, which is in force at once. If a policy and an operator policy set the
        same number, the lower number holds.
        """
        there = writable_vhost(vhost)
        value, by = self._wanted(), set_by()
        existed = (self._component, name) in there.parameters
        try:
            node().broker.parameters.set(there, self._component, name, value, by)
        except ValueError as error:
            raise BadRequest(validation_failed(error)) from None
        return no_content(204 if existed else 201)

    def _wanted(self):
        """Return the policy in the request's body, in the form that parameters store. Raises BadRequest."""
        wanted = body(required=("pattern", "definition"))
        value = {
            "pattern": wanted["pattern"], "definition": wanted["definition"],
            "apply-to": wanted.get("apply-to", "all"), "priority": wanted.get("priority", 0),
        }
        for key, why in node().broker.parameters.idle_parts(self._component, value).items():
            raise BadRequest(validation_failed(f"{key} is not a recognised policy setting: {why}"))
        if set_by() is None and ADMINISTRATOR not in g.tags:
            _check_token(value["definition"])
        return value

    def preview(self, vhost, name):
        """Return what the policy in the body would match and change if this user set it under this name: the
        number of changes, and the first 200 of them. Changes nothing.
        """
        there, is_operator = find_vhost(vhost), self._component == OPERATOR_POLICY
        try:
            policy = would_be(node().broker.users, there, name, self._wanted(), is_operator, set_by())
        except ValueError as error:
            raise BadRequest(validation_failed(error)) from None
        matched, changes, changed = {"queues": 0, "exchanges": 0}, [], 0
        for one in paced(previewed(there, policy, is_operator)):
            matched["exchanges" if one.kind == EXCHANGE else "queues"] += one.is_matched
            if one.is_one:
                changed += 1
                if changed <= PREVIEWED:
                    changes.append(_shown(one))
        return json_answer({"matched": matched, "changed": changed, "changes": changes})

    def delete(self, vhost, name):
        """Delete the policy; a policy of lower priority may then be in force again."""
        if not node().broker.parameters.clear(find_vhost(vhost), self._component, name):
            raise NoSuchObject()
        return no_content()

    def of_vhost(self, vhost):
        """Return a list of a vhost's policies, as JSON in RabbitMQ's form."""
        chosen = vhost.policies.operator if self._component == OPERATOR_POLICY else vhost.policies.user
        return [
            {"vhost": vhost.name, "name": policy.name, **shown(policy.as_value())}
            for policy in list(chosen.by_name.values())
        ]


def _check_token(definition):
    """Raise BadRequest if ``definition`` has HANDS_ON keys, which the user of a token may not set."""
    # Such a policy acts with the rights of its author, which the broker cannot look up for a token.
    keys = sorted(HANDS_ON.keys() & definition.keys()) if isinstance(definition, dict) else ()
    if keys:
        raise BadRequest(validation_failed(
            f"{', '.join(keys)}: by such a key a policy acts with the rights of the user who set it, which "
            "are not known of a token's user later: a user of the broker's own, or an administrator, may"))


def _shown(change):
    before, after = shown(change.before.definition), shown(change.after.definition)
    return {
        "type": "exchange" if change.kind == EXCHANGE else "queue", "name": change.entity.name,
        "matched": change.is_matched,
        **{
            f"{key}_{when}": None if policy is None else policy.name
            for when, found in (("before", change.before), ("after", change.after))
            for key, policy in (("policy", found.policy), ("operator_policy", found.operator_policy))
        },
        "settings": [
            {"key": key, "before": before.get(key), "after": after.get(key)}
            for key in sorted({*before, *after}) if before.get(key) != after.get(key)
        ],
    }


Family(POLICY, POLICYMAKER).register("/api/policies", "policies")
Family(OPERATOR_POLICY, ADMINISTRATOR).register("/api/operator-policies", "operator_policies")
