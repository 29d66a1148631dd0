"""What one user may do in one vhost, in RabbitMQ's words."""
import pytest

from gomq_py.amqp.server.access import Access
from gomq_py.amqp.wire.errors import AccessRefused
from gomq_py.auth.permissions import Permission
from gomq_py.auth.users import User
from gomq_py.broker.exchanges.state import ExchangeState


@pytest.fixture
def user():
    user = User("bob", "", "sha256", (), ExchangeState())
    user.permissions["shop"] = Permission("bob", "shop", "^c", "^w|amq.default", "^r")
    return user


@pytest.mark.parametrize(("verb", "name"), [("configure", "c1"), ("write", "w1"), ("read", "r1")])
def test_granted_rights_pass(user, verb, name):
    getattr(Access(user, "shop"), verb)("queue", name)


@pytest.mark.parametrize("verb", ["configure", "write", "read"])
@pytest.mark.parametrize("kind", ["queue", "exchange"])
def test_missing_rights_are_refused(user, verb, kind):
    with pytest.raises(AccessRefused) as caught:
        getattr(Access(user, "shop"), verb)(kind, "other")

    assert caught.value.text == f"access to {kind} 'other' in vhost 'shop' refused for user 'bob'"


def test_default_exchange_is_asked_for_by_its_permission_name(user):
    Access(user, "shop").write("exchange", "")

    with pytest.raises(AccessRefused, match="access to exchange 'amq.default'"):
        Access(user, "shop").read("exchange", "")


def test_withdrawn_permission_counts_at_once(user):
    access = Access(user, "shop")
    assert access.may_publish("w1")

    del user.permissions["shop"]

    assert not access.may_publish("w1")
    with pytest.raises(AccessRefused):
        access.configure("queue", "c1")
