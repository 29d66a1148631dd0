"""What makes the broker act for whoever set it: every argument, policy key, component and setting, by name.

Whoever adds one says here whose rights it takes: nobody gets messages by a setting that no right lets them
have.
"""
import pytest

from gomq_py.broker.features import alternate_exchange
from gomq_py.broker.features.table import ARGUMENTS, POLICY_KEYS
from gomq_py.broker.policies.parameters import DELETED, OPERATOR, ParameterError
from gomq_py.broker.policies.policy import KEYS_OF_COMPONENTS, OPERATOR_KEYS, OPERATOR_POLICY, POLICY
from gomq_py.broker.policies.setter_rights import HANDS_ON
from gomq_py.broker.verbs import exchanges, queues
from gomq_py.broker.verbs.access import Access
from gomq_py.broker.verbs.caller import Caller
from gomq_py.errors import NoPermission, PreconditionFailed
from gomq_py.mqtt.model.kinds import all_kinds
from tests.support.node import Node

# By which messages go elsewhere: the kind of what the value names, on which the setter needs write.
KEYS_THAT_HAND_ON = {
    "alternate-exchange": "exchange", "dead-letter-exchange": "exchange", "dead-letter-routing-key": "",
    "tee-to-stream": "queue",
}
# The supervisor of federation asks for the rights of the setters; plugins of RabbitMQ act on the others.
KEYS_OF_OTHERS = {
    "delayed-message", "federation-upstream", "federation-upstream-pattern", "federation-upstream-set",
    "routing-key", "shards-per-node",
}
# They change what becomes of a queue's messages where they are.
KEYS_THAT_STAY = set("""
    consumer-disconnected-timeout consumer-timeout dead-letter-strategy delayed-retry-max
    delayed-retry-min delayed-retry-type
    delivery-limit expires ha-mode ha-params ha-promote-on-failure ha-promote-on-shutdown
    ha-sync-batch-size ha-sync-mode initial-cluster-size max-age max-in-memory-bytes
    max-in-memory-length max-length max-length-bytes max-segment-size-bytes message-deduplication
    message-group message-group-limit message-ttl overflow queue-leader-locator queue-master-locator
    queue-mode queue-version stream-filter-size-bytes stream-max-segment-size-bytes
    target-group-size
""".split())
ARGUMENTS_THAT_HAND_ON = {"x-dead-letter-exchange", "alternate-exchange", "x-alternate-exchange"}
# The routing key goes with an exchange that the same declare names, and takes the rights for.
ARGUMENTS_THAT_STAY = set("""
    x-cache-size x-cache-ttl x-consumer-disconnected-timeout x-consumer-timeout
    x-dead-letter-routing-key x-dead-letter-strategy x-deduplication-header x-delayed-retry-max
    x-delayed-retry-min x-delayed-retry-type x-delivery-limit x-expires
    x-initial-cluster-size x-max-age x-max-in-memory-bytes x-max-in-memory-length x-max-length
    x-max-length-bytes x-max-priority x-message-deduplication x-message-group x-message-group-limit
    x-message-ttl x-overflow x-queue-leader-locator x-queue-mode x-queue-type x-queue-version
    x-quorum-initial-group-size
    x-single-active-consumer x-stream-filter-size-bytes x-stream-max-segment-size-bytes
""".split())
VALUES = {
    "alternate-exchange": "mine-target", "dead-letter-exchange": "mine-target",
    "dead-letter-routing-key": "k", "tee-to-stream": "mine-target",
}
# Components of parameters: only administrators may set a value, or its owner asks for the setter's rights.
OF_ADMINISTRATORS, ASKED = {"mqtt", OPERATOR_POLICY, "vhost-limits"}, {POLICY}


@pytest.fixture
def node(tmp_path):
    node = Node(tmp_path / "data", kinds=all_kinds())
    node.broker.users.set_user("bob", "secret", tags=("policymaker",))
    grant(node)
    for name in ("mine-target", "mine", "secret"):
        node.vhost.declare_queue(name)
        node.vhost.declare_exchange(name, "topic")
    yield node
    node.stop()


def grant(node, write="^mine", read="^mine"):
    node.broker.users.set_permission("bob", "/", ".*", write, read)
    put_in_force(node)


def put_in_force(node):
    """What a change has begun is done."""
    while node.vhost.policies._round is not None and node.vhost.policies.step():
        pass


def set_policy(node, definition, by="bob", name="p"):
    node.broker.parameters.set(
        node.vhost, POLICY, name, {"pattern": "^(mine|secret)$", "definition": definition}, by)
    put_in_force(node)


def keys_in_force(node, name):
    return set().union(*(
        there[name].in_force.definition for there in (node.vhost.queues, node.vhost.exchanges)))


def test_every_key_of_policies_says_whether_messages_go_elsewhere_by_it():
    assert HANDS_ON == KEYS_THAT_HAND_ON
    assert KEYS_OF_COMPONENTS.keys() == KEYS_OF_OTHERS
    assert POLICY_KEYS.keys() - HANDS_ON.keys() - KEYS_OF_OTHERS == KEYS_THAT_STAY
    # Operator policies are of administrators. What both say is merged, which is made of whole keys.
    assert not HANDS_ON.keys() & OPERATOR_KEYS.keys()


def test_every_argument_says_whether_messages_go_elsewhere_by_it():
    assert {*ARGUMENTS, *alternate_exchange.ARGUMENTS} == ARGUMENTS_THAT_HAND_ON | ARGUMENTS_THAT_STAY


def test_every_component_says_whose_values_it_takes(node):
    components = node.broker.parameters._components
    of_administrators = {name for name, one in components.items() if one.administrators_only}

    assert (of_administrators, components.keys() - of_administrators) == (OF_ADMINISTRATORS, ASKED)


@pytest.mark.parametrize("argument", sorted(ARGUMENTS_THAT_HAND_ON))
@pytest.mark.parametrize("missing", ["read", "write"])
def test_argument_takes_read_on_what_is_declared_and_write_on_what_is_named(node, argument, missing):
    grant(node, **{missing: "^none"})
    caller = Caller(Access(node.broker.users.get("bob"), "/"), node.vhost, None, "", 0)
    declare = (
        (lambda: queues.declare(caller, "mine-new", arguments={argument: "mine-target"}))
        if argument in ARGUMENTS
        else lambda: exchanges.declare(caller, "mine-new", "fanout", arguments={argument: "mine-target"}))

    with pytest.raises(NoPermission):
        declare()

    grant(node)
    assert declare().created


@pytest.mark.parametrize("key", sorted(KEYS_THAT_HAND_ON))
def test_key_has_no_effect_on_what_its_setter_may_not_read(node, key):
    set_policy(node, {key: VALUES[key], "max-length": 7})

    assert keys_in_force(node, "mine") == {key, "max-length"}
    assert keys_in_force(node, "secret") == {"max-length"}
    grant(node, read=".*")
    assert keys_in_force(node, "secret") == {key, "max-length"}
    grant(node, read="^none")
    assert keys_in_force(node, "mine") == {"max-length"}


@pytest.mark.parametrize("key", ["alternate-exchange", "tee-to-stream"])
def test_key_has_no_effect_on_an_exchange_at_which_a_topic_permission_limits_its_setter(node, key):
    """By a key all messages would come, whatever their routing keys."""
    set_policy(node, {key: VALUES[key]})
    users, exchange = node.broker.users, node.vhost.exchanges["mine"]
    users.set_topic_permission("bob", "/", "mine-target", "", "")

    users.set_topic_permission("bob", "/", "mine", "", "^bob[.]")
    put_in_force(node)
    assert exchange.in_force.definition == {}

    users.delete_topic_permissions("bob", "/", "mine")
    put_in_force(node)
    assert exchange.in_force.definition == {key: VALUES[key]}


@pytest.mark.parametrize("key", sorted(key for key, kind in KEYS_THAT_HAND_ON.items() if kind))
def test_key_takes_write_on_what_it_names_when_it_is_set_and_later(node, key):
    what = f"{KEYS_THAT_HAND_ON[key]} 'secret' in vhost '/'"
    with pytest.raises(ParameterError, match=f"{key}: access to {what} refused for user 'bob'"):
        set_policy(node, {key: "secret"})
    set_policy(node, {key: VALUES[key]})

    grant(node, write="^none")

    assert keys_in_force(node, "mine") == set()


def test_dead_letters_over_the_default_exchange_take_write_on_it(node):
    with pytest.raises(ParameterError, match="'amq.default'"):
        set_policy(node, {"dead-letter-exchange": ""})


@pytest.mark.parametrize("change", ["deleted", "without the tag"])
def test_policy_hands_nothing_on_for_who_was_deleted_or_is_no_policymaker_any_more(node, change):
    users, dead_letters = node.broker.users, {"dead-letter-exchange": "mine-target"}
    set_policy(node, dead_letters)

    if change == "deleted":
        users.delete_user("bob")
        users.set_user("bob", "another", tags=("administrator",))
        assert node.vhost.set_by[POLICY, "p"] == DELETED
    else:
        users.set_tags("bob", ("management",))
    put_in_force(node)

    assert keys_in_force(node, "mine") == set()
    with pytest.raises(PreconditionFailed, match="NUL"):
        users.set_user(DELETED, "x")


def test_policy_of_a_deleted_user_stops_where_the_disk_does_not_take_that(node, monkeypatch):
    """Another user may get the name before the next boot tries again."""
    set_policy(node, {"dead-letter-exchange": "mine-target"})

    def refuse(_record):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(node.broker.parameters._log, "append", refuse)
        node.broker.users.delete_user("bob")
    node.broker.users.set_user("bob", "another", tags=("administrator",))
    put_in_force(node)

    assert node.vhost.set_by[POLICY, "p"] == DELETED
    assert keys_in_force(node, "mine") == set()


@pytest.mark.parametrize("by", [OPERATOR, None, "guest"])
def test_policies_of_administrators_and_of_earlier_releases_are_not_limited(node, by):
    node.broker.users.set_permission("guest", "/", "", "", "")

    set_policy(node, {"dead-letter-exchange": "secret"}, by)

    assert keys_in_force(node, "secret") == {"dead-letter-exchange"}
