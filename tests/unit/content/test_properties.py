"""Basic properties: literal octets, the scan's offsets, every cut,
and fuzz in buffers that end at a guard page.
"""
import pickle
from datetime import datetime, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gomq_py.content.properties import FIELDS, Properties, PropertyScan
from gomq_py.errors import Malformed
from tests.support.guarded import GuardedBuffer

GUARDED = GuardedBuffer(1 << 18)

# Each property alone, as literal octets.
SINGLE = [
    ("content_type", "a/b", b"\x80\x00\x03a/b"), ("content_encoding", "gzip", b"\x40\x00\x04gzip"),
    ("headers", {"k": True}, b"\x20\x00\x00\x00\x00\x04\x01kt\x01"), ("delivery_mode", 2, b"\x10\x00\x02"),
    ("priority", 9, b"\x08\x00\x09"),
    ("correlation_id", "c", b"\x04\x00\x01c"),
    ("reply_to", "amq.rabbitmq.reply-to", b"\x02\x00\x15amq.rabbitmq.reply-to"),
    ("expiration", "60000", b"\x01\x00\x0560000"), ("message_id", "m", b"\x00\x80\x01m"),
    ("timestamp", 1 << 32, b"\x00\x40" + b"\x00\x00\x00\x01" + bytes(4)),
    ("type", "t", b"\x00\x20\x01t"), ("user_id", "guest", b"\x00\x10\x05guest"),
    ("app_id", "a", b"\x00\x08\x01a"), ("cluster_id", "", b"\x00\x04\x00"),
]
ALL = (
    b"\xff\xfc\x03a/b\x04gzip\x00\x00\x00\x05\x02CCt\x01\x02\x09\x01c\x01r\x0560000\x01m" + bytes(7)
    + b"\x07\x01t\x05guest\x01a\x01z"
)
ALL_VALUES = dict(
    content_type="a/b", content_encoding="gzip", headers={"CC": True}, delivery_mode=2, priority=9,
    correlation_id="c", reply_to="r", expiration="60000", message_id="m", timestamp=7, type="t",
    user_id="guest", app_id="a", cluster_id="z",
)


def scanned(octets):
    scan = PropertyScan()
    return scan if scan.scan_octets(GUARDED.place(octets)) else None


@pytest.mark.parametrize(("name", "value", "octets"), SINGLE)
def test_each_property_encodes_to_its_literal_octets(name, value, octets):
    assert Properties(**{name: value}).encode() == octets


@pytest.mark.parametrize(("name", "value", "octets"), SINGLE)
def test_each_property_decodes_from_its_literal_octets(name, value, octets):
    assert Properties.decode(octets).as_dict() == {name: value}


def test_all_properties_stand_in_the_order_of_their_flags():
    assert Properties(**ALL_VALUES).encode() == ALL
    assert Properties.decode(ALL).as_dict() == ALL_VALUES


def test_no_properties_are_a_zero_flag_word():
    assert Properties().encode() == b"\x00\x00"
    assert Properties.decode(b"\x00\x00").as_dict() == {}


def test_a_datetime_is_taken_as_a_timestamp():
    assert Properties(
        timestamp=datetime(1970, 1, 1, 0, 0, 7, tzinfo=timezone.utc)
    ).encode() == b"\x00\x40" + bytes(7) + b"\x07"


def test_a_name_that_is_no_property_is_refused():
    with pytest.raises(TypeError, match="content_typ"):
        Properties(content_typ="text/plain")


@pytest.mark.parametrize("values", [
    {"priority": 256}, {"delivery_mode": -1}, {"expiration": "9" * 256}, {"headers": {"k" * 256: 1}}
])
def test_a_value_too_large_for_its_property_is_refused_before_the_wire(values):
    with pytest.raises(ValueError):
        Properties(**values).encode()


def test_properties_are_equal_when_their_values_are():
    assert Properties(priority=1) == Properties(priority=1)
    assert Properties(priority=1) != Properties(priority=2)


def test_properties_of_a_message_can_be_handed_to_another_process():
    properties = Properties(**ALL_VALUES)

    assert pickle.loads(pickle.dumps(properties)) == properties


@pytest.mark.parametrize("length", range(len(ALL)))
def test_properties_cut_anywhere_are_refused(length):
    assert scanned(ALL[:length]) is None
    with pytest.raises(Malformed):
        Properties.decode(ALL[:length])


@pytest.mark.parametrize("octets", [ALL, b"\x00\x00"] + [octets for _, _, octets in SINGLE])
def test_properties_with_octets_behind_them_are_refused(octets):
    assert scanned(octets + b"\x00") is None


@pytest.mark.parametrize("flags", [b"\x00\x01", b"\x00\x03"])
def test_a_second_flag_word_is_refused(flags):
    assert scanned(flags) is None
    assert scanned(flags + b"\x00\x00") is None


def test_the_flag_that_names_no_property_is_ignored_as_in_rabbitmq():
    assert scanned(b"\x00\x06\x01z").flags == 6
    assert Properties.decode(b"\x00\x06\x01z").as_dict() == {"cluster_id": "z"}


def test_the_scan_tells_where_the_properties_lie_that_the_broker_acts_on():
    scan = scanned(ALL)

    assert ALL[scan.headers_at:scan.headers_at + scan.headers_length] == b"\x00\x00\x00\x05\x02CCt\x01"
    assert ALL[scan.expiration_at:scan.expiration_at + 6] == b"\x0560000"
    assert ALL[scan.reply_to_at:scan.reply_to_at + 2] == b"\x01r"
    assert ALL[scan.user_id_at:scan.user_id_at + 6] == b"\x05guest"
    assert (scan.delivery_mode, scan.priority, scan.flags, scan.special) == (2, 9, 0xFFFC, True)


def test_the_scan_forgets_the_message_before():
    scan = PropertyScan()
    scan.scan_octets(ALL)

    scan.scan_octets(b"\x00\x00")

    assert (
        scan.flags, scan.headers_at, scan.headers_length, scan.expiration_at, scan.user_id_at,
        scan.reply_to_at,
    ) == (0, -1, 0, -1, -1, -1)
    assert (scan.delivery_mode, scan.priority, scan.special) == (0, 0, False)


@pytest.mark.parametrize("headers", [
    b"\x00\x00\x00\x01", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x00\x00\x00\x03\x02aV",
    b"\x00\x00\x00\x02\x01a",
])
def test_headers_that_are_no_table_are_refused(headers):
    assert scanned(b"\x20\x00" + headers) is None


TEXT = st.text(max_size=30)
PROPERTIES = st.fixed_dictionaries({}, optional={
    name: {
        "shortstr": TEXT, "octet": st.integers(0, 255), "timestamp": st.integers(0, 2**64 - 1),
        "table": st.dictionaries(
            TEXT, st.one_of(st.integers(-2**63, 2**63 - 1), TEXT, st.none(), st.lists(TEXT, max_size=3)),
            max_size=4,
        ),
    }[kind]
    for name, _, kind in FIELDS
})


@given(PROPERTIES)
def test_any_properties_come_back_from_their_octets(values):
    octets = Properties(**values).encode()

    assert Properties.decode(GUARDED.place(octets)).as_dict() == values
    assert scanned(octets) is not None


@settings(max_examples=500)
@given(PROPERTIES, st.data())
def test_properties_with_any_octet_changed_are_scanned_to_their_end_or_refused(values, data):
    octets = bytearray(Properties(**values).encode())
    octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))

    scan = scanned(octets)

    if scan is not None:
        assert Properties.decode(octets)
        assert scan.headers_at + scan.headers_length <= len(octets)


@settings(max_examples=500)
@given(st.binary(max_size=80))
def test_any_octets_are_scanned_or_refused(octets):
    if scanned(octets) is not None:
        assert Properties.decode(octets)
