"""Queue settings: how arguments and policies make one."""
import pytest

from gomq_py.broker.policies.queue_settings import PLAIN, QueueSettings


@pytest.mark.parametrize("arguments, policy, expected", [
    ({"x-message-ttl": 5}, {}, 5), ({}, {"message-ttl": 5}, 5), ({"x-message-ttl": 5}, {"message-ttl": 4}, 4),
    ({"x-message-ttl": 5}, {"message-ttl": 6}, 5), ({"x-message-ttl": 0}, {"message-ttl": 6}, 0),
    ({}, {}, None),
    ({"x-message-ttl": "5"}, {}, None), ({"x-message-ttl": True}, {"message-ttl": 7}, 7),
])
def test_smaller_number_counts(arguments, policy, expected):
    assert QueueSettings(arguments, policy).message_ttl_ms == expected


def test_time_beyond_any_timer_counts_as_the_longest_one():
    longest = 10 * 365 * 24 * 3600 * 1000

    settings = QueueSettings(
        {}, {"message-ttl": (1 << 63) - 1, "expires": 1 << 62, "consumer-timeout": longest + 1}
    )

    assert (settings.message_ttl_ms, settings.expires_ms, settings.consumer_timeout_ms) == (
        longest, longest, longest
    )


@pytest.mark.parametrize("number", [1 << 63, 1 << 64, 10 ** 400, float("inf"), float("nan"), -1.0])
def test_number_that_no_counter_holds_counts_as_not_set(number):
    """Checks refuse it; a definition may come from a release that did not."""
    settings = QueueSettings({"x-max-length": number}, {
        "max-length-bytes": number, "delivery-limit": number, "message-ttl": number
    })

    assert settings.is_plain


def test_argument_counts_before_the_policy():
    settings = QueueSettings({"x-dead-letter-exchange": "", "x-overflow": "drop-head"}, {
        "dead-letter-exchange": "p", "dead-letter-routing-key": "k", "overflow": "reject-publish",
    })

    assert (settings.dead_letter_exchange, settings.dead_letter_routing_key, settings.overflow) == (
        "", "k", "drop-head"
    )


def test_quorum_queue_has_a_delivery_limit_unless_told_otherwise():
    assert QueueSettings({"x-queue-type": "quorum"}).delivery_limit == 20
    assert QueueSettings({"x-queue-type": "quorum", "x-delivery-limit": 3}).delivery_limit == 3
    assert QueueSettings({"x-queue-type": "quorum"}, {"delivery-limit": 50}).delivery_limit == 50
    assert QueueSettings({}, {"delivery-limit": -1}).delivery_limit is None


@pytest.mark.parametrize(("argument", "policy", "limit"), [
    (-1, None, -1), (None, -1, -1), (-1, -1, -1), (-1, 7, 7), (3, -1, 3)
])
def test_negative_delivery_limit_is_none_even_of_a_quorum_queue(argument, policy, limit):
    """-1: the queue counts deliveries all the same."""
    arguments = {"x-queue-type": "quorum", **({} if argument is None else {"x-delivery-limit": argument})}

    assert (
        QueueSettings(arguments, {} if policy is None else {"delivery-limit": policy}).delivery_limit == limit
    )


@pytest.mark.parametrize("arguments", [
    {}, {"x-queue-type": "classic", "x-unknown": 1}, {"x-single-active-consumer": True},
    {"x-overflow": "drop-head"},
])
def test_settings_that_ask_for_nothing_are_plain(arguments):
    assert QueueSettings(arguments).is_plain


def test_equal_settings_are_equal():
    assert QueueSettings({"x-max-length": 5}) == QueueSettings({}, {"max-length": 5}) != PLAIN
    assert hash(QueueSettings({"x-max-length": 5})) == hash(QueueSettings({}, {"max-length": 5}))
    assert "max_length=5" in repr(QueueSettings({"x-max-length": 5}))


@pytest.mark.parametrize(("argument", "policy", "expected"), [
    (None, None, None), (0, None, 0), (None, 0, 0), (500, None, 500), (None, 500, 500), (500, 900, 500),
    (900, 500, 500),
    (0, 500, 500), (500, 0, 500),
])
def test_consumer_timeout_of_zero_is_none_and_so_not_the_smallest(argument, policy, expected):
    arguments = {} if argument is None else {"x-consumer-timeout": argument}
    definition = {} if policy is None else {"consumer-timeout": policy}

    settings = QueueSettings(arguments, definition)

    assert settings.consumer_timeout_ms == expected
    assert not settings.needs_limits
