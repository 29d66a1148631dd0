"""Topic names and filters: the specification's own examples (MQTT 5 §4.7), faults, shared subscriptions."""
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gomq_py.mqtt.wire.topics import (
    is_shared, is_topic_name, matches, shared_fault, split_shared, swapped, topic_filter_fault,
    topic_name_fault,
)


@pytest.mark.parametrize(("topic_filter", "name", "matched"), [
    # §4.7.1.2
    ("sport/tennis/player1/#", "sport/tennis/player1", True),
    ("sport/tennis/player1/#", "sport/tennis/player1/ranking", True),
    ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
    ("sport/tennis/player1/#", "sport/tennis/player10", False),
    ("sport/#", "sport", True),
    ("#", "sport/tennis", True),
    # §4.7.1.3
    ("sport/tennis/+", "sport/tennis/player1", True),
    ("sport/tennis/+", "sport/tennis/player2", True),
    ("sport/tennis/+", "sport/tennis/player1/ranking", False),
    ("sport/+", "sport", False),
    ("sport/+", "sport/", True),
    ("+/tennis/#", "sport/tennis/player1", True),
    ("+/+", "/finance", True),
    ("/+", "/finance", True),
    ("+", "/finance", False),
    # §4.7.2, §4.7.3
    ("#", "$SYS/monitor/Clients", False),
    ("+/monitor/Clients", "$SYS/monitor/Clients", False),
    ("$SYS/#", "$SYS/monitor/Clients", True),
    ("$SYS/monitor/+", "$SYS/monitor/Clients", True),
    ("accounts", "ACCOUNTS", False),
    ("/finance", "finance", False),
    ("/", "/", True),
    ("a/+", "a/$b", True),
    ("a//b", "a//b", True),
    ("a/+/b", "a//b", True),
])
def test_filters_match_as_the_specification_says(topic_filter, name, matched):
    assert matches(topic_filter, name) is matched
    assert matches(topic_filter.encode(), name.encode()) is matched


@pytest.mark.parametrize(("topic_filter", "text"), [
    ("sport/tennis#", "# that is not its last level"),
    ("sport/tennis/#/ranking", "# that is not its last level"),
    ("##", "# that is not its last level"), ("#/", "# that is not its last level"),
    ("sport+", "a + beside other characters"), ("a/+b/c", "a + beside other characters"),
    ("", "at least one character"), ("a\n", "control character"), ("a\x85", "control character"),
])
def test_filters_with_a_fault_are_told(topic_filter, text):
    assert text in topic_filter_fault(topic_filter)


@pytest.mark.parametrize("topic_filter", [
    "#", "+", "+/tennis/#", "sport/+/player1", "/", "//", " ", "Accounts payable", "$SYS/#", "ä/ö"])
def test_filters_without_a_fault_pass(topic_filter):
    assert topic_filter_fault(topic_filter) == ""


@pytest.mark.parametrize(("name", "text"), [
    ("", "at least one character"), ("a/+", "wildcard"), ("#", "wildcard"), ("a\x7f", "control character"),
    ("ä" * 32768, "longer than 65535 bytes"),
])
def test_names_with_a_fault_are_told(name, text):
    assert text in topic_name_fault(name)


@pytest.mark.parametrize("name", ["a", "/", "$SYS/x", "ä/ö", "a b", "a" * 65535])
def test_names_without_a_fault_pass(name):
    assert topic_name_fault(name) == ""


@pytest.mark.parametrize(("topic_filter", "split"), [
    ("$share/consumer1/sport/tennis/+", ("consumer1", "sport/tennis/+")),
    ("$share/c//finance", ("c", "/finance")),
    ("$share/c/#", ("c", "#")), ("sport/#", ("", "sport/#")), ("$shared/a/b", ("", "$shared/a/b")),
])
def test_shared_filters_are_split(topic_filter, split):
    assert split_shared(topic_filter) == split
    assert not is_shared(topic_filter) or shared_fault(topic_filter) == ""


@pytest.mark.parametrize(("topic_filter", "text"), [
    ("$share//a", "empty share name"), ("$share/", "empty share name"),
    ("$share/+/a", "wildcard in its share name"),
    ("$share/c#/a", "wildcard in its share name"), ("$share/c", "no filter"), ("$share/c/", "no filter"),
])
def test_shared_filters_with_a_fault_are_told(topic_filter, text):
    assert is_shared(topic_filter)
    assert text in shared_fault(topic_filter)


LEVEL = st.text(st.characters(exclude_categories=("Cc", "Cs"), exclude_characters="/+#"), max_size=3)


@given(st.lists(LEVEL, min_size=1, max_size=5), st.data())
def test_a_filter_made_of_a_name_matches_it(levels, data):
    name = "/".join(levels)
    if topic_name_fault(name) or name.startswith("$"):
        return
    filters = [data.draw(st.sampled_from((level, "+"))) for level in levels]
    if data.draw(st.booleans()):
        filters[data.draw(st.integers(0, len(filters))):] = ["#"]
    topic_filter = "/".join(filters)

    assert matches(topic_filter, name)
    assert topic_filter_fault(topic_filter) == ""


def matches_by_levels(topic_filter, name):
    """The rule of §4.7 over lists of levels."""
    if name.startswith("$") and topic_filter[:1] in ("+", "#"):
        return False
    filters, names = topic_filter.split("/"), name.split("/")
    for position, level in enumerate(filters):
        if level == "#":
            return True
        if position == len(names) or level not in ("+", names[position]):
            return False
    return len(filters) == len(names)


FEW = st.text(st.sampled_from("ab/+#$é"), max_size=8)


@given(FEW, FEW)
def test_a_match_by_character_is_the_match_by_levels(topic_filter, name):
    """Whatever the filter is: one with a fault, too, because those of a damaged log come to it."""
    assert matches(topic_filter, name) is matches_by_levels(topic_filter, name)


@given(st.text() | st.text(st.characters(max_codepoint=0xFF), max_size=5))
@example("a" * 65535)
@example("a" * 65536)
@example("a\x7f")
@example("a\0")
def test_a_topic_name_is_a_text_without_a_fault_and_without_nul(text):
    assert is_topic_name(text) is (not topic_name_fault(text) and "\0" not in text)


@given(st.text())
def test_text_that_is_swapped_twice_is_as_it_was(text):
    assert swapped(swapped(text)) == text


@pytest.mark.parametrize(("topic", "routing_key"), [
    ("sensors/v1.2/t", "sensors.v1/2.t"), ("a/b", "a.b"), ("/", "."), ("", ""),
    ("é/\U0001f600.", "é.\U0001f600/"),
])
def test_topic_and_routing_key_have_slashes_and_dots_in_each_others_places(topic, routing_key):
    assert (swapped(topic), swapped(routing_key)) == (routing_key, topic)


@given(st.text(
    st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="+#"), min_size=1, max_size=50
))
def test_what_is_swapped_is_a_topic_name_if_it_was_one(name):
    assert topic_name_fault(name) == topic_name_fault(swapped(name)) == ""
