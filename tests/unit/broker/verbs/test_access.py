"""What one user may do in one vhost, in RabbitMQ's words."""
import pytest

from gomq_py.broker.verbs.access import Access
from gomq_py.auth.permissions import Permission, TopicPermission
from gomq_py.auth.users import User
from gomq_py.broker.exchanges.direct import DirectExchange
from gomq_py.broker.exchanges.topic import TopicExchange
from gomq_py.broker.routing.route import ExchangeState
from gomq_py.errors import AccessRefused


@pytest.fixture
def user():
    user = User("bob", "", "sha256", (), ExchangeState())
    user.permissions["shop"] = Permission("bob", "shop", "^c", "^w|amq.default", "^r")
    return user


@pytest.mark.parametrize(("verb", "name"), [("configure", "c1"), ("write", "w1"), ("read", "r1")])
def test_granted_rights_pass(user, verb, name):
    getattr(Access(user, "shop"), f"check_{verb}")("queue", name)


@pytest.mark.parametrize("verb", ["configure", "write", "read"])
@pytest.mark.parametrize("kind", ["queue", "exchange"])
def test_missing_rights_are_refused(user, verb, kind):
    with pytest.raises(AccessRefused) as caught:
        getattr(Access(user, "shop"), f"check_{verb}")(kind, "other")

    assert caught.value.text == f"{verb} access to {kind} 'other' in vhost 'shop' refused for user 'bob'"


def test_default_exchange_is_asked_for_by_its_permission_name(user):
    Access(user, "shop").check_write("exchange", "")

    with pytest.raises(AccessRefused, match="read access to exchange 'amq.default'"):
        Access(user, "shop").check_read("exchange", "")


def test_withdrawn_permission_counts_at_once(user):
    access = Access(user, "shop")
    exchange = TopicExchange("w1", "shop")
    assert access.may_publish(exchange, "a.b")

    del user.permissions["shop"]

    assert not access.may_publish(exchange, "a.b")
    with pytest.raises(AccessRefused):
        access.check_configure("queue", "c1")


def test_topic_permission_limits_the_keys_of_its_topic_exchange(user):
    user.topic_permissions["shop", "w1"] = TopicPermission("bob", "shop", "w1", "^a", "^b")
    access = Access(user, "shop")

    assert (
        access.may_publish(TopicExchange("w1", "shop"), "a.b")
        and not access.may_publish(TopicExchange("w1", "shop"), "b.a")
    )
    assert (
        access.may_publish(TopicExchange("w2", "shop"), "b.a")
        and access.may_publish(DirectExchange("w1", "shop"), "b.a")
    )
    text = "read access to topic 'a.b' in exchange 'w1' in vhost 'shop' refused for user 'bob'"
    with pytest.raises(AccessRefused, match=text):
        access.check_read_topic(TopicExchange("w1", "shop"), "a.b")
    access.check_read_topic(None, "a.b")
