"""Fields of methods: each kind alone, cut short and with octets behind it; methods are in test_methods."""
from types import SimpleNamespace

import pytest

from gomq_py.amqp.wire.method_fields import (
    BIT, LONG, LONGLONG, LONGSTR, OCTET, SHORT, SHORTSTR, TABLE, read_fields,
)
from gomq_py.errors import Malformed

EACH = [
    (OCTET, b"\xfe", 254), (SHORT, b"\xfe\x01", 0xFE01), (LONG, b"\xfe\0\0\1", 0xFE000001),
    (LONGLONG, b"\xfe\0\0\0\0\0\0\1", 0xFE00000000000001), (BIT, b"\x01", True), (BIT, b"\xfe", False),
    (SHORTSTR, b"\x03a\xc3\xb6", "a\u00f6"), (SHORTSTR, b"\0", ""), (LONGSTR, b"\0\0\0\2\xff\0", b"\xff\0"),
    (TABLE, b"\0\0\0\4\1at\1", {"a": True}),
]


def read(kinds, data, any_octets=False):
    """(whether they fill the octets, what was read)."""
    method = SimpleNamespace()
    return read_fields(method, kinds, data, 4, any_octets), vars(method)


@pytest.mark.parametrize(("kind", "octets", "value"), EACH)
def test_each_kind_is_read(kind, octets, value):
    assert read((("x", kind),), b"head" + octets) == (True, {"x": value})
    is_whole, given = read((("x", kind), ("y", SHORT)), b"head" + octets + b"\1\2")
    assert is_whole and given == {"x": value, "y": 0x0102}
    assert type(given["x"]) is type(value)


@pytest.mark.parametrize(("kind", "octets", "value"), EACH)
def test_what_is_cut_short_or_has_octets_behind_it_does_not_fill(kind, octets, value):
    for length in range(len(octets)):
        try:
            assert not read((("x", kind),), b"head" + octets[:length])[0]
        except Malformed:
            assert kind is TABLE
    assert not read((("x", kind),), b"head" + octets + b"\0")[0]


def test_bits_share_octets_until_another_kind_comes():
    kinds = tuple((f"b{number}", BIT) for number in range(9)) + (("n", OCTET), ("last", BIT))

    is_whole, given = read(kinds, b"head\x81\x01\x07\x01")

    assert is_whole
    assert [given[f"b{number}"] for number in range(9)] == [True, *[False] * 6, True, True]
    assert given["n"] == 7 and given["last"] is True


def test_short_strings_may_be_any_octets_where_that_is_said():
    with pytest.raises(UnicodeDecodeError):
        read((("x", SHORTSTR),), b"head\x01\xff")

    assert read((("x", SHORTSTR),), b"head\x01\xff", True) == (True, {"x": "\udcff"})
