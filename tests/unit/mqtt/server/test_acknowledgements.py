"""Acknowledgements: octets of many that leave together."""
from gomq_py.mqtt.server.acknowledgements import Acknowledgements

PUBACK, PUBREL = 4, 6


def test_they_are_taken_in_their_order_and_once():
    answers = Acknowledgements(5)

    answers.add(PUBREL, 0x0102, 0)
    answers.add(PUBACK, 0x0304, 0x97)

    assert answers.used == 9
    assert answers.take() == bytes.fromhex("62 02 01 02  40 03 03 04 97")
    assert answers.used == 0 and answers.take() == b""


def test_before_mqtt_5_there_are_no_reason_codes():
    answers = Acknowledgements(4)

    answers.add(PUBACK, 7, 0x97)

    assert answers.take() == bytes.fromhex("40 02 00 07")


def test_any_number_of_them_fits():
    answers = Acknowledgements(4)

    for _ in range(2):  # what is kept for the next read is not in its way
        for identifier in range(1, 65536):
            answers.add(PUBREL, identifier, 0)
        expected = b"".join(b"\x62\x02" + identifier.to_bytes(2, "big") for identifier in range(1, 65536))
        assert answers.take() == expected
