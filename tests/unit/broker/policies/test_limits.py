"""Limits of vhosts and users: checked, set, kept and observed."""
import json

import pytest

from gomq_py.broker.policies.limits import LimitsComponent, UserLimitError
from gomq_py.broker.policies.parameters import ParameterError
from gomq_py.broker.topology.definitions import Importer, exported
from gomq_py.errors import PreconditionFailed
from tests.support.model import make_vhost
from tests.support.node import Node


def test_queue_beyond_the_limit_is_refused():
    vhost, _, _ = make_vhost()
    LimitsComponent().changed(vhost, "limits", {"max-queues": 2, "max-connections": -1})
    vhost.declare_queue("a")
    vhost.declare_queue("b")

    with pytest.raises(PreconditionFailed) as refused:
        vhost.declare_queue("c")

    assert refused.value.text == "cannot declare queue 'c': queue limit in vhost '/' (2) is reached"
    with pytest.raises(PreconditionFailed, match="queue limit in vhost"):  # first, as in RabbitMQ
        vhost.declare_queue("c", arguments={"x-message-ttl": "never"})
    assert vhost.declare_queue("a")[1] is False
    LimitsComponent().cleared(vhost, "limits")
    assert vhost.declare_queue("c")[1] is True


def test_empty_list_of_a_rabbitmqs_export_is_no_limit():
    vhost, _, _ = make_vhost()
    LimitsComponent().check(vhost, "limits", [])

    LimitsComponent().changed(vhost, "limits", [])

    assert vhost.limits == {}


def test_negative_limit_is_none():
    vhost, _, _ = make_vhost()

    LimitsComponent().changed(vhost, "limits", {"max-queues": -1})

    assert vhost.limits == {}


@pytest.mark.parametrize("value", [
    ["max-queues"], {"max-cats": 1}, {"max-queues": "1"}, {"max-queues": True}, {"max-queues": 1.5}
])
def test_malformed_limits_are_refused(value):
    with pytest.raises(ParameterError):
        LimitsComponent().check(None, "limits", value)


@pytest.fixture
def make(tmp_path):
    """A function that opens the broker of a folder, as if after a kill."""
    nodes = {}

    def make_broker(name="node"):
        if name in nodes:
            nodes[name].kill()
        nodes[name] = Node(tmp_path / name)
        return nodes[name].broker

    yield make_broker
    for node in nodes.values():
        node.stop()


def test_limits_are_set_and_cleared_one_by_one(make):
    limits = make().user_limits

    limits.set("guest", "max-connections", 3)
    limits.set("guest", "max-channels", 7)

    assert limits.all() == {"guest": {"max-connections": 3, "max-channels": 7}}
    assert limits.clear("guest", "max-connections") and not limits.clear("guest", "max-connections")
    assert limits.get("guest") == {"max-channels": 7}


def test_negative_limit_is_shown_and_limits_nothing(make):
    broker = make()
    broker.user_limits.set("guest", "max-connections", -1)

    assert broker.user_limits.get("guest") == {"max-connections": -1}
    assert broker.user_limits.limit(broker.users.get("guest"), "max-connections") is None


@pytest.mark.parametrize(("name", "value"), [
    ("max-queues", 1), ("max-channels", "1"), ("max-channels", 1.5), ("max-channels", True),
    ("max-channels", None), ("max-channels", 1 << 63),
])
def test_what_is_no_limit_is_refused(make, name, value):
    limits = make().user_limits

    with pytest.raises(UserLimitError):
        limits.set("guest", name, value)
    assert limits.get("guest") == {}


@pytest.mark.parametrize("call", [
    lambda limits: limits.get("eve"), lambda limits: limits.set("eve", "max-channels", 1),
    lambda limits: limits.clear("eve", "max-channels"),
    lambda limits: limits.replace("eve", {}),
])
def test_unknown_user_has_no_limits_to_speak_of(make, call):
    with pytest.raises(KeyError):
        call(make().user_limits)


def test_limits_survive_a_restart_and_a_new_password(make):
    broker = make()
    broker.user_limits.set("guest", "max-channels", 5)
    broker.user_limits.set("guest", "max-connections", 0)
    broker.user_limits.clear("guest", "max-channels")
    broker.users.set_user("guest", "other", tags=("administrator",))

    assert make().user_limits.all() == {"guest": {"max-connections": 0}}


def test_deleted_user_takes_its_limits_with_it(make):
    broker = make()
    broker.users.set_user("ann", "a")
    broker.user_limits.set("ann", "max-channels", 5)

    broker.users.delete_user("ann")
    broker.users.set_user("ann", "a")

    assert broker.user_limits.get("ann") == make().user_limits.get("ann") == {}


def test_limits_survive_a_rewritten_log(make, monkeypatch):
    broker = make()
    broker.user_limits.set("guest", "max-channels", 5)
    for _ in range(5):
        broker.users.set_tags("guest", ("administrator",))
    monkeypatch.setattr("gomq_py.auth.users._SLACK", 0)

    assert make().user_limits.get("guest") == {"max-channels": 5}
    assert make().user_limits.get("guest") == {"max-channels": 5}


def test_definitions_carry_limits(make):
    broker, other = make(), make("other")
    broker.user_limits.set("guest", "max-channels", 5)

    definitions = json.loads(json.dumps(exported(broker)))
    Importer(other).run(definitions)

    assert definitions["users"][0]["limits"] == {"max-channels": 5}
    assert other.user_limits.get("guest") == {"max-channels": 5}


def test_bad_limit_in_definitions_is_reported(make):
    broker = make()

    report = Importer(broker).run(
        {"users": [{"name": "ann", "password": "a", "tags": "", "limits": {"max-channels": "many"}}]}
    )

    assert "max-channels" in report.problems[0]
    assert "ann" not in broker.users
