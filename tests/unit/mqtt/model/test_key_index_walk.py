"""TopicWalk: finds what the specification's rule (mqtt.wire.topics.matches) finds, without looking at
everything.
"""
import pytest
from hypothesis import given, settings, strategies as st

from gomq_py.mqtt.model.key_index import KeyIndex, TopicWalk
from gomq_py.mqtt.wire.topics import matches
from tests.unit.mqtt.model.test_filter_tree import FILTER

# With characters before and behind the separator.
LEVEL = st.sampled_from(["", "a", "b", "a!", "a0", "ab", "$SYS", "$", "é"])
TOPIC = st.lists(LEVEL, min_size=1, max_size=5).map("/".join).filter(bool)


def walked(index, topic_filter):
    """(the topics that match, how many were looked at)."""
    walk, found, looks = TopicWalk(index, topic_filter), [], 0
    while not walk.is_over:
        looks += 1
        one = walk.step()
        if one is not None:
            assert index.get(one[0]) == one[1]
            found.append(one[0])
    return found, looks


@given(st.sets(TOPIC, max_size=40), FILTER | TOPIC)
@settings(max_examples=500, deadline=None)
def test_walk_finds_in_order_what_the_filter_matches(topics, topic_filter):
    index = KeyIndex({topic: number for number, topic in enumerate(topics)})

    found, looks = walked(index, topic_filter)

    assert found == sorted(topic for topic in topics if matches(topic_filter, topic))
    assert looks <= len(topics) + 1 + sum("/" in topic for topic in topics)


@pytest.mark.parametrize("topic_filter, most", [
    ("site/5/d/7", 2), ("site/5/d/#", 12), ("site/5/#", 12), ("site/+/d/7", 35), ("+/+/d/7", 50), ("x/#", 2),
    ("+", 4), ("$SYS/#", 3), ("site/5/d/7/x", 3),
])
def test_what_cannot_match_is_stepped_over(topic_filter, most):
    topics = [f"site/{site}/d/{device}" for site in range(10) for device in range(10)] + ["$SYS/a", "z"]
    index = KeyIndex({topic: 1 for topic in topics})

    found, looks = walked(index, topic_filter)

    assert found == sorted(topic for topic in topics if matches(topic_filter, topic))
    assert looks <= most


def test_topics_that_come_and_go_during_a_walk_do_not_disturb_it():
    index = KeyIndex({f"a/{number}": number for number in range(10)})
    walk = TopicWalk(index, "a/+")
    found = [walk.step()[0] for _ in range(4)]
    for number in range(10):
        if number != 8:
            index.pop(f"a/{number}")
    index.put("a/9x", 1)

    while not walk.is_over:
        one = walk.step()
        if one is not None:
            found.append(one[0])

    assert found == ["a/0", "a/1", "a/2", "a/3", "a/8", "a/9x"]
