"""Field tables against literal octets, every malformed shape,
and fuzz in buffers that end at a guard page.
"""
from datetime import datetime, timezone
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gomq_py.content import fields
from gomq_py.content.fields import (
    decode_table, decode_value, encode_shortstr, encode_table, encode_value,
    get_key, remove_key, set_key, sort_keys,
)
from gomq_py.errors import Malformed
from tests.support.guarded import GuardedBuffer

GUARDED = GuardedBuffer(1 << 18)

# Every type octet with its literal form.
VALUES = [
    (b"t\x01", True), (b"t\x00", False), (b"b\xff", -1), (b"B\xff", 255), (b"s\x80\x00", -32768),
    (b"u\xff\xfe", 65534),
    (b"I\xff\xff\xff\xfe", -2), (b"i\xff\xff\xff\xfe", 4294967294), (b"l\x80" + bytes(7), -2**63),
    (b"L\x7f" + b"\xff" * 7, 2**63 - 1),
    (b"f\x3f\xc0\x00\x00", 1.5), (b"d\xc0\x04" + bytes(6), -2.5), (b"D\x02\x00\x00\x01\x3b", Decimal("3.15")),
    (b"D\x01\xff\xff\xff\xff", Decimal("-0.1")), (b"S\x00\x00\x00\x03abc", "abc"),
    (b"S\x00\x00\x00\x02\xc3\xa9", "é"),
    (b"S\x00\x00\x00\x01\xff", b"\xff"), (b"x\x00\x00\x00\x02ab", b"ab"), (b"V", None),
    (b"T\x00\x00\x00\x00\x50\x00\x00\x00", datetime(2012, 7, 13, 11, 1, 20, tzinfo=timezone.utc)),
    (b"A\x00\x00\x00\x03Vt\x01", [None, True]), (b"A\x00\x00\x00\x00", []),
    (b"F\x00\x00\x00\x04\x01kB\x07", {"k": 7}), (b"F\x00\x00\x00\x00", {}),
]


@pytest.mark.parametrize(("octets", "value"), VALUES)
def test_every_type_decodes_from_its_literal_octets(octets, value):
    assert decode_value(octets) == (value, len(octets))


@pytest.mark.parametrize(("octets", "value"), VALUES)
def test_every_type_is_refused_when_cut_anywhere(octets, value):
    for length in range(len(octets)):
        with pytest.raises(Malformed):
            decode_value(GUARDED.place(octets[:length]))


@pytest.mark.parametrize(("octets", "value"), VALUES)
def test_every_type_stands_in_a_table_with_octets_behind_it(octets, value):
    raw = b"\x00\x00\x00" + bytes((3 + len(octets),)) + b"\x02ab" + octets

    assert decode_table(b"??" + raw + b"tail", 2) == ({"ab": value}, 2 + len(raw))


@pytest.mark.parametrize("kind", sorted(set(range(256)) - set(b"tbBsuIilLfdDSATFVx")))
def test_an_unknown_type_is_refused(kind):
    with pytest.raises(Malformed):
        decode_value(bytes((kind,)) + bytes(16))


ENCODED = [
    ("abc", b"S\x00\x00\x00\x03abc"), (b"ab", b"x\x00\x00\x00\x02ab"), (True, b"t\x01"),
    (1, b"I\x00\x00\x00\x01"), (-2**31, b"I\x80\x00\x00\x00"),
    (2**31, b"l\x00\x00\x00\x00\x80\x00\x00\x00"), (-2**63, b"l\x80" + bytes(7)),
    (1.5, b"d\x3f\xf8" + bytes(6)),
    (Decimal("3.15"), b"D\x02\x00\x00\x01\x3b"), (Decimal("2E+3"), b"D\x00\x00\x00\x07\xd0"), (None, b"V"),
    ([1], b"A\x00\x00\x00\x05I\x00\x00\x00\x01"),
    ((), b"A\x00\x00\x00\x00"), ({"k": None}, b"F\x00\x00\x00\x03\x01kV"),
    (bytearray(b"ab"), b"x\x00\x00\x00\x02ab"),
    (datetime(1970, 1, 1, 0, 1, tzinfo=timezone.utc), b"T" + bytes(7) + b"\x3c"),
    (datetime(1970, 1, 1, 0, 1), b"T" + bytes(7) + b"\x3c"),
]


@pytest.mark.parametrize(("value", "octets"), ENCODED)
def test_a_python_value_takes_the_type_that_holds_it(value, octets):
    assert encode_value(value) == octets


@pytest.mark.parametrize("value", [
    2**63, -2**63 - 1, Decimal("NaN"), Decimal(2**31), Decimal("1E-256"), datetime(1969, 12, 31)
])
def test_a_value_too_large_for_its_type_is_refused_before_the_wire(value):
    with pytest.raises(ValueError):
        encode_value(value)


@pytest.mark.parametrize("value", [object(), {1, 2}, 1j])
def test_a_value_without_a_field_type_is_refused_before_the_wire(value):
    with pytest.raises(TypeError):
        encode_value(value)


def test_a_subclass_encodes_as_its_base():
    class Colour(int):
        pass

    assert encode_value(Colour(7)) == b"I\x00\x00\x00\x07"


def test_a_table_is_its_octet_count_and_its_entries_in_order():
    assert encode_table({"b": True, "a": None}) == b"\x00\x00\x00\x07\x01bt\x01\x01aV"


def test_a_short_string_over_255_octets_is_refused():
    with pytest.raises(ValueError):
        encode_shortstr("é" * 128)


def test_an_array_decodes_with_octets_behind_it():
    assert decode_value(b"A\x00\x00\x00\x03Vt\x01tail") == ([None, True], 8)


@pytest.mark.parametrize("octets", [
    b"", b"\x00\x00\x00", b"\x00\x00\x00\x01", b"\x00\x00\x00\x01S", b"\xff\xff\xff\xff" + bytes(9)
])
def test_a_malformed_array_is_refused(octets):
    with pytest.raises(Malformed):
        decode_value(GUARDED.place(b"A" + octets))


@pytest.mark.parametrize("offset", [-1, -4, 5, 100])
@pytest.mark.parametrize("decode", [decode_table, decode_value])
def test_an_offset_outside_the_octets_is_refused(decode, offset):
    with pytest.raises(Malformed):
        decode(b"\x00\x00\x00\x00", offset)


@pytest.mark.parametrize("octets", [
    b"", b"\x00\x00\x00", b"\x00\x00\x00\x01", b"\x80\x00\x00\x00" + bytes(9), b"\xff\xff\xff\xff\x01aV",
    b"\x00\x00\x00\x03\x02aV",
    b"\x00\x00\x00\x02\x01a",
    b"\x00\x00\x00\x01\xff", b"\x00\x00\x00\x07\x01aS\x00\x00\x00\x01",
    b"\x00\x00\x00\x08\x01aF\x00\x00\x00\x02\x01", b"\x00\x00\x00\x03\x01a\x00",
])
def test_a_malformed_table_is_refused(octets):
    with pytest.raises(Malformed):
        decode_table(GUARDED.place(octets))


def test_a_nested_table_may_not_reach_over_the_end_of_its_parent():
    octets = b"\x00\x00\x00\x07\x01aF\x00\x00\x00\x03" + b"\x01bV"

    with pytest.raises(Malformed):
        decode_table(octets)


def nested(depth, kind):
    """A table that holds ``depth`` containers in each other."""
    value = b"V"
    for _ in range(depth):
        entries = b"\x01k" + value if kind == b"F" else value
        value = kind + len(entries).to_bytes(4, "big") + entries
    return (2 + len(value)).to_bytes(4, "big") + b"\x01k" + value


@pytest.mark.parametrize("kind", [b"F", b"A"])
def test_containers_nest_32_deep(kind):
    assert decode_table(nested(32, kind))


@pytest.mark.parametrize("kind", [b"F", b"A"])
@pytest.mark.parametrize("depth", [33, 10000])
def test_containers_nested_deeper_are_refused_without_exhausting_the_stack(kind, depth):
    with pytest.raises(Malformed):
        decode_table(nested(depth, kind))


def test_the_first_of_equal_keys_wins():
    assert decode_table(b"\x00\x00\x00\x08\x01at\x01\x01at\x00")[0] == {"a": True}


def test_a_key_of_any_octets_comes_back_exactly():
    octets = b"\x00\x00\x00\x05\x02\xff\xfet\x01"

    assert encode_table(decode_table(octets)[0]) == octets


def test_a_timestamp_beyond_a_datetime_decodes_to_its_seconds():
    assert decode_value(b"T" + b"\xff" * 8)[0] == 2**64 - 1


def test_a_timestamp_beyond_64_signed_bits_stays_a_timestamp():
    """Arguments of a declare are decoded, kept and written again: one that could not be written was an
    internal error to the client.
    """
    octets = b"T\xff" + bytes(6) + b"\x01"

    assert encode_value(decode_value(octets)[0]) == octets


@pytest.mark.parametrize(("table", "expected"), [
    ({"CC": ["x"]}, 1), ({"BCC": []}, 1), ({"a": 1, "BCC": "x"}, 1), ({}, 0),
    ({"a": 1, "mqtt.retain": True}, 1), ({"mqtt.retaim": True, "mqtt.retain.": 1}, 0),
    ({"cc": 1, "Bcc": 1, "CCC": 1, "BC": 1, "C": 1}, 0), ({"a": {"CC": []}}, 0),
])
def test_the_check_reports_keys_of_the_top_level_that_ask_for_more(table, expected):
    from gomq_py.content.properties import Properties, PropertyScan

    scan = PropertyScan()

    assert scan.scan_octets(Properties(headers=table).encode())
    assert scan.special == bool(expected)


# int8 and int16, which no Python value encodes to
RAW = b"\x00\x00\x00\x11\x01ab\x01\x02bcs\x00\x02\x01dF\x00\x00\x00\x00"


@pytest.mark.parametrize(("key", "value"), [("a", 1), ("bc", 2), ("d", {}), ("b", None), ("", None)])
def test_one_key_is_read_from_a_raw_table(key, value):
    assert get_key(RAW, key) == value


def test_a_missing_key_gives_the_default():
    assert get_key(RAW, "none", 5) == 5


def test_removing_a_key_leaves_every_other_octet():
    assert remove_key(RAW, "bc") == b"\x00\x00\x00\x0b\x01ab\x01\x01dF\x00\x00\x00\x00"


@pytest.mark.parametrize(
    "octets", [octets for octets, _ in VALUES if octets[:1] in b"tbBsuIilfdDxVT"],
    ids=lambda octets: octets[:1].decode(),
)
def test_a_number_goes_back_with_the_type_it_came_with(octets):
    assert encode_value(decode_value(octets)[0]) == octets


def test_keys_are_sorted_by_their_octets_and_equal_ones_stay_in_order():
    entries = [b"\x02abV", b"\x01bt\x01", b"\x01aV", b"\x01Bb\x05", b"\x01bt\x00", b"\x00V"]
    raw = b"".join(entries)

    assert sort_keys(len(raw).to_bytes(4, "big") + raw)[4:] == b"".join(
        entries[at] for at in (5, 3, 2, 0, 1, 4)
    )


def test_removing_a_missing_key_changes_nothing():
    assert remove_key(RAW, "b") == RAW


def test_a_key_is_set_in_its_place():
    assert set_key(RAW, "bc", True) == b"\x00\x00\x00\x10\x01ab\x01\x02bct\x01\x01dF\x00\x00\x00\x00"


def test_a_new_key_is_set_at_the_end():
    assert set_key(RAW, "e", None) == b"\x00\x00\x00\x14" + RAW[4:] + b"\x01eV"


@pytest.mark.parametrize("edit", [
    lambda raw: get_key(raw, "a"), lambda raw: remove_key(raw, "a"), lambda raw: set_key(raw, "a", 1)
])
@pytest.mark.parametrize("raw", [b"", RAW[:-1], RAW + b"x", b"\x00\x00\x00\x01a"])
def test_a_malformed_raw_table_is_refused_by_every_edit(edit, raw):
    with pytest.raises(Malformed):
        edit(GUARDED.place(raw))


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-2**63, 2**63 - 1), st.floats(allow_nan=False),
    st.text(max_size=20), st.binary(max_size=20),
    st.datetimes(datetime(1970, 1, 1), timezones=st.just(timezone.utc)).map(
        lambda when: when.replace(microsecond=0)
    ),
    st.tuples(st.integers(-2**31, 2**31 - 1), st.integers(0, 20)).map(
        lambda pair: Decimal(pair[0]).scaleb(-pair[1])
    ),
)
KEYS = st.text(max_size=20)
VALUES_OF_ALL_KINDS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=15,
)
TABLES = st.dictionaries(KEYS, VALUES_OF_ALL_KINDS, max_size=6)


@given(TABLES)
def test_any_table_comes_back_from_its_octets(table):
    octets = encode_table(table)

    assert decode_table(GUARDED.place(octets)) == (table, len(octets))


@given(st.lists(VALUES_OF_ALL_KINDS, max_size=6))
def test_any_array_comes_back_from_its_octets(values):
    octets = encode_value(values)

    assert decode_value(GUARDED.place(octets)) == (values, len(octets))


@given(TABLES, KEYS, SCALARS)
def test_editing_a_raw_table_equals_editing_the_dict(table, key, value):
    raw = encode_table(table)

    assert decode_table(set_key(raw, key, value))[0] == {**table, key: value}
    assert decode_table(remove_key(raw, key))[0] == {
        name: value for name, value in table.items() if name != key
    }


@settings(max_examples=500)
@given(st.binary(max_size=60))
def test_any_octets_decode_or_are_refused(octets):
    for decode in (decode_table, decode_value):
        try:
            assert decode(GUARDED.place(octets))[1] <= len(octets)
        except Malformed:
            pass


@settings(max_examples=500)
@given(TABLES, st.data())
def test_a_table_with_any_octet_changed_decodes_or_is_refused(table, data):
    """Starts from well-formed tables, so that the walk gets deep before it meets the damage."""
    octets = bytearray(encode_table(table))
    octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))

    try:
        assert decode_table(GUARDED.place(octets))[1] <= len(octets)
    except Malformed:
        pass


def test_the_module_answers_for_the_mode_it_was_asked_for():
    import os

    interpreted = os.environ.get("GOMQ_PURE_PYTHON", "") not in ("", "0")

    assert not interpreted or fields.__file__.endswith(".py")
