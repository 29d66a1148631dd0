"""Heads and seals: literal octets, and nothing believed that does not check."""
from crc32c import crc32c
from hypothesis import given, strategies as st

from gomq_py.storage.format import head as head_format
from gomq_py.storage.format.head import AcksSeal, Head, Seal

INCARNATION = bytes(range(16))
HEAD = Head(head_format.MSGS_MAGIC, 7, INCARNATION, 0x0102030405060708, 0, 65536, 1700000000000)

LITERAL = bytes.fromhex(
    "474f4d514d534753" "02000000" "07000000" "000102030405060708090a0b0c0d0e0f" "0807060504030201" "0000000000000000" "00000100" "0068e5cf8b010000")
FIRST_VERSION = bytes.fromhex("474f4d514d53475301") + LITERAL[9:52] + bytes(8)


def test_a_head_is_these_octets():
    assert HEAD.encode() == LITERAL + crc32c(LITERAL).to_bytes(4, "little")


def test_a_head_comes_back_with_its_checksum_as_seed():
    decoded = head_format.decode(HEAD.encode() + bytes(64))

    assert decoded == HEAD._replace(seed=crc32c(LITERAL))


def test_head_of_the_first_version_comes_back_as_it_was():
    octets = FIRST_VERSION + crc32c(FIRST_VERSION).to_bytes(4, "little")

    decoded = head_format.decode(octets)

    assert decoded == HEAD._replace(begun_ms=0, version=1, seed=crc32c(FIRST_VERSION))
    assert decoded.encode() == octets and decoded.twin(head_format.ACKS_MAGIC).version == 1


def test_head_of_a_later_version_is_none():
    octets = LITERAL.replace(b"\2", b"\3", 1)

    assert head_format.decode(octets + crc32c(octets).to_bytes(4, "little")) is None


def test_twins_differ_in_their_magic_only():
    twin = head_format.decode(HEAD.encode()).twin(head_format.ACKS_MAGIC)

    assert twin.encode()[8:60] == HEAD.encode()[8:60]
    assert twin.magic == head_format.ACKS_MAGIC
    assert twin.seed != head_format.decode(HEAD.encode()).seed
    assert twin.twin(head_format.MSGS_MAGIC) == head_format.decode(HEAD.encode())


@given(st.integers(0, 64 * 8 - 1))
def test_a_head_with_a_flipped_bit_is_none(bit):
    octets = bytearray(HEAD.encode())
    octets[bit // 8] ^= 1 << bit % 8

    assert head_format.decode(octets) is None


def test_neither_zeros_nor_too_few_octets_are_a_head():
    assert head_format.decode(bytes(128)) is None
    assert head_format.decode(HEAD.encode()[:63]) is None
    assert head_format.decode(b"") is None


def test_a_head_of_the_other_kind_is_refused_when_one_is_asked_for():
    assert head_format.decode(HEAD.encode(), head_format.ACKS_MAGIC) is None


@given(st.integers(0, 48 * 8 - 1))
def test_a_seal_comes_back_and_a_flipped_one_does_not(bit):
    seal = Seal(3, 4, 500, 808, 1700000000000, 1700000000009)
    octets = bytearray(128)
    octets[64:112] = head_format.encode_seal(99, seal)
    assert head_format.decode_seal(99, bytes(octets)) == seal
    assert head_format.decode_seal(98, bytes(octets)) is None

    octets[64 + bit // 8] ^= 1 << bit % 8

    assert head_format.decode_seal(99, bytes(octets)) is None


def test_a_seal_is_these_octets():
    literal = bytes.fromhex(
        "0300000004000000f4010000000000002803000000682fd28b01000009682fd28b0100000000000000000000"
    )

    assert head_format.encode_seal(
        99, Seal(3, 4, 500, 808, 0x18BD22F6800, 0x18BD22F6809)
    ) == literal + crc32c(literal, 100).to_bytes(4, "little")


def test_the_seal_of_acks_comes_back_and_zeros_are_none():
    octets = bytearray(128)
    assert head_format.decode_acks_seal(5, bytes(octets)) is None

    octets[72:96] = head_format.encode_acks_seal(5, AcksSeal(10, 8, 80))

    assert head_format.decode_acks_seal(5, bytes(octets)) == AcksSeal(10, 8, 80)
    assert head_format.decode_acks_seal(6, bytes(octets)) is None


def test_a_mark_that_does_not_check_is_0():
    octets = bytearray(128)
    octets[64:68] = (4096).to_bytes(4, "little")
    octets[68:72] = crc32c(octets[64:68], 12).to_bytes(4, "little")

    assert head_format.decode_mark(9, head_format.DELIVERED_SALT, bytes(octets), 64) == 4096
    assert head_format.decode_mark(8, head_format.DELIVERED_SALT, bytes(octets), 64) == 0
    assert head_format.decode_mark(9, head_format.DELIVERED_SALT, bytes(128), 64) == 0
