"""FilterTree: held against the specification's rule as one function (mqtt.wire.topics.matches),
and what hostile filters cost.
"""
import itertools
import random

import pytest
from hypothesis import given, settings, strategies as st

from gomq_py.mqtt.model.filter_tree import FilterTree, levels_of
from gomq_py.mqtt.wire.topics import matches

LEVEL = st.sampled_from(["", "a", "b", "$SYS", "é"])
TOPIC = st.lists(LEVEL, min_size=1, max_size=5).map("/".join).filter(bool)
FILTER = st.tuples(
    st.lists(st.one_of(LEVEL, st.just("+")), min_size=1, max_size=5), st.booleans(),
).map(lambda parts: "/".join([*parts[0], "#"] if parts[1] else parts[0])).filter(bool) | st.just("#")


def tree_of(*filters):
    tree = FilterTree()
    for topic_filter in filters:
        tree.add(topic_filter, topic_filter)
    return tree


def matched(tree, topic):
    targets = {}
    tree.match(topic, targets)
    return set(targets)


@given(st.lists(FILTER, max_size=30), st.lists(TOPIC, max_size=10))
@settings(max_examples=300, deadline=None)
def test_tree_matches_what_each_filter_matches_by_itself(filters, topics):
    tree = tree_of(*filters)

    for topic in topics:
        assert matched(tree, topic) == {each for each in filters if matches(each, topic)}


@given(st.lists(st.tuples(FILTER, st.integers(0, 2)), max_size=30), st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_filters_that_are_removed_in_any_order_leave_nothing(filters, order):
    tree = FilterTree()
    for topic_filter, destination in filters:
        tree.add(topic_filter, destination)
    order.shuffle(filters)

    while filters:
        assert tree.size == len(filters)
        tree.remove(*filters.pop())
        for topic in ("a", "a/b", "$SYS/a"):
            assert matched(tree, topic) == {
                destination for each, destination in filters if matches(each, topic)
            }

    assert tree.is_empty() and tree.size == 0


@pytest.mark.parametrize("topic_filter, topic, is_match", [
    ("a/#", "a", True), ("a/#", "a/", True), ("a/#", "ab", False), ("#", "/", True), ("+", "/", False),
    ("+/+", "/", True), ("/+", "/a", True),
    ("#", "$SYS/a", False), ("+/a", "$SYS/a", False), ("$SYS/#", "$SYS/a", True), ("$SYS/+", "$SYS/a", True),
    ("a/+", "a/$b", True),
    ("a/+/#", "a", False), ("a/+/#", "a/b", True), ("A", "a", False),
])
def test_examples_of_the_specification(topic_filter, topic, is_match):
    assert (topic_filter in matched(tree_of(topic_filter), topic)) is is_match


@pytest.mark.parametrize("text", ["a/#/b", "#/a", "a+", "a/b#", "+a/+"])
def test_what_is_no_filter_is_kept_and_matches_no_topic_that_there_is(text):
    tree = tree_of(text, "#")

    assert matched(tree, "a/b") == {"#"}
    tree.remove(text, text)
    tree.remove("#", "#")
    assert tree.is_empty()


def test_destination_stays_until_it_was_removed_as_often_as_it_was_added():
    tree = tree_of("a/+", "a/+")

    tree.remove("a/+", "a/+")

    assert matched(tree, "a/b") == {"a/+"}


def test_arrangements_of_plus_are_what_is_costly():
    """However many filters are arranged alike they cost one node per level,
    and those without + cost nothing.
    """
    tree = tree_of(*(f"devices/{number}/+/state" for number in range(100)), "a/b/c", "a/b/#")
    arrangements = tree.arrangements
    before = arrangements.costly_levels
    room = [
        bool(arrangements.has_room(levels_of(topic_filter), most))
        for topic_filter, most in (("x/y/+/z", 4), ("+/y/x/#", 7), ("+/y/x/#", 6), ("x/y/#", 4))
    ]

    tree.add("+/y/x/#", 1)

    assert (before, room, arrangements.costly_levels) == (4, [True, True, False, True], 7)


def test_topic_reaches_no_more_nodes_than_the_costly_levels_and_its_own():
    """Every arrangement of + and literal in ten levels: a topic reaches all of the nodes."""
    filters = ["/".join(levels) for levels in itertools.product("a+", repeat=10)]
    tree = tree_of(*filters)

    assert matched(tree, "/".join("a" * 10)) == set(filters)
    assert tree.arrangements.costly_levels == (2 ** 10 - 1) * 10


def test_filter_of_very_many_levels_is_added_matched_and_removed():
    topic = "/".join("a" * 30_000)
    tree = tree_of(topic, topic[:-1] + "+")

    assert matched(tree, topic) == {topic, topic[:-1] + "+"}
    for each in (topic, topic[:-1] + "+"):
        tree.remove(each, each)
    assert tree.is_empty()


def test_filters_by_the_thousand_are_matched_as_one_by_one():
    chance = random.Random(5)
    filters = {f"{chance.choice('ab+')}/{chance.randrange(50)}/{chance.choice('ab+')}" for _ in range(2000)}
    tree = tree_of(*filters)

    for topic in ("a/7/b", "b/7/a", "c/7/c"):
        assert matched(tree, topic) == {each for each in filters if matches(each, topic)}


@pytest.mark.parametrize("topic_filter", ["b", "a/b/c", "a/#", "+", "#", "a/+/b", "a"])
def test_filter_that_is_not_there_can_be_removed(topic_filter):
    tree = FilterTree()
    tree.add("a/b", 1)

    tree.remove(topic_filter, 1)
    tree.remove("a/b", 2)

    targets = {}
    tree.match("a/b", targets)
    assert (list(targets), tree.size) == ([1], 1)
