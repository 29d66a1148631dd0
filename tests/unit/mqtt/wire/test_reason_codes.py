"""Reason codes: the table against the specification's (MQTT 5 §3.2.2.2, §3.4.2.1, §3.9.3, §3.14.2.1), and
MQTT 3.1.1's codes.
"""
import pytest

from gomq_py.mqtt.wire.constants import (
    AUTH, CONNACK, DISCONNECT, MQTT_3_1_1, PUBACK, PUBCOMP, PUBREC, PUBREL, SUBACK, UNSUBACK,
)
from gomq_py.mqtt.wire.reason_codes import (
    CONNACK_RETURN_CODES, REASON_CODES, connack_return_code, may_carry, name_of,
)

# The tables of each packet's own section, written down by hand.
OF_PACKETS = {
    CONNACK: "00 80 81 82 83 84 85 86 87 88 89 8A 8C 90 95 97 99 9A 9B 9C 9D 9F",
    PUBACK: "00 10 80 83 87 90 91 97 99",
    PUBREC: "00 10 80 83 87 90 91 97 99",
    PUBREL: "00 92",
    PUBCOMP: "00 92",
    SUBACK: "00 01 02 80 83 87 8F 91 97 9E A1 A2",
    UNSUBACK: "00 11 80 83 87 8F 91",
    DISCONNECT: "00 04 80 81 82 83 87 89 8B 8C 8D 8E 8F 90 93 94 95 96 97 98 99 9A 9B 9C 9D 9E 9F A0 A1 A2",
    AUTH: "00 18 19",
}


@pytest.mark.parametrize("packet", OF_PACKETS)
def test_codes_of_a_packet_are_those_of_its_table(packet):
    expected = {int(code, 16) for code in OF_PACKETS[packet].split()}

    assert {code for code in range(256) if may_carry(packet, code)} == expected


def test_every_code_and_packet_has_one_name():
    pairs = [(packet, code) for code, _, *packets in REASON_CODES for packet in packets]

    assert len(pairs) == len(set(pairs))
    assert name_of(DISCONNECT, 0) == "Normal disconnection"
    assert name_of(SUBACK, 0) == "Granted QoS 0"
    assert name_of(PUBACK, 0) == "Success"
    assert name_of(PUBACK, 0x92) == "reason code 0x92"


def test_codes_of_mqtt_3_1_1_are_its_own():
    assert [code for code in range(256) if may_carry(CONNACK, code, MQTT_3_1_1)] == [0, 1, 2, 3, 4, 5]
    assert [code for code in range(256) if may_carry(SUBACK, code, MQTT_3_1_1)] == [0, 1, 2, 0x80]
    assert not any(may_carry(PUBACK, code, MQTT_3_1_1) for code in range(256))
    assert name_of(CONNACK, 5, MQTT_3_1_1) == CONNACK_RETURN_CODES[5] == "Connection Refused, not authorized"


@pytest.mark.parametrize(("code", "return_code"), [
    (0x00, 0), (0x84, 1), (0x85, 2), (0x88, 3), (0x86, 4), (0x87, 5), (0x81, None), (0x95, None)])
def test_reasons_that_mqtt_3_1_1_knows_have_a_return_code(code, return_code):
    assert connack_return_code(code) == return_code
