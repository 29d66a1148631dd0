"""Policies: which one counts, what it may say, and how two are merged."""
import pytest

from gomq_py.broker.policies.policy import (
    COSTLY_TRIES, EXCHANGE, InForce, Policy, PolicyError, PolicySet, policy_of,
)
from gomq_py.patterns import Pattern

SOME = {"max-length": 5}


@pytest.mark.parametrize("apply_to, kinds", [
    ("all", {EXCHANGE, "classic", "quorum", "stream"}), ("queues", {"classic", "quorum", "stream"}),
    ("exchanges", {EXCHANGE}),
    ("classic_queues", {"classic"}), ("quorum_queues", {"quorum"}), ("streams", {"stream"}),
    ("classic-queues", {"classic"}),
])
def test_policy_is_for_some_kinds_of_entity(apply_to, kinds):
    policy = Policy("p", ".*", SOME, apply_to=apply_to)

    assert (
        {kind for kind in (EXCHANGE, "classic", "quorum", "stream") if policy.applies(kind, "name")} == kinds
    )


def test_pattern_is_searched():
    assert Policy("p", "ob", SOME).applies(EXCHANGE, "jobs")
    assert not Policy("p", "^ob", SOME).applies(EXCHANGE, "jobs")


def test_highest_priority_counts_then_the_first_name():
    policies = PolicySet()
    for name, priority in (("b", 1), ("a", 1), ("low", 0), ("narrow", 9)):
        policies.put(Policy(name, "^x" if name == "narrow" else ".*", SOME, priority))

    assert policies.best(EXCHANGE, "name").name == "a"
    assert policies.best(EXCHANGE, "x1").name == "narrow"
    assert policies.remove("a") and not policies.remove("a")
    assert policies.best(EXCHANGE, "name").name == "b"


def test_of_patterns_that_take_too_long_only_some_are_tried_for_a_name(monkeypatch, caplog):
    """A hundred of them at 0.2 ms would hold everybody up at every declare."""
    tried = []
    policies = PolicySet()
    for number in range(COSTLY_TRIES + 5):
        policies.put(Policy(f"p{number:02}", f"(a+)+{number}", SOME, priority=1))
    policies.put(Policy("sound", "^a", SOME))

    def ran_out_of_time(pattern, name):
        if pattern.text == "^a":
            return True
        tried.append(pattern.text)
        pattern._budget_s /= 2
        raise TimeoutError

    monkeypatch.setattr(Pattern, "found_in", ran_out_of_time)
    first = policies.best("classic", "aaa")
    count, tried[:] = len(tried), []
    second = policies.best("classic", "aaaa")

    assert first.name == second.name == "sound"
    assert (count, len(tried)) == (COSTLY_TRIES + 5, COSTLY_TRIES)
    assert (
        (
            "policy 'p08' is not in force for classic 'aaaa': "
            "8 policies before it have patterns that take too long"
        ) in caplog.text
    )


def test_operators_policy_caps_numbers_and_overrides_the_rest():
    own = Policy(
        "p", ".*", {"max-length": 10, "message-ttl": 5, "overflow": "drop-head", "dead-letter-exchange": "x"}
    )
    operator = Policy(
        "o", ".*", {"max-length": 3, "message-ttl": 50, "overflow": "reject-publish", "expires": 9},
        operator=True,
    )

    assert InForce(own, operator).definition == {
        "max-length": 3, "message-ttl": 5, "overflow": "reject-publish", "dead-letter-exchange": "x",
        "expires": 9,
    }
    assert InForce(None, operator).definition == operator.definition
    assert InForce(own, None).definition == own.definition
    assert InForce(None, None).definition == {}


@pytest.mark.parametrize("key, good", [
    ("message-ttl", 0), ("expires", 1), ("max-length", 0), ("max-length-bytes", 1 << 40),
    ("delivery-limit", -1), ("overflow", "reject-publish-dlx"),
    ("dead-letter-exchange", ""), ("dead-letter-routing-key", "k"), ("alternate-exchange", "x"),
    ("consumer-timeout", 5), ("max-age", "7D"),
    ("tee-to-stream", "x" * 255), ("delayed-message", True), ("federation-upstream-set", "all"),
    ("ha-mode", "all"), ("queue-mode", "lazy"),
])
def test_accepted(key, good):
    assert Policy("p", ".*", {key: good}).definition == {key: good}


@pytest.mark.parametrize("key, bad", [
    ("message-ttl", -1), ("message-ttl", "5"), ("message-ttl", True), ("expires", 0), ("max-length", 1.5),
    ("delivery-limit", "x"),
    ("overflow", "no"), ("dead-letter-exchange", 5), ("alternate-exchange", None), ("max-age", "7"),
    ("delayed-message", "true"),
    ("tee-to-stream", ""), ("tee-to-stream", "x" * 256), ("tee-to-stream", 5), ("never-heard-of", 1),
])
def test_refused(key, bad):
    with pytest.raises(PolicyError, match=key):
        Policy("p", ".*", {key: bad})


@pytest.mark.parametrize("key", [
    "message-ttl", "expires", "max-length", "max-length-bytes", "delivery-limit", "consumer-timeout",
    "stream-max-segment-size-bytes", "delayed-retry-min", "delayed-retry-max",
])
def test_number_is_one_of_64_bits(key):
    for longer in (1 << 63, 1 << 64, 10 ** 400, -(1 << 63) - 1, 1e19, float("inf"), float("nan")):
        with pytest.raises(PolicyError, match=f"is not a valid .*{key} needs a number from"):
            Policy("p", ".*", {key: longer})
    assert Policy("p", ".*", {key: (1 << 63) - 1}).definition == {key: (1 << 63) - 1}


@pytest.mark.parametrize("value", [
    None, {}, {"pattern": ".*"}, {"pattern": "(", "definition": SOME}, {"pattern": 5, "definition": SOME},
    {"pattern": ".*", "definition": {}},
    {"pattern": ".*", "definition": []}, {"pattern": ".*", "definition": SOME, "priority": "1"},
    {"pattern": ".*", "definition": SOME, "priority": 1 << 63},
    {"pattern": ".*", "definition": SOME, "apply-to": "cats"},
])
def test_malformed_policy_is_refused(value):
    with pytest.raises(PolicyError):
        policy_of("p", value)


def test_operator_may_set_limits_only():
    with pytest.raises(PolicyError, match="dead-letter-exchange"):
        Policy("o", ".*", {"dead-letter-exchange": "x"}, operator=True)


def test_policy_is_kept_as_it_was_asked_for():
    value = {"pattern": "^a", "apply-to": "queues", "priority": 7, "definition": SOME}

    assert policy_of("p", value).as_value() == value
