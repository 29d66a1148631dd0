"""Mutants of what an operator changes: policies, rights, logins and limits. See mutants."""
from gomq_py.amqp.server.withdrawals import Withdrawals
from gomq_py.auth.users import Users
from gomq_py.broker.policies.parameters import Parameters
from gomq_py.broker.policies.policy import POLICY, PolicySet
from gomq_py.broker.policies.limits import LimitsComponent
from gomq_py.hub.clients import Clients


def policy_lost_on_restart():
    """It is listed, and in force for nothing."""
    restore = Parameters.restore

    def keep(parameters, vhost, component, name, value, waits=None, by=None):
        if component == POLICY:
            parameters._keep(vhost, component, name, value, bool(waits), by)
            return None
        return restore(parameters, vhost, component, name, value, waits, by)

    Parameters.restore = keep


def policy_in_force_twice():
    """One that is changed counts as it was, too."""
    put = PolicySet.put

    def beside(policies, policy):
        if policy.name in policies.by_name:
            policies.by_name[f"{policy.name} before"] = policies.by_name[policy.name]
        put(policies, policy)

    PolicySet.put = beside


def rights_cached_for_ever():
    """A channel that has published to an exchange may do so again."""
    Users._rights_changed = lambda users, user: [watch(user) for watch in users.rights_watchers] and None


def right_to_read_withdrawn_in_vain():
    """From consumers that are there."""
    Withdrawals.begin = lambda withdrawals, user: None


def password_that_was_changed():
    """It still lets in whoever has come in with it."""
    matching_hash = Users.matching_hash

    def known(users, name, password):
        if name in users and users._proof(name, password) in users._verified:
            return users.get(name).password_hash
        found = matching_hash(users, name, password)
        if found is not None:
            users._verified[users._proof(name, password)] = None
        return found

    Users.matching_hash = known


def connections_of_deleted_users():
    """They go on."""
    from gomq_py.http.api import users  # here, for it brings Flask

    users._delete = lambda names: [users.node().broker.users.delete_user(name) for name in names]


def connection_counts_on_after_a_reset():
    """In its vhost, where its client has not said that it goes."""
    forget = Clients.forget

    def keep(clients, connection):
        there = clients._by_vhost.get(connection.vhost)
        is_new = connection in clients
        forget(clients, connection)
        if is_new and not connection.why.startswith("by the client"):
            clients._by_vhost[connection.vhost] = there
            there[connection] = None

    Clients.forget = keep


def vhost_takes_one_more():
    """Connection than its limit."""
    def changed(limits, vhost, name, value):
        vhost.limits = {key: limit + 1 for key, limit in value.items() if limit >= 0}

    LimitsComponent.changed = changed
