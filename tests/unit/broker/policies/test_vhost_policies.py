"""Policies at work: applied to what is there, to what comes later, and taken back."""
import pytest

from gomq_py.broker.policies.vhost_policies import PolicyComponent
from gomq_py.hub.scheduler import SliceClock
from gomq_py.patterns import BUDGET_S
from tests.support.clocks import StepClock
from tests.support.model import make_vhost, routed


@pytest.fixture
def model():
    return make_vhost()


def set_policy(model, name, pattern, definition, operator=False, **options):
    vhost, factory, _ = model
    PolicyComponent(operator).changed(vhost, name, {"pattern": pattern, "definition": definition, **options})
    factory.run_all()


def clear_policy(model, name, operator=False):
    PolicyComponent(operator).cleared(model[0], name)
    model[1].run_all()


def cut_after(monkeypatch, vhost, entities):
    """Let a slice of the vhost's policies end after so many entities."""
    monkeypatch.setattr(vhost.policies, "_clock", SliceClock(entities, clock=StepClock(1)))


def limits(model, queue):
    """(max_length, message_ttl_ms) of a queue."""
    settings = model[0].queue(queue).settings
    return (None, None) if settings is None else (settings.max_length, settings.message_ttl_ms)


def test_queue_that_is_there_gets_the_policy_and_loses_it(model):
    model[0].declare_queue("q", arguments={"x-message-ttl": 10})
    assert limits(model, "q") == (None, 10)

    set_policy(model, "p", "q", {"max-length": 5, "message-ttl": 7})
    assert limits(model, "q") == (5, 7)

    clear_policy(model, "p")
    assert limits(model, "q") == (None, 10)


def test_queue_that_comes_later_gets_the_policy(model):
    set_policy(model, "p", "^q", {"max-length": 5})

    model[0].declare_queue("q")
    model[0].declare_queue("other")

    assert limits(model, "q") == (5, None)
    assert limits(model, "other") == (None, None)


def test_plain_queue_has_no_settings_at_all(model):
    model[0].declare_queue("q", arguments={"x-queue-type": "classic"})

    assert model[0].queue("q").settings is None


def test_operators_policy_caps_the_users(model):
    set_policy(model, "p", ".*", {"max-length": 100})
    set_policy(model, "o", ".*", {"max-length": 10}, operator=True)
    model[0].declare_queue("q")
    assert limits(model, "q") == (10, None)

    clear_policy(model, "o", operator=True)

    assert limits(model, "q") == (100, None)


def test_policy_for_a_type_of_queue(model):
    set_policy(model, "p", ".*", {"max-length": 5}, **{"apply-to": "quorum_queues"})

    model[0].declare_queue("classic", durable=True)
    model[0].declare_queue("quorum", durable=True, arguments={"x-queue-type": "quorum"})

    assert limits(model, "classic") == (None, None)
    assert limits(model, "quorum") == (5, None)


def test_alternate_exchange_by_policy_comes_and_goes(model):
    vhost = model[0]
    vhost.declare_queue("q")
    vhost.bindings.bind_queue("q", "amq.fanout", "")
    exchange = vhost.declare_exchange("x", "direct")
    revision = exchange.state.revision

    set_policy(model, "p", "^x$", {"alternate-exchange": "amq.fanout"})
    assert routed(vhost, "x", "k") == ["q"]
    assert exchange.state.revision > revision
    revision = exchange.state.revision

    clear_policy(model, "p")
    assert routed(vhost, "x", "k") == []
    assert exchange.state.revision > revision


def test_alternate_exchange_of_the_arguments_counts_before_the_policys(model):
    vhost = model[0]
    vhost.declare_exchange("x", "direct", arguments={"alternate-exchange": "amq.topic"})

    set_policy(model, "p", "^x$", {"alternate-exchange": "amq.fanout"})

    assert vhost.exchange("x").alternate == "amq.topic"


def test_many_queues_are_gone_through_in_slices(model, monkeypatch):
    vhost, factory, _ = model
    cut_after(monkeypatch, vhost, 10)
    for number in range(35):
        vhost.declare_queue(f"q{number}")

    PolicyComponent().changed(vhost, "p", {"pattern": ".*", "definition": {"max-length": 5}})
    assert len([name for name in vhost.queues if limits(model, name)[0] == 5]) == 10
    vhost.delete_queue("q20")
    PolicyComponent().changed(vhost, "p", {"pattern": ".*", "definition": {"max-length": 6}})
    factory.run_all()

    assert {limits(model, name)[0] for name in vhost.queues} == {6}


def test_queue_and_exchange_know_what_they_stand_under(model):
    vhost = model[0]
    queue, _ = vhost.declare_queue("q")
    exchange = vhost.declare_exchange("x", "direct")

    set_policy(model, "p", ".*", {"max-length": 100})
    set_policy(model, "o", ".*", {"expires": 10}, operator=True)
    under_both = queue.in_force
    clear_policy(model, "p")

    assert (under_both.policy.name, under_both.operator_policy.name, under_both.definition) == (
        "p", "o", {"max-length": 100, "expires": 10}
    )
    assert (queue.in_force.policy, queue.in_force.operator_policy.name, queue.in_force.definition) == (
        None, "o", {"expires": 10}
    )
    assert exchange.in_force is queue.in_force


def test_entity_that_cannot_be_configured_is_said_and_keeps_the_policy_from_nobody_else(
    model, monkeypatch, caplog
):
    vhost, factory, _ = model
    for name in ("a", "ill", "z"):
        vhost.declare_queue(name)
    configure = vhost.policies._configure

    def failing(queue, settings):
        if queue.name == "ill":
            raise OverflowError("too large")
        configure(queue, settings)

    monkeypatch.setattr(vhost.policies, "_configure", failing)
    set_policy(model, "p", ".*", {"max-length": 5})

    assert limits(model, "a") == limits(model, "z") == (5, None)
    assert "the policies in force could not be applied to 'ill' in vhost '/'" in caplog.text


def test_slice_ends_with_the_time_that_a_pattern_takes(model, monkeypatch):
    """Slices of 500 queues with a pattern that takes 5 ms for each name held everybody up for seconds."""
    vhost, factory, _ = model
    matches = []
    clock = StepClock(0)
    monkeypatch.setattr(vhost.policies, "_clock", SliceClock(clock=clock))
    for number in range(5):
        vhost.declare_queue(f"q{number}")

    def slow(pattern, name):
        matches.append(name)
        clock.now += BUDGET_S
        raise TimeoutError

    monkeypatch.setattr("gomq_py.patterns.Pattern.found_in", slow)
    PolicyComponent().changed(vhost, "p", {"pattern": "^(a|aa)+$", "definition": {"max-length": 5}})
    in_the_first = list(matches)
    factory.run_once()

    assert in_the_first == ["q0"] and matches == ["q0", "q1"]


def test_policy_that_has_not_reached_a_queue_yet_is_not_said_to_be_in_force(model, monkeypatch):
    vhost, factory, _ = model
    cut_after(monkeypatch, vhost, 10)
    queues = [vhost.declare_queue(f"q{number}")[0] for number in range(25)]

    PolicyComponent().changed(vhost, "p", {"pattern": ".*", "definition": {"max-length": 5}})
    reached = [queue.settings is not None for queue in queues]
    said = [queue.in_force.policy is not None for queue in queues]
    factory.run_all()

    assert said == reached == [True] * 10 + [False] * 15
    assert all(queue.in_force.definition == {"max-length": 5} for queue in queues)


def test_keys_without_a_meaning_for_streams_are_not_in_force_on_one(model):
    model[0].declare_queue("stream", durable=True, arguments={"x-queue-type": "stream"})
    model[0].declare_queue("queue")

    set_policy(model, "p", ".*", {
        "delivery-limit": 5, "message-ttl": 7, "max-length": 9, "max-age": "1h", "consumer-timeout": 11
    })

    assert model[0].queue("stream").in_force.definition == {
        "max-length": 9, "max-age": "1h", "consumer-timeout": 11
    }
    assert model[0].queue("queue").in_force.definition["delivery-limit"] == 5
    assert limits(model, "stream") == (9, None)
