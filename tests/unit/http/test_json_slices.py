"""JSON in slices: the same as the fast library, and refused where that refuses it."""
import json
from collections import deque

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gomq_py.http import json_slices
from gomq_py.http.json_slices import NotJSON, TooLong, dumped, json_octets, parsed
from gomq_py.hub.scheduler import SliceClock

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2**63, 2**63 - 1) | st.floats(
        allow_nan=False, allow_infinity=False
    ) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=8)


def read(octets, size=100):
    """The object in octets that come in pieces of this size."""
    return parsed(deque(octets[start:start + size] for start in range(0, len(octets), size)))


@given(
    st.dictionaries(st.text(), VALUES, max_size=5), st.sampled_from([None, 1]),
    st.sampled_from([1, 2, 7, 1000]),
)
@settings(max_examples=100, deadline=None)
def test_what_is_read_is_what_was_written(value, indent, size):
    assert read(json.dumps(value, indent=indent).encode(), size) == value
    assert orjson.loads(b"".join(
        dumped((key, iter(item) if isinstance(item, list) else [item]) for key, item in value.items())
    )) == {
        key: item if isinstance(item, list) else [item] for key, item in value.items()}


@pytest.mark.parametrize("count", [0, 1, 99, 100, 101, 250])
def test_lists_of_any_length_survive(count):
    elements = [{"number": number} for number in range(count)]

    octets = b"".join(dumped([("version", "1"), ("elements", iter(elements)), ("none", iter(()))]))

    assert read(octets) == {"version": "1", "elements": elements, "none": []} == orjson.loads(octets)


@pytest.mark.parametrize("octets", [
    b"", b" ", b"[]", b"1", b"null", b'"x"', b"{", b"{]", b'{"a"}', b'{"a":}', b'{"a":1,}', b'{"a":[1,]}',
    b'{"a":[}', b'{"a":[1 2]}', b'{1:2}', b"{} x", b'{"a":NaN}', b'{"a":[Infinity]}', b'{"a":1}}', b"\xff",
    b'{"a":"\xff"}', b'{"a":[' + b"[" * 100_000, b"{,}", b'{"a":[,]}', b'{"a" 1}',
])
def test_what_is_no_json_object_is_refused(octets):
    with pytest.raises(NotJSON):
        read(octets)


@pytest.mark.parametrize("octets", [
    b'{"a":["' + b"x" * 900 + b'",1,"' + b"y" * 900 + b'"]}',
    b'{"a":[' + b'"xyz",' * 2000 + b'"z"],"b":{"c":1}}',
])
def test_long_texts_of_short_elements_are_read(monkeypatch, octets):
    monkeypatch.setattr(json_slices, "ELEMENT_MAX", 1000)

    assert read(octets) == orjson.loads(octets)


@pytest.mark.parametrize("element", [
    b'"' + b"x" * 1001 + b'"', b'{"b":[' + b"1," * 5000 + b"1]}", b'{"a":"' + b"x" * 3000 + b'"}'
])
@pytest.mark.parametrize("before", [b'{"a":[', b'{"a":[' + b'"xyz",' * 500, b'{"a":'])
def test_element_that_is_too_long_is_refused_and_not_read_to_its_end(monkeypatch, before, element):
    """One element of 60 MB held everybody up for a third of a second and more."""
    monkeypatch.setattr(json_slices, "ELEMENT_MAX", 1000)
    octets = before + element + (b"]}" if b"[" in before else b"}")
    shown = []
    scan = json_slices._scan
    monkeypatch.setattr(json_slices, "_scan", lambda text, at: shown.append(len(text)) or scan(text, at))

    with pytest.raises(TooLong, match="has more than 1000 characters"):
        read(octets)

    assert max(shown) <= 2 * 1001 + 100


@pytest.mark.parametrize("element", [
    {"a": "x" * 300, "b": {"c": ["y" * 60] * 5, "d": [[{"e": [1, 2.5, True, None, "\u00e4"]}] * 10] * 2}},
    [[], {}, "z" * 500, [[[["x" * 200]]]]], "w" * 900,
])
@pytest.mark.parametrize("size", [1, 100, 5000])
def test_long_element_is_read_piece_by_piece_and_others_have_their_turn(monkeypatch, element, size):
    """1 MiB of one element took 12 ms in one go, and 40 where it was brackets."""
    monkeypatch.setattr(json_slices, "GLANCE", 50)
    monkeypatch.setattr(json_slices, "SliceClock", lambda: SliceClock(0))
    given, shown = [], []
    monkeypatch.setattr(json_slices, "give_way", lambda: given.append(None))
    scan = json_slices._scan
    monkeypatch.setattr(json_slices, "_scan", lambda text, at: shown.append(len(text)) or scan(text, at))
    value = {"parameters": [{"name": "short"}, element, 7], "version": 1, "one": element}

    assert read(json.dumps(value, ensure_ascii=False).encode(), size) == value
    assert len(given) >= 9


@pytest.mark.parametrize("element", [
    b"[" + b"[]," * 500 + b"1 2]", b'{"a":"' + b"x" * 100 + b'","b" 1}', b'{"a":"' + b"x" * 100 + b'",1:2}'
])
def test_long_element_that_is_no_json_is_refused(monkeypatch, element):
    monkeypatch.setattr(json_slices, "GLANCE", 50)

    with pytest.raises(NotJSON):
        read(b'{"a":[' + element + b"]}")


def test_letters_that_lie_across_pieces_are_read(monkeypatch):
    value = {"a": ["\u00e4\u20ac\U0001f600" * 100]}
    octets = json.dumps(value, ensure_ascii=False).encode()
    for size in range(1000, 1010):
        monkeypatch.setattr(json_slices, "ELEMENT_MAX", size)
        assert read(octets) == value


@pytest.mark.parametrize("value, shown", [
    ({"a\udc80": 1}, {"a?": 1}), (["\ud800"], ["?"]),
    ([1 << 64, -1 << 70, (1 << 64) - 1], [hex(1 << 64), hex(-1 << 70), (1 << 64) - 1]),
    ({"a": (1 << 80, b"\xff")}, {"a": [hex(1 << 80), "\ufffd"]}),
    ([float("inf"), float("nan")], [None, None]), ({5: {7}}, {"5": [7]}),
])
def test_what_json_cannot_say_is_shown_as_it_can_be(value, shown):
    assert json.loads(json_octets(value)) == shown


@pytest.mark.parametrize("depth", [200, 300, 5000])
def test_what_is_nested_very_deep_is_shown_to_some_depth(depth):
    value = []
    for _ in range(depth):
        value = [value]

    assert json_octets(value).strip(b"[]") in (b"", b'"..."')
