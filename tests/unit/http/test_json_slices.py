"""JSON in slices: the same as the fast library, and refused where that refuses it."""
import json

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gomq_py.http.json_slices import NotJSON, dumped, parsed

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2**63, 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=8)


@given(st.dictionaries(st.text(), VALUES, max_size=5), st.sampled_from([None, 1]))
@settings(max_examples=100, deadline=None)
def test_what_is_read_is_what_was_written(value, indent):
    assert parsed(json.dumps(value, indent=indent).encode()) == value
    assert orjson.loads(b"".join(dumped((key, iter(item) if isinstance(item, list) else [item]) for key, item in value.items()))) == {
        key: item if isinstance(item, list) else [item] for key, item in value.items()}


@pytest.mark.parametrize("count", [0, 1, 99, 100, 101, 250])
def test_lists_of_any_length_survive(count):
    elements = [{"number": number} for number in range(count)]

    octets = b"".join(dumped([("version", "1"), ("elements", iter(elements)), ("none", iter(()))]))

    assert parsed(octets) == {"version": "1", "elements": elements, "none": []} == orjson.loads(octets)


@pytest.mark.parametrize("octets", [
    b"", b" ", b"[]", b"1", b"null", b'"x"', b"{", b"{]", b'{"a"}', b'{"a":}', b'{"a":1,}', b'{"a":[1,]}', b'{"a":[}', b'{"a":[1 2]}', b'{1:2}',
    b"{} x",
    b'{"a":NaN}', b'{"a":[Infinity]}', b'{"a":1}}', b"\xff", b'{"a":"\xff"}', b'{"a":[' + b"[" * 100_000, b"{,}", b'{"a":[,]}', b'{"a" 1}',
])
def test_what_is_no_json_object_is_refused(octets):
    with pytest.raises(NotJSON):
        parsed(octets)
