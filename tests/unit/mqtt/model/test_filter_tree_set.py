"""The set answers what matching each filter by itself does."""
from hypothesis import given
from hypothesis import strategies as st

from gomq_py.mqtt.model.filter_tree import FilterSet
from gomq_py.mqtt.wire.topics import matches, split_shared, topic_filter_fault

LEVELS = st.lists(st.sampled_from(("a", "b", "", "$s", "+")), min_size=1, max_size=4)
FILTERS = st.builds(
    lambda share, levels, is_below: share + "/".join(levels + ["#"] * is_below),
    st.sampled_from(("", "", "$share/g/", "$share/h/")), LEVELS, st.booleans(),
).filter(lambda one: split_shared(one)[1] and not topic_filter_fault(split_shared(one)[1]))
TOPICS = st.lists(st.sampled_from(("a", "b", "", "$s")), min_size=1, max_size=5).map("/".join)


def matching(filters, topic):
    return sorted(one for one in filters if matches(split_shared(one)[1], topic))


@given(st.lists(st.tuples(st.booleans(), FILTERS), max_size=30), st.lists(TOPICS, max_size=5))
def test_matches_what_each_filter_matches(steps, topics):
    found, expected = FilterSet(), set()
    for is_added, one in steps:
        (found.add if is_added else found.discard)(one)
        (expected.add if is_added else expected.discard)(one)
        (found.add if is_added else found.discard)(one)  # twice is once

    for topic in topics:
        assert sorted(found.match(topic)) == matching(expected, topic)


def test_filters_of_very_many_levels_are_told_apart():
    """Where + are is a number for filters of few levels, and a tuple for those of many."""
    found = FilterSet()
    filters = [
        "/".join("+" if level == plus else "a" for level in range(count)) + end
        for count in (38, 39, 40, 41, 42, 100, 200) for plus in (0, 37, 39, 40, 41, 63, 64, 199)
        for end in ("", "/#")]
    for one in filters:
        found.add(one)

    for count in (38, 39, 40, 41, 42, 43, 100, 150, 200):
        topic = "/".join("a" * count)
        assert sorted(found.match(topic)) == matching(set(filters), topic)

    for one in filters:
        found.discard(one)
    assert found.match("/".join("a" * 40)) == []


def test_topic_that_looks_like_a_shared_subscription_does_not_get_to_its_members():
    found = FilterSet()
    found.add("$share/g/a")

    assert found.match("$share/g/a") == []
    assert found.match("a") == ["$share/g/a"]
