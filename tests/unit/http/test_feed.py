"""The feed: changes and their numbers, over events that the test tells."""
from types import SimpleNamespace

import pytest

from gomq_py.broker.signals.events import Events
from gomq_py.http.feed import Feed

BEGUN_S = 1_700_000_000.0
BEGIN = int(BEGUN_S * 1e6)


class Queue:
    def __init__(self, name, vhost="/"):
        self.name = name
        self.vhost = vhost


@pytest.fixture
def events():
    return Events(None)


@pytest.fixture
def feed(events):
    return Feed(events, kept=3, unix_s=lambda: BEGUN_S)


def declare(events, *names):
    for name in names:
        events.emit("queue.created", dict, Queue(name))


def shown(changes):
    return [(number, change.what, change.vhost, change.facts) for number, change in changes]


def test_changes_are_kept_from_the_first_question_on(events, feed):
    declare(events, "before")
    first = feed.last
    declare(events, "a", "b")

    assert (first, feed.last) == (BEGIN, BEGIN + 2)
    assert shown(feed.since(first)) == [
        (BEGIN + 1, "queue.created", "/", {"name": "a"}), (BEGIN + 2, "queue.created", "/", {"name": "b"})]
    assert [number for number, _ in feed.since(BEGIN + 1)] == [BEGIN + 2]
    assert feed.since(BEGIN + 2) == []


def test_what_is_no_longer_kept_is_too_old(events, feed):
    first = feed.last
    declare(events, "a", "b", "c")
    whole = feed.since(first)
    declare(events, "d")

    assert [change.facts["name"] for _, change in whole] == ["a", "b", "c"]
    assert feed.since(first) is None
    assert [change.facts["name"] for _, change in feed.since(first + 1)] == ["b", "c", "d"]


@pytest.mark.parametrize("number", [0, BEGIN - 1, BEGIN + 1, BEGIN * 10])
def test_numbers_of_another_run_are_too_old(feed, number):
    assert feed.since(number) is None


def test_nobody_listens_before_somebody_asks_or_after_the_end(events, feed):
    def heard():
        before = feed.last
        events.emit("user.deleted", dict, {"name": "ann"})
        return feed.last - before

    unasked = list(events._listeners)
    during = heard()
    feed.close()

    assert (unasked, during, heard()) == ([], 1, 0)


@pytest.mark.parametrize("key, subject, expected", [
    (
        "policy.set", {"name": "p", "vhost": "v", "pattern": ".*", "definition": {}},
        ("v", None, {"name": "p"}),
    ),
    (
        "parameter.set",
        {"name": "s", "component": "shovel", "value": {"src-uri": "amqp://u:secret@h"}, "vhost": "v"},
        ("v", None, {"name": "s", "component": "shovel"}),
    ),
    ("vhost.limits.set", {"name": "limits", "vhost": "v", "max-queues": 1}, ("v", None, {"name": "limits"})),
    ("user.tags.set", {"name": "ann", "tags": []}, (None, ("ann", False), {"name": "ann"})),
    (
        "permission.created", {"user": "ann", "vhost": "v", "read": ".*"},
        ("v", ("ann", False), {"name": "ann"}),
    ),
    ("topic.permission.created", {"user": "ann", "vhost": "v", "exchange": "x", "write": ".*", "read": ".*"},
     ("v", ("ann", False), {"name": "ann", "exchange": "x"})),
    ("vhost.updated", SimpleNamespace(name="v", description="secret"), ("v", None, {"name": "v"})),
    ("alarm.set", "low on disk", (None, None, {"reason": "low on disk"})),
    ("alarm.cleared", None, (None, None, {"reason": ""})),
])
def test_a_change_tells_whose_it_is_and_no_values(events, feed, key, subject, expected):
    first = feed.last

    events.emit(key, dict, subject)

    (_, change), = feed.since(first)
    assert (change.vhost, change.user, change.facts) == expected


def test_logins_and_what_nobody_knows_change_nothing(events, feed):
    first = feed.last

    for key in ("user.authentication.success", "user.authentication.failure", "shovel.started"):
        events.emit(key, dict, {"name": "ann"})

    assert feed.last == first
