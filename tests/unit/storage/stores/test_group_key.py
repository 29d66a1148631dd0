"""The key of a message's group is read in place, as decoding all properties shows it."""
import pytest

from gomq_py.content.fields import Int64, UInt8
from gomq_py.content.properties import Properties
from gomq_py.storage.stores.group_key import GroupKey


@pytest.mark.parametrize("value, key", [
    ("acme", b"acme"), (b"\xff\x00", b"\xff\x00"), ("é", "é".encode()),
    (7, b"7"), (-7, b"-7"), (Int64(1 << 40), b"1099511627776"), (UInt8(255), b"255"),
    ("", None), (None, None), (True, None), (1.5, None), ({"a": 1}, None), ([1], None),
])
def test_a_header_of_text_octets_or_an_integer_is_a_key(value, key):
    properties = Properties(
        content_type="text/plain", headers={"other": 1, "customer": value, "customers": 2}, priority=3)

    assert GroupKey("header", b"customer").of_octets(properties.encode()) == key


@pytest.mark.parametrize("properties", [
    Properties(), Properties(headers={}), Properties(headers={"customers": 1}), Properties(message_id="m"),
])
def test_a_message_without_the_header_has_no_key(properties):
    assert GroupKey("header", b"customer").of_octets(properties.encode()) is None


@pytest.mark.parametrize("properties, key", [
    (Properties(correlation_id="c1"), b"c1"),
    (Properties(content_type="t", content_encoding="e", headers={"a": 1}, delivery_mode=2, priority=9,
                correlation_id="c2", reply_to="r"), b"c2"),
    (Properties(reply_to="r"), None), (Properties(correlation_id=""), None),
])
def test_the_correlation_id_is_found_behind_the_other_properties(properties, key):
    assert GroupKey("correlation-id").of_octets(properties.encode()) == key


def test_long_keys_take_little_memory_and_stay_different():
    reader = GroupKey("header", b"k")
    texts = ["k" * 32, "k" * (33), "k" * 60_000, "k" * 59_999 + "l"]

    keys = [reader.of_octets(Properties(headers={"k": text}).encode()) for text in texts]

    assert len(set(keys)) == 4
    assert keys[0] == texts[0].encode()
    assert max(map(len, keys)) == 33
