"""Applies a vhost's policies to queues and exchanges when these are declared and when policies change.

A change of policies goes through all queues and exchanges in slices, so that 100 000 queues or slow patterns
do not hold up the event loop. A queue or exchange declared during such a round gets the new policies at once.
"""
import time
from typing import Any, NamedTuple

from gomq_py.broker.features import alternate_exchange, tee
from gomq_py.broker.features.deduplication import ExchangeIds, deduplication_of
from gomq_py.broker.features.message_group import with_policy
from gomq_py.broker.features.queue_type import queue_type_of
from gomq_py.broker.policies.parameters import Component
from gomq_py.broker.policies.policy import EXCHANGE, UNDER_NONE, InForce, PolicySet, policy_of
from gomq_py.broker.policies.queue_settings import PLAIN, QueueSettings
from gomq_py.broker.policies.setter_rights import SetterRights, check_hands_on
from gomq_py.hub.scheduler import Job, SliceClock
from gomq_py.observability.log import logger

LOG = logger("broker")
NONE_REFUSED: frozenset[str] = frozenset()


class VHostPolicies(Job):
    """A vhost's policies (the PolicySet ``user``) and operator policies (``operator``), and the job that
    applies them.

        configure(queue, settings)
                                applies QueueSettings to a queue; with None, removes all limits
        when_safe               Durability.when_safe, for the ids that an exchange remembers (ExchangeIds)
        left_out(kind)          returns the policy keys without meaning for a queue type or exchanges
        told(vhost, entity)     called after the policies that apply to a queue or exchange were computed
    """

    name = "applying policies"

    def __init__(self, vhost, scheduler, configure, when_safe, left_out, told):
        super().__init__()
        self.user = PolicySet()
        self.operator = PolicySet()
        self._vhost = vhost
        self._scheduler = scheduler
        self._configure = configure
        self._when_safe = when_safe
        self._left_out = left_out
        self._told = told
        self._round = None
        # CPU time, so that a change applies at once to a few queues, however busy the machine is.
        self._clock = SliceClock(clock=time.thread_time)
        self._pairs = {}  # ((policy or None, operator policy or None), keys left out): InForce

    def configure_queue(self, queue):
        self._put_under(queue, queue.type, self._configure_queue)

    def with_group(self, existing, name, arguments):
        """Return the arguments of a queue.declare. If they lack a message group, add that of the queue
        ``existing``. For a new queue (None), add that in the policies for its ``name``.
        """
        return with_policy(
            existing, arguments, lambda: self._in_force(queue_type_of(arguments), name).definition)

    def configure_exchange(self, exchange):
        self._put_under(exchange, EXCHANGE, self._configure_exchange)

    def _put_under(self, entity, kind, configure):
        """Apply the policies to an entity. If that fails, log the error and apply none."""
        entity.in_force = self._in_force(kind, entity.name)
        try:
            configure(entity, entity.in_force.definition)
        except Exception as error:
            names = [
                policy.name
                for policy in (entity.in_force.policy, entity.in_force.operator_policy) if policy is not None
            ]
            LOG.error("%s %r in vhost %r is under no policy, for %s cannot be applied to it: %s: %s",
                      kind, entity.name, self._vhost.name, " and ".join(map(repr, names)),
                      type(error).__name__, error)
            entity.in_force = UNDER_NONE
            configure(entity, UNDER_NONE.definition)
        self._told(self._vhost, entity)

    def _configure_queue(self, queue, policy):
        settings = QueueSettings(queue.arguments, policy) if policy or queue.arguments else PLAIN
        self._configure(queue, None if settings.is_plain else settings)
        self._vhost.set_tee(queue, policy.get(tee.POLICY_KEY))

    def _configure_exchange(self, exchange, policy):
        self._vhost.set_alternate(exchange, policy.get(alternate_exchange.POLICY_KEY))
        self._vhost.set_tee(exchange, policy.get(tee.POLICY_KEY))
        settings = deduplication_of(exchange.arguments, policy)
        if settings != (None if exchange.deduplication is None else exchange.deduplication.settings):
            exchange.deduplication = None if settings is None else ExchangeIds(settings, self._when_safe)
            self._vhost.routes_changed(exchange)

    def _in_force(self, kind, name):
        pair = self.user.best(kind, name), self.operator.best(kind, name)
        if pair == (None, None):
            return UNDER_NONE
        without, refused = self._without(kind, name, pair[0])
        if refused:
            pair[0].rights.tell(refused, EXCHANGE if kind == EXCHANGE else "queue", name)
        found = self._pairs.get((pair, without))
        if found is None:
            found = self._pairs[pair, without] = InForce(*pair, without)
        return found

    def _without(self, kind, name, policy):
        """Return (policy keys without effect on an entity, those of them forbidden to the setter)."""
        refused = NONE_REFUSED
        if policy is not None and policy.rights is not None:
            refused = policy.rights.left_out(policy.definition, kind, name)
        return self._left_out(kind) | refused, refused

    def are_set_by(self, by):
        return any(
            policy.rights is not None and policy.rights.by == by for policy in self.user.by_name.values())

    def change_of(self, entity, kind, policy, would, is_operator):
        """Return the PolicyChange of ``entity`` by the new ``policy``. ``would``: the PolicySet with it."""
        user, operator = (self.user, would) if is_operator else (would, self.operator)
        name = entity.name
        best = user.best(kind, name)
        after = InForce(best, operator.best(kind, name), self._without(kind, name, best)[0])
        return PolicyChange(entity, kind, policy.applies(kind, name), entity.in_force, after)

    def changed(self):
        """Apply the changed policies to all queues and exchanges, in slices. Ends an unfinished round."""
        self._pairs = {}
        self._round = self._go_through()
        if self.step():
            self._scheduler.start(self)

    def step(self):
        self._clock.begin()
        for _ in self._round:
            if self._clock.is_over():
                return True
        return False

    def failed(self, error):
        return True

    def _go_through(self):
        vhost = self._vhost
        for there, configure in (
            (vhost.queues, self.configure_queue), (vhost.exchanges, self.configure_exchange)
        ):
            for entity in list(there.values()):
                if entity.name and there.get(entity.name) is entity:
                    try:
                        configure(entity)
                    except Exception:
                        # a fault of one entity must not keep the policy from the others
                        LOG.exception(
                            "the policies in force could not be applied to %r in vhost %r", entity.name,
                            vhost.name,
                        )
                yield


# the changes that a policy would bring if it were set now

class PolicyChange(NamedTuple):
    """The effect that a new policy would have on one entity: its InForce ``before`` and ``after``. ``kind``:
    EXCHANGE or the queue type. ``is_matched``: True if the new policy's pattern matches the entity.
    """

    entity: Any
    kind: str
    is_matched: bool
    before: Any
    after: Any

    @property
    def is_one(self):
        """True if ``before`` and ``after`` differ in a policy or in the merged definition."""
        return (self.before.policy, self.before.operator_policy, self.before.definition) != (
            self.after.policy, self.after.operator_policy, self.after.definition)


def would_be(users, vhost, name, value, is_operator, by):
    """Return the Policy, or operator policy, ``name`` that the user ``by`` would set, without setting it.
    Raises ValueError if it is invalid or exceeds the user's rights.
    """
    policy = policy_of(name, value, is_operator)
    if not is_operator:
        check_hands_on(users, vhost, policy.definition, by)
        policy.rights = SetterRights(users, vhost, name, by)
    return policy


def previewed(vhost, policy, is_operator):
    """Yield the PolicyChange that setting ``policy`` would cause for each queue and each named exchange."""
    would = PolicySet()
    would.by_name.update((vhost.policies.operator if is_operator else vhost.policies.user).by_name)
    would.put(policy)
    for queue in list(vhost.queues.values()):
        yield vhost.policies.change_of(queue, queue.type, policy, would, is_operator)
    for exchange in list(vhost.exchanges.values()):
        if exchange.name:
            yield vhost.policies.change_of(exchange, EXCHANGE, policy, would, is_operator)


class PolicyComponent(Component):
    """Handler of the parameters of component ``policy`` or, with ``operator``, ``operator_policy``.
    ``users``: the Users, among them the setters of policies; None: setters' rights do not limit policies.
    """

    def __init__(self, operator=False, users=None):
        self._users = users
        self._operator = self.administrators_only = operator

    def check(self, vhost, name, value):
        policy_of(name, value, self._operator)

    def check_set_by(self, vhost, name, value, by):
        policy = policy_of(name, value, self._operator)
        if self._users is not None:
            check_hands_on(self._users, vhost, policy.definition, by)

    def changed(self, vhost, name, value):
        policy = policy_of(name, value, self._operator)
        if self._users is not None:
            policy.rights = SetterRights(self._users, vhost, name)
        self._set_of(vhost).put(policy)
        vhost.policies.changed()

    def cleared(self, vhost, name):
        self._set_of(vhost).remove(name)
        vhost.policies.changed()

    def _set_of(self, vhost):
        return vhost.policies.operator if self._operator else vhost.policies.user
