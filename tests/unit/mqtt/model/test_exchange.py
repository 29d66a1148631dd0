"""MQTTExchange: what may be bound, what a routing key matches,
and that AMQP's topic exchange hands on to it.
"""
import pytest

from gomq_py.broker.topology.kinds import Kinds
from gomq_py.errors import PreconditionFailed
from gomq_py.mqtt.model import exchange as module
from gomq_py.mqtt.model.kinds import EXCHANGE, register
from tests.support.model import FakeQueue, make_vhost, routed


@pytest.fixture
def vhost():
    """With the queue q."""
    kinds = Kinds()
    register(kinds)
    vhost, _, _ = make_vhost(kinds=kinds)
    vhost.declare_queue("q")
    return vhost


def refusal(vhost, topic_filter, arguments=None):
    with pytest.raises(PreconditionFailed) as refused:
        vhost.bindings.bind_queue("q", EXCHANGE, topic_filter, arguments)
    return refused.value.text


@pytest.mark.parametrize("exchange", ["amq.topic", EXCHANGE])
def test_message_reaches_what_is_bound_by_a_filter_that_matches_its_topic(vhost, exchange):
    vhost.bindings.bind_queue("q", EXCHANGE, "sensors/v1.2/+")

    assert routed(vhost, exchange, "sensors.v1/2.t") == ["q"]
    assert routed(vhost, exchange, "sensors.v1.2.t") == []


def test_filter_is_matched_no_more_once_it_is_unbound(vhost):
    vhost.bindings.bind_queue("q", EXCHANGE, "a/#")

    vhost.bindings.unbind_queue("q", EXCHANGE, "a/#")

    assert routed(vhost, "amq.topic", "a.b") == []


@pytest.mark.parametrize("topic_filter, text", [
    (
        "",
        "cannot bind to exchange 'mqtt.default' in vhost '/': a topic filter is at least one character long",
    ),
    (
        "a/#/b",
        (
            "cannot bind to exchange 'mqtt.default' in vhost '/': "
            "topic filter 'a/#/b' has a # that is not its last level"
        ),
    ),
    (
        "$share/g/a",
        "cannot bind to exchange 'mqtt.default' in vhost '/' with the shared subscription '$share/g/a'",
    ),
    (
        "/" * 200,
        "cannot bind to exchange 'mqtt.default' in vhost '/': a topic filter has more than 200 levels",
    ),
])
def test_what_is_no_filter_is_refused(vhost, topic_filter, text):
    assert refusal(vhost, topic_filter) == text


def test_filter_of_the_most_levels_is_bound(vhost):
    vhost.bindings.bind_queue("q", EXCHANGE, "/" * 199)

    assert routed(vhost, EXCHANGE, "." * 199) == ["q"]


def test_options_of_subscriptions_are_refused(vhost):
    assert refusal(vhost, "a", {"x-mqtt-qos": 1}) == (
        "invalid arg 'x-mqtt-qos' for a binding from exchange 'mqtt.default' in vhost '/': "
        "it is for subscriptions over MQTT")


def test_filters_that_would_make_matching_slow_are_refused_and_others_are_not(vhost, monkeypatch):
    monkeypatch.setattr(module, "MAX_COSTLY_LEVELS", 5)
    vhost.bindings.bind_queue("q", EXCHANGE, "a/+")

    assert refusal(vhost, "+/+/b/c").endswith(
        "topic filters of virtual host '/' have their + in too many different places (limit of 5 levels)")
    for harmless in ("b/+", "c/+/#", "+/a/#", "a/b/c/d/e/f"):
        vhost.bindings.bind_queue("q", EXCHANGE, harmless)


@pytest.mark.parametrize("routing_key", ["", "a.+", "a.#", "a.\0", "a.\udcff", "a.\x01"])
def test_routing_key_that_is_no_topic_goes_to_nobody(vhost, routing_key):
    vhost.bindings.bind_queue("q", EXCHANGE, "#")

    assert routed(vhost, EXCHANGE, routing_key) == []


def test_what_is_to_be_retained_goes_to_the_retained_as_well(vhost):
    exchange = vhost.exchange(EXCHANGE)
    exchange.retained = FakeQueue("retained")
    vhost.bindings.bind_queue("q", EXCHANGE, "a")

    assert routed(vhost, "amq.topic", "a", {"mqtt.retain": True}) == ["q", "retained"]
    assert routed(vhost, "amq.topic", "b", {"mqtt.retain": True}) == ["retained"]
    assert [
        routed(vhost, "amq.topic", "a", headers)
        for headers in (None, {}, {"mqtt.retain": 1}, {"mqtt.retain": "true"})
    ] == [["q"]] * 4
