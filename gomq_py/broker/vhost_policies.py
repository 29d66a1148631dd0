"""A vhost's policies at work: which are in force for each queue and exchange, applied when they, or the policies, come and go.

Beside vhost, above policies. A change of policies goes through all entities in slices, so that 10 000 queues do not hold up the hub; an entity that
is declared meanwhile gets the policies as they are then, and a slice that comes late changes nothing.
"""
from gomq_py.broker.arguments import queue_type_of
from gomq_py.broker.deduplication import SeenIds, deduplication_of
from gomq_py.broker.parameters import Component
from gomq_py.broker.policies import EXCHANGE, UNDER_NONE, InForce, PolicySet, policy_of
from gomq_py.broker.queue_settings import PLAIN, QueueSettings
from gomq_py.observability.log import logger

LOG = logger("broker")

# Entities gone through before others get their turn: about 2 ms.
SLICE = 500


class VHostPolicies:
    """``user`` and ``operator`` are PolicySets. ``run_sliced`` is the scheduler's, ``configure(queue, settings)`` the queue factory's."""

    def __init__(self, vhost, run_sliced, configure):
        self.user = PolicySet()
        self.operator = PolicySet()
        self._vhost = vhost
        self._run_sliced = run_sliced
        self._configure = configure
        self._round = 0
        self._pairs = {}  # (policy or None, operator policy or None): InForce

    def configure_queue(self, queue):
        """Give a queue the policies in force and the settings it has to observe now; None for a plain one."""
        self._put_under(queue, queue_type_of(queue.arguments), self._configure_queue)

    def configure_exchange(self, exchange):
        """Give an exchange the policies in force."""
        self._put_under(exchange, EXCHANGE, self._configure_exchange)

    def _put_under(self, entity, kind, configure):
        """Checks refuse a policy that cannot be applied. One that slipped through them costs itself: the entity is there, and all others."""
        entity.in_force = self._in_force(kind, entity.name)
        try:
            configure(entity, entity.in_force.definition)
        except Exception as error:
            names = [policy.name for policy in (entity.in_force.policy, entity.in_force.operator_policy) if policy is not None]
            LOG.error("%s %r in vhost %r is under no policy, for %s cannot be applied to it: %s: %s",
                      kind, entity.name, self._vhost.name, " and ".join(map(repr, names)), type(error).__name__, error)
            entity.in_force = UNDER_NONE
            configure(entity, UNDER_NONE.definition)

    def _configure_queue(self, queue, policy):
        settings = QueueSettings(queue.arguments, policy) if policy or queue.arguments else PLAIN
        self._configure(queue, None if settings.is_plain else settings)

    def _configure_exchange(self, exchange, policy):
        self._vhost.set_alternate(exchange, policy.get("alternate-exchange"))
        settings = deduplication_of(exchange.arguments, policy)
        if settings != (None if exchange.deduplication is None else exchange.deduplication.settings):
            exchange.deduplication = None if settings is None else SeenIds(settings)
            self._vhost.routes_changed(exchange)

    def _in_force(self, kind, name):
        """What an entity stands under now: the best of each kind of policy, one value for all entities that have the same two."""
        pair = self.user.best(kind, name), self.operator.best(kind, name)
        if pair == (None, None):
            return UNDER_NONE
        found = self._pairs.get(pair)
        if found is None:
            found = self._pairs[pair] = InForce(*pair)
        return found

    def changed(self):
        """Policies came or went: go through everything. A round that is under way is given up for this one."""
        self._round += 1
        self._pairs = {}
        number = self._round
        left = [(self.configure_queue, self._vhost.queues, queue) for queue in self._vhost.queues.values()]
        left += [(self.configure_exchange, self._vhost.exchanges, exchange) for exchange in self._vhost.exchanges.values() if exchange.name]
        left.reverse()

        def slice_():
            for _ in range(min(SLICE, len(left))):
                configure, there, entity = left.pop()
                if there.get(entity.name) is entity:
                    configure(entity)
            return bool(left) and number == self._round

        if slice_():
            self._run_sliced(lambda: number == self._round and slice_())


class PolicyComponent(Component):
    """Parameters of component ``policy`` or, with ``operator``, ``operator_policy``."""

    def __init__(self, operator=False):
        self._operator = operator

    def check(self, vhost, name, value):
        policy_of(name, value, self._operator)

    def changed(self, vhost, name, value):
        self._set_of(vhost).put(policy_of(name, value, self._operator))
        vhost.policies.changed()

    def cleared(self, vhost, name):
        self._set_of(vhost).remove(name)
        vhost.policies.changed()

    def _set_of(self, vhost):
        return vhost.policies.operator if self._operator else vhost.policies.user
