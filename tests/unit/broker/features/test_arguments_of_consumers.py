"""Consumer arguments: what each kind of queue takes, refuses and ignores, with RabbitMQ's words."""
from datetime import datetime, timezone
from pathlib import Path

import pytest

from gomq_py.broker.features import table
from gomq_py.broker.features.arguments import check_common_arguments, check_own_arguments
from gomq_py.broker.features.consumer_priority import priority_of
from gomq_py.broker.features.feature import CLASSIC, QUORUM, STREAM
from gomq_py.broker.features.stream_offset import NEXT, NUMBER, StreamStart, is_tracked, start_of
from gomq_py.broker.features.stream_prefetch import prefetch_bytes_of
from gomq_py.content.fields import Seconds
from gomq_py.errors import PreconditionFailed

ENTITY = "queue 'q' in vhost '/'"
FAILED = "failed consuming from stream {entity}: {reason}"
INVALID = "invalid arg '{key}' for {entity}: {reason}"


def check(kind, arguments):
    check_common_arguments(ENTITY, kind, arguments)
    check_own_arguments(ENTITY, kind, arguments)


def reason(kind, arguments):
    with pytest.raises(PreconditionFailed) as refused:
        check(kind, arguments)
    return refused.value.text


@pytest.mark.parametrize("kind", [CLASSIC, QUORUM, STREAM])
@pytest.mark.parametrize("arguments", [
    {}, {"x-priority": 5}, {"x-priority": -(1 << 40)},
    {"x-consumer-timeout": 5000}, {"x-cancel-on-ha-failover": True},
    {"x-never-heard-of": [1]},
    {"x-stream-filter": "eu"}, {"x-stream-filter": {"n": 1}, "x-filter-match-type": "ALL"},
    {"x-stream-match-unfiltered": True}, {"x-stream-prefetch-bytes": 0},
    {"x-stream-automatic-offset-tracking": "true"}, {"x-stream-automatic-offset-tracking": None},
])
def test_accepted_by_every_kind(kind, arguments):
    check(kind, arguments)


@pytest.mark.parametrize("key, value, words", [
    ("x-consumer-timeout", -1, "{value_negative,-1}"),
    ("x-consumer-timeout", "5000", '"expected integer, got longstr"'),
])
def test_refused_on_a_quorum_queue_and_without_meaning_on_others(key, value, words):
    assert reason(QUORUM, {key: value}) == INVALID.format(key=key, entity=ENTITY, reason=words)
    check(CLASSIC, {key: value})
    check(STREAM, {key: value})


@pytest.mark.parametrize("value", [
    "first", "last", "next", 0, -5, "7D", datetime(2026, 1, 1, tzinfo=timezone.utc)
])
def test_offset_accepted_by_a_stream(value):
    check(STREAM, {"x-stream-offset": value})


@pytest.mark.parametrize("key, value, text, words", [
    ("x-priority", "1", INVALID, '"expected integer, got longstr"'),
    ("x-priority", True, INVALID, '"expected integer, got bool"'),
    ("x-priority", Seconds(5), INVALID, '"expected integer, got timestamp"'),
    ("x-cancel-on-ha-failover", 1, INVALID, "{unacceptable_type,signedint}"),
    ("x-stream-offset", "7X", FAILED, "invalid_max_age"),
    ("x-stream-offset", True, FAILED, "{invalid_offset_arg,bool}"),
    ("x-stream-automatic-offset-tracking", 1, INVALID, "{unacceptable_type,signedint}"),
    ("x-stream-filter", 5, FAILED, "x-stream-filter must be a text, a table, or an array of these"),
    ("x-stream-match-unfiltered", "yes", FAILED, "x-stream-match-unfiltered must be a boolean"),
    ("x-filter-match-type", "some", FAILED, "x-filter-match-type must be 'all' or 'any'"),
    ("x-stream-prefetch-bytes", -1, INVALID, "{value_negative,-1}"),
    ("x-stream-prefetch-bytes", False, INVALID, '"expected integer, got bool"'),
])
def test_refused_on_a_stream(key, value, text, words):
    assert reason(STREAM, {key: value}) == text.format(key=key, entity=ENTITY, reason=words)


@pytest.mark.parametrize("kind", [CLASSIC, QUORUM])
def test_where_to_begin_is_refused_where_messages_go_when_they_were_read(kind):
    assert reason(kind, {"x-stream-offset": "first"}) \
        == f"invalid arg 'x-stream-offset' for {ENTITY} of queue type rabbit_{kind}_queue"


@pytest.mark.parametrize("key, value", [
    ("x-stream-filter", 5), ("x-stream-prefetch-bytes", "much"), ("x-stream-automatic-offset-tracking", 1),
])
def test_other_arguments_of_streams_mean_nothing_to_a_queue(key, value):
    check(CLASSIC, {key: value})


def test_every_argument_has_a_good_and_a_bad_value():
    """Whoever adds one to the table adds its values here."""
    tried = Path(__file__).read_text(encoding="utf-8").partition("def test_refused_on_a_stream")[0]

    assert [key for key in table.CONSUMER_ARGUMENTS if f'"{key}": ' not in tried] == []
    assert [key for key in table.CONSUMER_ARGUMENTS if f'("{key}", ' not in tried] == []


@pytest.mark.parametrize("given, priority", [
    ({}, 0), ({"x-priority": -3}, -3), ({"x-priority": 1 << 40}, (1 << 31) - 1),
    ({"x-priority": -(1 << 40)}, 1 - (1 << 31)),
])
def test_priority_beyond_32_bits_is_cut_to_the_nearest(given, priority):
    assert priority_of(given) == priority


@pytest.mark.parametrize("arguments, tag, tracked", [
    ({}, "", False), ({}, "amq.ctag-x", False), ({}, "joe", True), ({"x-stream-offset": 1}, "joe", False),
    ({"x-stream-automatic-offset-tracking": None}, "joe", True),
    ({"x-stream-automatic-offset-tracking": False}, "joe", False),
    ({"x-stream-automatic-offset-tracking": "false"}, "joe", False),
    ({"x-stream-automatic-offset-tracking": "true", "x-stream-offset": 1}, "", True),
])
def test_position_is_kept_for_who_says_so_or_has_a_name_and_no_offset(arguments, tag, tracked):
    assert is_tracked(arguments, tag) is tracked


def test_what_is_not_said():
    assert start_of({}) == StreamStart(NEXT)
    assert start_of({"x-stream-offset": 7}) == StreamStart(NUMBER, 7)
    assert prefetch_bytes_of({}) == 0
