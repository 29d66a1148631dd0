"""Preview: what a policy would match and change if it were set now. Changes and logs nothing."""
from typing import Any, NamedTuple

from gomq_py.broker.policies.policy import EXCHANGE, PolicySet, policy_of
from gomq_py.broker.policies.setter_rights import SetterRights, check_hands_on


class PolicyChange(NamedTuple):
    """``entity`` is of this ``kind`` (EXCHANGE or a type of queue); ``before`` and ``after``: InForce."""

    entity: Any
    kind: str
    is_matched: bool
    before: Any
    after: Any

    @property
    def is_one(self):
        """Whether the policies or their definition differ."""
        return (self.before.policy, self.before.operator_policy, self.before.definition) != (
            self.after.policy, self.after.operator_policy, self.after.definition)


def would_be(users, vhost, name, value, is_operator, by):
    """The Policy, or operator policy, that this value would become if ``by`` (see Parameters.set) set it.
    Raises ValueError.
    """
    policy = policy_of(name, value, is_operator)
    if not is_operator:
        check_hands_on(users, vhost, policy.definition, by)
        policy.rights = SetterRights(users, vhost, name, by)
    return policy


def previewed(vhost, policy, is_operator):
    """Yield a PolicyChange for each queue and exchange with a name."""
    would = PolicySet()
    for one in (vhost.policies.operator if is_operator else vhost.policies.user).by_name.values():
        would.put(one)
    would.put(policy)
    for entities in (list(vhost.queues.values()), list(vhost.exchanges.values())):
        for entity in entities:
            if entity.name:
                yield _change(vhost, entity, policy, would, is_operator)


def _change(vhost, entity, policy, would, is_operator):
    kind = EXCHANGE if vhost.exchanges.get(entity.name) is entity else entity.type
    after = vhost.policies.would_be(kind, entity.name, would, is_operator)
    return PolicyChange(entity, kind, policy.applies(kind, entity.name), entity.in_force, after)
