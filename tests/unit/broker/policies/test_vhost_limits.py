"""Limits of a vhost: checked, and observed when queues are declared."""
import pytest

from gomq_py.broker.policies.parameters import ParameterError
from gomq_py.broker.policies.vhost_limits import LimitsComponent
from gomq_py.errors import PreconditionFailed
from tests.support.model import make_vhost


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


def test_negative_limit_is_none():
    vhost, _, _ = make_vhost()

    LimitsComponent().changed(vhost, "limits", {"max-queues": -1})

    assert vhost.limits == {}


@pytest.mark.parametrize("value", [
    [], {"max-cats": 1}, {"max-queues": "1"}, {"max-queues": True}, {"max-queues": 1.5}
])
def test_malformed_limits_are_refused(value):
    with pytest.raises(ParameterError):
        LimitsComponent().check(None, "limits", value)
