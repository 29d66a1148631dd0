"""Message: properties of its own kind, and what becomes of the kind when the core edits a message."""
from types import SimpleNamespace

import pytest

from gomq_py.content.gathered import Gathered
from gomq_py.content.properties import Properties
from gomq_py.errors import Malformed
from gomq_py.storage.message import Message
from gomq_py.storage.stores.browser import Browser
from tests.support.stores import StoreBench

BASIC = Properties(content_type="t").encode()
RAW = b"\x01\x01"
# A kind that no door of ours has.
UNKNOWN = 250


def message(properties=BASIC, kind=1, flags=0):
    made = Message()
    made.assign(b"x", b"key", properties, b"body", 5)
    made.set_kind(kind, flags)
    return made


def kind_and_flags(of):
    described = of.describe()
    return described["kind"], described["flags"]


def test_properties_of_an_unknown_kind_are_malformed_and_its_octets_can_be_had():
    made = message(RAW, UNKNOWN)

    with pytest.raises(Malformed, match="content of kind 250"):
        made.get_properties()
    assert made.get_raw() == RAW


def test_basic_properties_are_what_is_stored():
    made = message()

    assert made.get_properties() == made.get_raw() == BASIC


def test_copy_that_it_owns_keeps_its_kind_and_octets():
    made = message(RAW, UNKNOWN, 6)

    made.own()

    assert (made.get_raw(), made.get_body(), made.get_routing_key()) == (RAW, b"body", b"key")
    assert kind_and_flags(made) == (UNKNOWN, 6)


def test_edited_properties_are_basic_whatever_they_were():
    made = message(RAW, UNKNOWN, 6)

    made.own(BASIC)

    assert made.get_properties() == BASIC
    assert made.describe()["kind"] == 1


def test_readdressed_copy_is_basic():
    copy = message(RAW, UNKNOWN, 6)

    copy.readdress(message(), b"y", b"k", BASIC, 7)

    assert kind_and_flags(copy) == (1, 0) and copy.get_properties() == BASIC


def test_publisher_is_kept_by_a_copy_and_forgotten_with_the_next_message():
    made, publisher = message(), object()
    made.publisher = publisher

    made.own()
    kept = made.publisher
    made.assign(b"x", b"key", BASIC, b"body", 5)

    assert kept is publisher and made.publisher is None


def test_store_shows_kind_flags_octets_and_number_of_each_record(tmp_path):
    bench, shown = StoreBench(tmp_path), Message()
    for number in range(3):
        bench.store.append(message(RAW, UNKNOWN, 2 * number))

    found = []
    while bench.store.peek(shown):
        found.append((*kind_and_flags(shown), shown.get_raw(), shown.ordinal))
        bench.store.shift()

    assert found == [(UNKNOWN, 2 * number, RAW, number) for number in range(3)]


def test_browser_shows_the_number_of_each_record(tmp_path):
    bench, shown = StoreBench(tmp_path), Message()
    for _ in range(3):
        bench.store.append(message())
    browser = Browser(bench.store)

    found = []
    while browser.next(shown):
        found.append(shown.ordinal)

    assert found == [0, 1, 2]
    browser.close()


@pytest.mark.parametrize("room", [200, 3], ids=["room before it", "no room"])
def test_a_gathered_body_makes_the_same_message(room):
    body = bytes(range(256)) * 10
    gathered = Gathered(SimpleNamespace(octets=memoryview(bytearray(room + len(body)))), room, len(body))
    gathered.add(body)
    made, plain = Message(), Message()

    made.assign(b"x", b"key", BASIC, gathered, 5)
    plain.assign(b"x", b"key", BASIC, body, 5)

    assert made.get_routing() == plain.get_routing() and made.get_exchange() == b"x"
    assert made.get_properties() == BASIC and made.get_body() == body
    assert made.get_body_length() == len(body)


def test_only_a_body_that_lies_in_a_buffer_of_its_own_can_be_seen_there():
    body = Gathered(SimpleNamespace(octets=memoryview(bytearray(100))), 90, 4)
    body.add(b"body")
    made = Message()
    made.assign(b"x", b"key", BASIC, body, 5)
    assert bytes(made.body_view()) == b"body"

    made.own()

    assert made.body_view() is None and message().body_view() is None
    assert made.get_body() == b"body"
