"""Queue arguments: good, bad and boundary values of each, with RabbitMQ's words."""
from pathlib import Path

import pytest

from gomq_py.broker.features.arguments import ARGUMENTS, check_queue_arguments
from gomq_py.content.fields import Seconds
from gomq_py.errors import PreconditionFailed

ENTITY = "queue 'q' in vhost '/'"
YEARS_10_MS = 10 * 365 * 24 * 3600 * 1000


def check(arguments, durable=True, exclusive=False, auto_delete=False):
    check_queue_arguments(ENTITY, durable, exclusive, auto_delete, arguments)


def reason(arguments, **properties):
    with pytest.raises(PreconditionFailed) as refused:
        check(arguments, **properties)
    return refused.value.text


@pytest.mark.parametrize("arguments", [
    {"x-expires": 1}, {"x-expires": YEARS_10_MS}, {"x-message-ttl": 0}, {"x-message-ttl": YEARS_10_MS},
    {"x-max-length": 0},
    {"x-max-length-bytes": 1 << 40}, {"x-max-priority": 0}, {"x-max-priority": 255},
    {"x-dead-letter-exchange": ""},
    {"x-dead-letter-exchange": "x", "x-dead-letter-routing-key": "k"}, {"x-overflow": "drop-head"},
    {"x-overflow": "reject-publish"},
    {"x-overflow": "reject-publish-dlx"}, {"x-queue-mode": "lazy"}, {"x-queue-version": 2},
    {"x-single-active-consumer": False},
    {"x-queue-type": "classic"}, {"x-queue-type": "quorum"}, {"x-queue-type": "stream"},
    {"x-queue-type": "stream", "x-max-age": "7D"},
    {"x-queue-type": "quorum", "x-delivery-limit": 5}, {"x-delivery-limit": 0},
    {"x-queue-leader-locator": "client-local"}, {"x-consumer-timeout": 0},
    {
        "x-queue-type": "stream", "x-max-length": 0, "x-max-length-bytes": 0,
        "x-stream-max-segment-size-bytes": 0,
    },
    {"x-queue-type": "stream", "x-stream-filter-size-bytes": 16},
    {"x-queue-type": "stream", "x-stream-filter-size-bytes": 255},
    {"x-queue-type": "stream", "x-single-active-consumer": True},
    {"x-queue-type": "stream", "x-initial-cluster-size": 1},
    {"x-delayed-retry-type": "disabled"},
    {"x-delayed-retry-type": "all", "x-delayed-retry-min": 0, "x-delayed-retry-max": YEARS_10_MS},
    {"x-delayed-retry-type": "failed"}, {"x-delayed-retry-type": "returned"},
    {"x-consumer-timeout": YEARS_10_MS},
    {"x-message-deduplication": True, "x-cache-size": 0, "x-cache-ttl": 0},
    {"x-message-deduplication": False, "x-cache-size": 1_000_000},
    {"x-cache-ttl": YEARS_10_MS}, {"x-deduplication-header": ""}, {"x-dead-letter-strategy": "at-most-once"},
    {"x-dead-letter-strategy": "at-least-once"}, {"x-queue-mode": "default"},
    {"x-queue-type": "quorum", "x-consumer-disconnected-timeout": 0},
    {"x-single-active-consumer": True},
    {"x-queue-leader-locator": "balanced"}, {"x-queue-type": "quorum", "x-quorum-initial-group-size": 0},
    {"x-queue-type": "quorum", "x-max-in-memory-length": 0, "x-max-in-memory-bytes": 0},
    {"x-delivery-limit": 1 << 40}, {"x-delivery-limit": -1},
    {"x-max-length": 1 << 62},
    {"x-message-group": "header:customer"}, {"x-message-group": "header:" + 255 * "h"},
    {"x-message-group": "routing-key", "x-queue-type": "quorum"}, {"x-message-group": "correlation-id"},
    {"x-message-group": "routing-key", "x-message-group-limit": 1},
    {"x-never-heard-of": [1, {"a": None}]},
])
def test_accepted(arguments):
    check(arguments)


@pytest.mark.parametrize("key, value, text", [
    ("x-expires", 0, "{value_zero,0}"), ("x-expires", -1, "{value_negative,-1}"),
    ("x-expires", "5", '"expected integer, got longstr"'),
    ("x-expires", True, '"expected integer, got bool"'), ("x-expires", None, '"expected integer, got void"'),
    ("x-expires", 1.5, '"expected integer, got double"'),
    ("x-expires", YEARS_10_MS + 1, f"{{value_too_large,{YEARS_10_MS + 1}}}"),
    ("x-message-ttl", -1, "{value_negative,-1}"), ("x-max-length", -1, "{value_negative,-1}"),
    ("x-max-length", 1 << 63, f"{{value_too_large,{1 << 63}}}"),
    ("x-delivery-limit", -1 << 64, f"{{value_too_small,{-1 << 64}}}"),
    ("x-max-length", Seconds(1 << 40), '"expected integer, got timestamp"'),
    ("x-max-length-bytes", "1", '"expected integer, got longstr"'),
    ("x-max-priority", 256, "{max_value_exceeded,256}"), ("x-max-priority", -1, "{value_negative,-1}"),
    ("x-dead-letter-routing-key", 5, "{unacceptable_type,signedint}"),
    ("x-dead-letter-routing-key", "k", "routing_key_but_no_dlx_defined"),
    ("x-overflow", "nope", "invalid_overflow"), ("x-overflow", 1, "{unacceptable_type,signedint}"),
    ("x-queue-mode", "fast", "\"unsupported queue mode 'fast'\""),
    ("x-queue-version", 3, "\"unsupported queue version '3'\""),
    ("x-queue-version", 1, "\"unsupported queue version '1'\""),
    ("x-queue-version", "1", '"expected integer, got longstr"'),
    ("x-single-active-consumer", 1, "{unacceptable_type,signedint}"),
    ("x-queue-type", "nope", "\"unsupported queue type 'nope'\""),
    ("x-queue-type", 5, "{unacceptable_type,signedint}"),
    ("x-consumer-timeout", -1, "{value_negative,-1}"),
    ("x-delivery-limit", "5", '"expected integer, got longstr"'),
    ("x-consumer-timeout", "5", '"expected integer, got longstr"'),
    ("x-consumer-timeout", YEARS_10_MS + 1, f"{{value_too_large,{YEARS_10_MS + 1}}}"),
    ("x-message-ttl", YEARS_10_MS + 1, f"{{value_too_large,{YEARS_10_MS + 1}}}"),
    ("x-message-ttl", "1", '"expected integer, got longstr"'),
    ("x-max-length", True, '"expected integer, got bool"'), ("x-max-length-bytes", -1, "{value_negative,-1}"),
    ("x-max-priority", "1", '"expected integer, got longstr"'),
    ("x-queue-mode", 1, "{unacceptable_type,signedint}"),
    ("x-single-active-consumer", "true", "{unacceptable_type,longstr}"),
    ("x-queue-type", "", "\"unsupported queue type ''\""),
    ("x-dead-letter-strategy", "twice", "invalid_dlx_strategy"),
    ("x-dead-letter-strategy", 1, "{unacceptable_type,signedint}"),
    ("x-queue-leader-locator", "here", "invalid_queue_locator_arg"),
    ("x-queue-leader-locator", 1, "{unacceptable_type,signedint}"),
    ("x-delayed-retry-type", "sometimes", "invalid_delayed_retry_type"),
    ("x-delayed-retry-type", True, "{unacceptable_type,bool}"),
    ("x-delayed-retry-min", -1, "{value_negative,-1}"),
    ("x-delayed-retry-min", "1", '"expected integer, got longstr"'),
    ("x-delayed-retry-max", -1, "{value_negative,-1}"),
    ("x-delayed-retry-max", YEARS_10_MS + 1, f"{{value_too_large,{YEARS_10_MS + 1}}}"),
    ("x-message-deduplication", "true", "{unacceptable_type,longstr}"),
    ("x-message-deduplication", 1, "{unacceptable_type,signedint}"),
    ("x-cache-size", -1, "{value_negative,-1}"), ("x-cache-size", 1_000_001, "{max_value_exceeded,1000001}"),
    ("x-cache-size", "9", '"expected integer, got longstr"'), ("x-cache-ttl", -1, "{value_negative,-1}"),
    ("x-cache-ttl", YEARS_10_MS + 1, f"{{value_too_large,{YEARS_10_MS + 1}}}"),
    ("x-deduplication-header", 1, "{unacceptable_type,signedint}"),
    ("x-message-group", 1, "{unacceptable_type,signedint}"),
    ("x-message-group", "customer", "\"unsupported message group 'customer'\""),
    ("x-message-group", "header:", "\"unsupported message group 'header:'\""),
    ("x-message-group", "", "\"unsupported message group ''\""),
    ("x-message-group-limit", 0, "{value_too_small,0}"),
    ("x-message-group-limit", -1, "{value_too_small,-1}"),
    ("x-message-group-limit", "1", '"expected integer, got longstr"'),
    ("x-message-group-limit", 1, "\"only together with 'x-message-group'\""),
    ("x-message-group", "header:" + 256 * "h", f"\"unsupported message group 'header:{256 * 'h'}'\""),
])
def test_refused(key, value, text):
    assert reason({key: value}) == f"invalid arg '{key}' for {ENTITY}: {text}"


def test_every_argument_has_a_good_and_a_bad_value():
    """Whoever adds one to the table adds its values here."""
    accepted, _, refused = Path(__file__).read_text(encoding="utf-8").partition("def test_accepted")

    assert [key for key in ARGUMENTS if f'"{key}"' not in accepted] == []
    assert [key for key in ARGUMENTS if f'"{key}"' not in refused] == []


@pytest.mark.parametrize("key", [
    "x-max-in-memory-length", "x-max-in-memory-bytes", "x-quorum-initial-group-size",
    "x-consumer-disconnected-timeout",
])
@pytest.mark.parametrize(("value", "text"), [
    (-1, "{value_negative,-1}"), ("1", '"expected integer, got longstr"')
])
def test_refused_on_a_quorum_queue(key, value, text):
    assert reason({"x-queue-type": "quorum", key: value}) == f"invalid arg '{key}' for {ENTITY}: {text}"


def test_dead_letter_exchange_must_be_a_name():
    assert reason(
        {"x-dead-letter-exchange": True}
    ) == f"invalid type 'bool' for arg 'x-dead-letter-exchange' in {ENTITY}"


@pytest.mark.parametrize("kind, key, value", [
    ("classic", "x-max-age", "1D"), ("quorum", "x-max-priority", 5), ("quorum", "x-queue-mode", "lazy"),
    ("quorum", "x-max-age", "1D"),
    ("stream", "x-message-ttl", 5), ("stream", "x-expires", 5), ("stream", "x-dead-letter-exchange", "x"),
    ("stream", "x-overflow", "drop-head"),
    ("stream", "x-message-group", "routing-key"), ("stream", "x-max-priority", 5),
    ("stream", "x-delivery-limit", 5),
])
def test_refused_on_that_type_of_queue(kind, key, value):
    assert reason(
        {"x-queue-type": kind, key: value}
    ) == f"invalid arg '{key}' for {ENTITY} of queue type rabbit_{kind}_queue"


@pytest.mark.parametrize("kind", ["quorum", "stream"])
@pytest.mark.parametrize("properties, name", [
    ({"durable": False}, "non-durable"), ({"auto_delete": True}, "auto-delete"),
    ({"exclusive": True}, "exclusive-owner"),
])
def test_quorum_queues_and_streams_are_durable_and_shared(kind, properties, name):
    assert reason({"x-queue-type": kind}, **properties) == f"invalid property '{name}' for {ENTITY}"


@pytest.mark.parametrize("value", ["1Y", "1M", "7D", "1h", "30m", "1s", "0001s", "999999999999s"])
def test_max_age_accepted(value):
    check({"x-queue-type": "stream", "x-max-age": value})


@pytest.mark.parametrize("value", [
    "", "1", "D", "1x", "0D", "-1D", "1.5h", "1 D", "1D ", "1d", "9999999999999s", "\u0661D"
])
def test_max_age_is_a_number_above_0_and_a_unit(value):
    assert reason(
        {"x-queue-type": "stream", "x-max-age": value}
    ) == f"invalid arg 'x-max-age' for {ENTITY}: invalid_max_age"


@pytest.mark.parametrize("key, value, text", [
    ("x-max-age", 5, "{unacceptable_type,signedint}"),
    ("x-stream-max-segment-size-bytes", -1, "{value_negative,-1}"),
    ("x-stream-max-segment-size-bytes", "1", '"expected integer, got longstr"'),
    ("x-stream-filter-size-bytes", 15, "{value_out_of_range,15}"),
    ("x-stream-filter-size-bytes", 256, "{value_out_of_range,256}"),
    ("x-stream-filter-size-bytes", "16", '"expected integer, got longstr"'),
    ("x-max-length", -1, "{value_negative,-1}"), ("x-max-length-bytes", True, '"expected integer, got bool"'),
    ("x-initial-cluster-size", -1, "{value_negative,-1}"),
    ("x-single-active-consumer", 1, "{unacceptable_type,signedint}"),
])
def test_refused_on_a_stream(key, value, text):
    assert reason({"x-queue-type": "stream", key: value}) == f"invalid arg '{key}' for {ENTITY}: {text}"


def test_groups_and_priorities_are_refused_together():
    arguments = {"x-message-group": "routing-key", "x-max-priority": 5}

    assert reason(arguments) == (
        f"invalid arg 'x-message-group' for {ENTITY}: \"not together with 'x-max-priority'\"")
