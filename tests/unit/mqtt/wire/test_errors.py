"""Errors: each has a reason code that CONNACK or DISCONNECT may carry, and says it."""
from gomq_py.mqtt.wire import errors
from gomq_py.mqtt.wire.constants import CONNACK, DISCONNECT
from gomq_py.mqtt.wire.reason_codes import may_carry


def every_error():
    return [
        each
        for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.MQTTError)
    ]


def test_every_error_can_be_told_to_the_client():
    assert [each for each in every_error() if not may_carry(CONNACK, each.reason_code)
            and not may_carry(DISCONNECT, each.reason_code)] == []


def test_what_a_peer_sent_is_shown_short_and_quoted():
    assert errors.shown("a\n") == r"'a\n'"
    assert errors.shown("a" * 65000) == repr("a" * 64 + "...")


def test_an_error_says_its_reason_and_what_was_wrong():
    assert str(errors.PacketTooLarge("PUBLISH of 9 bytes")) == "Packet too large: PUBLISH of 9 bytes"
    assert str(errors.ClientIdentifierNotValid("none")) == "Client Identifier not valid: none"
