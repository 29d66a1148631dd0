"""Preview: what a policy would match and change if it were set now. Changes nothing, and logs nothing."""
from typing import Any, NamedTuple

from gomq_py.broker.features.arguments import queue_type_of
from gomq_py.broker.policies.policy import EXCHANGE, PolicySet, policy_of
from gomq_py.broker.policies.setter_rights import SetterRights, check


class Change(NamedTuple):
    """``entity`` is of this ``kind`` (EXCHANGE or a type of queue); ``before`` and ``after``: InForce."""

    entity: Any
    kind: str
    is_matched: bool
    before: Any
    after: Any

    @property
    def is_one(self):
        """Whether anything is otherwise."""
        return (self.before.policy, self.before.operator_policy, self.before.definition) != (
            self.after.policy, self.after.operator_policy, self.after.definition)


def would_be(users, vhost, name, value, is_operator, by):
    """The Policy, or operator policy, that there would be if ``by`` (see Parameters.set) set this value.

    Raises ValueError.
    """
    policy = policy_of(name, value, is_operator)
    if not is_operator:
        check(users, vhost, policy.definition, by)
        policy.rights = SetterRights(users, vhost, name, by)
    return policy


def previewed(vhost, policy, is_operator):
    """A Change of each queue and exchange that the policy would be for, or is. A generator."""
    would = PolicySet()
    for one in (vhost.policies.operator if is_operator else vhost.policies.user).by_name.values():
        would.put(one)
    would.put(policy)
    for entities in (list(vhost.queues.values()), list(vhost.exchanges.values())):
        for entity in entities:
            if entity.name:
                yield _change(vhost, entity, policy, would, is_operator)


def _change(vhost, entity, policy, would, is_operator):
    kind = EXCHANGE if vhost.exchanges.get(entity.name) is entity else queue_type_of(entity.arguments)
    after = vhost.policies.would_be(kind, entity.name, would, is_operator)
    return Change(entity, kind, policy.applies(kind, entity.name), entity.in_force, after)
