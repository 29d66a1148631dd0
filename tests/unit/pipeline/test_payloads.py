"""Payloads: the octets of the formats' own documents, and whatever else somebody may send."""
import math

import pytest
from hypothesis import given, strategies as st

from gomq_py.pipeline.payloads import DECODERS, Undecodable, decode

# RFC 8949, appendix A.
CBOR = [
    ("00", 0), ("17", 23), ("1818", 24), ("1903e8", 1000), ("1bffffffffffffffff", 18446744073709551615),
    ("20", -1), ("3903e7", -1000),
    ("f93c00", 1.0), ("f97bff", 65504.0), ("fa47c35000", 100000.0), ("fb3ff199999999999a", 1.1),
    ("f4", False), ("f5", True), ("f6", None),
    ("c11a514b67b0", 1363896240), ("4401020304", b"\1\2\3\4"), ("6449455446", "IETF"), ("62c3bc", "\u00fc"),
    ("80", []),
    ("83010203", [1, 2, 3]), ("8301820203820405", [1, [2, 3], [4, 5]]), ("a0", {}),
    ("a201020304", {"1": 2, "3": 4}),
    ("a26161016162820203", {"a": 1, "b": [2, 3]}), ("5f42010243030405ff", b"\1\2\3\4\5"),
    ("7f657374726561646d696e67ff", "streaming"),
    ("9fff", []), ("9f018202039f0405ffff", [1, [2, 3], [4, 5]]),
    ("bf61610161629f0203ffff", {"a": 1, "b": [2, 3]}),
    ("bf6346756ef563416d7421ff", {"Fun": True, "Amt": -2}),
]
# https://msgpack.org, the specification.
MSGPACK = [
    ("82a7636f6d70616374c3a6736368656d6100", {"compact": True, "schema": 0}), ("7f", 127), ("ff", -1),
    ("ccff", 255), ("d1ff00", -256),
    ("cf7fffffffffffffff", (1 << 63) - 1), ("ca3fc00000", 1.5), ("cb3ff8000000000000", 1.5), ("c0", None),
    ("c2", False), ("a3616263", "abc"),
    ("d903616263", "abc"), ("c40201ff", b"\1\xff"), ("93010203", [1, 2, 3]), ("dc00020102", [1, 2]),
    ("de0001a16101", {"a": 1}), ("80", {}),
]


@pytest.mark.parametrize("octets, value", CBOR)
def test_cbor_is_read_as_its_rfc_says(octets, value):
    assert DECODERS["cbor"](bytes.fromhex(octets)) == value


@pytest.mark.parametrize("octets, value", MSGPACK)
def test_messagepack_is_read_as_its_specification_says(octets, value):
    assert DECODERS["msgpack"](bytes.fromhex(octets)) == value


def test_not_a_number_is_a_number_of_cbor():
    assert math.isnan(DECODERS["cbor"](bytes.fromhex("f97e00")))


@pytest.mark.parametrize("kind, octets, readings", [
    ("json", b'{"a": 1}', [{"a": 1}]), ("json", b'[{"a": 1}, {"a": 2}]', [{"a": 1}, {"a": 2}]),
    ("ndjson", b'{"a": 1}\n\n{"a": 2}\n', [{"a": 1}, {"a": 2}]),
    ("ndjson", b"", []), ("cbor", bytes.fromhex("a1616101"), [{"a": 1}]),
    ("msgpack", bytes.fromhex("81a16101"), [{"a": 1}])])
def test_a_payload_holds_readings(kind, octets, readings):
    assert decode(kind, octets) == readings


@pytest.mark.parametrize("kind, octets", [
    ("json", b""), ("json", b"\xff"), ("json", b"3"), ("json", b"[[1]]"), ("json", b"[" * 100000),
    ("ndjson", b'{"a": 1}\n{"a": '),
    ("cbor", b""), ("cbor", b"\xa1"), ("cbor", b"\x9b\xff\xff\xff\xff\xff\xff\xff\xff"),
    ("cbor", b"\x81" * 100000), ("cbor", b"\xa0\x00"),
    ("cbor", b"\x1f"), ("cbor", b"\xbf\x01\xff"), ("cbor", b"\xd8"), ("cbor", b"\x62\xff\xff"),
    ("cbor", b"\xc1" * 5000 + b"\xa0"),
    ("msgpack", b""), ("msgpack", b"\xdf\xff\xff\xff\xff"), ("msgpack", b"\x91" * 100000),
    ("msgpack", b"\xc1"), ("msgpack", b"\xc7\x00\x01"),
    ("msgpack", b"\xa5abc")])
def test_what_is_none_of_it_is_undecodable(kind, octets):
    with pytest.raises(Undecodable):
        decode(kind, octets)


@given(st.sampled_from(sorted(DECODERS)), st.binary(max_size=60))
def test_any_octets_are_readings_or_undecodable(kind, octets):
    try:
        found = decode(kind, octets)
    except Undecodable:
        return
    assert all(isinstance(one, dict) for one in found)
